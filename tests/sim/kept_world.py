"""Workers whose sessions have a time-out: what they hold outlives their connections.

The world of transactions_world.py. Workers attach with a time-out of about as long as it takes them
to come back, so attaches and time-outs race; they lose the connection of the session, those of
consumers, or both; they detach, and fail. Their consumers are of the session once it is attached.

Safety, besides what that world promises: a message that such a consumer was sent goes to no other
one before it was settled, or its session was over, as the log says; also not after the process has
begun again, if the worker says in time that it has it; a session times out when it was
attached for at least its time-out. Liveness: no session is left that no program has.

Bugs (`KeptWorld(seed, bug)`): kept_bugs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyroaring import BitMap64

from tests.sim import kept_bugs
from tests.sim.queues_clients import Want
from tests.sim.queues_judge import Lease, Ref
from tests.sim.seeds import plant
from tests.sim.transactions_judge import Row, TransactionsJudge
from tests.sim.transactions_workers import Worker
from tests.sim.transactions_world import TransactionsWorld
from zbroker.log import records as r
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.consumers import GRACE_MS
from zbroker.queues.work.queue import Queue
from zbroker.wire import codec
from zbroker.wire import queue_messages as q
from zbroker.wire import transactions as t

if TYPE_CHECKING:
    from tests.sim.queues_process import Give, ProcessNode

TIMEOUTS_MS: Final = (0, 150, 400, 1_500, 6_000)
AWAY_MS: Final = (100, 700, 1_500)  # leases last for 200 to 500
FAILURE: Final = "bad_order"


class KeptMessage(NamedTuple):
    """One that a consumer of a session was sent. ends: how often that was over before."""

    session: str
    holder: str
    sid: str
    ends: int


class KeptWorker(Worker):
    """A worker whose session is kept for a while."""

    world: KeptWorld

    def __init__(self, world: TransactionsWorld, name: str, session: str) -> None:
        self.epoch = 0  # in which it attached a session with a time-out last
        super().__init__(world, name, session)
        self.link.timeout_ms = world.rng.choice(TIMEOUTS_MS)
        self.link.consumers = self.restated
        self.link.need()

    def restated(self) -> list[tuple[str, str]] | None:
        """Its consumers, as it says with an attach, or not."""
        if self.world.rng.random() < 0.3:
            return None
        return [(want.command.queue, want.command.holder) for want in self.wants if want.wanted]

    def attached(self, answer: t.SessionAttached) -> None:
        super().attached(answer)
        self.epoch = answer.epoch if answer.timeout_ms else 0

    def consume(self, want: Want) -> None:
        want.command.session = self.link.session if self.epoch else ""
        want.command.epoch = self.epoch
        super().consume(want)

    def act(self) -> None:
        roll = self.world.rng.random()
        if self.link.attached is None:
            if roll < 0.2:  # mostly it takes its time
                self.link.need()
        elif roll < 0.03 and self.link.attached is not None:
            self._detach(self.link.attached.epoch)
        elif roll < 0.06 and self.logged_on and self.link.attached is not None:
            self.stay_away(AWAY_MS)
        else:
            super().act()

    def cut(self) -> None:
        if self.world.rng.random() < 0.5:
            super().cut()
        elif self.pipe is not None:
            self.stay_away(AWAY_MS)

    def _detach(self, epoch: int) -> None:
        """It ends its session, and begins again as another program."""
        code = FAILURE if self.world.rng.random() < 0.5 else ""
        self.world.faults.append("worker failed" if code else "worker detached")
        self.link.send(t.DetachSession(self.link.session, epoch, code, cid=self.world.cid()))
        self.world.at.after(self.world.rng.choice((0, 5, 300)), lambda: self.world.replace(self))


class KeptJudge(TransactionsJudge):
    """Sees who holds what, as the log says."""

    world: KeptWorld

    def __init__(self, world: TransactionsWorld) -> None:
        super().__init__(world)
        self._kept: dict[tuple[str, int], KeptMessage] = {}
        self._ends: dict[str, int] = {}  # by session: how often it was over
        self._since: dict[str, tuple[int, int]] = {}  # its first epoch since, its time-out
        self._began_ms: dict[str, int] = {}
        self._doubted: dict[tuple[str, int], KeptMessage] = {}  # of the process before this one
        self._process_ms = 0

    # -- the log ------------------------------------------------------------------------------

    def _began(self, row: Row, record: r.TransactionRecord) -> None:
        name, now_ms = record.session, self.world.at.now_ms
        goes_on = not record.ended and record.timeout_ms and record.holder == row.holder
        if record.ended == "timed out":
            waited = now_ms - self._began_ms[name]
            since, timeout_ms = self._since[name]
            self.demand(timeout_ms, name, "times out, and has no time-out", since)
            self.demand(waited >= timeout_ms, name, "times out after", waited)
            self.checks["timed out"] += 1
        elif record.ended:
            self.checks[record.ended] += 1
        if not goes_on:
            self._ends[name] = self._ends.get(name, 0) + 1
            self._since[name] = record.epoch, 0 if record.ended else record.timeout_ms
        else:
            self._since[name] = self._since[name][0], record.timeout_ms
            self.checks["went on"] += 1
        self._began_ms[name] = now_ms
        super()._began(row, record)

    def _wired(self, record: r.DefinitionRecord, position: int) -> None:
        super()._wired(record, position)
        if record.definition is None:  # the next queue of this name may have the same messages
            for many in (self._kept, self._doubted, self._leases):
                for key in [key for key in many if key[0] == record.name]:
                    del many[key]

    def _out(self, ref: Ref, where: BitMap64, why: str) -> None:
        super()._out(ref, where, why)
        for position in where:
            self._kept.pop((ref.name, position), None)

    # -- the process --------------------------------------------------------------------------

    def began(self, process: ProcessNode, one: QueueState) -> None:
        if process is not self._process:
            self._doubted = {key: each for key, each in self._kept.items() if key in self._leases}
            self._process_ms = self.world.at.now_ms
        super().began(process, one)

    def commanded(self, process: ProcessNode, received: Any) -> None:
        super().commanded(process, received)
        command: Any = codec.decode(codec.QUEUES, received.frames[0])
        if isinstance(command, q.Consume):
            held = r.of_ends(command.holding) if command.session else BitMap64()
            self._let_go(lambda key, one: one.holder == command.holder and key[1] not in held)
        elif isinstance(command, q.Cancel):
            self._let_go(lambda _, one: one.sid == command.sid)
        elif isinstance(command, t.AttachSession) and command.consumers is not None:
            has = {tuple(each) for each in command.consumers}
            self._let_go(
                lambda key, one: one.session == command.session
                and (key[0], one.holder) not in has
            )  # fmt: skip
        elif isinstance(command, q.Settle) and (command.bookmarks or command.filter):
            self._doubted.clear()
        elif isinstance(command, (q.Settle, *self.takes)):
            parts = command.accepts if isinstance(command, self.takes) else [command]
            where = BitMap64.union(BitMap64(), *(r.of_ends(each.ends) for each in parts))
            self._doubted = {key: one for key, one in self._doubted.items() if key[1] not in where}

    def _let_go(self, which: Any) -> None:
        """These may go to others."""
        self._kept = {key: one for key, one in self._kept.items() if not which(key, one)}
        self._doubted = {key: one for key, one in self._doubted.items() if not which(key, one)}

    def _consuming(self, process: ProcessNode, answer: q.Consuming) -> None:
        """What it keeps is its own, also if another process had given it."""
        super()._consuming(process, answer)
        command, ref = self.asks[answer.sid], self.ref(process.running(self.asks[answer.sid].queue))
        since, timeout_ms = self._since.get(command.session, (0, 0))
        if ref is None or not command.session or not timeout_ms or command.epoch < since:
            return
        [key] = [
            each.key for each in process.core.shared.consumers.values() if each.sid == answer.sid
        ] or [None]
        ends = self._ends[command.session]
        for position in self.kept_by(answer, ref.name) if key is not None else ():
            at = ref.name, position
            self.checks["restated"] += at not in self._leases
            self._leases[at] = Lease(key, None)
            self._kept[at] = KeptMessage(command.session, command.holder, answer.sid, ends)

    def _may_be_given(self, ref: Ref, position: int, holder: str) -> None:
        """What a session held in the process before waits until its program may have said so."""
        before = self._doubted.pop((ref.name, position), None)
        if before is None or before.holder == holder or self._ends[before.session] > before.ends:
            return
        waited = self.world.at.now_ms - self._process_ms
        least = min(ref.config.lease or GRACE_MS, self._since[before.session][1])
        self.demand(
            waited >= least, ref.name, position, before, "is given", holder, "after", waited
        )
        self.checks["given after a start"] += 1

    def _leased(self, ref: Ref, queue: Queue, give: Give, position: int, deliveries: int) -> None:
        key, command = (ref.name, position), self.asks[give.to.sid]
        self._may_be_given(ref, position, command.holder)
        before = self._kept.pop(key, None)
        settled = key not in self._leases or position in ref.disputed  # or another process's
        if before is not None and not settled and before.holder != command.holder:
            over = self._ends[before.session] > before.ends
            self.demand(over, ref.name, position, "of", before, "is given to", command.holder)
            self.checks["given after an end"] += 1
        super()._leased(ref, queue, give, position, deliveries)
        since, timeout_ms = self._since.get(command.session, (0, 0))
        if command.session and timeout_ms and command.epoch >= since:
            ends = self._ends[command.session]
            self._kept[key] = KeptMessage(command.session, command.holder, give.to.sid, ends)
            self.checks["kept by a session"] += 1

    # -- the end ------------------------------------------------------------------------------

    def forgotten(self) -> list[str]:
        """Sessions that should be over by now, and are not."""
        had = {
            worker.link.session for worker in self.world.clients
            if isinstance(worker, Worker) and worker.link.attached is not None
        }  # fmt: skip
        return [name for name, (_, kept_ms) in self._since.items() if kept_ms and name not in had]


class KeptWorld(TransactionsWorld):
    """One simulated history."""

    worker_type = KeptWorker
    judge_type = KeptJudge
    judge: KeptJudge

    def plant_queues(self, core: QueuesCore) -> None:
        plant(kept_bugs.QUEUES, self.bug, core)

    def _fault(self) -> None:
        roll = self.rng.random()
        if self._workers and len(self.clients) > 1 and roll < 0.1:
            self._kill_with_worker()
        elif roll < 0.3:  # the workers come back, and say what they hold
            self.kill_process()
        else:
            super()._fault()

    def _kill_with_worker(self) -> None:
        """The process dies, and a program whose session it kept."""
        self.faults.append("room and worker killed")
        worker = self.rng.choice(self._workers)
        worker.die()
        self.clients.remove(worker)
        self.kill_process()

    def _heal(self) -> None:
        for worker in [*self._workers]:  # a lost command to cancel is known to no one
            self.replace(worker)
        super()._heal()

    def _drained(self) -> bool:
        return super()._drained() and not self.judge.forgotten()

    def _left(self) -> str:
        return f"{super()._left()}\nsessions {self.judge.forgotten()}"
