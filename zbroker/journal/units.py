"""Units: what the queues room writes, all of it side by side in one group, or nothing. Pure.

    control part   a record as it is: a fact of a queue, a definition, a point, a purge
    publish part   messages of the broker's own publisher, with the next sequences of it

That publisher is named after this log's origin, "$broker.<instance>.<generation>": its sequences
are given here alone, so what two instances publish themselves stays apart where it is replicated,
and where a generation lost its end the next one does not give the same bookmarks again.

A unit is refused as a whole: what comes again comes whole. Where one is refused for now, those of
its sort (with messages or without) that were sent after it are refused as well, until their sender
confirms the refusals: so each sort lands in the order in which it was sent. Nothing is compared
with the log: who sent it finds out there what landed before a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from zbroker.errors import Bug, ClientError
from zbroker.ids import Origin, publisher_id
from zbroker.journal import named_records
from zbroker.journal.group_builder import (
    BATCH_BYTES,
    DISK_FULL,
    NOT_READY,
    Body,
    GroupBuilder,
    columns_bytes,
)
from zbroker.journal.sessions import PublisherState
from zbroker.limits import BATCH_COUNT_MAX, GROUP_MAX_BYTES
from zbroker.log.format import KIND_POINT, KIND_PUBLISH, KIND_PURGE, KIND_QUEUE, KIND_WIRING
from zbroker.wire import bodies
from zbroker.wire import internal as m
from zbroker.wire.units import BROKER_NAME, FOR_NOW, UNIT_PARTS_MAX, CommitUnits, UnitPart

_HELD: Final = "a unit that was sent before it was refused for now"
_CONTROL: Final = frozenset({KIND_QUEUE, KIND_WIRING, KIND_POINT, KIND_PURGE})


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
        size += sum(columns_bytes(part) for part in parts)
        yield CommitUnit(parts, taken, size, commit.confirmed)


def broker_name(origin: Origin) -> str:
    """The name that the broker itself publishes under in the log of this origin."""
    return f"{BROKER_NAME}.{origin.instance:016x}.{origin.generation}"


class Units:
    """Places units into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self.taken = 0  # so many units
        self._name = ""  # under which a session was opened
        self._held = [0, 0]  # ordinals of the newest units that were refused for now, by sort

    def begin(self) -> None:
        """Another sender, or the same one on another connection: its ordinals begin again."""
        self._held = [0, 0]

    def place(self, ordinal: int, unit: CommitUnit, *, fits: bool) -> m.ReceiptItem:
        """Judges one unit: all of it goes into the group, or nothing. fits: it has room."""
        sort = any(part.kind == KIND_PUBLISH for part in unit.parts)
        try:
            if unit.confirmed < self._held[sort]:
                raise ClientError("not_ready", _HELD)
            self._check(unit, fits)
            known = self._publisher(unit)
        except ClientError as error:
            self._to.refused += 1
            if error.code in FOR_NOW:
                self._held[sort] = ordinal
            return m.ReceiptItem(ordinal, 0, 0, 0, error.code, error.reason)
        first = self._to.next_position
        for part, body in zip(unit.parts, unit.bodies, strict=True):
            if known is not None and part.kind == KIND_PUBLISH:
                self._publish(known, part, body)
            else:
                self._to.control(part.kind, bytes(body))
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
        """Who publishes, if the unit has messages; its name stands in the log before the unit.

        Raises: ClientError publisher_collision.
        """
        to = self._to
        if not any(part.kind == KIND_PUBLISH for part in unit.parts):
            return None
        name = broker_name(Origin(to.settings.instance, to.generation))
        if name == self._name:
            known = to.sessions.get(publisher_id(name))
        else:
            known = to.sessions.open(name, "", to.wall_ns)
        if known is None:
            reason = f"the name {name!r} has the publisher id of another name"
            raise ClientError("publisher_collision", reason)
        self._name = name
        if not known.named:
            to.name(known)
        return known

    def _publish(self, known: PublisherState, part: UnitPart, body: Body) -> None:
        to, high = self._to, known.high
        entry = m.Entry(
            known.id, known.session, high + 1, part.count, high, part.crc, None, part.topics, None,
            part.columns,
        )  # fmt: skip
        batch = to.batch_of(entry, body, 0, known)
        to.put(batch)
        to.messages += batch.taken
        to.sessions.accepted(entry, to.next_position - 1)


def _check_part(part: UnitPart, body: Body) -> None:
    """Raises: ClientError bad_field, bad_frame."""
    if crc32c(bytes(body)) != part.crc:
        raise ClientError("bad_field", "the checksum of a part is not that of its body")
    if part.kind == KIND_PUBLISH:
        _check_messages(part, body)
    elif part.kind not in _CONTROL:
        raise ClientError("bad_field", f"a record of kind {part.kind} is no part of a unit")
    elif part.count != 1 or part.topics or part.columns is not None:
        raise ClientError("bad_field", "a control record has no topics and columns, and counts one")
    elif part.kind in named_records.KINDS and not named_records.name_of(body):
        raise ClientError("bad_field", "a definition or point has no name")


def _check_messages(part: UnitPart, body: Body) -> None:
    if not 0 < part.count <= BATCH_COUNT_MAX or not part.topics:
        raise ClientError("bad_field", f"a batch has topics, and 1 to {BATCH_COUNT_MAX} messages")
    if part.columns is not None:
        bodies.check_columns(part.columns, part.count, len(part.topics))
    elif len(part.topics) > 1:
        raise ClientError("bad_field", "key `columns.index` is needed for several topics")
    bodies.check_packed(body, part.count, None, len(body))
