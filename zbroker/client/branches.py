"""Distributed transactions of a session, by the names of PEP 249.

    tpc_begin --> open --tpc_prepare--> prepared --tpc_commit, tpc_rollback--> over
                   |  +--not answered--> doubtful --tpc_rollback--> over
                   +--tpc_commit (one phase), tpc_rollback--> over

A program outside, the transaction manager, decides of a prepared one; so can each program of the
same principal, by its xid. `BranchMethods` is what sessions with threads and in event loops share.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from zbroker.client.branch_link import BranchLink
from zbroker.client.session_link import Takes, TransactionId
from zbroker.client.transaction import COMMIT_S, Transaction, TransactionResult
from zbroker.client.waits import end_of
from zbroker.clock import to_datetime
from zbroker.errors import ZBrokerError
from zbroker.wire.branches import Branch, BranchState, Decision
from zbroker.xids import Xid

if TYPE_CHECKING:
    from zbroker.client.base_client import BaseClient

ASK_S: Final = 10.0

_LEFT: Final = {
    "prepared": "tpc_commit() or tpc_rollback() it first",
    "doubtful": "its tpc_prepare() was not answered: tpc_rollback() it",
}

Phase = Literal["open", "prepared", "doubtful"]
T = TypeVar("T")


class BranchInfo(NamedTuple):
    """A distributed transaction that waits: what `tpc_recover` lists, and `tpc_commit`,
    `tpc_rollback` and `tpc_forget` take.

    state: "prepared"; "committed" or "rolled_back" by an operator, until `tpc_forget`. prepared:
    when. messages: that it shows if it is committed; acknowledged: that leave their queues then,
    with those that it rejects.
    """

    xid: Xid
    state: BranchState
    session: str
    prepared: datetime
    messages: int
    acknowledged: int


class DistributedTransaction(Transaction):
    """One that has an xid. end: of the monotonic clock; it has to be prepared before."""

    def __init__(self, id_: TransactionId, xid: Xid, end: float | None) -> None:
        super().__init__(id_)
        self.xid, self.end = xid, end
        self.phase: Phase = "open"

    @property
    def is_open(self) -> bool:
        return self.phase == "open"

    def check_open(self) -> None:
        """Raises: ZBrokerError bad_command."""
        if not self.is_open:
            text = f"the transaction {self.xid} is {self.phase}"
            raise ZBrokerError("bad_command", text, _LEFT[self.phase])


class BranchMethods:
    """What sessions have for distributed transactions."""

    name: str
    _branches: BranchLink
    _client: BaseClient[Any, Any, Any, Any]
    _transaction: Transaction | None

    # -- what a session adds ------------------------------------------------------------------

    async def _begin(self, timeout: float) -> Transaction:
        raise NotImplementedError

    async def _commit(self, timeout: float) -> None:
        raise NotImplementedError

    async def _rollback(self) -> None:
        raise NotImplementedError

    async def _hand_in(
        self, ask: Callable[[int, Takes, float], T], timeout: float, *, empty: bool = False
    ) -> T | None:
        raise NotImplementedError

    # -- what both do -------------------------------------------------------------------------

    def xid(self, format_id: int, gtrid: str, bqual: str = "") -> Xid:
        """The name of a distributed transaction, used once by its principal.

        format_id: which rule the others follow, at least 0. gtrid: the whole transaction, 1 to 64
        printable ASCII characters; bqual: the part of this broker in it, at most 64.
        Raises: ZBrokerError bad_field.
        """
        return checked(Xid(format_id, gtrid, bqual))

    async def _tpc_begin(self, xid: Xid, *, timeout: float | None = None) -> None:
        """What the session publishes, acknowledges and rejects from here on belongs to the
        transaction `xid`, until it is committed or rolled back.

        timeout: seconds in which it has to be prepared; later `tpc_prepare` rolls it back.
        Raises: ZBrokerError bad_command (another transaction is open), bad_field; else as
        `Client.session`.
        """
        name, end = checked(xid), end_of(timeout)
        begun = await self._begin(COMMIT_S if timeout is None else min(COMMIT_S, timeout))
        self._transaction = DistributedTransaction(begun.id, name, end)

    async def _tpc_prepare(self, timeout: float = COMMIT_S) -> None:
        """From here on the transaction can be committed, whatever dies, and waits for that or for a
        rollback without end.

        Its messages are shown to no one, and those that it acknowledges are given to no consumer.
        timeout: seconds for the answer.
        Raises: ZBrokerError transaction_aborted (nothing holds: a message was not held any more,
        or a time-out is over), branch_exists (its xid is in use), session_fenced, or what a publish
        was refused with: it is rolled back; outcome_unknown: it may be prepared, `tpc_rollback` it.
        """
        branch = self._current("tpc_prepare")
        branch.check_open()
        await self._check_time(branch)
        try:
            prepare = partial(self._branches.prepare, branch.xid)
            await self._hand_in(prepare, timeout, empty=True)
        except BaseException as error:
            if not isinstance(error, ZBrokerError) or error.code == "outcome_unknown":
                branch.phase, self._transaction = "doubtful", branch
            raise
        branch.phase = "prepared"

    async def _tpc_commit(
        self, xid: Xid | BranchInfo | None = None, *, timeout: float = COMMIT_S
    ) -> TransactionResult | None:
        """Commits the transaction of this session, in one phase if it is not prepared; or, outside
        of one, the prepared one that is named: then by any program of its principal.

        Returns: what it did; None: an earlier try of this call has done it, without an answer.
        The session has no transaction afterwards, also if this raises. timeout: seconds in which
        it is asked for again and again.
        Raises: ZBrokerError unknown_branch (it was decided before, or never prepared),
        branch_elsewhere (another instance has it), branch_decided (an operator has rolled it back),
        outcome_unknown, "timeout": commit it again by its xid. In one phase: as
        `Session.transaction`. bad_command.
        """
        branch = self._named(xid, "tpc_commit")
        if not isinstance(branch, DistributedTransaction):
            return await self._decide(branch, "commit", timeout)
        if branch.is_open:
            await self._check_time(branch)
            await self._commit(timeout)
            return branch.committed or TransactionResult(0, 0, 0)
        if branch.phase == "doubtful":
            branch.check_open()
        self._transaction = None
        return await self._decide(branch.xid, "commit", timeout)

    async def _tpc_rollback(
        self, xid: Xid | BranchInfo | None = None, *, timeout: float = COMMIT_S
    ) -> None:
        """Rolls back the transaction of this session, if it has one; or, outside of one, the
        prepared one that is named: then by any program of its principal.

        Its messages are never shown; those that it acknowledged are delivered again.
        The session has no transaction afterwards, also if this raises.
        Raises: ZBrokerError as `tpc_commit`; branch_decided: an operator has committed it.
        """
        if xid is None and self._transaction is None:
            return  # what `tpc_prepare` raised for was rolled back by that
        branch = self._named(xid, "tpc_rollback")
        if not isinstance(branch, DistributedTransaction):
            await self._decide(branch, "rollback", timeout)
        elif branch.is_open:
            await self._rollback()
        else:
            self._transaction = None
            await self._undo(branch, timeout)

    async def _undo(self, branch: DistributedTransaction, timeout: float) -> None:
        """Rolls back one that is prepared, or may be."""
        doubtful, end = branch.phase == "doubtful", time.monotonic() + timeout
        if doubtful:
            await self._client._aside(self._branches.fence, timeout)
        try:
            await self._decide(branch.xid, "rollback", max(0.0, end - time.monotonic()))
        except ZBrokerError as error:
            if not doubtful or error.code != "unknown_branch":
                raise

    async def _tpc_recover(self, timeout: float = ASK_S) -> list[BranchInfo]:
        """The transactions of this principal that are prepared, or were decided by an operator, and
        that this instance may decide, of all sessions, by xid.

        Raises: ZBrokerError, "timeout".
        """
        found = await self._client._aside(self._branches.recover, timeout)
        return [_info(branch) for branch in found]

    async def _tpc_forget(self, xid: Xid | BranchInfo, *, timeout: float = COMMIT_S) -> None:
        """Forgets a transaction that an operator has decided. Raises: ZBrokerError as
        `tpc_commit`."""
        await self._decide(checked(xid), "forget", timeout)

    # -- helpers ------------------------------------------------------------------------------

    def _leave(self) -> None:
        """The prepared one is decided later, by its xid; the session may begin another one."""
        self._current("_leave")
        self._transaction = None

    def _current(self, what: str) -> DistributedTransaction:
        """Raises: ZBrokerError bad_command."""
        if isinstance(self._transaction, DistributedTransaction):
            return self._transaction
        text = f"{what}: session {self.name!r} is in no transaction that tpc_begin has begun"
        raise ZBrokerError(
            "bad_command", text, "begin one, or name one that is prepared by its xid"
        )

    def _named(self, given: Xid | BranchInfo | None, what: str) -> DistributedTransaction | Xid:
        """The transaction that a decision is about. Raises: ZBrokerError bad_command, bad_field."""
        if given is None:
            return self._current(what)
        xid, transaction = checked(given), self._transaction
        if transaction is None:
            return xid
        if isinstance(transaction, DistributedTransaction) and transaction.xid == xid:
            return transaction
        text = f"{what}: session {self.name!r} is in another transaction"
        raise ZBrokerError("bad_command", text, "end that one first")

    async def _check_time(self, branch: DistributedTransaction) -> None:
        """Raises: ZBrokerError transaction_aborted, if its time is over; it is rolled back."""
        if branch.end is not None and time.monotonic() >= branch.end:
            await self._rollback()
            text = f"{branch.xid} was not prepared in the time that tpc_begin gave it"
            raise ZBrokerError("transaction_aborted", text)

    async def _decide(
        self, xid: Xid, decision: Decision, timeout: float
    ) -> TransactionResult | None:
        done = await self._client._aside(self._branches.decide, xid, decision, timeout)
        if done is None:
            return None
        return TransactionResult(
            done.messages, done.position, done.accepted, done.mixed, done.rejected
        )


def checked(given: Xid | BranchInfo) -> Xid:
    """Raises: ZBrokerError bad_field."""
    xid = given.xid if isinstance(given, BranchInfo) else given
    try:
        return msgspec.convert(tuple(xid), Xid)
    except (TypeError, msgspec.ValidationError) as error:
        raise ZBrokerError("bad_field", f"{xid!r} is not an xid: {error}") from None


def _info(branch: Branch) -> BranchInfo:
    return BranchInfo(
        branch.xid, branch.state, branch.session, to_datetime(branch.prepared_ns), branch.messages,
        branch.accepted,
    )  # fmt: skip
