"""Three to five instances with a queue of all of them, and transactions that are prepared.

The world of sessions_world.py: links are cut, processes die at any effect, the power fails,
messages change their owners. Here workers prepare some of what they did, and a transaction manager
decides: it commits what it heard to be prepared, and remembers that. At each instance a program
lists, now and then, what that one has prepared, and decides what is left; what the manager knows
nothing of it rolls back, for good, now and then by force what another instance has prepared.

Safety: as there, also of what was prepared: on every instance it is there as a whole or not at
all, and no job has two results. Liveness: in the end no branch and no lock is left anywhere, all
instances have the same transactions, and these are what the manager decided.
"""

from __future__ import annotations

from typing import Any, Final

from tests.sim import branches_owners_bugs
from tests.sim.many_world import _nothing
from tests.sim.owners_process import queues_of
from tests.sim.owners_workers import message_of
from tests.sim.seeds import plant
from tests.sim.sessions_world import (
    Attempt,
    Committer,
    Key,
    Seen,
    SessionsInstance,
    SessionsWorld,
    ends_of_takes,
)
from tests.sim.transactions_workers import AGAIN, SessionLink
from tests.sim.two_nodes import Message
from zbroker.log.format import KIND_BRANCH, Batch
from zbroker.log.records import BRANCH, BranchRecord, TransactionRecord
from zbroker.wire import branches as b
from zbroker.wire import messages as wm
from zbroker.wire import transactions as t
from zbroker.xids import Xid

LOOK_MS: Final = 400
FORCED: Final = 0.3  # of what a program sees of other instances it decides so often, if it can


class DistributedInstance(SessionsInstance):
    """An instance whose cores may have a planted bug."""

    world: BranchesOwnersWorld

    def start(self) -> None:
        journal, queues = self.journal, self.queues
        super().start()
        if self.journal is not None and self.journal is not journal:
            plant(branches_owners_bugs.JOURNAL, self.world.bug, self.journal.core)
        if self.queues is not None and self.queues is not queues:
            plant(branches_owners_bugs.QUEUES, self.world.bug, self.queues.core)


class Preparer(Committer):
    """A worker that prepares two of three transactions."""

    world: BranchesOwnersWorld

    def _commit(self, attempt: Attempt) -> None:
        if attempt.key.number % 3 == 0:
            super()._commit(attempt)
            return
        attempt.cid, attempt.sent_ms = self.world.cid(), self.world.at.now_ms
        accepts = ends_of_takes(attempt, self._sid, self._generation)
        self.world.asked_to_lock |= {message_of(job) for job in attempt.takes.values()}
        self.link.send(b.PrepareTransaction(
            *attempt.key, xid_of(attempt.key), attempt.messages, accepts, attempt.cid
        ))  # fmt: skip

    def answered(self, answer: Any) -> None:
        attempt = self.attempt
        if not isinstance(answer, b.BranchPrepared):
            super().answered(answer)
        elif attempt is not None and answer.cid == attempt.cid:
            self.world.prepared(attempt)
            self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        """It is the manager's, now."""
        self.attempt = None
        if attempt.at is self.at:
            for at in attempt.takes:
                self.held.pop(at, None)

    def _ended(self, attempt: Attempt, *, committed: bool) -> None:
        if not committed and xid_of(attempt.key) in self.world.decided:
            self._forget(attempt)  # it was prepared, and somebody decided it
            return
        super()._ended(attempt, committed=committed)
        if not committed:
            self.world.decided.setdefault(xid_of(attempt.key), False)


class Recoverer:
    """A program that decides what its instance has prepared."""

    principal = ""
    alive = True

    def __init__(self, world: BranchesOwnersWorld, instance: DistributedInstance) -> None:
        self.world, self.name = world, f"recovers-{instance.name}"
        self._instance = instance
        self.link = SessionLink(self, self.name, queues_of(instance.name))
        self.link.force = True
        world.at.after(LOOK_MS, self._turn)

    def _turn(self) -> None:
        self.world.at.after(LOOK_MS, self._turn)
        if self.link.attached is None:
            self.link.close()
            self.link.need()
        elif self.world.rng.random() < 0.5:
            self.link.send(b.ListBranches(limit=1_000, cid=self.world.cid()))

    def attached(self, answer: t.SessionAttached) -> None:
        """It may ask."""

    def fenced(self) -> None:
        """No one else has its session, but an answer may have been lost."""
        self.link.close()

    def answered(self, answer: Any) -> None:
        """What is left."""
        if isinstance(answer, wm.Error) and (answer.cid is None or answer.code in AGAIN):
            self.link.close()
        if not isinstance(answer, b.BranchList) or self.link.attached is None:
            return
        for one in answer.branches:
            if one.state != "prepared":
                self._decide(one, "forget")
            elif one.here:
                commits = self.world.decided.setdefault(one.xid, False)
                self._decide(one, "commit" if commits else "rollback")
            else:
                self.world.events.append("branch of another instance")
                forces = self.world.rng.random() < FORCED
                if forces and not self.world.decided.setdefault(one.xid, False):
                    self.world.events.append("rolled back by force")
                    self._decide(one, "rollback")

    def _decide(self, one: b.Branch, decision: Any) -> None:
        self.link.send(b.DecideBranch(
            one.xid, decision, cid=self.world.cid(), force=not one.here, instance=one.instance
        ))  # fmt: skip


class BranchesOwnersWorld(SessionsWorld):
    """One seed's history. decided: by the manager, for good."""

    instance_of = DistributedInstance
    committer_type = Preparer

    def __init__(self, seed: int, bug: str = "") -> None:
        self.decided: dict[Xid, bool] = {}
        self.asked_to_lock: set[Message] = set()
        super().__init__(seed, bug)
        self.recoverers = [
            Recoverer(self, instance)  # type: ignore[arg-type]
            for instance in self.instances.values()
        ]

    def done(self, instance: Any, payloads: list[bytes], cid: str = "") -> None:
        """An answer to an acknowledgement does not say that what was locked meanwhile is done."""
        sure = [one for one in payloads if message_of(one) not in self.asked_to_lock]
        super().done(instance, sure, cid)

    def prepared(self, attempt: Attempt) -> None:
        """Its worker heard so, and the manager votes."""
        xid = xid_of(attempt.key)
        self.events.append("prepared")
        commits = self.decided.setdefault(xid, self.rng.random() < 0.7)
        self.events.append("decided to commit" if commits else "decided to roll back")

    def record_of(self, batch: Batch) -> TransactionRecord | None:
        if batch.kind != KIND_BRANCH:
            return super().record_of(batch)
        record: BranchRecord = BRANCH.decode(bytes(batch.body))
        if record.state != "committed":
            return None
        return TransactionRecord(
            record.principal, record.session, record.epoch, record.number, record.messages
        )

    def taken_from(
        self, key: Key, seen: Seen, instance: int, missing: set[Message]
    ) -> set[Message]:
        """Between its prepare and its commit others may say that a message is done: that counts,
        and the commit takes the rest."""
        prepared = xid_of(key) in self.decided
        found = {one for one in missing if prepared and seen.took.get(one, set()) - {instance}}
        if found:
            self.events.append("mixed")
        return found

    def heal(self) -> None:
        """Everything is up, and what is left is decided; then the rest."""
        for worker in self.workers:
            worker.die()
        self.cuts.clear()
        for instance in self.instances.values():
            instance.disk.hook = _nothing
            instance.deaths, instance.disk_nearly_full = 0, False
            instance.start()
        self.wait(self._none_left, "branches are left to decide")
        super().heal()

    def _none_left(self) -> bool:
        for one in self.instances.values():
            if one.journal is None or one.queues is None or one.queues.queue is None:
                return False
            if list(one.journal.core.commit.sessions.transactions.branches.rows()):
                return False
            if one.queues.queue.locked:
                return False
        return True

    def verdict(self) -> None:
        for xid, commits in self.decided.items():
            self.heard[key_of(xid)] = commits
        super().verdict()


def xid_of(key: Key) -> Xid:
    """The name of the branch of a transaction."""
    return Xid(1, f"{key.session}.{key.epoch}", str(key.number))


def key_of(xid: Xid) -> Key:
    """The same the other way round."""
    session, epoch = xid.gtrid.split(".")
    return Key(session, int(epoch), int(xid.bqual))
