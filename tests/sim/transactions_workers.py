"""Workers of the transactions world: programs that take jobs, make results of them, and commit.

They speak the frames of the queues listener as `zbroker.client.session_link` does: a session has a
connection of its own; a commit that was not answered is not sent again, the session attaches again
and hears what holds. One that is fenced ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pyroaring import BitMap64

from tests.sim.net import Pipe
from tests.sim.queues_clients import AGAIN_MS, Client, Want, some_of
from tests.sim.queues_process import KEY, QUEUES
from tests.sim.transactions_journal import PRINCIPAL
from tests.sim.transactions_judge import Key
from zbroker.errors import TEMPORARY
from zbroker.log.records import ends_of
from zbroker.wire import codec, token
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import transactions as t

if TYPE_CHECKING:
    from tests.sim.transactions_world import TransactionsWorld

COMMIT_MS = 2_000  # an answer is waited for, then the session attaches again
JOBS_MAX = 4  # of one transaction
SLOW_MS = 1_200  # longer than a stage waits for its commit
AGAIN = TEMPORARY | {"not_logged_on"}


class SessionUser(Protocol):
    """A program with a session."""

    world: Any
    name: str
    principal: str
    alive: bool

    def attached(self, answer: t.SessionAttached) -> None:
        """Its session began."""

    def answered(self, answer: Any) -> None:
        """Something else was said on the connection."""

    def fenced(self) -> None:
        """It began elsewhere meanwhile."""


class SessionLink:
    """The connection of a session. attached: None while it is not. address: of the listener.
    force: it may have begun on another instance."""

    def __init__(self, worker: SessionUser, session: str, address: str = QUEUES) -> None:
        self.session, self.address, self.force = session, address, False
        self.timeout_ms = 0  # that it asks for
        self.heartbeat_s: float | None = None  # likewise; `beat` is to be called then
        self.consumers: Callable[[], list[tuple[str, str]] | None] = lambda: None  # that it has
        self.attached: t.SessionAttached | None = None
        self._worker, self._world = worker, worker.world
        self._pipe: Pipe | None = None
        self._logon_cid = self._attach_cid = ""
        self._holder, self._epoch = worker.world.cid(), 0  # the newest that it had
        self._attached_at, self.goes_on = "", True  # see `zbroker.client.session_link`

    def need(self) -> None:
        """It shall be attached."""
        if self._pipe is None:
            self._connect()

    def close(self) -> None:
        """Whatever was not answered never will be."""
        self.attached = None
        if self._pipe is not None:
            self._world.net.close(self._pipe)
            self._pipe = None

    def send(self, command: Any) -> None:
        """Sends a command, which the judge knows by its cid."""
        self._world.judge.asks[command.cid] = command
        assert self._pipe is not None
        self._world.net.send(self._pipe, codec.encode(command))

    def beat(self) -> None:
        """Its program is there."""
        if self.attached is not None and self._pipe is not None:
            self._world.net.send(self._pipe, codec.encode(m.Heartbeat()))

    def _connect(self) -> None:
        pipe = Pipe(
            self.address,
            lambda frame: self._frame(pipe, frame),
            lambda: self._lost(pipe),
            lambda: self._logon(pipe),
        )
        self._pipe = self._world.net.dealer(pipe)

    def _lost(self, pipe: Pipe) -> None:
        if pipe is self._pipe:
            self.close()

    def _logon(self, pipe: Pipe) -> None:
        if pipe is self._pipe and self._worker.alive:
            said = token.Token(self._worker.name, self._worker.principal, "i", 1, 1 << 40)
            self._logon_cid = self._world.cid()
            logon = m.ListenerLogon(token.make(KEY, said), self._logon_cid, self.heartbeat_s)
            self._world.net.send(pipe, codec.encode(logon))

    def _attach(self, pipe: Pipe) -> None:
        if pipe is self._pipe and self._worker.alive:
            self._attach_cid = self._world.cid()
            command = t.AttachSession(
                self.session, self._holder, self._epoch > 0, self.force, self._attach_cid,
                self.timeout_ms, self.consumers() if self._epoch else None, self._epoch,
            )  # fmt: skip
            self.send(command)

    def _frame(self, pipe: Pipe, frame: tuple[bytes, bytes | None]) -> None:
        if not self._worker.alive or pipe is not self._pipe:
            return
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, frame[0])
        if isinstance(answer, m.Heartbeat):
            return
        if answer.cid == self._logon_cid:
            refused = isinstance(answer, m.Error)
            (self._later if refused else self._attach)(pipe)
        elif answer.cid != self._attach_cid:
            self._worker.answered(answer)
        elif isinstance(answer, t.SessionAttached) and answer.epoch >= self._epoch:
            direct = answer.after in (self._epoch, self._epoch + 1)
            self.goes_on = direct or self._attached_at == self.address or not self._epoch
            self.attached, self._epoch = answer, answer.epoch
            self._attached_at = self.address
            self._worker.attached(answer)
        elif isinstance(answer, m.Error) and answer.code == "session_fenced":
            self._worker.fenced()
        else:  # also where its newest epoch is not known yet
            self._world.at.after(AGAIN_MS, lambda: self._attach(pipe))

    def _later(self, pipe: Pipe) -> None:
        self._world.at.after(AGAIN_MS, lambda: self._logon(pipe))


@dataclass
class Attempt:
    """One transaction of a worker. rejects: jobs that it has no results of. staging: batches that
    are not durable yet. sent_ms: when its commit was sent. cids: of commits that were not
    answered."""

    key: Key
    takes: list[tuple[Want, BitMap64]]
    rejects: list[tuple[Want, BitMap64]] = field(default_factory=list)
    messages: int = 0
    staging: int = 0
    eager: bool = False  # commits before all is durable
    twice: bool = False  # sends its commit two times
    ready_ms: int = 0
    sent_ms: int | None = None
    cids: list[str] = field(default_factory=list)


class Worker(Client):
    """One life of a program. work: it has a session of this name."""

    world: TransactionsWorld
    principal = PRINCIPAL

    def __init__(self, world: TransactionsWorld, name: str, session: str) -> None:
        self.world = world
        self.link = SessionLink(self, session)
        self.attempt: Attempt | None = None
        self._numbers = self._epoch = 0
        self.publisher = f"session.{session}.{name}"
        super().__init__(world, name)

    # -- its session --------------------------------------------------------------------------

    def attached(self, answer: t.SessionAttached) -> None:
        """What was under way is over: it holds, or does not."""
        attempt = self.attempt
        if attempt is None or attempt.key.epoch == answer.epoch:
            return
        holds = attempt.key[1:] == (answer.committed, answer.number)
        if holds:
            self.world.checks["found committed"] += 1
        elif attempt.sent_ms is not None:
            self.world.checks["found aborted"] += 1
        self._ended(attempt, committed=holds)

    def answered(self, answer: Any) -> None:
        """Something about a commit, or about all of the connection."""
        attempt = self.attempt
        if isinstance(answer, m.Error) and answer.cid is None:
            self.link.close()
        elif attempt is None or answer.cid not in attempt.cids:
            return
        elif isinstance(answer, t.TransactionCommitted):
            self._ended(attempt, committed=True)
        elif answer.code == "session_fenced" and not attempt.twice:
            self.fenced()
        elif answer.code in AGAIN:
            attempt.cids.clear()
            attempt.ready_ms = self.world.at.now_ms + AGAIN_MS
        elif attempt.twice and len(attempt.cids) > 1:
            attempt.cids.remove(answer.cid)  # the other one may land
        else:
            self._ended(attempt, committed=False)

    def fenced(self) -> None:
        """Another program has its session."""
        self.world.checks["fenced"] += 1
        self.world.replace(self)

    def _ended(self, attempt: Attempt, *, committed: bool) -> None:
        self.attempt = None
        for want, positions in (*attempt.takes, *attempt.rejects):
            if committed:
                want.held -= positions
            elif want.held & positions and (self.world.healing or self.world.rng.random() < 0.7):
                self.settle(want, want.held & positions, q.Release())

    # -- transactions -------------------------------------------------------------------------

    def begin(self) -> None:
        """A transaction, if it is attached and no other is open."""
        attached = self.link.attached
        if attached is None:
            self.link.need()
        if attached is None or self.attempt is not None or self.frozen:
            return
        if attached.epoch != self._epoch:
            self._epoch, self._numbers = attached.epoch, 0
        self._numbers += 1
        rng = self.world.rng
        key = Key(self.link.session, attached.epoch, self._numbers)
        attempt = self.attempt = Attempt(key, *self._some_jobs())
        if not self.world.healing:
            attempt.eager, attempt.twice = rng.random() < 0.1, rng.random() < 0.1
            if rng.random() < 0.1:
                attempt.ready_ms = self.world.at.now_ms + rng.choice((50, 400, SLOW_MS))
        payloads, wait_ms = self._results(attempt), 0
        while payloads:
            many = rng.randint(1, len(payloads))
            attempt.staging += 1
            stage = partial(self._stage, attempt, payloads[:many], f"{attached.stage}{key.number}")
            self.world.at.after(wait_ms, stage)
            payloads = payloads[many:]
            if rng.random() < 0.1 and not self.world.healing:
                wait_ms = SLOW_MS  # what it has staged so far may have ended by then

    def _some_jobs(self) -> tuple[list[tuple[Want, BitMap64]], list[tuple[Want, BitMap64]]]:
        """Of one queue, or of two: those that it does, and those that it rejects."""
        rng = self.world.rng
        holding = [want for want in self.wants if want.held and want.live]
        takes: list[tuple[Want, BitMap64]] = []
        rejects: list[tuple[Want, BitMap64]] = []
        left = 5 * JOBS_MAX if self.world.healing else JOBS_MAX
        for want in rng.sample(holding, min(len(holding), rng.choice((1, 2, 2)))):
            if left:
                many = some_of(rng, want.held)[:left]
                left -= len(many)
                bad = BitMap64([at for at in many if rng.random() < 0.2])
                takes += [(want, many - bad)] if many - bad else []
                rejects += [(want, bad)] if bad else []
        return takes, rejects

    def _results(self, attempt: Attempt) -> list[bytes]:
        """One of each job; sometimes some of no job, or nothing at all."""
        rng = self.world.rng
        jobs = [(want.command.queue, at) for want, many in attempt.takes for at in many]
        if not self.world.healing and rng.random() < 0.08 and not self.world.pure:
            return []
        many: list[list[tuple[str, int]]] = [[job] for job in jobs]
        many += [[] for _ in range(rng.choice((0, 0, 0, 1)))]
        attempt.messages = len(many)
        return [
            msgspec.json.encode({
                "id": self.world.cid(), "p": 1, "g": None, "b": 0, "jobs": each,
                "tx": attempt.key,
            })
            for each in many
        ]  # fmt: skip

    def _stage(self, attempt: Attempt, payloads: list[bytes], stage: str) -> None:
        def staged() -> None:
            attempt.staging -= 1

        if not self.alive:
            return
        topic = self.world.topic_of_results(attempt.takes)
        self.world.ingest.stage(self.publisher, topic, payloads, stage, staged)

    def _turn(self) -> None:
        super()._turn()
        if self.alive and not self.frozen and self.attempt is not None:
            self._go_on(self.attempt)

    def _go_on(self, attempt: Attempt) -> None:
        attached, now_ms = self.link.attached, self.world.at.now_ms
        if attached is None:
            self.link.need()
        elif attempt.cids:
            assert attempt.sent_ms is not None
            if now_ms - attempt.sent_ms > COMMIT_MS:
                self.link.close()
        elif now_ms >= attempt.ready_ms and (not attempt.staging or attempt.eager):
            self._commit(attempt)

    def _accepts(self, attempt: Attempt) -> list[t.Accepted]:
        return [
            t.Accepted(want.command.queue, want.command.holder, self.generation or 1, ends_of(many))
            for want, many in attempt.takes
        ]

    def _rejects(self, attempt: Attempt) -> list[t.RejectedMessages]:
        """Each job for a reason of its own."""
        return [
            t.RejectedMessages(
                want.command.queue, want.command.holder, self.generation or 1, [at, at + 1],
                f"bad {at}",
            )
            for want, many in attempt.rejects
            for at in many
        ]  # fmt: skip

    def _commit(self, attempt: Attempt) -> None:
        accepts, rejects = self._accepts(attempt), self._rejects(attempt)
        attempt.sent_ms = self.world.at.now_ms
        for _ in range(1 + attempt.twice):
            cid = self.world.cid()
            attempt.cids.append(cid)
            command = t.CommitTransaction(*attempt.key, attempt.messages, accepts, cid, rejects)
            self.link.send(command)

    # -- what a program may do ----------------------------------------------------------------

    def act(self) -> None:
        rng = self.world.rng
        if self.frozen:
            return
        roll = rng.random()
        if roll < 0.08 and self.attempt is not None and self.attempt.sent_ms is None:
            self._ended(self.attempt, committed=False)  # it was rolled back
        elif roll < 0.1:
            self.link.close()
        elif roll < 0.85:
            self.begin()
        elif not self.world.pure:
            super().act()
        elif self.attempt is None:
            self._hand_back()

    def _hand_back(self) -> None:
        holding = [want for want in self.wants if want.held and want.live]
        if not holding:
            self._begin()
            return
        want = self.world.rng.choice(holding)
        if self.world.rng.random() < 0.2:
            self._cancel(want)
            return
        self.settle(want, some_of(self.world.rng, want.held), q.Release())

    def _do_all(self) -> None:
        due = self.world.at.now_ms % 500 < 25
        for want in self.wants:
            if due and not want.live and not want.asked and want.wanted:
                self.consume(want)
            if want.used:
                self._send(m.Flow(want.sid, want.used))
                want.used = 0
        if self.attempt is None and any(want.held and want.live for want in self.wants):
            self.begin()

    def cut(self) -> None:
        """One of its connections breaks, or both."""
        roll = self.world.rng.random()
        if roll < 0.7:
            self.link.close()
        if roll > 0.4:
            super().cut()

    def die(self) -> None:
        super().die()
        self.link.close()
        self.world.ingest.gone(self.publisher)
