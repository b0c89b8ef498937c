"""How a transaction enters a group: its messages, then its record, then what it took. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal import shown_stages, transaction_table
from zbroker.journal.group_builder import GroupBuilder
from zbroker.journal.own_publishers import OwnPublishers, transactions_name
from zbroker.journal.sessions import PublisherState
from zbroker.journal.shown_stages import CommitName
from zbroker.journal.stages import Stage
from zbroker.log.records import TransactionRecord

_NO_RECORD: Final = "this is not a record of a session or transaction"


class JudgedTransaction(NamedTuple):
    """It may land. stages: that it shows; none: it has no messages."""

    record: TransactionRecord
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
        if not record.messages:
            return JudgedTransaction(record, [], None)
        token = f"{transaction_table.stages_in(record.session, record.epoch)}{record.number}"
        try:
            stages = shown_stages.whole(to, record.principal, token, record.messages)
        except ClientError as error:
            raise ClientError("transaction_aborted", error.reason) from None
        shown_stages.check_size(stages)
        known = self._own.open(transactions_name(Origin(to.settings.instance, to.generation)))
        if not known.named:
            to.name(known)
        return JudgedTransaction(record, stages, known)

    def show(self, judged: JudgedTransaction) -> None:
        """Its messages, before its record."""
        if judged.publisher is not None:
            name = CommitName("", 0, judged.record.principal)
            shown_stages.show(self._to, self._own, judged.publisher, name, judged.stages)
