"""Sources and performers of the delivery process that it shares with no other: see server.ports."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final

import zmq

from zbroker import sockets
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import BlockRead, Read
from zbroker.clock import Clock
from zbroker.delivery import passed_origins, ranges
from zbroker.delivery.contract import (
    CloseFiles,
    FindPassed,
    GrantLive,
    LiveReceived,
    PassedFound,
    Planned,
    PlanRanges,
)
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.effects import ForgetBlocks
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.log.reader import Log
from zbroker.server.ports import Context
from zbroker.server.process import Stats
from zbroker.wire import codec

PLAN_SLICE_MS: Final = 3  # how long a turn works on ranges


class BlocksPort:
    """The log as subscriptions read it; it is not looked at before the first of them reads."""

    def __init__(self, opened: Callable[[], BlockReader]) -> None:
        self._opened = opened
        self._reader: BlockReader | None = None

    def read(self, read: Read) -> BlockRead | ReadFailed:
        """One block, empty if the log does not go on there yet."""
        try:
            if self._reader is None:
                self._reader = self._opened()
            return BlockRead(read, self._reader.read(read))
        except StorageError as error:
            return ReadFailed(read, error)

    def forget(self, _effect: ForgetBlocks) -> None:
        """Everything is read again."""
        if self._reader is not None:
            self._reader.reset()

    def close_files(self, _effect: CloseFiles) -> None:
        """Files that are needed are opened again."""
        if self._reader is not None:
            self._reader.let_go()

    def stats(self) -> Stats:
        """How often a block was read before."""
        reader = self._reader
        return {
            "read_cache_hits": reader.hits if reader else 0,
            "read_cache_misses": reader.misses if reader else 0,
        }


Plan = PlanRanges | FindPassed
PlanDone = Planned | PassedFound | ReadFailed


class PlansPort:
    """Work on the log that takes several turns: splits for `ranges`, looks what is before a start.

    The oldest comes first, for a slice of time each turn. Each has a Log of its own: it stops in
    the middle, while other reads go on.
    """

    drained = True

    def __init__(self, log: Callable[[], Log], clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._plans: deque[tuple[Plan, Generator[None, None, Any]]] = deque()

    def begin(self, plan: Plan) -> None:
        """Works on it from the next turn on."""
        self._plans.append((plan, self._steps(plan)))

    def _steps(self, plan: Plan) -> Generator[None, None, Any]:
        log = self._log()
        try:
            if isinstance(plan, FindPassed):
                return (yield from passed_origins.find(log, plan))
            return (yield from ranges.plan(log, plan.start, plan.end, plan.parts))
        finally:
            log.close()

    def forget(self) -> None:
        """Drops all plans: another journal listens, so the log may differ."""
        for _, steps in self._plans:
            steps.close()
        self._plans.clear()

    def events(self, ready: Ready, limit: Limit) -> Iterator[PlanDone]:
        """Those that are done."""
        end_ms = self._clock.mono_ms() + PLAN_SLICE_MS
        while self._plans:
            plan, steps = self._plans[0]
            done = _step(plan, steps)
            if done is not None:
                self._plans.popleft()
                yield done
            if self._clock.mono_ms() >= end_ms:
                return

    def next_wake_ms(self) -> int | None:
        """At once, if there is a plan."""
        return 0 if self._plans else None


def _step(plan: Plan, steps: Generator[None, None, Any]) -> PlanDone | None:
    try:
        next(steps)
    except StopIteration as done:
        if isinstance(plan, FindPassed):
            return PassedFound(plan, done.value)
        return Planned(plan, done.value)
    except StorageError as error:
        return ReadFailed(plan, error)
    return None


class LiveMessagesPort:
    """What ingest processes pass on that is not recorded: a ROUTER, once it listens."""

    drained = True  # nothing of it is from clients, whose silence is judged by that
    next_wake_ms = None

    def __init__(self, context: Context) -> None:
        self._router = sockets.inner_router(context)

    def listen(self, endpoint: str, poller: zmq.Poller) -> None:
        """Where everything is recorded it need not."""
        self._router.bind(endpoint)
        poller.register(self._router, zmq.POLLIN)

    def events(self, ready: Ready, limit: Limit) -> Iterable[LiveReceived]:
        """What waits, up to the limit of bytes and at least one message."""
        return self._received(limit) if self._router in ready else ()

    def _received(self, limit: Limit) -> Iterator[LiveReceived]:
        size = 0
        for _ in range(limit.count):
            received = sockets.receive_from(self._router, frames_max=0)
            if received is None:
                return
            rid, frames, _ = received
            bodies = [frame.bytes for frame in frames[1:]]
            bytes_of_bodies = sum(map(len, bodies))
            message = codec.TO_LIVE.decode(frames[0].buffer)
            yield LiveReceived(rid, message, bodies, bytes_of_bodies)
            size += bytes_of_bodies
            if size >= limit.bytes:
                return

    def grant(self, effect: GrantLive) -> None:
        """One that is lost is made up for by the next, on a beat."""
        sockets.send_to(self._router, effect.rid, codec.encode(effect.grant))
