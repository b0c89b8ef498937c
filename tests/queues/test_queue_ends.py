"""zbroker/queues/queue_ends.py: queues that end because they are unused, or were left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import ANN, BOB, Bench, bench, work
from tests.queues.test_session_timeouts import MINE, join, kept
from zbroker.engine.contract import Now
from zbroker.log.format import KIND_WIRING
from zbroker.log.records import WIRING
from zbroker.queues.queue_ends import AGAIN_MS
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s


def with_queue(**settings: Any) -> Bench:
    """One that has `new`, by ann, and `q` of the config."""
    at = bench()
    assert declare(at, **settings).created
    return at


def declare(at: Bench, rid: bytes = ANN, **settings: Any) -> Any:
    return at.say(q.DeclareQueue("new", "d", {"topic": "t", **settings}), rid)


def there(at: Bench) -> bool:
    return "new" in at.manager.running


def ends_after(at: Bench, ms: int) -> None:
    """Not before."""
    at.pass_ms(ms - 1)
    assert there(at)
    at.pass_ms(1)
    assert not there(at)


# -- expires ----------------------------------------------------------------------------------


def test_an_unused_queue_is_deleted_by_a_record() -> None:
    at = with_queue(expires="10s")
    at.many(2)
    ends_after(at, 10_000)
    records = [WIRING.decode(one.body) for one in at.log if one.kind == KIND_WIRING]
    assert (records[-1].name, records[-1].definition) == ("new", None)
    assert records[-1].source == "client:ann"
    [note] = [note for note in at.notes if note.name == "queues.queue_ended"]
    assert note.values == {"queue": "new", "messages": 2}


def test_messages_that_come_are_no_use() -> None:
    at = with_queue(expires="10s")
    for _ in range(10):
        at.pass_ms(1_000)
        at.many(1)
    assert not there(at)


@pytest.mark.parametrize("passive", [False, True])
def test_declared_again_its_time_begins_again(passive: bool) -> None:
    at = with_queue(expires="10s")
    at.pass_ms(9_000)
    settings: dict[str, Any] = {} if passive else {"topic": "t", "expires": "10s"}
    at.say(q.DeclareQueue("new", "d", settings, passive=passive))
    ends_after(at, 10_000)


def test_with_a_consumer_it_is_in_use() -> None:
    at = with_queue(expires="10s")
    at.consume("new")
    at.pass_ms(60_000)
    assert there(at)
    at.send(q.Cancel("s"))
    ends_after(at, 10_000)


def test_a_consumer_of_a_moment_counts() -> None:
    at = with_queue(expires="10s")
    at.pass_ms(9_000)
    at.send(q.Consume("s", "new", "c"), q.Cancel("s"))
    at.pass_ms(9_999)
    assert there(at)


def test_a_lost_consumer_is_waited_for_as_long_as_its_leases() -> None:
    at = with_queue(expires="1s", lease="20s")
    at.many(1)
    at.consume("new")
    at.lose()
    at.pass_ms(19_000)
    assert there(at)
    at.pass_ms(3_000)
    at.pass_ms(1_000)
    assert not there(at)


def test_a_start_gives_it_its_whole_time() -> None:
    at = with_queue(expires="10s")
    at.pass_ms(9_000)
    at.restart()
    ends_after(at, 10_000)


def test_a_queue_that_is_made_again_is_another_one() -> None:
    at = with_queue(expires="10s")
    at.pass_ms(9_000)
    at.say(q.DeleteQueue("new", "d"))
    assert declare(at, expires="10s").declaration == 2
    at.pass_ms(9_000)
    assert there(at)


def test_one_that_is_made_again_when_the_old_one_was_due_has_its_whole_time() -> None:
    at = with_queue(expires="10s")
    at.pass_ms(9_999)
    at.now = Now(at.now.mono_ms + 1, at.now.wall_ns)
    at.send(q.DeleteQueue("new", "d"))
    declare(at, expires="10s")
    ends_after(at, 10_000)


def test_without_the_setting_nothing_ends() -> None:
    at = bench(work("other"))
    at.ask(s.Define(0, "create", "new", {"topic": "t", "expires": "10s"}))
    at.ask(s.Define(0, "alter", "new", {"expires": 0}))
    at.pass_ms(1_000_000)
    assert there(at)
    at.ask(s.Define(0, "alter", "new", {"expires": "1s"}))
    at.pass_ms(1_000)
    assert not there(at)


def test_a_refused_end_is_tried_again() -> None:
    at = with_queue(expires="10s")
    at.holding = True
    at.pass_ms(10_000)
    at.refuse()
    assert there(at)
    at.pass_ms(AGAIN_MS - 1)
    assert at.kinds() == []
    at.pass_ms(1)
    assert at.kinds() == [KIND_WIRING]
    at.land()
    assert not there(at)


def test_one_that_is_used_when_its_end_is_refused_has_its_whole_time() -> None:
    at = with_queue(expires="10s")
    at.holding = True
    at.pass_ms(10_000)
    at.consume("new")
    at.refuse()
    at.holding = False
    at.now = Now(at.now.mono_ms + AGAIN_MS, at.now.wall_ns)
    at.lose()
    assert there(at)
    at.pass_ms(10_000)
    assert not there(at)


def test_one_that_is_being_changed_ends_later() -> None:
    at = with_queue(expires="10s")
    at.holding = True
    at.ask(s.Define(0, "alter", "new", {"lease": "5s"}))
    at.pass_ms(10_000)
    assert at.kinds() == [KIND_WIRING]
    at.holding = False
    at.land()
    at.pass_ms(AGAIN_MS)
    assert not there(at)


def test_a_replayable_queue_expires_likewise() -> None:
    at = with_queue(expires="10s", kind="replayable")
    at.consume("new", since="0")
    at.pass_ms(60_000)
    assert there(at)
    at.lose()
    at.pass_ms(10_000)
    assert not there(at)


# -- auto_delete ------------------------------------------------------------------------------


def test_it_goes_with_its_last_consumer() -> None:
    at = with_queue(auto_delete=True)
    at.logon(BOB)
    at.pass_ms(1_000_000)
    assert there(at), "it waits for a first one"
    at.consume("new")
    at.consume("new", "b", BOB)
    at.send(q.Cancel("s"))
    assert there(at)
    at.send(q.Cancel("b"), rid=BOB)
    assert not there(at)


@pytest.mark.parametrize("how", [q.Cancel("s"), m.Logoff("bye")])
def test_however_that_ends(how: Any) -> None:
    at = with_queue(auto_delete=True)
    at.many(2)
    at.consume("new")
    at.send(how)
    assert not there(at)


def test_in_one_turn() -> None:
    at = with_queue(auto_delete=True)
    at.send(q.Consume("s", "new", "c"), q.Cancel("s"))
    assert not there(at)


def test_a_lost_one_that_holds_nothing_has_ended() -> None:
    at = with_queue(auto_delete=True)
    at.consume("new")
    at.lose()
    assert not there(at)


def test_a_lost_one_that_holds_something_may_come_back() -> None:
    at = with_queue(auto_delete=True)
    [position] = at.many(1)
    at.consume("new")
    at.lose()
    at.logon()
    at.consume("new", holding=[position, position + 1])
    at.pass_ms(1_000_000)
    assert there(at)
    at.send(q.Cancel("s"))
    assert not there(at)


def test_a_lost_one_has_ended_when_what_it_held_was_done_by_others() -> None:
    at = with_queue(auto_delete=True)
    at.logon(BOB)
    [position] = at.many(1)
    at.consume("new")
    at.lose()
    at.ack(position, sid=None, queue="new", rid=BOB)
    assert not there(at), "no one could bring it back"


def test_a_start_waits_for_a_first_consumer_again() -> None:
    at = with_queue(auto_delete=True)
    at.consume("new")
    at.restart()
    at.logon()
    at.pass_ms(1_000_000)
    assert there(at)
    at.consume("new")
    at.send(q.Cancel("s"))
    assert not there(at)


def test_a_refused_consumer_is_none() -> None:
    at = with_queue(auto_delete=True, kind="replayable")
    at.consume("new", since="5|5|")
    assert at.codes() == ["bookmark_not_found"]
    assert there(at)
    at.consume("new", since="0")
    at.send(q.Cancel("s"))
    assert not there(at)


def test_its_time_may_be_over_before_a_first_consumer() -> None:
    at = with_queue(auto_delete=True, expires="10s")
    at.pass_ms(10_000)
    assert not there(at)


def test_a_consumer_that_comes_while_the_record_is_written_ends_with_it() -> None:
    at = with_queue(auto_delete=True)
    at.consume("new")
    at.holding = True
    at.send(q.Cancel("s"))
    at.consume("new", "t")
    at.land()
    assert not there(at)
    assert at.errors() == [("unknown_queue", None, "t")]


def test_a_consumer_of_a_session_is_one_as_long_as_that() -> None:
    at = kept()
    declare(at, auto_delete=True, topic="nothing")
    join(at, queue="new", sid="n")
    at.lose(MINE)
    at.pass_ms(30_000)
    assert there(at), "it holds nothing, and may come back"
    at.lose()
    at.pass_ms(60_000)
    assert not there(at)
