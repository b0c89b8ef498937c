"""Rows of exchanges in any order (zbroker/exchanges/exchange_table.py, exchange_rows.py)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.exchanges.naive_world import ALWAYS
from zbroker.errors import ClientError
from zbroker.exchanges import (
    Binding,
    BindingChange,
    BindingRow,
    BoundQueue,
    DeclaredQueue,
    Exchange,
    ExchangeRow,
    ExchangeTable,
    Row,
    UsedExchange,
    exchange_table,
)
from zbroker.ids import Origin
from zbroker.log.queue_records import QueueDeclaration, Version

A, B = Origin(1, 1), Origin(2, 1)
FIRST, SECOND = QueueDeclaration(100, *A), QueueDeclaration(200, *B)
NONE: dict[str, Any] = {}


def made(
    kind: str = "topic", life: QueueDeclaration = FIRST, number: int = 1, by: Origin = A,
    **more: Any,
) -> ExchangeRow:  # fmt: skip
    return ExchangeRow("e", life, Version(number, *by), Exchange("e", kind, **more))


def ended(life: QueueDeclaration = FIRST, number: int = 2, by: Origin = A) -> ExchangeRow:
    return ExchangeRow("e", life, Version(number, *by))


def bound(
    key: str = "k", life: QueueDeclaration = FIRST, queue: QueueDeclaration = FIRST,
    number: int = 1, by: Origin = A, arguments: dict[str, Any] = NONE, is_bound: bool = True,
) -> BindingRow:  # fmt: skip
    binding = Binding("e", life, "q", queue, key, arguments)
    return BindingRow(binding, Version(number, *by), is_bound)


def queue(life: QueueDeclaration = FIRST, *, gone: bool = False) -> DeclaredQueue:
    return DeclaredQueue("q", life, gone)


def tables(*rows: Row) -> ExchangeTable:
    """The table of these rows, which is the same in every order, as are its changes in the end."""
    found = []
    for order in permutations(rows):
        table = ExchangeTable()
        for row in order:
            table.learn(row)
            assert table.learn(row).changes == []
        found.append(table)
    assert all(table == found[0] for table in found)
    assert len({frozenset(table.changes()) for table in found}) == 1
    again = ExchangeTable()
    for row in found[0].rows():
        again.learn(row)
    assert again == found[0]
    return found[0]


def keys(table: ExchangeTable) -> list[str]:
    return sorted(binding.key for binding in table.bindings("e"))


# -- which row holds ------------------------------------------------------------------------------


def test_the_exchanges_of_amqp_are_always_there() -> None:
    table = ExchangeTable()
    found = {name: table.exchange(name) for name in ("", "amq.direct", "amq.topic", "amq.fanout")}
    kinds = [one.kind if one is not None else None for one in found.values()]
    assert kinds == ["direct", "direct", "topic", "fanout"]
    assert table.exchange("amq.match") == Exchange("amq.match", "headers")
    assert (table.rows(), table.version) == ([], 0)


def test_the_highest_version_is_the_definition() -> None:
    table = tables(
        made("topic"), made("direct", number=2), made("fanout", number=2, by=B), made("direct")
    )
    assert table.exchange("e") == Exchange("e", "fanout")


def test_a_version_that_was_given_twice_is_decided_by_content() -> None:
    tables(made("topic"), made("direct"), made("fanout"))
    tables(made(), queue(), bound(), bound(is_bound=False))


def test_an_end_is_final_whatever_the_versions() -> None:
    table = tables(made(number=9), ended(number=2), bound())
    assert table.exchange("e") is None
    assert table.rows() == [ended(number=2)]


def test_an_exchange_that_was_declared_again_does_not_have_the_bindings_of_before() -> None:
    table = tables(made(), queue(), bound("old"), ended(), made(life=SECOND, by=B))
    assert table.exchange("e") is not None
    assert keys(table) == []


def test_two_lives_that_meet_are_one_exchange_with_all_bindings() -> None:
    table = tables(made(), made(life=SECOND, by=B), queue(), bound("a"), bound("b", life=SECOND))
    assert keys(table) == ["a", "b"]


def test_a_life_that_ends_takes_its_bindings_along() -> None:
    table = tables(made(), made(life=SECOND, by=B), bound("a"), bound("b", life=SECOND), ended())
    assert keys(table) == ["b"]
    assert table.exchange("e") == Exchange("e", "topic")


def test_the_highest_version_over_both_lives_is_the_definition() -> None:
    table = tables(made("topic", number=2), made("direct", SECOND, 3, B))
    assert table.exchange("e") == Exchange("e", "direct")


def test_a_binding_waits_for_its_exchange() -> None:
    table = ExchangeTable()
    assert table.learn(bound()).changes == []
    assert [type(one).__name__ for one in table.learn(made()).changes] == [
        "ExchangeChange", "BindingChange",
    ]  # fmt: skip


def test_the_highest_version_says_whether_it_is_bound() -> None:
    assert keys(tables(made(), bound(), bound(number=2, is_bound=False))) == []
    assert keys(tables(made(), bound(number=3), bound(number=2, is_bound=False))) == ["k"]
    assert keys(tables(made(), bound(number=2, by=B), bound(number=2, is_bound=False))) == ["k"]


def test_other_arguments_make_another_binding() -> None:
    one, other = {"x-match": "all", "n": 1}, {"x-match": "all", "n": True}
    table = tables(made("headers"), bound(arguments=one), bound(arguments=other))
    assert len(table.bindings("e")) == 2


def test_equal_values_make_one_binding() -> None:
    one, other = {"x-match": "all", "n": 1, "m": "v"}, {"x-match": "all", "n": 1.0, "m": b"v"}
    table = tables(made("headers"), bound(arguments=one), bound(number=2, arguments=other))
    assert [binding.arguments for binding in table.bindings("e")] == [other]


def test_a_binding_of_another_kind_asks_for_nothing() -> None:
    """As one of headers it would match every message."""
    table = tables(made("direct"), made("headers", SECOND, 2, B), queue(), bound())
    assert table.bindings("e") == []
    table = tables(
        made("headers"), made("fanout", SECOND, 2, B), queue(), bound(arguments={"x-match": "all"})
    )
    assert table.bindings("e") == []


def test_an_end_of_the_newer_kind_brings_the_bindings_back() -> None:
    table = tables(
        made("direct"), made("headers", SECOND, 2, B), queue(), bound(), ended(SECOND, 3, B)
    )
    assert keys(table) == ["k"]


def test_a_binding_goes_with_its_queue() -> None:
    table = tables(made(), bound(), queue(), queue(gone=True))
    assert keys(table) == []
    assert table.queue("q") is None


def test_a_queue_that_was_made_again_does_not_have_the_bindings_of_before() -> None:
    table = tables(made(), bound("old"), queue(gone=True), queue(SECOND))
    assert keys(table) == []
    assert table.queue("q") == BoundQueue("q", SECOND)


def test_messages_go_to_the_lowest_life_of_a_queue() -> None:
    table = tables(made(), bound("a"), bound("b", queue=SECOND), queue(), queue(SECOND))
    queues = {change.queue for change in table.changes() if hasattr(change, "queue")}
    assert queues == {BoundQueue("q", FIRST)}


def test_a_queue_goes_on_as_its_other_life() -> None:
    table = tables(
        made(), bound("a"), bound("b", queue=SECOND), queue(gone=True), queue(SECOND)
    )  # fmt: skip
    assert keys(table) == ["b"]
    assert table.queue("q") == BoundQueue("q", SECOND)


def test_a_binding_for_a_queue_that_is_not_known_yet_counts() -> None:
    assert keys(tables(made(), bound())) == ["k"]


@pytest.mark.parametrize("name", ["", "amq.direct", "amq.topic"])
def test_no_row_changes_what_is_always_there(name: str) -> None:
    table = ExchangeTable()
    for life in (ALWAYS, FIRST):
        for definition in (None, Exchange(name, "fanout")):
            table.learn(ExchangeRow(name, life, Version(9, *A), definition))
    binding = Binding("", ALWAYS, "q", FIRST, "k")
    table.learn(BindingRow(binding, Version(1, *A)))
    assert table.changes() == ExchangeTable().changes()
    assert (table.rows(), table.version) == ([], 0)


def test_the_version_counts_what_was_new() -> None:
    table = ExchangeTable()
    for row in (made(), queue(), bound(), bound(), made(), queue(gone=True), bound(number=2)):
        table.learn(row)
    assert table.version == 5  # with the row that says that the exchange had a binding


# -- what is lost ---------------------------------------------------------------------------------


def test_the_row_that_loses_against_one_of_another_instance_is_named() -> None:
    one, other = made("topic", number=2), made("direct", number=2, by=B)
    table = ExchangeTable()
    assert table.learn(one).lost == []
    assert table.learn(other).lost == [one]
    table = ExchangeTable()
    table.learn(other)
    assert table.learn(one).lost == [one]


def test_a_binding_that_loses_is_named() -> None:
    one, other = bound(number=2), bound(number=2, by=B, is_bound=False)
    table = ExchangeTable()
    table.learn(made())
    table.learn(one)
    assert table.learn(other).lost == [one]


def test_a_row_that_knew_the_one_before_loses_nothing() -> None:
    table = ExchangeTable()
    table.learn(made("topic"))
    assert table.learn(made("direct", number=2, by=B)).lost == []
    assert table.learn(made("topic")).lost == []


def test_a_definition_of_another_life_that_does_not_hold_is_named() -> None:
    one, other = made("topic"), made("direct", SECOND, 2, B)
    table = ExchangeTable()
    table.learn(one)
    assert table.learn(other).lost == [one]
    table = ExchangeTable()
    table.learn(other)
    assert table.learn(one).lost == [one]
    assert table.learn(made("direct", QueueDeclaration(300, *A))).lost == []


# -- the rows of commands -------------------------------------------------------------------------


class Instance:
    """An instance with a table of its own: commands write rows, which it learns."""

    def __init__(self, here: Origin = A) -> None:
        self.here, self.table = here, ExchangeTable()
        self.table.learn(queue())

    def declare(self, name: str = "e", kind: str = "topic", **more: Any) -> ExchangeRow | None:
        row = self.table.declare(Exchange(name, kind, **more), self.here, 50)
        if row is not None:
            self.table.learn(row)
        return row

    def delete(self, name: str = "e") -> None:
        for row in self.table.delete(name, self.here):
            self.table.learn(row)

    def bind(
        self, key: str = "k", arguments: dict[str, Any] = NONE, exchange: str = "e"
    ) -> BindingRow | None:
        row = self.table.bind(exchange, "q", key, arguments, self.here)
        if row is not None:
            self.table.learn(row)
        return row

    def unbind(self, key: str = "k", arguments: dict[str, Any] = NONE) -> None:
        for row in self.table.unbind("e", "q", key, arguments, self.here):
            self.table.learn(row)


def refused(code: str, part: str, command: Any, *args: Any, **more: Any) -> None:
    with pytest.raises(ClientError) as caught:
        command(*args, **more)
    assert caught.value.code == code
    assert part in caught.value.reason


def test_an_exchange_that_is_there_is_not_declared_again() -> None:
    one = Instance()
    assert one.declare(alternate="amq.fanout") is not None
    assert one.declare(alternate="amq.fanout", auto_delete=True) is None
    assert one.declare("amq.topic", "topic") is None


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"kind": "direct"}, "`kind` is 'topic'"),
        ({"alternate": "f"}, "`alternate` is ''"),
        ({"internal": True}, "`internal` is False"),
    ],
)
def test_an_exchange_that_is_there_is_not_declared_as_another(
    other: dict[str, Any], part: str
) -> None:
    one = Instance()
    one.declare()
    refused("exchange_exists", part, one.declare, **other)


def test_an_exchange_that_cannot_be_is_not_declared() -> None:
    refused("reserved_name", "amq.mine", Instance().declare, "amq.mine")
    refused("bad_field", "`name` is empty", Instance().declare, "", "direct")


def test_there_are_so_many_exchanges_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_table, "EXCHANGES_MAX", 6)
    one = Instance()
    one.declare()
    refused("too_many", "6 exchanges", one.declare, "f")


def test_an_exchange_that_was_deleted_may_be_declared_as_another() -> None:
    one = Instance()
    first = one.declare()
    one.bind()
    one.delete()
    second = one.declare(kind="direct")
    assert first is not None
    assert second is not None
    assert second.life > first.life
    assert keys(one.table) == []


def test_a_deletion_ends_all_lives() -> None:
    one = Instance()
    one.declare()
    one.table.learn(made(life=SECOND, by=B))
    one.delete()
    assert one.table.exchange("e") is None


def test_an_exchange_is_not_deleted_while_it_is_the_alternate_of_another() -> None:
    one = Instance()
    one.declare()
    one.declare("f", alternate="e")
    refused("exchange_in_use", "the alternate of exchange 'f'", one.delete)
    one.delete("f")
    one.delete()


def test_what_is_not_there_is_not_deleted() -> None:
    refused("unknown_exchange", "no exchange 'e'", Instance().delete)
    refused("reserved_name", "always there", Instance().delete, "amq.topic")
    refused("reserved_name", "always there", Instance().delete, "")


def test_a_queue_is_bound_once_to_the_same_key() -> None:
    one = Instance()
    one.declare()
    assert one.bind() is not None
    assert one.bind() is None
    one.unbind()
    assert keys(one.table) == []
    assert one.bind() is not None
    assert keys(one.table) == ["k"]


def test_what_cannot_be_bound_is_refused() -> None:
    one = Instance()
    refused("unknown_exchange", "no exchange 'e'", one.bind)
    one.declare()
    refused("bad_field", "no `arguments`", one.bind, "k", {"n": 1})
    refused("bad_field", "default exchange", one.bind, "k", NONE, "")
    one.table.learn(queue(gone=True))
    refused("unknown_queue", "no queue 'q'", one.bind)


def test_an_exchange_has_so_many_bindings_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_table, "BINDINGS_MAX", 2)
    monkeypatch.setattr(exchange_table, "HEADERS_BINDINGS_MAX", 1)
    one = Instance()
    one.declare()
    one.bind("a")
    one.bind("b")
    assert one.bind("a") is None
    refused("too_many", "2 bindings", one.bind, "c")
    one.bind("", {}, "amq.match")
    refused("too_many", "1 bindings", one.bind, "", {"n": 1}, "amq.match")


def test_only_what_is_bound_is_taken_back() -> None:
    one = Instance()
    one.declare(kind="headers")
    one.bind("k", {"n": 1})
    refused("unknown_binding", "not bound like that", one.unbind, "k")
    one.unbind("k", {"n": 1, "x-match": "all"})
    refused("unknown_binding", "not bound like that", one.unbind, "k", {"n": 1})


def test_a_binding_is_taken_back_under_all_lives() -> None:
    one = Instance()
    for row in (made(), made(life=SECOND, by=B), queue(SECOND), bound(), bound(life=SECOND)):
        one.table.learn(row)
    one.table.learn(bound(queue=SECOND))
    one.unbind()
    assert keys(one.table) == []


def test_commands_of_two_instances_meet_in_one_table() -> None:
    one, other = Instance(A), Instance(B)
    rows = [one.declare(), one.bind("a"), one.bind("b"), other.declare(), other.bind("b")]
    rows += other.table.unbind("e", "q", "b", {}, B)
    known = [row for row in rows if row is not None]
    for row in known:
        one.table.learn(row)
    for row in reversed(known):
        other.table.learn(row)
    assert one.table == other.table
    assert keys(one.table) == ["a", "b"]  # each life of the exchange has its own


# -- auto-delete ----------------------------------------------------------------------------------


def test_an_auto_delete_exchange_is_unused_once_its_last_binding_went() -> None:
    one = Instance()
    one.declare(auto_delete=True)
    assert one.table.unused(A.instance) == []  # it had no binding yet
    one.bind("a")
    one.bind("b")
    one.unbind("a")
    assert one.table.unused(A.instance) == []
    one.unbind("b")
    assert one.table.unused(A.instance) == ["e"]
    assert one.table.unused(B.instance) == []  # the other instance leaves that to this one
    one.delete()
    assert one.table.unused(A.instance) == []


def test_an_exchange_without_auto_delete_stays() -> None:
    one = Instance()
    one.declare()
    one.bind()
    one.unbind()
    assert one.table.unused(A.instance) == []


def test_a_queue_that_goes_leaves_an_exchange_unused_also_after_a_snapshot() -> None:
    one = Instance()
    one.declare(auto_delete=True)
    one.bind()
    one.table.learn(queue(gone=True))
    again = ExchangeTable()
    for row in one.table.rows():
        again.learn(row)
    assert one.table.unused(A.instance) == again.unused(A.instance) == ["e"]
    assert UsedExchange("e", QueueDeclaration(50, *A)) in again.rows()


def test_nothing_is_kept_of_bindings_that_ended() -> None:
    one = Instance()
    one.declare()
    for key in "abc":
        one.bind(key)
    one.table.learn(queue(gone=True))
    table = one.table
    assert (table._rows, table._of_exchange, table._of_queue, table._counting) == ({}, {}, {}, {})


def test_local_queues_of_one_name_are_a_queue_each() -> None:
    """Two instances have the same config: each routes to both."""
    table, here, there = ExchangeTable(), Origin(1, 1), Origin(2, 1)
    mine, theirs = QueueDeclaration(5, 1, 1), QueueDeclaration(4, 2, 1)
    row = table.declare(Exchange("e", "direct"), here, 9)
    assert row is not None
    table.learn(row)
    for life in (mine, theirs):
        table.learn(DeclaredQueue("q", life, local=True))
    made = table.bind("e", "q", "k", {}, here, mine)
    other = table.bind("e", "q", "k", {}, there, theirs)
    assert made is not None
    assert other is not None
    found = [change for row in (made, other) for change in table.learn(row).changes]
    queues = [change.queue for change in found if isinstance(change, BindingChange)]
    assert queues == [BoundQueue("q", mine), BoundQueue("q", theirs)]
    again = ExchangeTable()
    for each in table.rows():
        again.learn(each)
    assert again == table
    with pytest.raises(ClientError, match="no queue 'q'"):
        table.bind("e", "q", "k", {}, here)  # none of several instances
    [gone] = table.unbind("e", "q", "k", {}, here, mine)
    assert gone.binding.queue_life == mine
    table.learn(DeclaredQueue("q", theirs, ended=True, local=True))
    assert [binding.queue_life for binding in table.bindings("e")] == [mine]
    table.learn(gone)
    assert table.bindings("e") == []
    with pytest.raises(ClientError, match="no queue 'q'"):
        table.bind("e", "q", "k", {}, there, theirs)
