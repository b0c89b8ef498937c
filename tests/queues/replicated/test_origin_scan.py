"""zbroker/queues/replicated/origin_scan.py: the names of what a local queue holds, and held."""

from __future__ import annotations

import pytest
from msgspec import msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.log.format import KIND_NOOP, KIND_ORIGIN, KIND_PUBLISH, KIND_STATE, KIND_TIE, Batch
from zbroker.log.records import OriginRecord, encode
from zbroker.queues.replicated.origin_scan import OriginScan

A, B, C = Origin(1, 1), Origin(2, 1), Origin(3, 1)


class Scanned:
    """A scan, and the log that it reads. here: what is in the queue."""

    def __init__(self, begin: int = 1, here: tuple[int, ...] = ()) -> None:
        self.scan = OriginScan(begin, lambda topic: topic == "t")
        self.here = BitMap64(here)
        self.position = 1

    def batch(
        self, kind: int, origin: Origin, at: int, count: int = 1, *, topic: str = "t",
        body: bytes = b"", skip: int = 0, sequence: int = 0,
    ) -> int:  # fmt: skip
        """A record of an origin; where it is here."""
        first = self.position
        self.scan.add(
            Batch(
                kind, first, 9, 1, sequence or first, 0, count + skip, 0, [topic], body, 0,
                len(body), skip, 0, origin.instance, origin.generation, at,
            ),
            self.here,
        )  # fmt: skip
        self.position += count
        return first

    def sent(self, origin: Origin, at: int, count: int = 1, topic: str = "t") -> int:
        return self.batch(KIND_PUBLISH, origin, at, count, topic=topic)

    def tie(self, origin: Origin, at: int, sequence: int) -> None:
        self.batch(KIND_TIE, origin, at, sequence=sequence)

    def state(self, **positions: int) -> None:
        rows = [[ord(name) - 96, 1, at] for name, at in positions.items()]
        folds = {"origins": rows, "closed": []}
        self.batch(KIND_STATE, A, self.position, body=msgpack.encode({"folds": folds, "part": 0}))

    def done(self) -> dict[Origin, list[int]]:
        return {origin: list(part) for origin, part in self.scan.done(self.here).items()}


def test_what_is_not_in_the_queue_is_done() -> None:
    log = Scanned(here=(2, 5))
    log.sent(A, 1, 3)
    log.sent(B, 10, 2)
    assert log.done() == {A: [1, 3], B: [10]}
    assert log.scan.names(log.here) == {A: BitMap64([2]), B: BitMap64([11])}
    assert log.scan.is_whole(log.here)


def test_what_came_before_the_queue_began_is_not_done() -> None:
    log = Scanned(begin=3)
    log.sent(A, 1, 4)
    log.sent(B, 5)
    assert log.scan.begins == {A: 2, B: 4}
    assert log.done() == {A: [3, 4], B: [5]}


@pytest.mark.parametrize("count", [1, 2])
def test_a_name_that_another_instance_gave_is_not_done_either(count: int) -> None:
    log = Scanned(here=(1,))
    log.sent(A, 10, count)
    log.tie(B, 7, sequence=1)
    log.batch(KIND_NOOP, B, 8)
    assert log.done().get(A, []) == [11][: count - 1]
    assert log.done()[B] == [8]
    assert log.scan.kept(log.here) == {A: BitMap64([10]), B: BitMap64([7])}


def test_a_tie_of_several_messages_begins_at_its_first() -> None:
    log = Scanned(here=(1, 2))
    log.sent(A, 1, 2)
    log.batch(KIND_TIE, B, 8, skip=1, sequence=2)
    assert log.scan.begins[B] == 6
    assert B not in log.done()


def test_what_an_origin_left_out_is_not_done() -> None:
    log = Scanned()
    log.sent(B, 1)
    log.batch(KIND_ORIGIN, A, 2, body=encode(OriginRecord(*B, position=5)))
    log.sent(B, 6)
    assert log.done()[B] == [1, 6]


def test_a_record_that_is_none_says_nothing() -> None:
    log = Scanned()
    log.batch(KIND_ORIGIN, A, 1, body=b"\xc1")
    assert not log.done()


def test_what_was_removed_from_the_log_is_known_by_a_snapshot() -> None:
    log = Scanned()
    log.sent(A, 101)
    log.state(a=102, b=50)
    log.sent(B, 51)
    assert log.scan.begins == {A: 100, B: 50}
    assert log.done() == {A: [101, 102], B: [51]}


def test_messages_of_other_topics_need_no_names() -> None:
    log = Scanned(here=(1,))
    log.sent(A, 1)
    log.sent(A, 2, topic="other")
    assert log.done() == {A: [2]}
    assert not OriginScan(1, lambda _: True).is_whole(log.here)
