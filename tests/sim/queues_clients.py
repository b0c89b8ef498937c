"""Consumers and the admin of the queues world: programs that speak the frames of its listener.

What a consumer said of messages is said again, on each new connection and after a while, until it
is answered: acks are repeated until they are settled. A consumer that is back tells what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.sim.net import Pipe
from tests.sim.queues_process import KEY, QUEUES
from zbroker.errors import TEMPORARY
from zbroker.log.records import ends_of, of_ends
from zbroker.wire import bodies, codec, token
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

if TYPE_CHECKING:
    from random import Random

    from tests.sim.queues_world import World

REPEAT_MS = 3_000  # what was not answered is said again
TURN_MS = 25
AGAIN_MS = 200  # after a logon that came too early
#: what another try of the same does not mend
FINAL = ("unknown_queue", "resource_locked", "bookmark_not_found", "bookmark_expired")


@dataclass
class Want:
    """A consumer as the program wants it. command: without sid, cid and what it holds."""

    command: q.Consume
    sid: str = ""
    asked: bool = False  # and not answered yet
    live: bool = False
    wanted: bool = True
    held: BitMap64 = field(default_factory=BitMap64)
    used: int = 0  # bytes of credit that were not given back


class Client:
    """One program, over its connections."""

    principal = ""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.diligent = False  # does all its work, and nothing else
        self.wants: list[Want] = []
        self.said: dict[str, tuple[q.Settle, int]] = {}  # by cid: what is not answered, since when
        self.pipe: Pipe | None = None
        self.logged_on = False
        self.generation: int | None = None
        self._logon_cid = ""
        self._heartbeat_s = world.rng.choice((None, 0.3, 2.0))
        self._beat_ms = 0
        self.connect()
        world.at.after(world.rng.randint(1, TURN_MS), self._turn)

    # -- connection ---------------------------------------------------------------------------

    def connect(self) -> None:
        """A new connection; what was on its way on the old one is lost."""
        if self.pipe is not None:
            self.world.net.close(self.pipe)
        self.logged_on = False
        for want in self.wants:
            want.live = want.asked = False
        pipe = Pipe(
            QUEUES,
            lambda frame: self._frame(pipe, frame),
            lambda: self._later(pipe),
            lambda: self._logon(pipe),
        )
        self.pipe = self.world.net.dealer(pipe)

    def _later(self, pipe: Pipe) -> None:
        if self.alive and pipe is self.pipe:
            self.connect()

    def _logon(self, pipe: Pipe) -> None:
        if pipe is not self.pipe:
            return
        said = token.Token(self.name, self.principal, "i", 1, 1 << 40)
        self._logon_cid = self.world.cid()
        self._send(m.ListenerLogon(token.make(KEY, said), self._logon_cid, self._heartbeat_s))

    def _send(self, command: Any) -> None:
        assert self.pipe is not None
        self.world.net.send(self.pipe, codec.encode(command))

    def consume(self, want: Want) -> None:
        """Asks for a consumer, with what it holds of it."""
        command = want.command
        want.sid, want.live, want.asked = self.world.cid(), False, True
        again = replace(command, sid=want.sid, cid=want.sid)
        mine = want.held.copy()
        for settle, _ in self.said.values():
            if settle.queue == command.queue:
                mine |= of_ends(settle.ends)
        if again.since is None and again.selector is None:
            again.holding = ends_of(mine)
            again.generation = self.generation if again.holding else None
        want.used = 0
        self.world.judge.asks[want.sid] = again
        self._send(again)

    # -- frames -------------------------------------------------------------------------------

    def _frame(self, pipe: Pipe, frame: tuple[bytes, bytes | None]) -> None:
        if not self.alive or pipe is not self.pipe:
            return
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, frame[0])
        if isinstance(answer, q.Job):
            self._job(answer, frame[1] or b"")
        elif isinstance(answer, q.Settled):
            self.said.pop(answer.cid or "", None)
        elif isinstance(answer, q.Consuming):
            self._consuming(answer)
        elif isinstance(answer, m.Ack) and answer.cid == self._logon_cid and answer.version:
            self._logged_on(answer)
        elif isinstance(answer, m.Ack) and answer.ended:
            self._over(answer.sid)
        elif isinstance(answer, m.Error) and answer.cid == self._logon_cid:
            self.world.judge.demand(answer.code == "not_ready", answer)
            self.world.at.after(AGAIN_MS, lambda: self._logon(pipe))
        elif isinstance(answer, m.Error):
            self._error(answer)

    def _logged_on(self, answer: m.Ack) -> None:
        self.logged_on = True
        self.generation = answer.origin[1] if answer.origin is not None else None
        for want in self.wants:
            if want.wanted:
                self.consume(want)
        for cid, (command, _) in self.said.items():
            self._say(cid, command)

    def _consuming(self, answer: q.Consuming) -> None:
        for want in self.wants:
            if want.sid == answer.sid:
                want.live, want.asked = True, False
                want.held &= of_ends(answer.kept)

    def _job(self, job: q.Job, body: bytes) -> None:
        want = next((each for each in self.wants if each.sid == job.sid), None)
        if want is None:
            return
        want.used += bodies.credit_bytes(body, job.columns)
        if not job.barrier:
            want.held |= BitMap64([row[0] for row in rows_of(job, body)])
        if want.used > want.command.credit // 2 and not self.frozen:
            self._send(m.Flow(want.sid, want.used))
            want.used = 0

    def _over(self, sid: str | None) -> None:
        for want in self.wants:
            if want.sid == sid:
                want.live = want.wanted = False
                want.held.clear()

    def _error(self, error: m.Error) -> None:
        if error.cid in self.said and error.code not in TEMPORARY:
            self.said.pop(error.cid or "")
        elif error.cid is None and error.sid is None and error.code == "not_logged_on":
            self.connect()
        elif error.sid is not None or error.cid in {want.sid for want in self.wants}:
            sid = error.sid or error.cid
            for want in self.wants:
                if want.sid == sid:
                    want.live = want.asked = False
                    if error.code in FINAL:
                        want.wanted = self.diligent and want.command.since is None
                    want.held.clear()

    # -- work ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        if not self.alive:
            return
        now_ms = self.world.at.now_ms
        if self.logged_on and not self.frozen:
            if self._heartbeat_s is not None and now_ms >= self._beat_ms:
                self._beat_ms = now_ms + int(self._heartbeat_s * 500)
                self._send(m.Heartbeat())
            for cid, (command, since_ms) in list(self.said.items()):
                if now_ms >= since_ms + REPEAT_MS:
                    self.said[cid] = command, now_ms
                    self._say(cid, command)
            if self.diligent:
                self._do_all()
        self.world.at.after(TURN_MS, self._turn)

    def _do_all(self) -> None:
        for want in self.wants:
            due = self.world.at.now_ms % 500 < TURN_MS
            if due and not want.live and not want.asked and want.wanted:
                self.consume(want)
            if want.held and want.live and want.command.since is None:
                self.settle(want, want.held.copy(), q.Settle())
            if want.used:
                self._send(m.Flow(want.sid, want.used))
                want.used = 0

    def settle(self, want: Want, positions: BitMap64, command: q.Settle) -> None:
        """Says something of messages that this consumer has."""
        command = replace(command, queue=want.command.queue)
        if not command.bookmarks and not command.filter:
            command = replace(command, ends=ends_of(positions), generation=self.generation)
        if not isinstance(command, q.Extend):
            want.held -= positions
        cid = self.world.cid()
        # settled without a sid in a strict queue, it comes back a lease later: too long for the end
        if want.live and (self.world.rng.random() < 0.7 or self.world.healing):
            command = replace(command, sid=want.sid)
        self.world.judge.asks[cid] = command
        self.said[cid] = command, self.world.at.now_ms
        if self.logged_on:
            self._say(cid, command)

    def _say(self, cid: str, command: q.Settle) -> None:
        self._send(replace(command, cid=cid))

    def act(self) -> None:
        """Something that a program may do."""
        rng = self.world.rng
        if self.frozen:
            return
        holding = [want for want in self.wants if want.held and want.live]
        if not holding:
            self._begin()
            return
        want = rng.choice(holding)
        many = some_of(rng, want.held)
        roll = rng.random()
        if roll < 0.60:
            self.settle(want, many, self._ack(want, many))
        elif roll < 0.72:
            self.settle(want, many, q.Release(delay_ms=rng.choice((0, 0, 50, 400))))
        elif roll < 0.79:
            self.settle(want, many, q.RejectMessages(reason="no good"))
        elif roll < 0.87:
            self.settle(want, many, q.Extend(lease_ms=rng.choice((0, 100, 1_500))))
        elif roll < 0.92:
            self._send(q.Browse(want.command.queue, self.world.cid(), limit=rng.randint(1, 50)))
        elif roll < 0.96:
            self._cancel(want)
        elif want.used:
            self._send(m.Flow(want.sid, want.used))
            want.used = 0

    def _cancel(self, want: Want) -> None:
        self._send(q.Cancel(want.sid, self.world.cid()))
        want.live = want.wanted = False
        if self.world.rng.random() < 0.5:
            want.held.clear()

    def _begin(self) -> None:
        rng = self.world.rng
        idle = [want for want in self.wants if not want.live and not want.asked]
        if idle and self.logged_on and rng.random() < 0.5:
            want = rng.choice(idle)
            want.wanted = True
            self.consume(want)

    def _ack(self, want: Want, many: BitMap64) -> q.Settle:
        roll = self.world.rng.random()
        if roll < 0.08:
            return q.Settle(bookmarks=[self.world.log.bookmark(position) for position in many])
        if roll < 0.12 and want.command.since is None:
            want.held.clear()
            return q.Settle(filter="/p >= 0")
        return q.Settle()

    def cut(self) -> None:
        """Its connection breaks; it is informed, and connects again."""
        self.connect()

    def stay_away(self, many_ms: Sequence[int]) -> None:
        """It has no connection, for one of these times."""
        assert self.pipe is not None
        self.world.net.close(self.pipe)
        self.logged_on = False
        for want in self.wants:
            want.live = want.asked = False
        self.world.at.after(self.world.rng.choice(many_ms), self._come_back)

    def _come_back(self) -> None:
        if self.alive and not self.logged_on:
            self.connect()

    def die(self) -> None:
        self.alive = False
        if self.pipe is not None:
            self.world.net.close(self.pipe)


def some_of(rng: Random, held: BitMap64) -> BitMap64:
    """Some messages: all, the first ones, one, or any."""
    roll = rng.random()
    if roll < 0.4:
        return held.copy()
    if roll < 0.7:
        return held[: rng.randint(1, len(held))]
    if roll < 0.85:
        return BitMap64([rng.choice(list(held))])
    return BitMap64([position for position in held if rng.random() < 0.5]) or held.copy()


def rows_of(job: q.Job, body: bytes) -> list[tuple[int, bytes, int]]:
    """Position, payload and deliveries of each message that counts."""
    messages = bodies.unpack(body, job.codec, job.count, 1 << 20)
    take = job.take if job.take is not None else job.count - job.skip
    messages = messages[job.skip : job.skip + take]
    offsets: Any = range(take)
    if job.columns is not None and job.columns.offset is not None:
        offsets = bodies.offsets(job.columns.offset)
    deliveries = [1] * take
    if job.deliveries is not None:
        deliveries = [
            int.from_bytes(job.deliveries[at : at + 2], "little") for at in range(0, 2 * take, 2)
        ]
    return [
        (job.position + offset, data, count)
        for offset, data, count in zip(offsets, messages, deliveries, strict=True)
    ]


class Admin:
    """Whoever operates the broker. `open`: questions that were not answered, by cid."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open: dict[int, s.QueuesQuestion] = {}
        self.answers: list[tuple[s.QueuesQuestion, Any]] = []
        self._last = 0

    def ask(self, question: Any) -> None:
        """Asks the process, if there is one."""
        self._last += 1
        question.cid = self._last
        if self.world.process is not None:
            self.open[self._last] = question
            self.world.process.ask(question)

    def reported(self, answer: Any) -> None:
        """The process answers."""
        question = self.open.pop(answer.cid, None)
        if question is not None:
            self.world.judge.reported(question, answer)


def payload(number: int, rng: Random) -> bytes:
    """A message with whatever queues of the world look at."""
    return msgspec.json.encode(
        {
            "id": number,
            "p": rng.randrange(4),
            "g": rng.choice(("a", "b", "c", None)),
            "b": int(rng.random() < 0.06),
        }
    )
