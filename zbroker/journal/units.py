"""How units of the queues process enter a group. Pure.

    unit     parts that land side by side in one group, or not at all
               control part   one record: facts of a queue, a definition, a point, a purge
               publish part   messages, with the next sequences of "$broker.<instance>.<generation>"
               transaction    first of its unit: messages that were staged for it, then its record;
                              also one that is only prepared, or was and is decided: a branch

All parts but the last say that the next batch belongs to them. Names are placed before the first
part, so that nothing else lands inside a unit.

A unit is refused as a whole. Where one is refused for now, the later ones of its sort (with
messages or without) are refused as well, until their sender confirms the refusals: so each sort
lands in the order in which it was sent. Nothing is compared with the log: the sender finds out
there which units landed before a restart. A transaction is of the sort without messages: those that
it shows are in the log already, and what it takes from queues is in line with the rest of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from zbroker.checksums import crc32c
from zbroker.errors import Bug, ClientError
from zbroker.exchanges import route_column
from zbroker.ids import Origin
from zbroker.journal import named_records
from zbroker.journal.group_builder import (
    BATCH_BYTES,
    DISK_FULL,
    NOT_READY,
    Body,
    GroupBuilder,
    columns_bytes,
)
from zbroker.journal.own_publishers import OwnPublishers, broker_name
from zbroker.journal.sessions import PublisherState
from zbroker.journal.transaction_placer import JudgedTransaction, TransactionPlacer
from zbroker.limits import BATCH_COUNT_MAX, GROUP_MAX_BYTES
from zbroker.log.format import (
    FLAG_UNIT,
    KIND_BRANCH,
    KIND_DEFINITION,
    KIND_EXCHANGE,
    KIND_OUTCOMES,
    KIND_OWNERSHIP,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_SHARED_POINT,
    KIND_TRANSACTION,
    KIND_WIRING,
)
from zbroker.log.point_records import decoded_point
from zbroker.wire import bodies
from zbroker.wire import internal as m
from zbroker.wire.units import FOR_NOW, UNIT_PARTS_MAX, CommitUnits, UnitPart

_HELD: Final = "a unit that was sent before it was refused for now"
_CONTROL: Final = frozenset({
    KIND_QUEUE, KIND_WIRING, KIND_POINT, KIND_PURGE, KIND_DEFINITION, KIND_OUTCOMES, KIND_OWNERSHIP,
    KIND_EXCHANGE, KIND_TRANSACTION, KIND_BRANCH, KIND_SHARED_POINT,
})  # fmt: skip
_FIRST: Final = frozenset({KIND_TRANSACTION, KIND_BRANCH})  # of their units


class CommitUnit(NamedTuple):
    """Parts that land together, each with its body; `size`: bytes of log that it takes at most.

    confirmed: when it was sent, its sender had seen the receipts up to this ordinal.
    """

    parts: list[UnitPart]
    bodies: list[Body]
    size: int
    confirmed: int = 0


def units_of(commit: CommitUnits, sent: Sequence[Body]) -> Iterator[CommitUnit]:
    """The units of a Commit, which came with these bodies. Raises: Bug."""
    count = sum(map(len, commit.units))
    if count != len(sent):
        raise Bug(f"{count} parts came with {len(sent)} bodies")
    at = 0
    for parts in commit.units:
        taken = list(sent[at : at + len(parts)])
        at += len(parts)
        size = BATCH_BYTES * (1 + len(parts)) + sum(map(len, taken))  # one may be the name
        size += sum(columns_bytes(part) + len(part.routes) for part in parts)
        yield CommitUnit(parts, taken, size, commit.confirmed)


class Units:
    """Places units into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self.taken = 0  # units
        self._own = OwnPublishers(to)
        self._transactions = TransactionPlacer(to)
        self._held = [0, 0]  # ordinals of the newest units that were refused for now, by sort

    def begin(self) -> None:
        """Another sender, or the same one on another connection: its ordinals begin again."""
        self._held = [0, 0]

    def place(self, ordinal: int, unit: CommitUnit, *, fits: bool) -> m.ReceiptItem:
        """Judges one unit: all of it goes into the group, or nothing. fits: it has space."""
        sort = any(part.kind == KIND_PUBLISH for part in unit.parts)
        try:
            if unit.confirmed < self._held[sort]:
                raise ClientError("not_ready", _HELD)
            self._check(unit, fits)
            known, judged = self._publisher(unit), self._transaction(unit)
        except ClientError as error:
            self._to.refused += 1
            if error.code in FOR_NOW:
                self._held[sort] = ordinal
            return m.ReceiptItem(ordinal, 0, 0, 0, error.code, error.reason)
        first, before = self._to.next_position, len(self._to.batches)
        if judged is not None:
            self._transactions.show(judged)
        for part, body in zip(unit.parts, unit.bodies, strict=True):
            if known is not None and part.kind == KIND_PUBLISH:
                self._own.publish(known, part, body)
            else:
                self._to.control(part.kind, bytes(body))
        for batch in self._to.batches[before:-1]:
            batch.flags |= FLAG_UNIT
        self.taken += 1
        return m.ReceiptItem(ordinal, self._to.next_position - 1, first)

    def _check(self, unit: CommitUnit, fits: bool) -> None:
        """Raises: ClientError."""
        if self._to.fenced:
            raise ClientError("not_ready", NOT_READY)
        if not 0 < len(unit.parts) <= UNIT_PARTS_MAX:
            code = "too_large" if unit.parts else "bad_field"
            raise ClientError(code, f"a unit has 1 to {UNIT_PARTS_MAX} parts")
        sizes = [len(body) for body in unit.bodies]
        if sum(sizes) - max(sizes) > GROUP_MAX_BYTES:
            reason = f"a unit has at most {GROUP_MAX_BYTES} bytes besides its largest part"
            raise ClientError("too_large", reason)
        for part, body in zip(unit.parts, unit.bodies, strict=True):
            _check_part(part, body)
        if not fits:
            raise ClientError("disk_full", DISK_FULL)

    def _publisher(self, unit: CommitUnit) -> PublisherState | None:
        """The publisher of a unit with messages; its name is in the log before the unit.

        Raises: ClientError publisher_collision.
        """
        to = self._to
        if not any(part.kind == KIND_PUBLISH for part in unit.parts):
            return None
        known = self._own.open(broker_name(Origin(to.settings.instance, to.generation)))
        if not known.named:
            to.name(known)
        return known

    def _transaction(self, unit: CommitUnit) -> JudgedTransaction | None:
        """The one that the unit is of. Raises: ClientError; see TransactionPlacer."""
        if any(part.kind in _FIRST for part in unit.parts[1:]):
            raise ClientError("bad_field", "the record of a transaction is the first of its unit")
        if unit.parts[0].kind == KIND_TRANSACTION:
            return self._transactions.judge(unit.bodies[0])
        if unit.parts[0].kind == KIND_BRANCH:
            return self._transactions.judge_branch(unit.bodies[0])
        return None


def _check_part(part: UnitPart, body: Body) -> None:
    """Raises: ClientError bad_field, bad_frame."""
    if crc32c(body) != part.crc:
        raise ClientError("bad_field", "the checksum of a part is not that of its body")
    if part.kind == KIND_PUBLISH:
        _check_messages(part, body)
    elif part.kind not in _CONTROL:
        raise ClientError("bad_field", f"a record of kind {part.kind} cannot be in a unit")
    elif part.count != 1 or part.topics or part.columns is not None or part.routes:
        raise ClientError("bad_field", "a control record has no topics and columns, and counts one")
    elif part.kind in named_records.KINDS and not named_records.name_of(body):
        raise ClientError("bad_field", "a definition or point has no name")
    elif part.kind == KIND_SHARED_POINT and decoded_point(body) is None:
        raise ClientError("bad_field", "no instance would take this point")


def _check_messages(part: UnitPart, body: Body) -> None:
    if not 0 < part.count <= BATCH_COUNT_MAX or not part.topics:
        raise ClientError("bad_field", f"a batch has topics, and 1 to {BATCH_COUNT_MAX} messages")
    if part.columns is not None:
        bodies.check_columns(part.columns, part.count, len(part.topics))
    elif len(part.topics) > 1:
        raise ClientError("bad_field", "key `columns.index` is needed for several topics")
    bodies.check_packed(body, part.count, None, len(body))
    if part.routes:
        try:
            route_column.decode(part.routes, part.count)
        except ValueError as error:
            raise ClientError("bad_field", f"key `routes`: {error}") from None
