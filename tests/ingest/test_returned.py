"""Mandatory messages that go to no queue: which are named, in which ack, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.ingest.rig import JOURNAL, MINE, item
from tests.ingest.test_owed_answers import error, kept, persisted
from tests.ingest.test_routing import A, Bench, bound, exchange
from zbroker.config import RecordConfig
from zbroker.ingest import acks
from zbroker.ingest.acks import runs_of
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m

EVENTS = [exchange("events"), bound("events", "bills", "order.#")]
LOST, FOUND = "none", "order.1"
ASK: Any = {"ack": ["persisted"], "mandatory": True}


def named(reported: list[Any]) -> list[tuple[int, list[tuple[int, int]]]]:
    """The sequence of each `persisted` ack, and the runs that it names."""
    assert all(isinstance(one, m.Ack) and one.type == "persisted" for one in reported)
    return [(one.seq, runs_of(one.returned)) for one in reported]


def settled(bench: Bench, duplicate: int = 0, journal: int = JOURNAL) -> list[Any]:
    """What follows once the log has the newest batch."""
    ordinal, entry, _ = bench.appended[-1]
    done = i.ReceiptItem(ordinal, ordinal, entry.seq + entry.count - 1, duplicate)
    return bench.hear(i.JournalReceipt(journal, 100, [done]))


def lost(bench: Bench, count: int = 1) -> Any:
    """A packed publish whose messages go to no queue."""
    bench.seq += count
    publish = m.Publish(bench.seq - count + 1, "events", count=count, **ASK)
    return item(A, publish, bodies.pack([b"x"] * count))


def test_the_ack_names_those_that_are_in_no_queue() -> None:
    bench = Bench(*EVENTS)
    bench.turn(
        *(bench.one("events", key, **ASK) for key in (FOUND, LOST, LOST)),
        bench.one("events", LOST),
        bench.one("events", LOST, **ASK),
    )
    assert named(settled(bench)) == [(5, [(2, 3), (5, 5)])]


def test_packed_ones_are_named_one_by_one() -> None:
    bench = Bench(*EVENTS)
    keys = bodies.pack([LOST.encode(), FOUND.encode(), LOST.encode(), LOST.encode()])
    columns = m.Columns(keys=keys)
    bench.turn(
        item(A, m.Publish(1, "events", count=4, columns=columns, **ASK), bodies.pack([b""] * 4))
    )
    assert named(settled(bench)) == [(4, [(1, 1), (3, 4)])]


def test_where_there_is_no_exchange_no_queue_gets_it() -> None:
    bench = Bench(*EVENTS)
    bench.turn(bench.one("orders", FOUND, **ASK), bench.one("events", FOUND, **ASK))
    assert named(settled(bench)) == [(2, [(1, 1)])]


def test_what_is_not_mandatory_is_not_named() -> None:
    bench = Bench(*EVENTS)
    bench.turn(bench.one("events", LOST, ack=["persisted"]))
    assert named(settled(bench)) == [(1, [])]


def test_they_are_named_although_no_ack_was_asked_for() -> None:
    bench = Bench(*EVENTS)
    bench.turn(bench.one("events", LOST, mandatory=True))
    assert named(settled(bench)) == [(1, [(1, 1)])]
    bench.turn(bench.one("events", FOUND, mandatory=True))
    assert settled(bench) == []


def test_a_message_that_comes_again_is_not_named_again() -> None:
    bench = Bench(*EVENTS)
    bench.turn(lost(bench))
    assert named(settled(bench)) == [(1, [(1, 1)])]
    bench.seq = 0
    bench.turn(lost(bench, 2))
    assert named(settled(bench, duplicate=1)) == [(2, [(2, 2)])]


class Known(Bench):
    """The log has messages of the publisher already."""

    def opened(self, asked: i.Open) -> i.Opened:
        return replace(super().opened(asked), seq=3)


def test_what_the_log_had_at_the_logon_is_not_named() -> None:
    """It may be in a queue: its first batch was routed by other bindings."""
    bench = Known(*EVENTS)
    bench.seq = 1
    bench.turn(lost(bench, 4))
    assert named(settled(bench, duplicate=2)) == [(5, [(4, 5)])]


def test_a_batch_that_this_process_sends_again_is_named() -> None:
    """The journal died after it wrote it, and before it said so; the routes are the same."""
    bench = Bench(*EVENTS)
    bench.turn(lost(bench))
    bench.hear(i.Watermarks(JOURNAL + 1, 9, 1, 1, 1, 1, 1, 1))
    bench.hear(i.Welcome(JOURNAL + 1, MINE, 9, 1, 1 << 20, "disk", 1, 1, 1))
    assert named(settled(bench, 1, JOURNAL + 1)) == [(1, [(1, 1)])]


def test_what_is_refused_is_not_named() -> None:
    bench = Bench(*EVENTS)
    bench.turn(lost(bench))
    refused = i.ReceiptItem(bench.appended[-1][0], 0, 0, 0, "disk_full", "full")
    [answer] = bench.settle(refused)
    assert isinstance(answer, m.Error)


def test_a_client_that_is_gone_is_not_told() -> None:
    bench = Bench(*EVENTS)
    bench.turn(lost(bench))
    bench.gone(A)
    assert settled(bench) == []


def test_what_is_staged_or_not_recorded_cannot_be_mandatory() -> None:
    bench = Bench(*EVENTS, recording=Recording([RecordConfig("events")]))
    staged = m.Publish(1, "events", count=1, mandatory=True, stage="s")
    for publish, code in (
        (staged, "bad_field"),
        (m.Publish(1, "live", count=1, mandatory=True), "topic_not_recorded"),
        (m.Publish(1, "live", mandatory=True), "topic_not_recorded"),
    ):
        [answer] = bench.turn(item(A, publish, bodies.pack([b"x"])))
        assert isinstance(answer, m.Error)
        assert (answer.code, bench.appended) == (code, [])


def test_what_is_recorded_beside_others_is_named() -> None:
    bench = Bench(*EVENTS, recording=Recording([RecordConfig("events")]))
    bench.turn(bench.one("live"), bench.one("events", LOST, **ASK))
    assert named([one for one in settled(bench) if one.type == "persisted"]) == [(2, [(2, 2)])]


# -- acks that are merged, held back, or many -----------------------------------------------------


def test_more_than_an_ack_can_name_are_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "FILTERED_RUNS_MAX", 2)
    bench = Bench(*EVENTS)
    keys = [LOST, FOUND] * 5
    bench.turn(*(bench.one("events", key, **ASK) for key in keys))
    assert named(settled(bench)) == [
        (3, [(1, 1), (3, 3)]), (7, [(5, 5), (7, 7)]), (10, [(9, 9)])
    ]  # fmt: skip


@pytest.mark.parametrize(("most", "expected"), [
    (1_000, [(3, [(2, 2), (3, 3)])]),
    (1, [(2, [(2, 2)]), (3, [(3, 3)])]),
])  # fmt: skip
def test_acks_at_an_interval_name_all_of_them(
    most: int, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "FILTERED_RUNS_MAX", most)
    bench = Bench(*EVENTS)
    bench.turn(item(A, m.Logon("p", "x", "2", ack_interval_s=1.0), None))
    bench.tick(0)
    bench.turn(lost(bench))
    assert named(settled(bench) + bench.tick(1)) == [(1, [(1, 1)])]
    for _ in range(2):
        bench.turn(lost(bench))
        assert settled(bench) == []
    assert named(bench.tick(1_001)) == expected


def test_the_answer_to_a_flush_comes_after_them() -> None:
    bench = Bench(*EVENTS)
    bench.turn(lost(bench), item(A, m.Flush("f"), None))
    first, second = settled(bench)
    assert isinstance(first, m.Ack)
    assert isinstance(second, m.Ack)
    assert (runs_of(first.returned), second.cid) == ([(1, 1)], "f")


def test_what_a_full_queue_did_not_take_is_kept() -> None:
    some, more = (replace(persisted(seq), returned=acks._packed([(seq, seq)])) for seq in (1, 2))
    [both] = kept(some, more)
    assert named([both]) == [(2, [(1, 1), (2, 2)])]
    assert kept(some, error(2), persisted(3)) == [some, error(2), persisted(3)]
