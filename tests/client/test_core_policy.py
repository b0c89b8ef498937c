"""The publishing link's core: what the user decides, and a store that outlived its process."""

from __future__ import annotations

import pytest

from tests.client import test_core
from tests.client.test_core import START, accept, batch, live, logon_of, persisted, relogged
from tests.client.times import at
from zbroker.client.connection import Phase
from zbroker.client.effects import (
    Behind,
    Connect,
    Connected,
    ConnectionLost,
    Ended,
    LogonAccepted,
    Lost,
    Republished,
    Unreached,
)
from zbroker.client.publisher.core import BEHIND_MAX_MS, GO_ON_MAX_MS, Policy, PublisherCore
from zbroker.client.publisher.store import MemoryStore
from zbroker.wire.messages import Ack, Error, Logon


def make(store=None, **policy):
    return PublisherCore(Logon("me", "i"), START, lambda: 1.0, store, Policy(**policy))


def sent(effects):
    """(first sequence, prev) of each batch."""
    return [pair[:2] for pair in test_core.sent(effects)]


def log_on(core, now=0, seq=0, acked=0, missing=None):
    effects = core.tick(at(now), drained=True)
    assert effects[-1] == Connect()
    cid = logon_of(core.handle(Connected(), at(now)))
    if missing is None:
        return accept(core, cid, now, seq, acked)
    answer = Ack("processed", cid, seq=seq, acked=acked, origin=(1, 1), missing=missing)
    return core.handle(answer, at(now))


def kept(*counts, first=100, recorded=99):
    """A store with batches of so many messages, as an earlier life left it."""
    store = MemoryStore()
    store.recorded, store.next_sequence = recorded, first
    for count in counts:
        one = batch(count)
        one.first, one.prev = store.next_sequence, store.next_sequence - 1
        one.last = one.first + count - 1
        store.append(one)
    return store


@pytest.mark.seed("002-33")
def test_a_kept_store_is_sent_before_anything_new_with_its_numbers():
    core = make(kept(2, 3))
    effects = log_on(core, seq=99)
    assert isinstance(effects[0], LogonAccepted)
    assert sent(effects) == [(100, 99), (102, 101)]
    assert sent(core.add(batch(), 0)) == [(105, 104)]


@pytest.mark.seed("002-15")
def test_a_kept_store_gives_up_what_the_journal_has():
    core = make(kept(2, 3))
    assert sent(log_on(core, seq=101, acked=101)) == [(102, 101)]
    assert core.settled == 101


@pytest.mark.seed("002-16")
def test_an_empty_kept_store_goes_on_with_its_numbers():
    core = make(kept(first=100))
    log_on(core, seq=99, acked=99)
    assert sent(core.add(batch(), 0)) == [(100, 99)]


@pytest.mark.seed("002-08")
def test_numbers_go_on_above_what_the_journal_has():
    core = make(kept(first=100))
    log_on(core, seq=500, acked=500)
    assert sent(core.add(batch(), 0)) == [(501, 99)]


def test_after_a_reboot_the_journal_may_have_more_than_the_store():
    core = make(kept(2, 3))
    core.store.may_lag = True
    assert sent(log_on(core, seq=500, acked=102)) == [(102, 101)]
    assert sent(core.add(batch(), 0)) == [(501, 104)]


def test_otherwise_somebody_else_published_under_the_name():
    (effect,) = log_on(make(kept(2, 3)), seq=500)
    assert effect.error.code == "session_ended"


def test_a_kept_store_at_a_broker_that_lacks_what_it_gave_up_is_an_error():
    core = make(kept(2))
    (effect,) = log_on(core, seq=50)
    assert effect.error.code == "broker_behind"


@pytest.mark.parametrize("missing", [0, 3])
def test_a_broker_that_is_behind_says_how_many_ranges_its_log_lacks(missing):
    core = make(kept(2))
    (effect,) = log_on(core, seq=50, missing=missing)
    assert ("3 range(s)" in effect.error.reason) is bool(missing)
    assert ("replication missing" in effect.error.reason) is bool(missing)


def test_the_user_may_accept_a_broker_that_is_behind():
    core = make(kept(2), accept_behind=True)
    effects = log_on(core, seq=50)
    assert [effect for effect in effects if isinstance(effect, Behind)] == [Behind(51, 99)]
    assert sent(effects) == [(100, 50)]
    assert core.store.recorded == 50


def again(core, now, seq):
    """The next attempt, at another broker: its logon's answer."""
    assert Connect() in core.tick(at(now), drained=True)
    return accept(core, logon_of(core.handle(Connected(), at(now))), now, seq, seq)


@pytest.mark.seed("002-33")
@pytest.mark.parametrize("accept_behind", [False, True])
def test_of_several_brokers_one_that_has_all_is_sought(accept_behind):
    core = make(kept(2), brokers=2, accept_behind=accept_behind)
    effects = log_on(core, seq=50)
    assert not any(isinstance(effect, Ended | Behind | LogonAccepted) for effect in effects)
    assert core.state is Phase.DOWN
    assert core.refusal.code == "broker_behind"
    effects = again(core, core.next_wake_ms(), 99)
    assert isinstance(effects[0], LogonAccepted)
    assert sent(effects) == [(100, 99)]


@pytest.mark.parametrize(
    ("accept_behind", "patience_ms"), [(False, BEHIND_MAX_MS), (True, GO_ON_MAX_MS)]
)
def test_it_is_sought_for_a_while(accept_behind, patience_ms):
    """The broker that answers then counts, until one that has all was found in between."""
    core = make(kept(2), brokers=2, accept_behind=accept_behind)
    log_on(core, seq=50)
    again(core, patience_ms - 1, 60)
    assert core.state is Phase.DOWN
    effects = again(core, 2 * patience_ms, 55)
    if accept_behind:
        assert [effect for effect in effects if isinstance(effect, Behind)] == [Behind(56, 99)]
    else:
        (end,) = effects
        assert (end.error.code, core.state) == ("broker_behind", Phase.ENDED)


def test_a_gap_below_what_was_acknowledged_is_accepted_too():
    core = make(accept_behind=True)
    log_on(core)
    core.add(batch(), 0)
    core.handle(persisted(START), at(0))
    core.add(batch(), 0)
    error = Error("sequence_gap", "gap", cid="1", seq=START + 1, high=START - 10)
    effects = core.handle(error, at(0))
    assert effects[0] == Behind(START - 9, START)
    assert sent(effects) == [(START + 1, START - 10)]


def test_what_was_stored_at_the_logon_is_settled_once():
    core = make(kept(2, 3))
    log_on(core, seq=99)
    assert core.handle(persisted(101), at(0)) == []
    assert core.handle(persisted(104), at(0)) == [Republished()]
    core.add(batch(), 0)
    assert core.handle(persisted(105), at(0)) == []


def test_what_has_no_number_yet_at_the_logon_has_to_be_settled_too():
    core = make(kept(first=100))
    core.queued = 5
    log_on(core, seq=99)
    core.add(batch(3), 0)
    core.queued = 2
    assert core.handle(persisted(102), at(0)) == []
    core.add(batch(2), 0)
    assert core.handle(persisted(104), at(0)) == [Republished()]


def test_what_the_answer_to_the_logon_settles_is_reported_at_once():
    core = make(kept(2))
    assert log_on(core, seq=101, acked=101)[-1] == Republished()


def test_with_nothing_owed_there_is_nothing_to_tell():
    core = make(kept(first=100))
    effects = log_on(core, seq=99, acked=99)
    assert not any(isinstance(effect, Republished) for effect in effects)


def test_a_refusal_can_be_what_settles_the_last_of_it():
    core = make(kept(1))
    log_on(core, seq=99)
    effects = core.handle(Error("bad_topic", "no", cid="1", seq=100, high=99), at(0))
    assert effects[-1] == Republished()


def test_a_session_that_is_lost_is_reported_once():
    core = live()
    assert core.handle(Lost(), at(5_000)) == [ConnectionLost(), Connect()]
    core.handle(Connected(), at(5_000))
    assert core.handle(Lost(), at(5_000)) == []
    assert core.tick(at(5_200), drained=True) == [Connect()]


def test_it_gives_up_when_no_one_is_reached_in_time():
    core = make(give_up_ms=1_000)
    assert core.tick(at(0), drained=True) == [Connect()]
    assert core.tick(at(999), drained=True) == []
    (effect,) = core.tick(at(1_000), drained=True)
    assert isinstance(effect, Ended)
    assert effect.error.code == "gave_up"
    assert core.state is Phase.ENDED
    assert (core.tick(at(9_999), drained=True), core.next_wake_ms()) == ([], None)


def test_a_session_ends_the_watch_and_its_loss_begins_it_again():
    core = make(give_up_ms=1_000)
    log_on(core, now=900)
    assert core.tick(at(5_000), drained=True) == []
    assert core.handle(Lost(), at(5_000)) == [ConnectionLost(), Connect()]
    assert core.tick(at(5_999), drained=True) == []
    assert core.next_wake_ms() == 6_000
    (effect,) = core.tick(at(6_000), drained=True)
    assert effect.error.code == "gave_up"


def test_the_reason_of_giving_up_is_what_the_broker_said():
    core = make(give_up_ms=1_000)
    core.tick(at(0), drained=True)
    cid = logon_of(core.handle(Connected(), at(0)))
    core.handle(Error("too_many", "all seats taken", cid=cid), at(0))
    (effect,) = core.tick(at(1_000), drained=True)
    assert "too_many: all seats taken" in effect.error.reason


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_store_that_lost_its_session_again_and_again_sends_the_same(rounds):
    core = make(kept(2, 3))
    log_on(core, seq=99)
    for number in range(rounds):
        effects = relogged(core, 5_000 * (number + 1), seq=99)
        assert sent(effects) == [(100, 99), (102, 101)]


def test_where_no_one_listens_the_next_one_is_tried_soon():
    core = make(brokers=2)
    core.tick(at(0), drained=True)
    assert core.handle(Unreached(), at(10)) == []
    assert core.next_wake_ms() == 210
    assert core.handle(Unreached(), at(60)) == []
    assert core.tick(at(210), drained=True) == [Connect()]
    assert core.next_wake_ms() == 5_210
    core.handle(Unreached(), at(220))
    assert core.tick(at(420), drained=True) == [Connect()]


def test_all_brokers_are_tried_once_before_any_is_waited_for_longer():
    core, now, waited = make(brokers=3), 0, []
    core.tick(at(0), drained=True)
    for _ in range(7):  # each accepts the connection, and is not ready
        logon = logon_of(core.handle(Connected(), at(now)))
        core.handle(Error("not_ready", "it starts", cid=logon), at(now))
        waited.append(core.next_wake_ms() - now)
        now = core.next_wake_ms()
        assert core.tick(at(now), drained=True) == [Connect()]
    assert waited == [200, 200, 200, 400, 400, 400, 800]


def test_when_all_are_away_no_one_is_waited_for_longer_than_a_silent_one():
    core, now = make(brokers=2), 0
    for _ in range(20):
        assert core.tick(at(now), drained=True) == [Connect()]
        core.handle(Unreached(), at(now))
        assert core.next_wake_ms() - now <= 5_000
        now = core.next_wake_ms()


def test_a_single_broker_is_left_to_the_socket_which_tries_again():
    core = make()
    core.tick(at(0), drained=True)
    assert core.handle(Unreached(), at(10)) == []
    assert core.next_wake_ms() == 5_000


def test_a_try_that_failed_is_not_the_end_of_a_session():
    core = live()
    assert core.handle(Unreached(), at(10)) == []
    assert core.state is Phase.LIVE
