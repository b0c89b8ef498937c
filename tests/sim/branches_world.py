"""Workers whose transactions are prepared, and a transaction manager that decides: branches.

The world of transactions_world.py, with all its faults. Some workers prepare what they did, as one
branch, and hear from the manager what becomes of it: it commits what it knows to be prepared, and
remembers that for ever. What it finds prepared and knows nothing of it rolls back, and remembers
that, too: so a vote that comes late is too late. Programs die between any two of these steps;
whoever lists branches then decides what is left. In some histories an operator decides some.

Bugs (`BranchesWorld(seed, bug)`): branches_bugs.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tests.sim import branches_bugs
from tests.sim.branches_judge import BranchesJudge
from tests.sim.seeds import plant
from tests.sim.transactions_workers import AGAIN, Attempt, Worker
from tests.sim.transactions_world import TransactionsWorld
from zbroker.errors import TEMPORARY
from zbroker.journal.core import JournalCore
from zbroker.queues.core import QueuesCore
from zbroker.queues.registry import QueueRegistry
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import branches as b
from zbroker.wire import messages as m
from zbroker.wire import transactions as t
from zbroker.xids import Xid

RECOVER_MS = 300  # between two looks for what is left
UNKNOWN = AGAIN - TEMPORARY  # the connection has to begin again


class TransactionManager:
    """What it has decided, for good. true: commit."""

    def __init__(self) -> None:
        self.decided: dict[Xid, bool] = {}
        self.of_operators: set[Xid] = set()

    def vote(self, xid: Xid, *, commits: bool) -> bool:
        """A branch is prepared. Returns: what becomes of it."""
        return self.decided.setdefault(xid, commits)


class BranchWorker(Worker):
    """A worker that prepares some of its transactions, and decides what it finds prepared."""

    world: BranchesWorld

    def __init__(self, world: BranchesWorld, name: str, session: str) -> None:
        self._xids: dict[str, Xid] = {}  # by cid of a prepare
        self._looks: set[str] = set()
        self._next_look_ms = 0
        super().__init__(world, name, session)

    # -- prepare ------------------------------------------------------------------------------

    def _commit(self, attempt: Attempt) -> None:
        if not self.world.prepares(attempt):
            super()._commit(attempt)
            return
        attempt.sent_ms = self.world.at.now_ms
        cid = self.world.cid()
        attempt.cids.append(cid)
        xid = self._xids[cid] = self.world.xid(attempt)
        accepts, rejects = self._accepts(attempt), self._rejects(attempt)
        command = b.PrepareTransaction(*attempt.key, xid, attempt.messages, accepts, cid, rejects)
        self.link.send(command)

    def attached(self, answer: t.SessionAttached) -> None:
        self._looks.clear()
        super().attached(answer)

    def answered(self, answer: Any) -> None:
        if isinstance(answer, b.BranchPrepared):
            self._prepared(answer)
        elif isinstance(answer, b.BranchList):
            self._listed(answer)
        elif isinstance(answer, b.BranchDecided):
            pass
        elif isinstance(answer, m.Error) and answer.cid in self._looks:
            self._looks.discard(answer.cid)
            if answer.code in UNKNOWN:
                self.link.close()
        else:
            super().answered(answer)

    def _prepared(self, answer: b.BranchPrepared) -> None:
        """All that it took is the branch's."""
        attempt = self.attempt
        commits = self.world.manager.vote(answer.xid, commits=self.world.rng.random() < 0.75)
        if attempt is not None and answer.cid in attempt.cids:
            self._ended(attempt, committed=True)
        if self.world.healing or self.world.rng.random() < 0.6:
            self._decide(answer.xid, commits=commits)

    # -- decide -------------------------------------------------------------------------------

    def _decide(self, xid: Xid, *, commits: bool) -> None:
        self._about(b.DecideBranch(xid, "commit" if commits else "rollback"))

    def _about(self, command: Any) -> None:
        if self.link.attached is None:
            return
        command.cid = self.world.cid()
        self._looks.add(command.cid)
        self.link.send(command)

    def look(self) -> None:
        """It asks what is left to decide, now and then."""
        if self.link.attached is None:
            self.link.need()
        elif self.world.at.now_ms >= self._next_look_ms:
            self._next_look_ms = self.world.at.now_ms + RECOVER_MS
            self._about(b.ListBranches(limit=1_000))

    def _listed(self, answer: b.BranchList) -> None:
        world = self.world
        for one in answer.branches:
            xid = one.xid
            if one.state != "prepared":
                self._about(b.DecideBranch(xid, "forget"))
            elif not world.healing and world.rng.random() < 0.05:
                world.manager.of_operators.add(xid)
                decision: Any = world.rng.choice(("commit", "rollback"))
                self._about(b.DecideBranch(xid, decision, heuristic=True))
            elif world.healing or world.rng.random() < 0.3:
                self._decide(xid, commits=world.manager.vote(xid, commits=False))

    def act(self) -> None:
        if not self.frozen and self.world.rng.random() < 0.06:
            self.look()
        else:
            super().act()

    def _do_all(self) -> None:
        self.look()
        super()._do_all()


class BranchesWorld(TransactionsWorld):
    """One simulated history. manager: the transaction manager."""

    worker_type: ClassVar[Any] = BranchWorker
    judge_type = BranchesJudge
    judge: BranchesJudge

    def __init__(self, seed: int, bug: str = "", steps: int = 70) -> None:
        self.manager = TransactionManager()
        super().__init__(seed, bug, steps)

    def prepares(self, attempt: Attempt) -> bool:
        """Whether a transaction is a branch."""
        return not attempt.twice and attempt.key.number % 3 != 0

    def xid(self, attempt: Attempt) -> Xid:
        """A name that is new."""
        return Xid(1, f"{attempt.key.session}.{self.cid()}", "b")

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        core = super().core_of(settings, manager)
        plant(branches_bugs.QUEUES, self.bug, core)
        return core

    def plant_journal(self, core: JournalCore) -> None:
        super().plant_journal(core)
        plant(branches_bugs.JOURNAL, self.bug, core)

    def _drained(self) -> bool:
        return not self.judge.branches and super()._drained()
