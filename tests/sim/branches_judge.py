"""What distributed transactions promise, on top of what transactions do.

prepared   one unit: the record, and the locks of just what its messages are results of; of the
           newest epoch of its session. What it staged stays, whatever begins or is old
locked     no consumer is sent it, and it leaves its queue by the decision alone
decided    as its manager says, or an operator did; committed: one unit of messages, record, and
           all that was locked; rolled back: all of that comes back, and nothing is shown
the end    no branch is left; what was committed has its results, once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyroaring import BitMap64

from tests.sim.queues_judge import Ref
from tests.sim.transactions_journal import PRINCIPAL
from tests.sim.transactions_judge import Job, Key, Landed, Row, Taken, TransactionsJudge, Tries
from zbroker.engine.effects import Send
from zbroker.log import records as r
from zbroker.log.format import FLAG_UNIT, KIND_BRANCH, KIND_TRANSACTION
from zbroker.log.format import Batch as LogBatch
from zbroker.queues.work.queue import Queue
from zbroker.transaction_tokens import token_of
from zbroker.wire import branches as b
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import transactions as t
from zbroker.xids import Xid

if TYPE_CHECKING:
    from tests.sim.branches_world import BranchesWorld
    from tests.sim.queues_process import ProcessNode


class PreparedBranch(NamedTuple):
    """A branch that is prepared in the log. rejects: those of its jobs that it rejects. position:
    of its record."""

    key: Key
    messages: int
    jobs: frozenset[Job]
    position: int
    rejects: frozenset[Job]


class BranchesJudge(TransactionsJudge):
    """Sees everything. branches: that are prepared, or were decided by operators and are kept."""

    world: BranchesWorld
    shows = frozenset({KIND_TRANSACTION, KIND_BRANCH})
    takes = (t.CommitTransaction, b.PrepareTransaction)

    def __init__(self, world: BranchesWorld) -> None:
        self.branches: dict[Xid, PreparedBranch | None] = {}
        self.locked: dict[Job, Xid] = {}
        self.decided: dict[Xid, str] = {}  # as the log says
        self._mixed: set[Xid] = set()  # of these, that found fewer than they had locked
        self._committed_jobs: dict[Xid, Taken] = {}
        self._prepared_keys: set[Key] = set()
        self._were_locked: dict[tuple[str, int], BitMap64] = {}
        super().__init__(world)

    # -- the log ------------------------------------------------------------------------------

    def _other(self, batches: list[LogBatch], at: int) -> None:
        batch = batches[at]
        if batch.kind != KIND_BRANCH:
            super()._other(batches, at)
            return
        record = r.BRANCH.decode(batch.body)
        self._unit(record, letters=self.has_letters(batches, at))
        self._unit_now = record.by, record.unit
        self.demand(record.principal == PRINCIPAL, "a branch of", record.principal)
        if record.state == "prepared":
            self._prepared(record, batches, at)
        elif record.state == "forgotten":
            known = record.xid in self.branches and self.branches.pop(record.xid) is None
            self.demand(known, record.xid, "is forgotten, and was not decided")
            self.checks["forgotten"] += 1
        else:
            self._decided(record, batches, at)

    def _prepared(self, record: r.BranchRecord, batches: list[LogBatch], at: int) -> None:
        key, xid = Key(record.session, record.epoch, record.number), record.xid
        self.demand(xid not in self.branches, xid, "is prepared again")
        row = self._rows.get(key.session, Row())
        self.demand(key.epoch == row.epoch, key, "is prepared in epoch", row.epoch)
        last = row.committed, row.number
        self.demand((key.epoch, key.number) > last, key, "is prepared after", last)
        tries = self._tries.get(key, Tries())
        self.demand(tries.taken > tries.refused, key, "is prepared, and was answered otherwise")
        staged = self._stages.get(token_of(*key), 0)
        self.demand(staged == record.messages, key, "has staged", staged, "of", record.messages)
        branch = PRINCIPAL, token_of(*key)
        jobs = self._said(
            key, batches, at, lambda fact: isinstance(fact, r.Locked) and fact.branch == branch
        )
        rejects = {job for job, fact in jobs.items() if fact.reject}
        wrong = [job for job in rejects if jobs[job].reject != f"bad {job.position}"]
        self.demand(not wrong, key, "is to reject with other texts", wrong)
        self.as_was_asked(key, rejects)
        self.demand(len(jobs) == record.accepted, key, "locks", jobs, "and says", record.accepted)
        twice = jobs & self.locked.keys()
        self.demand(not twice, key, "locks what is locked:", twice)
        self.branches[xid] = PreparedBranch(
            key, record.messages, frozenset(jobs), batches[at].position, frozenset(rejects)
        )
        self._prepared_keys.add(key)
        self.locked.update(dict.fromkeys(jobs, xid))
        for job in jobs:
            self._were_locked.setdefault((job.queue, job.life), BitMap64()).add(job.position)
        self.checks["prepared"] += 1

    def _decided(self, record: r.BranchRecord, batches: list[LogBatch], at: int) -> None:
        xid, branch = record.xid, self.branches.get(record.xid)
        self.demand(branch is not None, xid, "is", record.state, "and not prepared")
        assert branch is not None
        self._as_was_said(record)
        committed = record.state == "committed"
        self.locked = {job: by for job, by in self.locked.items() if by != xid}
        here = {job for job in branch.jobs if self._is_here(job)}
        if committed:
            self._results(branch.key, record, batches[at - 1] if at else None)
            taken = self._taken(branch.key, batches, at)
            jobs = taken.jobs
            for job in jobs:
                before = self.by.setdefault(job, branch.key)
                self.demand(before == branch.key, job, "was taken by", before, "and", branch.key)
            wrong = taken.rejected ^ (branch.rejects & jobs)
            self.demand(not wrong, xid, "does not reject what it was to reject:", wrong)
            shown = batches[at - 1].position if record.messages else 0
            self.landed[branch.key] = Landed(shown, record.messages, taken)
            self._committed_jobs[xid] = taken
            self.checks["rejects of a branch"] += len(taken.rejected)
        else:
            joined = at > 0 and bool(batches[at - 1].flags & FLAG_UNIT)
            self.demand(not joined, xid, "is rolled back, and shows something")
            jobs = {*self._said(branch.key, batches, at, lambda one: isinstance(one, r.Failed))}
            self._stages.pop(token_of(*branch.key), None)
        self.demand(jobs >= here, xid, "leaves locked:", here - jobs)
        self.demand(jobs <= branch.jobs, xid, "is about more than it had:", jobs - branch.jobs)
        if len(jobs) < len(branch.jobs):
            self._mixed.add(xid)
        if record.heuristic:
            self.branches[xid] = None
        else:
            del self.branches[xid]
        self.decided[xid] = record.state
        self.checks[record.state] += 1

    def _as_was_said(self, record: r.BranchRecord) -> None:
        """Nobody decides but its manager, or an operator."""
        manager, committed = self.world.manager, record.state == "committed"
        if record.heuristic:
            self.demand(record.xid in manager.of_operators, record.xid, "was left to its manager")
        else:
            said = manager.decided.get(record.xid)
            self.demand(said is committed, record.xid, "is", record.state, "and not", said)

    def _is_here(self, job: Job) -> bool:
        ref = self.refs.get(job.queue)
        if ref is None or ref.life != job.life or ref.ended:
            return False
        return job.position in ref.here

    def stays(self, token: str) -> bool:
        return any(
            one is not None and token == token_of(*one.key) for one in self.branches.values()
        )

    def _gone(self, ref: Ref, where: BitMap64, why: str) -> None:
        for position in where:
            by = self.locked.get(Job(ref.name, ref.life, position))
            self.demand(by is None, ref.name, position, "left as", why, "and is locked by", by)
        super()._gone(ref, where, why)

    # -- the process --------------------------------------------------------------------------

    def _leased(self, ref: Ref, queue: Queue, give: Any, position: int, deliveries: int) -> None:
        by = self.locked.get(Job(ref.name, ref.life, position))
        self.demand(by is None, ref.name, "sends", position, "which is locked by", by)
        super()._leased(ref, queue, give, position, deliveries)

    def not_promised(self, ref: Ref) -> BitMap64:
        return self._were_locked.get((ref.name, ref.life), BitMap64())

    def compare(self, process: ProcessNode) -> None:
        super().compare(process)
        for one in process.core.manager.running.values():
            ref = self.ref(one)
            if ref is None or ref.ended or one.folded != self.end:
                continue
            known = BitMap64([
                job.position for job in self.locked if job[:2] == (ref.name, ref.life)
            ]) & ref.here  # fmt: skip
            self.demand(one.locked == known, one.name, "locks", list(one.locked), "not", known)
            self.checks["locks compared"] += bool(known)

    # -- commands and answers -----------------------------------------------------------------

    def answered(self, process: ProcessNode, send: Send) -> None:
        super().answered(process, send)
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        command = self.asks.get(getattr(answer, "cid", None) or "")
        if isinstance(command, b.PrepareTransaction):
            key = Key(command.session, command.epoch, command.number)
            if isinstance(answer, m.Error):
                self._tries[key].refused += 1
                self.checks[f"prepare {answer.code}"] += 1
                over = self._tries[key].refused == self._tries[key].taken
                prepared = key in self._prepared_keys
                self.demand(not (over and prepared), key, "is refused, and in the log")
            else:
                prepared = key in self._prepared_keys
                self.demand(prepared, key, "is answered, and not in the log")
        elif isinstance(command, b.DecideBranch) and command.decision != "forget":
            self._answered_decision(command, answer)
        elif isinstance(command, b.ListBranches) and isinstance(answer, b.BranchList):
            self.checks["listed"] += len(answer.branches)

    def _answered_decision(self, command: b.DecideBranch, answer: Any) -> None:
        said = self.decided.get(command.xid)
        if isinstance(answer, m.Error):
            self.checks[f"decide {answer.code}"] += 1
            if answer.code == "unknown_branch":
                gone = command.xid not in self.branches
                self.demand(gone, command.xid, "is not known, and it is in the log")
            return
        right = {"commit": "committed", "rollback": "rolled_back"}[command.decision]
        self.demand(said == right, command.xid, "is answered", command.decision, "and is", said)
        self.demand(answer.mixed == (command.xid in self._mixed), command.xid, "says", answer)
        if right == "committed":
            taken = self._committed_jobs.get(command.xid)
            for job in taken.jobs if taken is not None else ():
                ref = self.refs.get(job.queue)
                if ref is not None and ref.life == job.life and job.position not in ref.requeued:
                    ref.done.add(job.position)

    # -- the end ------------------------------------------------------------------------------

    def verdict(self, process: ProcessNode) -> None:
        super().verdict(process)
        self.demand(not self.branches, "these are left to decide:", list(self.branches))
        self.demand(not self.locked, "these are locked:", list(self.locked))
