"""What listeners, admin endpoint and log read about queues: good inputs, and their readers."""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from zbroker.journal.named_records import name_of
from zbroker.log import records as q
from zbroker.log.format import KIND_PUBLISH, KIND_QUEUE
from zbroker.wire import codec, queue_surveys, units
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as w

COMMANDS: Final = [
    codec.encode(command)
    for command in (
        w.Consume(
            "s", "work", "1", 10, holding=[1, 5, 7, 8], since="point:noon", selector="/a = 1"
        ),
        w.Settle("2", "s", ends=[1, 5]),
        w.Release("3", queue="work", bookmarks=["1|2|"], delay_ms=10),
        w.RejectMessages("4", "s", filter="/a = 1", reason="no good"),
        w.Extend("5", "s", ends=[1, 2], lease_ms=5),
        w.Browse("work", "6", after=3, state="ready", data=True),
        w.Cancel("s"),
    )
]
ANSWERS: Final = [
    codec.encode(answer)
    for answer in (
        w.Consuming("s", 10, 30_000, "at-least-once", "work", 99, kept=[1, 5]),
        w.Job(
            "s", 1, 2, 3, 4, 5, topics=["a"], columns=m.Columns(index=bytes(8)), deliveries=b"12"
        ),
        w.Settled("1", "s", 5, 1),
        w.Rows([w.BrowsedRow(1, "1|2|", "t", 3, 4, "ready", 1, 0)], "1", 9),
    )
]
QUESTIONS: Final = [
    codec.encode(ask)
    for ask in (
        queue_surveys.AskQueues(1, "work"), queue_surveys.Explain(2, "work", bookmark="1|2|"),
        queue_surveys.BrowseQueue(3, "work", filter="/a = 1"), queue_surveys.AskPoints(4),
        queue_surveys.Purge(5, "work", 9), queue_surveys.Requeue(6, "work", ["1|2|"]),
        queue_surveys.Define(7, "create", "work", {"topic": "t"}), queue_surveys.SetPoint(8, "x"),
        queue_surveys.SetPoint(10, "x", covers="a.1.2"), queue_surveys.RemovePoint(9, "x"),
    )
]  # fmt: skip
REPORTED: Final = [
    codec.encode(answer)
    for answer in (
        queue_surveys.Explained(
            1, "ready", ["nobody consumes"], [queue_surveys.OwnedMessages(10, 3, 7, 9, number=2)]
        ),
        queue_surveys.Changed(2, 3),
        queue_surveys.Points(3, [queue_surveys.PointRow("noon", 5, "a.1.2", 7)]),
    )
]  # fmt: skip
COMMITS: Final = [
    codec.encode(message)
    for message in (
        units.CommitUnits(7, 1, 0, [[units.UnitPart(KIND_QUEUE, 5)], []]),
        units.CommitUnits(
            7, 1, 0, [[units.UnitPart(KIND_PUBLISH, 5, ["t"], 2, m.Columns(time=bytes(16)))]]
        ),
        units.AskNamed(1, 7),
    )
]
NAMED: Final = [codec.encode(units.NamedRows(1, 9, [units.NamedRow("work", 5, b"\x80")], []))]

_RUNS: Final = q.pack_positions(BitMap64([1, 2, 3, 9, 1 << 40]))
_BITMAPS: Final = [
    q.pack_positions(BitMap64(range(1, 1 + step * 200, step))) for step in (2, 3, 70_000)
]
POSITIONS: Final = [_RUNS, *_BITMAPS]
WIRINGS: Final = [
    q.encode(record)
    for record in (
        q.DefinitionRecord("work", 1, "admin", 5, definition={"topic": "t"}),
        q.DefinitionRecord("work", 2),
    )
]
FACTS: Final = [
    q.encode(q.QueueRecord("work", 1, 2, 3, facts))
    for facts in (
        [q.MessagesGone(_RUNS), q.Failed(_RUNS, "cancelled", 5), q.Horizon(9)],
        [q.BarrierDelivered(4), q.Returned(_BITMAPS[0]), q.Noted(_RUNS), q.NotedEarly(_RUNS)],
    )
]


def read_positions(data: bytes) -> object:
    """What is one comes back from its own runs."""
    found = q.unpack_positions(data)
    assert q.of_ends(q.ends_of(found)) == found
    return found


def read_facts(data: bytes) -> object:
    record = q.QUEUE.decode(data)
    for fact in record.facts:
        if hasattr(fact, "where"):
            q.unpack_positions(fact.where)
    return record


def read_wiring(data: bytes) -> object:
    name_of(data)
    return q.WIRING.decode(data)


def read_to_endpoint(data: bytes) -> object:
    return codec.decode(queue_surveys.QUEUES_QUESTIONS, data)


def read_from_endpoint(data: bytes) -> object:
    return codec.decode(queue_surveys.QUEUES_ANSWERS, data)
