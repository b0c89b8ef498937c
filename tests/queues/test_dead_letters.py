"""zbroker/queues/dead_letters.py: dead letters, each landing with the end of its message."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import AFTER_LEASE_MS, BROKER, Bench, bench, work
from zbroker.engine.events import Asked
from zbroker.limits import EXTRA_MAX_BYTES, MIB
from zbroker.log.format import KIND_PUBLISH, KIND_QUEUE
from zbroker.log.records import MessagesGone, unpack_positions
from zbroker.queues import dead_letters
from zbroker.queues.commits import UNDER_WAY_MAX
from zbroker.queues.effects import Inspect
from zbroker.wire import bodies
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.queue_surveys import SetPoint


def _filled(*payloads: bytes, **more: Any) -> tuple[Bench, list[int]]:
    """A queue with a dead letter topic; ann's consumer has all of it."""
    settings = {key: more.pop(key) for key in list(more) if key not in ("keys", "headers")}
    at = bench(work(dead_letter="dead", max_per_subscription=5_000, **settings))
    positions = at.publish(*(payloads or (b"one", b"two")), **more)
    at.consume()
    return at, positions


def test_a_letter_is_the_message_with_headers_of_ours() -> None:
    at, positions = _filled(b"one", b"two")
    at.release(positions[1])
    at.reject(positions[1], reason="not mine")
    assert at.letters() == [
        (
            "dead",
            b"two",
            {
                dead_letters.QUEUE: "q",
                dead_letters.REASON: "rejected",
                dead_letters.TEXT: "not mine",
                dead_letters.TOPIC: "t",
                dead_letters.BOOKMARK: at.bookmark(positions[1]),
                dead_letters.POSITION: positions[1],
                dead_letters.DELIVERIES: 2,
                dead_letters.FAILURES: 1,
            },
        )
    ]
    assert at.here() == positions[:1]
    assert at.settled() == [(1, 0), (1, 0)]


def test_a_letter_keeps_key_and_headers() -> None:
    at, positions = _filled(b"one", b"two", keys=[None, b"k"], headers=[{"a": 1}, None])
    at.reject(*positions)
    assert [headers.get("a") for _, _, headers in at.letters()] == [1, None]
    batch = next(one for one in at.log if one.publisher == BROKER)
    assert batch.columns is not None
    assert bodies.keys(batch.columns.keys, 2) == [None, b"k"]


def test_a_letter_without_keys_has_no_column_for_them() -> None:
    at, positions = _filled()
    at.reject(*positions)
    batch = next(one for one in at.log if one.publisher == BROKER)
    assert batch.columns is not None
    assert batch.columns.keys is None


def test_our_headers_come_before_those_of_the_message() -> None:
    at, positions = _filled(b"one", headers=[{dead_letters.QUEUE: "fake", "a": 1}])
    at.reject(*positions)
    [(_, _, headers)] = at.letters()
    assert headers[dead_letters.QUEUE] == "q"


def test_headers_that_are_too_large_are_left_out() -> None:
    at, positions = _filled(b"one", headers=[{"a": "x" * (EXTRA_MAX_BYTES - 10)}])
    at.reject(*positions)
    [(_, data, headers)] = at.letters()
    assert data == b"one"
    assert set(headers) == set(dead_letters.HEADERS)


def test_letter_and_end_are_one_unit() -> None:
    at, positions = _filled()
    at.holding = True
    at.reject(*positions)
    [(_, (parts, _))] = at.under_way
    assert [part.kind for part in parts] == [KIND_PUBLISH, KIND_QUEUE]
    assert parts[0].topics == ["dead"]
    assert parts[0].count == 2
    [gone] = at.sent_facts()
    assert isinstance(gone, MessagesGone)
    assert list(unpack_positions(gone.where)) == positions
    assert at.settled() == []
    at.land()
    assert at.settled() == [(2, 0)]


def test_a_refused_unit_leaves_the_message_in_its_queue() -> None:
    at, positions = _filled()
    at.holding = True
    at.reject(*positions)
    at.refuse("too_large")
    assert at.codes() == ["too_large"]
    assert at.here() == positions
    assert at.letters() == []


def test_many_letters_are_many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 10)
    at, positions = _filled(*[b"%d" % n for n in range(35)])
    at.holding = True
    at.reject(*positions)
    assert [parts[0].count for _, (parts, _) in at.under_way] == [10, 10, 10, 5]
    at.land(3)
    assert at.settled() == [], "it is answered when all of it has landed"
    at.land()
    assert at.settled() == [(35, 0)]
    assert [data for _, data, _ in at.letters()] == [b"%d" % n for n in range(35)]
    assert at.here() == []


def test_large_letters_are_units_of_their_own() -> None:
    payloads = [b"a" * (MIB // 2), b"b" * (MIB // 2 + 1), b"c", b"d" * (2 * MIB), b"e"]
    at, positions = _filled(*payloads)
    at.holding = True
    at.reject(*positions)
    assert [parts[0].count for _, (parts, _) in at.under_way] == [1, 2, 1, 1]
    at.land(3)
    assert at.settled() == []
    at.land()
    assert [data for _, data, _ in at.letters()] == payloads
    assert at.settled() == [(5, 0)]


def test_only_so_many_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_MAX", 10)
    monkeypatch.setattr(dead_letters, "READ_MAX", 20)
    at, positions = _filled(*[b"%d" % n for n in range(35)])
    at.later = (Inspect,)
    at.reject(*positions)
    assert [len(effect.positions) for effect in at.waiting] == [10, 10]
    assert at.one().letters_read == 20
    at.later = ()
    at.go_on()
    assert at.settled() == [(35, 0)]
    assert at.one().letters_read == 0


def test_nothing_is_read_while_the_journal_has_too_much_to_do() -> None:
    at, positions = _filled()
    at.die()
    for _ in range(UNDER_WAY_MAX + 1):
        at.turn.hear(Asked(b"admin", SetPoint(1, "p", 1)))
    at.later = (Inspect,)
    at.reject(*positions)
    assert at.waiting == []
    at.later = ()
    at.come_back()
    assert at.settled() == [(2, 0)]


def test_what_cannot_be_read_is_gone_without_a_letter() -> None:
    at, positions = _filled()
    at.unreadable = BitMap64(positions)
    at.reject(*positions)
    assert at.letters() == []
    assert at.here() == []
    assert at.settled() == [(2, 0)]
    assert [fact.why for fact in at.facts(MessagesGone)] == ["unreadable"]


def test_of_some_that_cannot_be_read_the_others_have_letters() -> None:
    at, positions = _filled(b"one", b"two", b"three")
    at.unreadable = BitMap64(positions[1:2])
    at.reject(*positions)
    assert [data for _, data, _ in at.letters()] == [b"one", b"three"]
    assert at.here() == []
    assert at.settled() == [(3, 0)]
    assert {fact.why for fact in at.facts(MessagesGone)} == {"rejected", "unreadable"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_deliveries": 1}, "max_deliveries"),
        ({"max_cancels": 1}, "max_cancels"),
    ],
)
def test_a_poison_message_is_a_dead_letter(settings: dict[str, int], reason: str) -> None:
    at, positions = _filled(b"one", **settings)
    at.release(*positions)
    [(_, _, headers)] = at.letters()
    assert headers[dead_letters.REASON] == reason
    assert at.one().counts.dead == 1


def test_what_expires_is_a_dead_letter() -> None:
    at, positions = _filled(b"one", b"two", expiration=1_000, lease=100_000)
    at.ack(positions[0])
    at.pass_ms(2_000)
    assert at.letters() == [], "it is leased"
    at.pass_ms(200_000)
    [(_, data, headers)] = at.letters()
    assert data == b"two"
    assert headers[dead_letters.REASON] == "time_limit"
    assert at.one().counts.expired == 1


def test_without_a_topic_for_them_they_are_counted_only() -> None:
    at = bench(work(max_deliveries=1))
    positions = at.many(2)
    at.consume()
    at.pass_ms(AFTER_LEASE_MS)
    assert at.letters() == []
    assert at.here() == []
    assert list(at.one().dead) == positions
    assert at.one().counts.dead == 2


def test_who_consumes_dead_letters_gets_them() -> None:
    at = bench(work(dead_letter="dead"), work("morgue", "dead"))
    positions = at.many(1)
    at.consume("q", "a")
    at.consume("morgue", "b")
    at.reject(*positions, sid="a")
    [letter] = at.got("b")
    assert at.payload(letter) == b"0"
    assert not at.of(m.Error)


def test_what_waits_for_the_next_unit_is_no_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.queues.queue_state.FACTS_MAX", 1)
    at, positions = _filled(b"one", b"two", b"three")
    at.send(
        q.Settle("1", ends=[positions[0], positions[1]], sid="s"),
        q.Settle("2", ends=[positions[1], positions[2]], sid="s"),
        q.RejectMessages("3", ends=[positions[2], positions[2] + 1], sid="s"),
    )
    assert [data for _, data, _ in at.letters()] == [b"three"]
    assert sorted(one.cid or "" for one in at.of(q.Settled)) == ["1", "2", "3"]
    assert sorted(fact.why for fact in at.facts(MessagesGone)) == ["acked", "acked", "rejected"]
