"""zbroker/delivery/ports.py: the log, plans and live messages as sources and performers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.waiting import Limit as Wait
from zbroker import sockets
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.delivery import ranges
from zbroker.delivery.contract import CloseFiles, GrantLive, Planned, PlanRanges
from zbroker.delivery.points import Point
from zbroker.delivery.ports import PLAN_SLICE_MS, BlocksPort, LiveMessagesPort, PlansPort
from zbroker.engine.contract import Limit
from zbroker.engine.effects import ForgetBlocks
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.log.reader import Cursor
from zbroker.wire import codec
from zbroker.wire import internal as i

READ = Read(1, Cursor(1, 0, 1), False, 9, 100)
ONE = Limit(1)
WAIT_S = 20.0


class Reader:
    """Blocks, or an error."""

    hits, misses = 3, 4

    def __init__(self, error: StorageError | None = None) -> None:
        self.error, self.calls = error, list[str]()

    def read(self, read: Read) -> Block:
        if self.error is not None:
            raise self.error
        return Block(read.cursor, [], read.cursor)

    def reset(self) -> None:
        self.calls.append("reset")

    def let_go(self) -> None:
        self.calls.append("let_go")


def test_a_read_that_fails_is_an_event() -> None:
    error = StorageError("damaged", "EIO")
    assert BlocksPort(lambda: Reader(error)).read(READ) == ReadFailed(READ, error)  # type: ignore[arg-type, return-value]


def test_the_log_is_not_looked_at_before_the_first_read() -> None:
    made: list[Reader] = []

    def opened() -> Any:
        made.append(Reader())
        return made[0]

    port = BlocksPort(opened)
    port.forget(ForgetBlocks())
    port.close_files(CloseFiles())
    assert (made, port.stats()) == ([], {"read_cache_hits": 0, "read_cache_misses": 0})
    done = port.read(READ)
    assert isinstance(done, BlockRead)
    assert done.read is READ
    port.forget(ForgetBlocks())
    port.close_files(CloseFiles())
    assert made[0].calls == ["reset", "let_go"]
    assert port.stats() == {"read_cache_hits": 3, "read_cache_misses": 4}


# -- plans --------------------------------------------------------------------------------------


class Clock:
    now_ms = 0

    def mono_ms(self) -> int:
        return self.now_ms

    def wall_ns(self) -> int:
        return 0


class PlanLog:
    """Counts those that are open."""

    opened = 0

    def __init__(self) -> None:
        PlanLog.opened += 1

    def close(self) -> None:
        PlanLog.opened -= 1


def plan(cid: str) -> PlanRanges:
    return PlanRanges(b"ann", cid, Point(1), 9, 2, 9)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> tuple[PlansPort, Clock]:
    """Each step takes a millisecond; a plan has as many as it has parts, and fails with 13."""
    clock = Clock()

    def steps(_log: Any, _start: Point, _end: int, parts: int) -> Iterator[None]:
        for _ in range(parts):
            clock.now_ms += 1
            yield
        if parts == 13:
            raise StorageError("damaged", "EIO")
        return [(1, parts, 0)]

    monkeypatch.setattr(ranges, "plan", steps)
    monkeypatch.setattr(PlanLog, "opened", 0)
    return PlansPort(PlanLog, clock), clock  # type: ignore[arg-type]


def test_a_long_plan_has_a_slice_of_each_turn(plans: tuple[PlansPort, Clock]) -> None:
    port, clock = plans
    long, short = plan("long"), plan("short")
    long.parts, short.parts = 2 * PLAN_SLICE_MS, 1
    port.begin(long)
    port.begin(short)
    turns = []
    while port.next_wake_ms() == 0:
        begun_ms = clock.now_ms
        turns.append(list(port.events({}, ONE)))
        assert clock.now_ms - begun_ms <= PLAN_SLICE_MS
    assert turns[0] == turns[1] == []
    done = [event for turn in turns for event in turn]
    assert done == [Planned(long, [(1, 6, 0)]), Planned(short, [(1, 1, 0)])]
    assert PlanLog.opened == 0


def test_a_plan_that_cannot_be_read_ends_alone(plans: tuple[PlansPort, Clock]) -> None:
    port, _ = plans
    broken, good = plan("broken"), plan("good")
    broken.parts = 13
    port.begin(broken)
    port.begin(good)
    found: list[Any] = []
    while port.next_wake_ms() == 0:
        found += port.events({}, ONE)
    assert [type(event) for event in found] == [ReadFailed, Planned]
    assert found[0].of is broken
    assert PlanLog.opened == 0


def test_plans_that_were_begun_are_forgotten_with_their_files(
    plans: tuple[PlansPort, Clock],
) -> None:
    port, _ = plans
    one = plan("one")
    one.parts = 10 * PLAN_SLICE_MS
    port.begin(one)
    assert list(port.events({}, ONE)) == []
    assert PlanLog.opened == 1
    port.forget()
    assert (port.next_wake_ms(), PlanLog.opened) == (None, 0)


# -- live messages ------------------------------------------------------------------------------


class Ingest:
    """The port, and a socket of an ingest process."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.poller = zmq.Poller()
        endpoint = f"ipc://{directory}/live"
        self.port = LiveMessagesPort(self.context)
        self.port.listen(endpoint, self.poller)
        self.socket = sockets.dealer(self.context, endpoint)

    def send(self, *bodies: bytes) -> None:
        self.socket.send_multipart([codec.encode(i.Live(7, [])), *bodies])

    def turn(self, limit: Limit) -> list[int]:
        """Sizes of what one turn takes."""
        ready = dict(self.poller.poll(0))
        return [event.size for event in self.port.events(ready, limit)]


@pytest.fixture
def ingest(tmp_path: Path) -> Iterator[Ingest]:
    made = Ingest(tmp_path)
    yield made
    made.context.destroy(0)


def test_a_turn_takes_live_messages_up_to_its_bytes_and_at_least_one(ingest: Ingest) -> None:
    for size in (30, 200, 50, 60):
        ingest.send(b"x" * size)
    turns: list[list[int]] = []
    wait = Wait(WAIT_S)
    while sum(map(len, turns)) < 4:
        assert not wait.is_over
        if taken := ingest.turn(Limit(100, 100)):
            turns.append(taken)
    assert [size for taken in turns for size in taken] == [30, 200, 50, 60]
    assert all(sum(taken[:-1]) < 100 for taken in turns), "it ends with the one that reached it"


def test_a_grant_goes_to_who_sent(ingest: Ingest) -> None:
    ingest.socket.send(codec.encode(i.Hello("ingest", 5)))
    assert ingest.poller.poll(int(WAIT_S * 1_000))
    [hello] = ingest.port.events(dict(ingest.poller.poll(0)), Limit(9, 9))
    grant = i.LiveCredit(7, 5, 0, 100)
    ingest.port.grant(GrantLive(hello.rid, grant))
    assert ingest.socket.poll(int(WAIT_S * 1_000))
    assert codec.FROM_LIVE.decode(ingest.socket.recv()) == grant
