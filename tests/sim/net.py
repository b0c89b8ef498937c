"""Connections as ZeroMQ really behaves, in virtual time.

A frame is in the sender's queue, then in the receiver's. When a process dies, what is in
its inbound queues vanishes and no one is informed; what is in a DEALER's queue goes to whoever
binds the address next, so a restarted ROUTER gets the rest of a stream whose beginning its
predecessor took. A frame that was on its way when its receiver died may go either way.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any


class Scheduler:
    """Virtual time: what happens next, in an order that the seed decides."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now_ms = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._ties = count()

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_ms + delay_ms, next(self._ties), action))

    def run_until(self, end_ms: int) -> None:
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            self.events += 1
            action()
        self.now_ms = end_ms


@dataclass(eq=False)
class Pipe:
    """One DEALER: its queue, and where it is connected at the moment."""

    address: str
    on_frame: Callable[[Any], None]
    on_lost: Callable[[], None] = lambda: None
    on_connected: Callable[[], None] = lambda: None
    queue: deque[Any] = field(default_factory=deque)  # frames that wait for a listener
    rid: bytes = b""  # at the listener it is connected to
    listener: Listener | None = None
    closed: bool = False
    stalled_ms: int = 0  # its process reads nothing until then,
    space: int = 0  # and its queue takes so many frames


@dataclass(eq=False)
class Listener:
    """One bound ROUTER: it dies with its process."""

    on_frame: Callable[[bytes, Any], None]
    on_left: Callable[[bytes], None] | None = None  # a peer's connection has ended
    pipes: dict[bytes, Pipe] = field(default_factory=dict)
    alive: bool = True
    inbound: int = 0  # frames that arrived and are lost if it dies now


class Net:
    """All connections of one world."""

    def __init__(self, scheduler: Scheduler, delay_ms: tuple[int, int] = (0, 4)) -> None:
        self._at = scheduler
        self._delay_ms = delay_ms
        self._listeners: dict[str, Listener] = {}
        self._pipes: list[Pipe] = []
        self._rids = count(1)

    def bind(
        self, address: str, on_frame: Callable[[bytes, Any], None],
        on_left: Callable[[bytes], None] | None = None,
    ) -> Listener:  # fmt: skip
        """A process starts to listen; DEALERs that wait for the address connect to it."""
        listener = self._listeners[address] = Listener(on_frame, on_left)
        for pipe in self._pipes:
            if pipe.address == address and not pipe.closed:
                self._at.after(self._delay(), lambda pipe=pipe: self._connect(pipe))
        return listener

    def dealer(self, pipe: Pipe) -> Pipe:
        """A process opens a DEALER."""
        self._pipes.append(pipe)
        self._at.after(self._delay(), lambda: self._connect(pipe))
        return pipe

    def send(self, pipe: Pipe, frame: Any) -> None:
        """DEALER to ROUTER: never refused, never informed whether it arrived."""
        pipe.queue.append(frame)
        self._pump(pipe)

    def answer(self, listener: Listener, rid: bytes, frame: Any) -> bool:
        """ROUTER to DEALER; False when the peer is known to be gone."""
        pipe = listener.pipes.get(rid)
        if pipe is None or pipe.closed:
            return False

        def arrive() -> None:
            if not pipe.closed and pipe.listener is listener:
                pipe.on_frame(frame)

        self._at.after(self._ordered(pipe, "down"), arrive)
        return True

    def stall(self, pipe: Pipe, ms: int, space: int) -> None:
        """The DEALER's process reads nothing for a while; so many frames fit its queue."""
        pipe.stalled_ms, pipe.space = self._at.now_ms + ms, space
        due: dict[str, int] = pipe.__dict__.setdefault("due", {})
        due["down"] = max(due.get("down", 0), pipe.stalled_ms)

    def is_full(self, listener: Listener, rid: bytes) -> bool:
        """True if this peer's queue takes nothing now; else it takes one frame."""
        pipe = listener.pipes.get(rid)
        if pipe is None or pipe.closed or self._at.now_ms >= pipe.stalled_ms:
            return False
        pipe.space -= 1
        return pipe.space < 0

    def close(self, pipe: Pipe) -> None:
        """The DEALER's process closes it, or dies: its queue goes with it. The listener may hear of
        that, after all that arrives; where a host dies it does not."""
        listener, rid = pipe.listener, pipe.rid
        if (
            not pipe.closed and listener is not None and listener.on_left is not None
            and self._at.rng.random() < 0.5
        ):  # fmt: skip
            left = listener.on_left
            self._at.after(self._ordered(pipe, "up"), lambda: left(rid) if listener.alive else None)
        pipe.closed = True
        pipe.queue.clear()
        self._pipes = [other for other in self._pipes if other is not pipe]

    def die(self, listener: Listener) -> None:
        """The ROUTER's process dies: its inbound frames vanish, its peers reconnect one day."""
        listener.alive = False
        for pipe in listener.pipes.values():
            if not pipe.closed:
                pipe.listener, pipe.rid = None, b""
                self._at.after(
                    self._delay(), lambda pipe=pipe: None if pipe.closed else pipe.on_lost()
                )
        listener.pipes.clear()

    def _connect(self, pipe: Pipe) -> None:
        listener = self._listeners.get(pipe.address)
        if pipe.closed or pipe.listener is not None or listener is None or not listener.alive:
            return
        pipe.listener, pipe.rid = listener, b"\0" + next(self._rids).to_bytes(4, "big")
        pipe.__dict__["due"] = {}
        pipe.stalled_ms = 0
        listener.pipes[pipe.rid] = pipe
        pipe.on_connected()
        self._pump(pipe)

    def _pump(self, pipe: Pipe) -> None:
        """Moves frames into the listener's inbound queue, from where they die with it."""
        listener, rid = pipe.listener, pipe.rid
        while pipe.queue and listener is not None:
            frame = pipe.queue.popleft()

            def arrive(frame: Any = frame) -> None:
                if listener.alive and not (pipe.closed and self._at.rng.random() < 0.5):
                    listener.on_frame(rid, frame)

            self._at.after(self._ordered(pipe, "up"), arrive)
            if self._at.rng.random() < 0.2:
                break  # the rest stays in the DEALER's queue for a while
        if pipe.queue and listener is not None:
            self._at.after(1, lambda: self._pump(pipe))

    def _ordered(self, pipe: Pipe, way: str) -> int:
        """A delay that keeps the frames of one connection in order."""
        due: dict[str, int] = pipe.__dict__.setdefault("due", {})
        due[way] = max(due.get(way, 0), self._at.now_ms + self._delay())
        return due[way] - self._at.now_ms

    def _delay(self) -> int:
        return self._at.rng.randint(*self._delay_ms)
