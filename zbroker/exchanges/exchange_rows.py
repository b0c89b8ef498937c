"""What instances say to each other of exchanges, bindings and bound queues: rows. Pure.

Rows come in any order and more than once. The row with the higher version holds, of two about the
same thing, whichever came first; the end of an exchange or of a queue is final. A version that
was given twice, as by an instance that was set back, is decided by content: the result is
the same everywhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct, msgpack

from zbroker.exchanges.exchange import MATCH, Binding, Comparable, Exchange, comparable
from zbroker.log.queue_records import QueueDeclaration, Version

_encode: Final = msgpack.Encoder(order="deterministic").encode


class ExchangeRow(Struct, frozen=True, omit_defaults=True):
    """A life of an exchange, from declaration to deletion. definition None: it has ended."""

    name: str
    life: QueueDeclaration
    version: Version
    definition: Exchange | None = None


class BindingRow(Struct, frozen=True, omit_defaults=True):
    """A binding is made, or taken back (`bound` is false)."""

    binding: Binding
    version: Version
    bound: bool = True


class DeclaredQueue(Struct, frozen=True, omit_defaults=True):
    """One life of a queue that messages may be routed to. ended: it was deleted, for good."""

    name: str
    life: QueueDeclaration
    ended: bool = False


class UsedExchange(Struct, frozen=True):
    """This life of an exchange had a binding, maybe one that is forgotten: with `auto_delete` it
    goes when it has none."""

    name: str
    life: QueueDeclaration


Row = ExchangeRow | BindingRow | DeclaredQueue | UsedExchange


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
