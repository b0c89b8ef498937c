"""Sessions with transactions, as the log tells of them: their epochs and last commits. Pure.

    begins in epoch e    commits of lower epochs are refused, and their staged messages end
    commit (e, n)        once, in the epoch of its session alone, in rising numbers

A commit whose answer was lost is not asked for again: its session begins in a higher epoch, and the
row says what the last one committed. All instances fold the same records in different orders, and
have the same rows in the end: the highest epoch holds, and the highest commit.

A session that ends does so in an epoch of its own, in which nothing is committed. That is one above
the epoch that ends, where only this was meant: one that began elsewhere meanwhile goes on.

A session commits on the instance where it began last. That one hands it over to another by a
record, in an epoch of its own in which nothing is committed; a log that has this record has all
that was committed before. To begin elsewhere without it a session has to say so (`force`): if the
other instance is away and has commits that are not here, they come later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.structs import astuple

from zbroker.errors import ClientError
from zbroker.journal.branch_table import BranchTable
from zbroker.journal.stages import Stages
from zbroker.log.format import Batch
from zbroker.log.records import TRANSACTION, TransactionRecord
from zbroker.transaction_tokens import stages_in, stages_of
from zbroker.wire.transactions import (
    AskSession,
    AskSessions,
    SessionFound,
    SessionKey,
    SessionList,
    SessionRow,
)

SESSIONS_MAX: Final = 10_000  # of one principal; the one that was not used for longest goes


class TransactionRow(Struct, array_like=True, gc=False):
    """A session in a state snapshot. epoch, instance: of its last begin. committed, number: epoch
    and number of the last transaction, 0: none. position: of the first of its `messages`, 0: it has
    none. holder: the program that began it last. timeout_ms: of that, too. ended: why it is over;
    code, text: as its program said. to: see TransactionRecord."""

    principal: str
    session: str
    epoch: int
    instance: int
    committed: int = 0
    number: int = 0
    position: int = 0
    messages: int = 0
    holder: str = ""
    timeout_ms: int = 0
    ended: str = ""
    code: str = ""
    text: str = ""
    to: int = 0

    @property
    def home(self) -> int:
        """The instance where it may begin without force."""
        return self.to or self.instance


def decoded(body: bytes | memoryview) -> TransactionRecord | None:
    """None if it is none that this release can use."""
    try:
        return TRANSACTION.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None


class TransactionTable:
    """The rows of one log. stages: of the same log; a session that begins ends those of its own,
    but not what a branch of `branches` has prepared."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.branches = BranchTable(stages)
        self._rows: dict[str, dict[SessionKey, TransactionRow]] = {}  # by principal

    def get(self, principal: str, session: str) -> TransactionRow | None:
        """The row of a session, if it is known."""
        return self._rows.get(principal, {}).get(SessionKey(principal, session))

    def check(self, record: TransactionRecord, instance: int) -> None:
        """Whether this instance may write it now. Raises: ClientError session_fenced."""
        row = self.get(record.principal, record.session)
        if not record.number:
            last = 0 if row is None else row.epoch
            if record.epoch <= last or record.after not in (None, last):
                raise _fenced(record, f"it began in epoch {last} meanwhile")
        elif row is None:
            raise _fenced(record, "it is not known here any more")
        elif (row.epoch, row.instance) != (record.epoch, instance):
            where = "" if row.instance == instance else f", on instance {row.instance:016x}"
            raise _fenced(record, f"it began again in epoch {row.epoch}{where}")
        elif row.ended:
            raise _fenced(record, f"it ended: {row.ended}")
        elif row.to:
            raise _fenced(record, f"it was handed over to instance {row.to:016x}")
        elif (row.committed, row.number) >= (record.epoch, record.number):
            raise _fenced(record, f"transaction {row.number} of it is committed")

    def fold(self, batch: Batch) -> None:
        """Learns from a record of any instance; one whose body is damaged changes nothing."""
        record = decoded(batch.body)
        if record is None:
            return
        principal, session = record.principal, record.session
        row = TransactionRow(
            principal, session, record.epoch, batch.origin_instance, holder=record.holder,
            timeout_ms=record.timeout_ms, ended=record.ended, code=record.code, text=record.text,
            to=record.to,
        )  # fmt: skip
        if record.number:
            row.committed, row.number = record.epoch, record.number
            first = batch.position - record.messages  # they are before it
            row.position, row.messages = first if record.messages else 0, record.messages
        else:
            kept = stages_in(session, record.epoch)
            self._stages.end_of_session(principal, stages_of(session), kept, batch.origin)
        self.learn(row)

    def learn(self, row: TransactionRow) -> None:
        """It adds to what is known of its session."""
        rows = self._rows.setdefault(row.principal, {})
        key = SessionKey(row.principal, row.session)
        before = rows.pop(key, None)
        rows[key] = row if before is None else _joined(before, row)
        if len(rows) > SESSIONS_MAX:
            del rows[next(iter(rows))]

    def rows(self) -> Iterator[TransactionRow]:
        """All of them, per principal the longest unused first."""
        for rows in list(self._rows.values()):
            yield from list(rows.values())

    def found(self, ask: AskSession) -> SessionFound:
        """The answer about one session."""
        row = self.get(ask.principal, ask.session)
        if row is None:
            return SessionFound(ask.cid)
        return SessionFound(
            ask.cid, row.epoch, row.home, row.committed, row.number, row.position,
            row.messages, stages_in(row.session, row.epoch), row.holder, row.timeout_ms, row.ended,
            row.code, row.text,
        )  # fmt: skip

    def listed(self, ask: AskSessions) -> SessionList:
        """The answer about those that match."""
        rows = sorted(
            (row for row in self.rows()
             if ask.principal in ("", row.principal) and ask.session in ("", row.session)
             and (row.principal, row.session) > ask.after
             and ask.kept_by in (0, _kept_by(row))),
            key=lambda row: (row.principal, row.session),
        )  # fmt: skip
        shown = [_shown(row) for row in rows[: ask.limit]]
        return SessionList(ask.cid, shown, len(rows) - len(shown))


def _shown(row: TransactionRow) -> SessionRow:
    *values, _ = astuple(row)
    shown = SessionRow(*values)
    shown.instance = row.home
    return shown


def _joined(one: TransactionRow, other: TransactionRow) -> TransactionRow:
    """The same whichever of them was known first. In one epoch, if a session was forced to begin on
    two instances in it, the one with the higher number counts; and one that began, neither an end
    nor a hand-over."""
    begun = max(one, other, key=_begin_of)
    last = max(one, other, key=lambda row: (row.committed, row.number, row.position))
    return TransactionRow(
        one.principal, one.session, begun.epoch, begun.instance, last.committed, last.number,
        last.position, last.messages, begun.holder, begun.timeout_ms, begun.ended, begun.code,
        begun.text, begun.to,
    )  # fmt: skip


def _begin_of(row: TransactionRow) -> tuple[int | str, ...]:
    rank = row.epoch, not (row.ended or row.to), row.instance, row.holder
    return (*rank, row.timeout_ms, row.ended, row.code, row.text, row.to)


def _kept_by(row: TransactionRow) -> int | None:
    """The instance that decides when it has timed out."""
    return row.home if row.timeout_ms and not row.ended else None


def _fenced(record: TransactionRecord, why: str) -> ClientError:
    text = f"session {record.session[:64]!r}, epoch {record.epoch}: {why}"
    return ClientError("session_fenced", text)
