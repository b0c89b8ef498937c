"""Random rows of exchanges, and messages for them: few names, few lives, so that they meet."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from tests.exchanges.making import arguments, headers, keys, patterns
from tests.exchanges.naive_world import ALWAYS
from zbroker.exchanges import Binding, BindingRow, DeclaredQueue, Exchange, ExchangeRow, Row
from zbroker.log.queue_records import QueueDeclaration, Version

LIVES = (QueueDeclaration(5, 1, 1), QueueDeclaration(5, 2, 1), QueueDeclaration(9, 1, 2))
QUEUES = ("p", "q", "r")
EXCHANGES = ("e", "f")
FIXED = ("amq.direct", "amq.fanout", "amq.match", "amq.topic")
KINDS = ("direct", "topic", "fanout", "headers")

message_keys = st.one_of(
    keys.map(str.encode), st.sampled_from([None, b"p", b"q", b"\xff", b"a" * 255, b"a" * 256])
)
lives = st.sampled_from(LIVES)
definitions = st.builds(
    Exchange, st.just("?"), st.sampled_from(KINDS), st.sampled_from(["", "e", "f", "amq.topic"])
)


class _Draft(NamedTuple):
    """A row before it has its version, which no other row about the same thing has."""

    row: Row
    number: int
    instance: int


def _exchange_row(name: str, life: QueueDeclaration, definition: Exchange | None) -> ExchangeRow:
    if definition is not None:
        definition = Exchange(name, definition.kind, definition.alternate)
    return ExchangeRow(name, life, Version(0, 0, 0), definition)


exchange_rows = st.builds(
    _exchange_row, st.sampled_from(EXCHANGES), lives,
    st.one_of(definitions, definitions, definitions, st.none()),
)  # fmt: skip
bindings = st.one_of(
    st.builds(Binding, st.sampled_from(EXCHANGES), lives, st.sampled_from(QUEUES), lives, patterns,
              arguments),
    st.builds(Binding, st.sampled_from(FIXED), st.just(ALWAYS), st.sampled_from(QUEUES), lives,
              patterns, arguments),
)  # fmt: skip
binding_rows = st.builds(
    BindingRow, bindings, st.just(Version(0, 0, 0)), st.sampled_from([True, True, False])
)
queue_rows = st.builds(
    DeclaredQueue, st.sampled_from(QUEUES), lives, st.sampled_from([False, False, True])
)
drafts = st.lists(
    st.builds(
        _Draft, st.one_of(exchange_rows, binding_rows, binding_rows, binding_rows, queue_rows),
        st.integers(1, 4), st.integers(1, 2),
    ),
    max_size=25,
)  # fmt: skip


def numbered(many: list[_Draft]) -> list[Row]:
    """The rows, each with a version of its own: equal numbers are of several generations."""
    rows: list[Row] = []
    for generation, (row, number, instance) in enumerate(many):
        version = Version(number, instance, generation)
        if isinstance(row, ExchangeRow):
            rows.append(ExchangeRow(row.name, row.life, version, row.definition))
        elif isinstance(row, BindingRow):
            rows.append(BindingRow(row.binding, version, row.bound))
        else:
            rows.append(row)
    return rows


histories = drafts.map(numbered)
batches = st.lists(st.tuples(message_keys, headers), min_size=1, max_size=6)
