"""How a transaction enters a group: its messages, then its record, then what it took. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal import branch_table, shown_stages, transaction_table
from zbroker.journal.group_builder import GroupBuilder
from zbroker.journal.own_publishers import OwnPublishers, transactions_name
from zbroker.journal.sessions import PublisherState
from zbroker.journal.shown_stages import CommitName
from zbroker.journal.stages import Stage
from zbroker.log.records import BranchRecord, TransactionRecord
from zbroker.transaction_tokens import token_of

_NO_RECORD: Final = "this is not a record of a session or transaction"


class JudgedTransaction(NamedTuple):
    """It may land. stages: that it shows; none: it shows no messages."""

    record: TransactionRecord | BranchRecord
    stages: list[Stage]
    publisher: PublisherState | None


class TransactionPlacer:
    """Places them into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to, self._own = to, OwnPublishers(to)

    def judge(self, body: bytes | memoryview) -> JudgedTransaction:
        """Whether the transaction of this record may land; the name of its publisher does.

        Raises: ClientError session_fenced, transaction_aborted, too_large, bad_field.
        """
        record, to = transaction_table.decoded(body), self._to
        if record is None:
            raise ClientError("bad_field", _NO_RECORD)
        to.sessions.transactions.check(record, to.settings.instance)
        token = token_of(record.session, record.epoch, record.number)
        if to.sessions.transactions.branches.has(record.principal, token):
            text = f"transaction {record.number} is prepared: its branch is to be decided"
            raise ClientError("transaction_aborted", text)
        if not record.messages:
            return JudgedTransaction(record, [], None)
        stages = self._staged(record)
        return JudgedTransaction(record, stages, self._publisher())

    def judge_branch(self, body: bytes | memoryview) -> JudgedTransaction:
        """Whether this record about a branch may land.

        Raises: ClientError branch_exists, unknown_branch, branch_elsewhere, branch_decided; and as
        `judge`.
        """
        record, to = branch_table.decoded(body), self._to
        if record is None:
            raise ClientError("bad_field", _NO_RECORD)
        table, here = to.sessions.transactions, to.settings.instance
        row = table.branches.check(record, here)
        if row is None:
            table.check(_as_commit(record), here)
            if record.messages:
                self._staged(record)
        elif record.messages != (row.messages if record.state == "committed" else 0):
            raise ClientError("bad_field", f"branch {row.xid} has {row.messages} messages")
        elif record.messages:
            token = token_of(row.session, row.epoch, row.number)
            stages = shown_stages.prepared(to, row.principal, token, row.messages)
            return JudgedTransaction(record, stages, self._publisher())
        return JudgedTransaction(record, [], None)

    def _staged(self, record: TransactionRecord | BranchRecord) -> list[Stage]:
        """What a transaction has staged. Raises: ClientError transaction_aborted, too_large."""
        token = token_of(record.session, record.epoch, record.number)
        try:
            stages = shown_stages.whole(self._to, record.principal, token, record.messages)
        except ClientError as error:
            raise ClientError("transaction_aborted", error.reason) from None
        shown_stages.check_size(stages)
        return stages

    def _publisher(self) -> PublisherState:
        to = self._to
        known = self._own.open(transactions_name(Origin(to.settings.instance, to.generation)))
        if not known.named:
            to.name(known)
        return known

    def show(self, judged: JudgedTransaction) -> None:
        """Its messages, before its record."""
        if judged.publisher is not None:
            name = CommitName("", 0, judged.record.principal)
            shown_stages.show(self._to, self._own, judged.publisher, name, judged.stages)


def _as_commit(record: BranchRecord) -> TransactionRecord:
    """A branch is in an epoch of a session, and has a number, as a transaction that commits."""
    return TransactionRecord(record.principal, record.session, record.epoch, record.number)
