"""What instances say to each other of exchanges, bindings and bound queues: rows. Pure.

A KIND_EXCHANGE record has some of them (ExchangeRecord), each a map whose `row` says what it is.

Rows come in any order and more than once. The row with the higher version holds, of two about the
same thing, whichever came first; the end of an exchange or of a queue is final. A version that
was given twice, as by an instance that was set back, is decided by content: the result is
the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, msgpack

from zbroker.errors import ClientError
from zbroker.exchanges.exchange import (
    MATCH,
    Binding,
    Comparable,
    Exchange,
    check_exchange,
    checked_binding,
    comparable,
)
from zbroker.ids import check_topic
from zbroker.limits import NAME_MAX_BYTES, U63_MAX
from zbroker.log.queue_records import QueueDeclaration, Version, decoded

_encode: Final = msgpack.Encoder(order="deterministic").encode


class ExchangeRow(Struct, frozen=True, omit_defaults=True, tag_field="row", tag="exchange"):
    """A life of an exchange, from declaration to deletion. definition None: it has ended."""

    name: str
    life: QueueDeclaration
    version: Version
    definition: Exchange | None = None


class BindingRow(Struct, frozen=True, omit_defaults=True, tag_field="row", tag="binding"):
    """A binding is made, or taken back (`bound` is false)."""

    binding: Binding
    version: Version
    bound: bool = True


class DeclaredQueue(Struct, frozen=True, omit_defaults=True, tag_field="row", tag="queue"):
    """One life of a queue that messages may be routed to. ended: it was deleted, for good.

    local: it is a queue of the instance that made it alone; others may have one of that name.
    """

    name: str
    life: QueueDeclaration
    ended: bool = False
    local: bool = False


class UsedExchange(Struct, frozen=True, tag_field="row", tag="used"):
    """This life of an exchange had a binding, maybe one that is forgotten: with `auto_delete` it
    goes when it has none."""

    name: str
    life: QueueDeclaration


Row = ExchangeRow | BindingRow | DeclaredQueue | UsedExchange


class ExchangeRecord(Struct, omit_defaults=True):
    """Body of a KIND_EXCHANGE record: rows that became true together. by, unit: as in a
    QueueRecord."""

    rows: list[Raw]
    by: int = 0
    unit: int = 0


RECORD: Final = msgpack.Decoder(ExchangeRecord)
_ROW: Final = msgpack.Decoder(Row)
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


def record_of(rows: Sequence[Row]) -> ExchangeRecord:
    """The record of these."""
    return ExchangeRecord([Raw(_encode(row)) for row in rows])


def rows_of(body: bytes | memoryview) -> list[Row]:
    """The rows of a record that this release knows and that can be; peers write what they want.
    What counts is the same on every instance: it depends on the row alone."""
    record = decoded(RECORD, body)
    return [] if record is None else list(decoded_rows(record.rows))


def decoded_rows(packed: Sequence[Raw]) -> Iterator[Row]:
    """Those of a sequence that this release knows and that can be."""
    for raw in packed:
        try:
            row = _ROW.decode(raw)
            _check(row)
        except (DecodeError, ClientError, UnicodeError):
            continue
        yield row


def _check(row: Row) -> None:
    """Raises: ClientError, unless an instance may say this."""
    match row:
        case ExchangeRow(name, life, version, definition):
            _check_numbers(life, version)
            if definition is None:
                check_topic(name)
                return
            check_exchange(definition)
            if definition.name != name:
                raise ClientError("bad_field", "an exchange has another name than its row")
        case BindingRow(binding, version):
            _check_numbers(binding.exchange_life, version)
            _check_queue(binding.queue, binding.queue_life)
            checked_binding(binding, "headers" if binding.arguments else "topic")
        case DeclaredQueue(name, life):
            _check_queue(name, life)
        case UsedExchange(name, life):
            check_topic(name)
            _check_numbers(life)


def _check_queue(name: str, life: QueueDeclaration) -> None:
    _check_numbers(life)
    if not 0 < len(name.encode()) <= NAME_MAX_BYTES or not name.isprintable():
        raise ClientError("bad_field", "a queue cannot have this name")


def _check_numbers(*many: QueueDeclaration | Version) -> None:
    for first, instance, generation in many:
        if not (0 <= first <= U63_MAX and 0 <= instance <= _U64 and 0 <= generation <= _U32):
            raise ClientError("bad_field", "a number of a row is too large")


class BindingIdentity(NamedTuple):
    """What makes two bindings the same one."""

    exchange: str
    exchange_life: QueueDeclaration
    queue: str
    queue_life: QueueDeclaration
    key: str
    match: Comparable
    arguments: frozenset[tuple[str, Comparable]]


def identity(binding: Binding) -> BindingIdentity:
    """Equal ones ask for the same messages, for the same queue."""
    arguments = binding.arguments
    compared = frozenset((name, comparable(value)) for name, value in arguments.items())
    return BindingIdentity(
        binding.exchange, binding.exchange_life, binding.queue, binding.queue_life, binding.key,
        comparable(arguments.get(MATCH)), compared,
    )  # fmt: skip


def holds(row: ExchangeRow | BindingRow, than: ExchangeRow | BindingRow) -> bool:
    """True if `row` holds, of two about the same thing. An end of an exchange is final."""
    ended, other_ended = _is_end(row), _is_end(than)
    if ended is not other_ended:
        return ended
    return rank(row) > rank(than)


def rank(row: ExchangeRow | BindingRow) -> tuple[Version, bytes]:
    """The higher one holds."""
    return row.version, _encode(row)


def conflict(row: ExchangeRow | BindingRow, than: ExchangeRow | BindingRow) -> bool:
    """True if two instances wrote these of the same thing, neither knowing of the other's."""
    return row.version.number == than.version.number and _content(row) != _content(than)


def in_order(rows: list[Row]) -> list[Row]:
    """Rows in the order that equal ones have everywhere."""
    return sorted(rows, key=lambda row: (row.__class__.__name__, _encode(row)))


def _is_end(row: ExchangeRow | BindingRow) -> bool:
    return isinstance(row, ExchangeRow) and row.definition is None


def _content(row: ExchangeRow | BindingRow) -> object:
    return row.definition if isinstance(row, ExchangeRow) else row.bound
