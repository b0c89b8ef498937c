"""Consumers of the simulated instances: programs that take messages, do them, and fail over.

A worker holds what it was given by payload. It acknowledges by position where it got a message, and
by bookmark at any other instance. What was not answered is said again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import json
from pyroaring import BitMap64

from tests.sim.net import Pipe
from tests.sim.owners_filters import FILTERS
from tests.sim.owners_process import KEY, QUEUE, queues_of
from tests.sim.queues_clients import rows_of
from zbroker.ids import format_bookmark, publisher_id
from zbroker.log.records import ends_of
from zbroker.wire import codec, token
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q

if TYPE_CHECKING:
    from tests.sim.owners_world import OwnersInstance, OwnersWorld

AGAIN_MS = 1_500
TURN_MS = 40


class Worker:
    """One program, at one instance at a time."""

    def __init__(self, world: OwnersWorld, number: int) -> None:
        self.world, self.name = world, f"w{number}"
        self.alive = True
        self.diligent = False  # does all at once, and nothing else
        self.backlog = world.rng.choice((1, 3, 20))
        self.filter = world.filters.choose()
        self.held: dict[int, bytes] = {}  # by position at the instance
        self.carried: list[bytes] = []  # of another instance, to be acknowledged by bookmark
        self.said: dict[str, tuple[q.Settle, list[bytes], int]] = {}
        self.at: OwnersInstance | None = None
        self._pipe: Pipe | None = None
        self._sid, self._asked_ms = "", 0
        self._live = False
        world.at.after(world.rng.randint(1, TURN_MS), self._turn)

    # -- where it is --------------------------------------------------------------------------

    def go(self, instance: OwnersInstance | None) -> None:
        """Works there from now on; None: nowhere."""
        if self._pipe is not None:
            self.world.net.close(self._pipe)
        if self.at is not instance:
            for _, payloads, _ in self.said.values():
                self.carried += payloads
            self.said.clear()
            self.carried += self.held.values()
            self.held.clear()
        self.at, self._live, self._pipe = instance, False, None
        if instance is None:
            return
        pipe = Pipe(
            queues_of(instance.name),
            lambda frame: self._frame(pipe, frame),
            lambda: self._again(pipe),
            lambda: self._logon(pipe),
        )
        self._pipe = self.world.net.dealer(pipe)

    def _again(self, pipe: Pipe) -> None:
        if pipe is self._pipe:
            self.held.clear()  # it comes again, flagged
            self.go(self.at)

    def _logon(self, pipe: Pipe) -> None:
        if pipe is self._pipe:
            said = token.Token(self.name, "", "i", 1, 1 << 40)
            self._send(m.ListenerLogon(token.make(KEY, said), "logon"))

    def _send(self, command: Any) -> None:
        if self._pipe is not None:
            self.world.net.send(self._pipe, codec.encode(command))

    def _consume(self) -> None:
        self._sid, self._asked_ms = self.world.cid(), self.world.at.now_ms
        self._send(q.Consume(
            self._sid, QUEUE, self._sid, backlog=self.backlog, credit=1 << 20, filter=self.filter
        ))  # fmt: skip

    # -- frames -------------------------------------------------------------------------------

    def _frame(self, pipe: Pipe, frame: tuple[bytes, bytes | None]) -> None:
        if pipe is not self._pipe:
            return
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, frame[0])
        if isinstance(answer, q.Job) and answer.sid == self._sid:
            rows = rows_of(answer, frame[1] or b"")
            if self.filter is not None:
                fits = FILTERS[self.filter]
                wrong = [payload for _, payload, _ in rows if not fits(message_of(payload)[1])]
                self.world.demand(not wrong, f"{self.filter} is given {wrong}")
            self.held |= {position: payload for position, payload, _ in rows}
        elif isinstance(answer, q.Settled):
            self._settled(answer)
        elif isinstance(answer, q.Consuming) and answer.sid == self._sid:
            self._live = True
        elif isinstance(answer, m.Ack) and answer.cid == "logon":
            self._consume()
            for cid, (command, _, _) in self.said.items():
                self._say(cid, command)
        elif isinstance(answer, m.Error):
            self._error(answer)

    def _settled(self, answer: q.Settled) -> None:
        command, payloads, _ = self.said.pop(answer.cid or "", (None, [], 0))
        if command is None or self.at is None:
            return
        if not command.bookmarks:
            self.world.done(self.at, payloads, answer.cid or "")
        elif answer.taken < len(payloads) and not self.diligent:
            self.carried += payloads  # the instance may not have it yet

    def _error(self, error: m.Error) -> None:
        if error.sid == self._sid or error.cid == self._sid:
            self._live, self._sid = False, ""
        elif error.code == "not_logged_on":
            self.go(self.at)
        elif error.cid in self.said and error.code == "stale_epoch":
            self.said.pop(error.cid)

    # -- work ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        if not self.alive:
            return
        now_ms = self.world.at.now_ms
        if self.at is not None and not self._live and now_ms > self._asked_ms + AGAIN_MS:
            self.go(self.at)
            self._asked_ms = now_ms
        for cid, (command, payloads, since_ms) in list(self.said.items()):
            if now_ms >= since_ms + AGAIN_MS:
                self.said[cid] = command, payloads, now_ms
                self._say(cid, command)
        if self.diligent and self.held:
            self.settle(list(self.held))
        self.world.at.after(TURN_MS, self._turn)

    def act(self) -> None:
        """Something that a program may do."""
        rng = self.world.rng
        if self.carried and self.at is not None and rng.random() < 0.5:
            payloads, self.carried = self.carried, []
            bookmarks = [bookmark_of(payload) for payload in payloads]
            self._settle(q.Settle(queue=QUEUE, bookmarks=bookmarks), payloads)
        if not self.held or not self._live:
            return
        some = rng.sample(sorted(self.held), rng.randint(1, len(self.held)))
        roll = rng.random()
        if roll < 0.7:
            self.settle(some)
        elif roll < 0.85:
            self._settle(q.Release(delay_ms=rng.choice((0, 50))), [], some)
        elif roll < 0.9:
            self._send(q.Cancel(self._sid, self.world.cid()))
            self.held.clear()
            self._consume()

    def settle(self, positions: list[int]) -> None:
        """These are done."""
        self._settle(q.Settle(), [self.held[at] for at in positions], positions)

    def _settle(self, command: q.Settle, payloads: list[bytes], positions: list[int] = []) -> None:  # noqa: B006
        for at in positions:
            del self.held[at]
        if positions:
            command.queue, command.ends = QUEUE, ends_of(BitMap64(positions))
        if isinstance(command, q.Release):
            command.sid, command.queue = self._sid, None
        cid = self.world.cid()
        self.said[cid] = command, payloads, self.world.at.now_ms
        self._say(cid, command)

    def _say(self, cid: str, command: q.Settle) -> None:
        command.cid = cid
        self.world.locals.said(self.at, cid)
        self._send(command)

    def die(self) -> None:
        self.alive = False
        self.go(None)


def message_of(payload: bytes) -> tuple[int, int]:
    """Publisher and sequence of a message of the world."""
    said = json.decode(payload)
    return publisher_id(said["p"]), said["n"]


def payload_of(name: str, sequence: int) -> bytes:
    """Its payload, which filters read."""
    return json.encode({"n": sequence, "p": name})


def bookmark_of(payload: bytes) -> str:
    return format_bookmark(*message_of(payload))
