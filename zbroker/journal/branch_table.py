"""Branches of distributed transactions, as the log says of them. Pure.

    prepared --committed, rolled back--> over: the same name may be prepared again
        |
        +--an operator decides, or another instance rolls it back--> kept --forgotten--> over

A branch is decided where it was prepared: that instance alone knows all that became of it. What it
staged stays, whatever session begins, until a record of that instance ends it. So another one that
rolls it back, since that one is away, says what becomes of its messages in queues, and no more.
Two instances may prepare one name; these are two branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import DecodeError
from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.journal.stages import Owned, Stages
from zbroker.log.format import Batch
from zbroker.log.records import BRANCH, BranchRecord
from zbroker.transaction_tokens import token_of
from zbroker.wire.branches import AskBranches, BranchesFound, BranchRow
from zbroker.xids import Xid

BRANCHES_MAX: Final = 10_000  # of one principal


class BranchKey(NamedTuple):
    """One branch of a principal. instance: where it was prepared."""

    xid: Xid
    instance: int


class BranchNumbers(NamedTuple):
    """How many there are. decided: by operators, and not forgotten. since_ns: when the oldest
    prepared one was prepared; 0: there is none."""

    prepared: int = 0
    decided: int = 0
    since_ns: int = 0


def decoded(body: bytes | memoryview) -> BranchRecord | None:
    """None if it is none that this release can use."""
    try:
        return BRANCH.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None


class BranchTable:
    """The rows of one log. stages: of the same log."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._rows: dict[str, dict[BranchKey, BranchRow]] = {}  # by principal
        self._numbers: BranchNumbers | None = BranchNumbers()  # None: they have changed

    def get(self, record: BranchRecord, by: int) -> BranchRow | None:
        """The branch that a decision of this instance is about: its own, else that of another one;
        the very transaction, since there may be another one of that name by now, or elsewhere."""
        rows = self._rows.get(record.principal, {})
        said = record.session, record.epoch, record.number
        own = rows.get(BranchKey(record.xid, by))
        others = (row for key, row in rows.items() if key.xid == record.xid)
        known = (row for row in ([own] if own else others) if _name_of(row) == said)
        return next(known, None)

    def has(self, principal: str, token: str) -> bool:
        """Whether the transaction that stages under this token is prepared."""
        return (principal, token) in self._stages.prepared

    # -- what this instance writes --------------------------------------------------------------

    def check(self, record: BranchRecord, instance: int) -> BranchRow | None:
        """Whether this instance may write it now. Returns: the branch that it decides.

        Raises: ClientError branch_exists, transaction_aborted, too_many, unknown_branch,
        branch_elsewhere, branch_decided, bad_command.
        """
        if record.state == "prepared":
            self._check_new(record, instance)
            return None
        row, xid = self.get(record, instance), record.xid
        if row is None:
            raise ClientError("unknown_branch", f"branch {xid} is not prepared here")
        if row.instance != instance and (not record.forced or record.state == "committed"):
            text = f"branch {xid} was prepared on instance {row.instance:016x}"
            raise ClientError("branch_elsewhere", text)
        if record.state == "forgotten" and row.state == "prepared":
            raise ClientError("bad_command", f"branch {xid} is prepared: decide it first")
        if record.state != "forgotten" and row.state != "prepared":
            raise ClientError("branch_decided", f"branch {xid} was {_done(row)} before")
        return row

    def _check_new(self, record: BranchRecord, instance: int) -> None:
        rows = self._rows.get(record.principal, {})
        if BranchKey(record.xid, instance) in rows:
            text = f"branch {record.xid} of {record.principal!r} was prepared before"
            raise ClientError("branch_exists", text)
        if self.has(record.principal, token_of(record.session, record.epoch, record.number)):
            text = f"transaction {record.number} of this epoch is prepared under another name"
            raise ClientError("transaction_aborted", text)
        if len(rows) >= BRANCHES_MAX:
            text = f"a principal has at most {BRANCHES_MAX} branches that are not decided"
            raise ClientError("too_many", text)

    # -- what the log says ------------------------------------------------------------------------

    def fold(self, batch: Batch) -> None:
        """Learns from a record of any instance; one whose body is damaged changes nothing."""
        record = decoded(batch.body)
        if record is None:
            return
        by = batch.origin_instance
        if record.state == "prepared":
            self.learn(BranchRow(
                record.principal, record.xid, "prepared", record.session, record.epoch,
                record.number, by, batch.position, batch.log_time, record.messages,
                record.accepted, record.queues,
            ))  # fmt: skip
            return
        row = self.get(record, by)
        if row is None or (row.instance != by and not record.forced):
            return
        self._decided(row, record, by)

    def _decided(self, row: BranchRow, record: BranchRecord, by: int) -> None:
        forgotten = record.state == "forgotten"
        if row.instance == by or forgotten:
            # a commit has ended its stage before: the record follows on what it shows
            self._stages.end_prepared(_owned(row), row.instance)
        keeps = record.heuristic or row.instance != by
        if record.state == "forgotten" or not keeps:
            self._drop(row)
        elif row.state == "prepared":
            self.learn(replace(row, state=record.state))

    def _drop(self, row: BranchRow) -> None:
        self._stages.prepared.discard(_owned(row))
        self._numbers = None
        rows = self._rows[row.principal]
        del rows[BranchKey(row.xid, row.instance)]
        if not rows:
            del self._rows[row.principal]

    def learn(self, row: BranchRow) -> None:
        """A row of a state snapshot, or what a record made of it."""
        rows = self._rows.setdefault(row.principal, {})
        rows[BranchKey(row.xid, row.instance)] = row
        self._numbers = None
        self._stages.prepared.add(_owned(row))

    # -- look -------------------------------------------------------------------------------------

    def rows(self) -> Iterator[BranchRow]:
        """All of them."""
        for rows in list(self._rows.values()):
            yield from list(rows.values())

    def numbers(self) -> BranchNumbers:
        """Asked for each second: rows are looked at only if one has changed."""
        if self._numbers is None:
            prepared = [row.prepared_ns for row in self.rows() if row.state == "prepared"]
            decided = sum(map(len, self._rows.values())) - len(prepared)
            self._numbers = BranchNumbers(len(prepared), decided, min(prepared, default=0))
        return self._numbers

    def found(self, ask: AskBranches) -> BranchesFound:
        """Those that match, by principal and name."""
        rows = sorted(
            (row for row in self.rows()
             if ask.principal in (None, row.principal) and ask.xid in (None, row.xid)
             and ask.token in (None, _owned(row)[1])
             and (ask.after is None or (row.xid, row.instance) > ask.after)),
            key=lambda row: (row.principal, row.xid, row.instance),
        )  # fmt: skip
        return BranchesFound(ask.cid, rows[: ask.limit], max(0, len(rows) - ask.limit))


def _name_of(row: BranchRow) -> tuple[str, int, int]:
    """Its session, epoch and number."""
    return row.session, row.epoch, row.number


def _owned(row: BranchRow) -> Owned:
    """What it staged."""
    return row.principal, token_of(row.session, row.epoch, row.number)


def _done(row: BranchRow) -> str:
    return "committed" if row.state == "committed" else "rolled back"
