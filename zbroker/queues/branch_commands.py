"""Branches of distributed transactions: prepared, decided, listed. Pure.

    prepare  each message is held by its consumer here --> a unit: the record, what is locked
               lands, and is read --> answered       refused, or one was not held --> nothing holds
    decide   AskBranches --the branch, prepared here--> a unit: its messages, the record, dead
               letters of what it rejects, what leaves the queues, or comes back --> answered
               --decided by an operator--> answered, if it was the same decision

Commits of two programs race in the journal, which takes one of them. What a branch has locked is
found in the queues, which have read all of its unit: not_ready until then.
Source: seed 001, "Dtx commands"; X/Open XA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.log.format import KIND_BRANCH
from zbroker.log.records import BranchRecord
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.queue_state import QueueState, after_all
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.transaction_letters import Taken
from zbroker.queues.transaction_takes import TransactionTakes
from zbroker.queues.work import locks
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Lock
from zbroker.transaction_tokens import token_of
from zbroker.wire.branches import (
    Branch,
    BranchDecided,
    BranchesFound,
    BranchList,
    BranchPrepared,
    BranchRow,
    DecideBranch,
    Decision,
    ListBranches,
    PrepareTransaction,
)
from zbroker.xids import Xid

INSTANCES_MAX: Final = 100  # that have a branch of one name, each its own

_STATES: Final[dict[Decision, Literal["committed", "rolled_back", "forgotten"]]] = {
    "commit": "committed", "rollback": "rolled_back", "forget": "forgotten",
}  # fmt: skip


class BranchRequest(NamedTuple):
    """A decision about a branch, and what is called then. See DecideBranch, also for `instance`."""

    principal: str
    xid: Xid
    decision: Decision
    heuristic: bool
    force: bool
    then: Callable[[BranchDecided], None]
    refuse: Callable[[ClientError], None]
    dry_run: bool = False  # it is checked, and what would come of it is said
    instance: int = 0


class BranchCommands:
    """Prepares and decides them, for clients and operators."""

    def __init__(self, shared: QueuesContext, scopes: ScopeChanges) -> None:
        self._shared, self._scopes = shared, scopes
        self._takes = TransactionTakes(shared, scopes)
        self._rolled_back: set[tuple[str, str]] = set()  # principal and token: a unit is under way

    # -- prepare ------------------------------------------------------------------------------

    def prepare(self, connection: QueuesConnection, command: PrepareTransaction) -> None:
        """Raises: ClientError; then nothing has changed."""
        takes = self._takes.held(connection, command)
        epoch = command.epoch
        principal = connection.token.principal
        accepted = sum(len(take.positions) for take in takes)
        record = BranchRecord(
            principal, command.xid, "prepared", command.session, epoch, command.number,
            command.messages, accepted, sorted({take.one.name for take in takes}),
        )  # fmt: skip
        branch = principal, token_of(command.session, epoch, command.number)
        rejected = sum(len(take.positions) for take in takes if take.reject)
        answer = BranchPrepared(command.xid, command.messages, accepted, command.cid, rejected)
        taken: list[Taken] = []
        for take in takes:
            lock = Lock(branch, take.reject)
            outcome = locks.prepare(take.queue, take.consumer.key, take.positions, lock)
            taken.append((take.one, [(outcome, None)]))
            self._shared.touch(take.one)

        def done(error: ClientError | None, _first: int, position: int) -> None:
            if error is not None:
                self._shared.refuse_late(connection, error, command.cid)
                return
            promises = self._shared.promises
            read = after_all(len(takes) + 1, lambda _code: promises.at(
                position, lambda: self._shared.answer_late(connection, answer)
            ))  # fmt: skip
            for take in takes:
                take.one.waiters.append((take.positions, read))
                take.one.waited()
            read("")

        self._takes.commit(KIND_BRANCH, record, taken, done)

    # -- decide -------------------------------------------------------------------------------

    def decide(self, connection: QueuesConnection, command: DecideBranch) -> None:
        """Raises: ClientError."""
        self.request(BranchRequest(
            self._whose(connection, command.principal), command.xid, command.decision,
            command.heuristic, command.force,
            lambda answer: self._shared.answer_late(connection, replace(answer, cid=command.cid)),
            lambda error: self._shared.refuse_late(connection, error, command.cid),
            instance=command.instance,
        ))  # fmt: skip

    def request(self, request: BranchRequest) -> None:
        """Calls `then` once it is durable, or `refuse`. Raises: ClientError."""

        def found(said: BranchesFound) -> None:
            try:
                self._decide(request, said)
            except ClientError as error:
                request.refuse(error)

        self._shared.find_branches(request.principal, request.xid, INSTANCES_MAX, found)

    def _decide(self, request: BranchRequest, said: BranchesFound) -> None:
        """Raises: ClientError."""
        if said.code:
            raise ClientError(said.code, said.reason)
        row = self._chosen(request, said.rows)
        decided: Decision = request.decision
        if row.state != "prepared" and decided != "forget":
            if row.state != _STATES[decided]:
                how = "committed" if row.state == "committed" else "rolled back"
                text = f"branch {row.xid} was {how} by an operator"
                raise ClientError("branch_decided", text)
            request.then(BranchDecided(row.xid, decided, 0, row.messages, row.accepted))
            return
        many = self._locking(row) if row.state == "prepared" else []
        if decided == "forget" and row.state == "prepared":
            raise ClientError("bad_command", f"branch {row.xid} is prepared: decide it first")
        branch = row.principal, token_of(row.session, row.epoch, row.number)
        found = [each for _, queue in many for each in queue.places.locks.of(branch).items()]
        accepted = sum(len(positions) for _, positions in found)
        committed = decided == "commit"
        rejected = sum(len(positions) for text, positions in found if text) if committed else 0
        messages = row.messages if committed else 0
        mixed = row.state == "prepared" and accepted < row.accepted
        if request.dry_run:
            answer = BranchDecided(
                row.xid, decided, 0, messages, accepted, mixed, rejected=rejected
            )
            request.then(answer)
            return
        if decided == "rollback":
            self._begin_roll_back(row.xid, branch)
        taken: list[Taken] = [
            (one, [(each, None) for each in locks.decide(queue, branch, committed=committed)])
            for one, queue in many
        ]
        record = BranchRecord(
            row.principal, row.xid, _STATES[decided], row.session, row.epoch, row.number, messages,
            accepted, row.queues, request.heuristic, row.instance != self._here,
        )  # fmt: skip

        def done(error: ClientError | None, first: int, position: int) -> None:
            if decided == "rollback":
                self._rolled_back.discard(branch)
            if error is not None:
                request.refuse(error)
                return
            shown = first - messages if messages else 0
            answer = BranchDecided(
                row.xid, decided, shown, messages, accepted, mixed, rejected=rejected
            )
            self._shared.promises.at(position, lambda: request.then(answer))

        self._takes.commit(KIND_BRANCH, record, taken, done, branch=branch)

    def _begin_roll_back(self, xid: Xid, branch: tuple[str, str]) -> None:
        """One at a time, since a queue does not count how often messages come back. Raises:
        ClientError not_ready."""
        if branch in self._rolled_back:
            raise ClientError("not_ready", f"branch {xid} is being rolled back", "ask again")
        self._rolled_back.add(branch)

    @property
    def _here(self) -> int:
        return self._shared.manager.origin.instance

    def _chosen(self, request: BranchRequest, rows: list[BranchRow]) -> BranchRow:
        """Raises: ClientError unknown_branch, branch_elsewhere."""
        if request.instance:
            rows = [row for row in rows if row.instance == request.instance]
        own = [row for row in rows if row.instance == self._here]
        row = next(iter(own or rows), None)
        if row is not None and not own and len(rows) > 1:
            names = ", ".join(f"{each.instance:016x}" for each in rows)
            text = f"branch {row.xid} was prepared on several other instances: {names}"
            raise ClientError("branch_elsewhere", text, "name the instance that is meant")
        if row is None:
            text = f"{request.principal!r} has no branch {request.xid} that is to be decided"
            raise ClientError("unknown_branch", text)
        if row.instance != self._here and (not request.force or request.decision == "commit"):
            text = f"branch {row.xid} was prepared on instance {row.instance:016x}"
            raise ClientError("branch_elsewhere", text)
        return row

    def _locking(self, row: BranchRow) -> list[tuple[QueueState, Queue]]:
        """The queues that have messages of a branch. Raises: ClientError not_ready."""
        if not self._shared.manager.known:
            raise ClientError("not_ready", "the queues are being read")
        found = []
        for name in row.queues:
            one = self._shared.manager.running.get(name)
            if one is None or not isinstance(one.queue, Queue):
                continue  # it was deleted meanwhile
            one.check_ready()
            unread = one.folded <= row.position or one.in_unit  # the locks come after the record
            if self._scopes.holds(one) or unread:
                raise ClientError("not_ready", f"queue {name!r} is being read, or changed")
            found.append((one, one.queue))
        return found

    # -- list ---------------------------------------------------------------------------------

    def listed(self, connection: QueuesConnection, command: ListBranches) -> None:
        """Raises: ClientError."""
        principal = self._whose(connection, command.principal)

        def found(said: BranchesFound) -> None:
            if said.code:
                error = ClientError(said.code, said.reason)
                self._shared.refuse_late(connection, error, command.cid)
                return
            rows = [self.shown(row) for row in said.rows]
            self._shared.answer_late(connection, BranchList(rows, said.left_out, command.cid))

        self._shared.find_branches(
            principal, command.xid, command.limit, found, after=command.after
        )

    def shown(self, row: BranchRow) -> Branch:
        """A branch for others."""
        return Branch(
            row.xid, row.principal, row.state, row.session, row.instance,
            row.instance == self._here, row.messages, row.accepted, row.prepared_ns, row.epoch,
            row.number,
        )  # fmt: skip

    def _whose(self, connection: QueuesConnection, principal: str) -> str:
        """Raises: ClientError not_entitled."""
        own = connection.token.principal
        if principal in ("", own):
            return own
        if not self._shared.may(connection, "dtx_admin", principal):
            text = f"{own!r} may not decide branches of {principal[:64]!r}"
            raise ClientError("not_entitled", text)
        return principal
