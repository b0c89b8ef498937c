"""Where batches go (zbroker/exchanges/router.py): rules one by one, and a model of all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.exchanges.making import cases
from tests.exchanges.making_rows import EXCHANGES, FIXED, batches, histories
from tests.exchanges.naive_world import NaiveWorld
from tests.exchanges.planted import planted
from zbroker.errors import ClientError
from zbroker.exchanges import (
    Binding,
    BindingChange,
    BindingRow,
    BoundQueue,
    DeclaredQueue,
    Exchange,
    ExchangeChange,
    ExchangeRow,
    ExchangeTable,
    Router,
    Row,
    exchange_table,
    route_column,
    router,
)
from zbroker.limits import BATCH_COUNT_MAX, HEADER_MAX_BYTES
from zbroker.log.queue_records import QueueDeclaration, Version

EXAMPLES = 150  # each with up to 25 rows, 7 exchanges and 6 messages
SOUGHT = 3_000  # in which a planted bug is found
LIFE = QueueDeclaration(1, 1, 1)
FIRST = Version(1, 1, 1)


class World:
    """A table and its router. Bindings are written as "exchange key queue"."""

    def __init__(self, *exchanges: Exchange) -> None:
        self.table, self.router = ExchangeTable(), Router()
        self.router.apply(self.table.changes(), 0)
        for one in exchanges:
            self.learn(ExchangeRow(one.name, LIFE, FIRST, one))

    def learn(self, *rows: Row) -> None:
        for row in rows:
            self.router.apply(self.table.learn(row).changes, self.table.version)

    def bind(self, *texts: str, number: int = 1, is_bound: bool = True, **arguments: Any) -> None:
        for text in texts:
            exchange, key, queue = text.split(" ")
            asked = {"x-match": "all", **arguments} if arguments else {}
            binding = Binding(exchange, LIFE, queue, LIFE, key, asked)
            self.learn(BindingRow(binding, Version(number, 1, 1), is_bound))

    def unbind(self, *texts: str, **arguments: Any) -> None:
        self.bind(*texts, number=2, is_bound=False, **arguments)

    def route(
        self, exchange: str, *keys: bytes | None, headers: Sequence[Any] | None = None
    ) -> list[str]:
        """The queues of each message, as letters."""
        routes = self.router.route(exchange, len(keys), keys, headers)
        return ["".join(one.name for one in routes.queues_of(at)) for at in range(len(keys))]


def test_a_direct_exchange_routes_by_the_whole_key() -> None:
    world = World(Exchange("e", "direct"))
    world.bind("e a p", "e a q", "e a.* r", "e  p")
    assert world.route("e", b"a", b"a.b", b"a.*", b"", None) == ["pq", "", "r", "p", "p"]


def test_a_topic_exchange_routes_by_patterns() -> None:
    world = World(Exchange("e", "topic"))
    world.bind("e a.* p", "e a.# q", "e # r")
    assert world.route("e", b"a.b", b"a", b"b", None) == ["pqr", "qr", "r", "r"]


def test_a_fanout_exchange_routes_whatever_the_key() -> None:
    world = World(Exchange("e", "fanout"))
    world.bind("e a p", "e b p", "e b q")
    assert world.route("e", b"a", b"x", None) == ["pq", "pq", "pq"]
    world.unbind("e b p")
    assert world.route("e", b"a") == ["pq"]
    world.unbind("e a p")
    assert world.route("e", b"a") == ["q"]


def test_a_headers_exchange_routes_by_headers() -> None:
    world = World(Exchange("e", "headers"))
    world.bind("e k p", n=1)
    world.bind("e k q", n=1, m="v")
    found = world.route("e", b"", b"k", None, headers=[{"n": 1}, {"n": 1, "m": "v"}, None])
    assert found == ["p", "pq", ""]
    assert world.route("e", None) == [""]


def test_the_default_exchange_routes_to_the_queue_of_the_name() -> None:
    world = World()
    world.learn(DeclaredQueue("p", LIFE), DeclaredQueue("q.é", LIFE))
    assert world.route("", b"p", "q.é".encode(), b"q", b"") == ["p", "q.é", "", ""]
    world.learn(DeclaredQueue("p", LIFE, ended=True))
    assert world.route("", b"p") == [""]


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_key_that_is_not_text_is_unroutable(kind: str) -> None:
    world = World(Exchange("e", kind, alternate="amq.fanout"))
    binding = Binding("amq.fanout", QueueDeclaration(0, 0, 0), "q", LIFE)
    world.learn(BindingRow(binding, FIRST))
    for exchange in ("e", "amq.fanout"):
        found = world.route(exchange, b"\xff", b"k" * 256, b"k" * 255, headers=[{}, {}, {}])
        assert found == ["", "", "q"]


def test_headers_do_not_help_a_key_that_is_not_text() -> None:
    world = World(Exchange("e", "headers"))
    world.bind("e k p", n=1)
    assert world.route("e", b"\xff", b"k", headers=[{"n": 1}, {"n": 1}]) == ["", "p"]


def test_a_kind_of_a_newer_release_binds_nothing() -> None:
    world = World(Exchange("e", "x-random", alternate="f"), Exchange("f", "fanout"))
    world.bind("e k p", "f k q")
    assert world.route("e", b"k") == ["q"]
    world.unbind("e k p")


def test_a_message_reaches_a_queue_once() -> None:
    world = World(Exchange("e", "topic"))
    world.bind("e a.* p", "e a.# p", "e # p")
    assert world.router.route("e", 1, [b"a.b"]).queues == (BoundQueue("p", LIFE),)


def test_two_queues_of_one_life_are_two() -> None:
    world = World(Exchange("e", "fanout"))
    world.bind("e k p", "e k q")
    assert len(world.router.route("e", 1).queues) == 2


# -- the alternate exchange -----------------------------------------------------------------------


def test_what_is_not_bound_goes_to_the_alternate() -> None:
    world = World(Exchange("e", "direct", "f"), Exchange("f", "topic"))
    world.bind("e a p", "f b.# q", "f a q")
    assert world.route("e", b"a", b"b.c", b"c") == ["p", "q", ""]


def test_the_alternate_sees_the_headers_of_its_messages() -> None:
    world = World(Exchange("e", "direct", "f"), Exchange("f", "headers"))
    world.bind("e a p")
    world.bind("f k q", n=1)
    found = world.route("e", b"b", b"a", b"c", headers=[{"n": 1}, {"n": 2}, {"n": 1}])
    assert found == ["q", "p", "q"]


def test_there_is_one_hop() -> None:
    world = World(
        Exchange("e", "direct", "f"), Exchange("f", "direct", "g"), Exchange("g", "fanout")
    )
    world.bind("g k q")
    assert world.route("e", b"k") == [""]
    assert world.route("f", b"k") == ["q"]


def test_alternates_of_each_other_make_no_loop() -> None:
    world = World(Exchange("e", "direct", "f"), Exchange("f", "direct", "e"))
    assert world.route("e", b"k") == [""]


def test_an_alternate_that_is_not_there_takes_nothing() -> None:
    world = World(Exchange("e", "direct", "f"))
    assert world.route("e", b"k") == [""]
    world.learn(ExchangeRow("f", LIFE, FIRST, Exchange("f", "fanout")))
    world.bind("f k q")
    assert world.route("e", b"k") == ["q"]


def test_another_alternate_keeps_the_bindings() -> None:
    world = World(Exchange("e", "direct"), Exchange("f", "fanout"))
    world.bind("e a p", "f a q")
    world.learn(ExchangeRow("e", LIFE, Version(2, 1, 1), Exchange("e", "direct", "f")))
    assert world.route("e", b"a", b"b") == ["p", "q"]


def test_another_kind_judges_the_same_bindings_in_its_way() -> None:
    world = World(Exchange("e", "direct"))
    world.bind("e a.* p")
    assert world.route("e", b"a.b", b"a.*") == ["", "p"]
    world.learn(ExchangeRow("e", LIFE, Version(2, 1, 1), Exchange("e", "topic")))
    assert world.route("e", b"a.b", b"b") == ["p", ""]


# -- the table of a batch -------------------------------------------------------------------------


def test_equal_sets_are_written_once() -> None:
    world = World(Exchange("e", "direct"))
    world.bind("e a q", "e a p", "e b p", "e b q", "e c p")
    routes = world.router.route("e", 5, [b"a", b"x", b"b", b"c", b"x"])
    assert [one.name for one in routes.queues] == ["p", "q"]
    assert routes.sets == ((0, 1), (), (0,))
    assert (routes.column.typecode, list(routes.column)) == ("H", [0, 1, 0, 2, 1])
    assert routes.unroutable == [1, 4]


def test_a_batch_without_unroutable_messages_has_none() -> None:
    world = World(Exchange("e", "fanout"))
    world.bind("e k q")
    assert world.router.route("e", 3).unroutable == []
    assert world.router.route("e", 0) == ((), (), world.router.route("e", 0).column)


def test_the_largest_batch_has_a_set_for_each_message() -> None:
    world = World(Exchange("e", "topic"))
    world.bind("e # q")
    keys = [b"%d" % number for number in range(BATCH_COUNT_MAX)]
    assert set(world.router.route("e", len(keys), keys).column) == {0}


def test_a_batch_goes_to_1000_queues_at_most() -> None:
    world = World(Exchange("e", "fanout"), Exchange("f", "direct"))
    world.bind(*(f"e k q{number}" for number in range(route_column.QUEUES_MAX)))
    assert len(world.router.route("e", 2).queues) == route_column.QUEUES_MAX
    world.bind("e k more")
    with pytest.raises(ClientError, match="1001 queues, at most 1000") as caught:
        world.router.route("e", 1)
    assert caught.value.code == "too_many"


def test_the_sets_of_a_batch_fit_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * route_column.SET_QUEUES_MAX < HEADER_MAX_BYTES
    monkeypatch.setattr(router, "SET_QUEUES_MAX", 4)
    world = World(Exchange("e", "direct"))
    world.bind("e a p", "e a q", "e b p", "e b r", "e c q")
    world.router.route("e", 3, [b"a", b"b", b"a"])
    with pytest.raises(ClientError, match="3 sets of 5 queues in all, at most 4") as caught:
        world.router.route("e", 3, [b"a", b"b", b"c"])
    assert caught.value.code == "too_many"


# -- what may be published to ---------------------------------------------------------------------


def test_an_exchange_that_is_not_there_is_refused() -> None:
    world = World()
    for ask in (world.route, world.router.check_publish):
        with pytest.raises(ClientError, match="no exchange 'e'") as caught:
            ask("e")
        assert caught.value.code == "unknown_exchange"


def test_clients_do_not_publish_to_an_internal_exchange() -> None:
    world = World(Exchange("e", "direct", "f"), Exchange("f", "fanout", internal=True))
    world.bind("f k q")
    world.router.check_publish("e")
    with pytest.raises(ClientError, match="is internal") as caught:
        world.router.check_publish("f")
    assert caught.value.code == "bad_field"
    assert world.route("e", b"k") == ["q"]


def test_an_exchange_that_was_deleted_is_refused() -> None:
    world = World(Exchange("e", "fanout"))
    world.bind("e k q")
    world.learn(ExchangeRow("e", LIFE, Version(2, 1, 1)))
    with pytest.raises(ClientError, match="no exchange"):
        world.route("e", b"k")


def test_the_version_is_that_of_the_table() -> None:
    world = World(Exchange("e", "fanout"))
    world.bind("e k q")
    assert world.router.version == world.table.version == 3
    assert Router().version == 0


# -- what is remembered ---------------------------------------------------------------------------


class Counted(World):
    """Counts how often a key is looked up in bindings."""

    def __init__(self, *exchanges: Exchange) -> None:
        super().__init__(*exchanges)
        self.asked: list[object] = []

    def count(self, exchange: str) -> None:
        answers = self.router._routings[exchange]._answers  # type: ignore[attr-defined]
        find = answers._find

        def counting(question: object) -> Iterable[BoundQueue]:
            self.asked.append(question)
            return find(question)

        answers._find = counting

    def kept(self, exchange: str) -> int:
        return len(self.router._routings[exchange]._answers)  # type: ignore[attr-defined]


def test_a_key_is_looked_up_once_while_bindings_stay() -> None:
    world = Counted(Exchange("e", "topic"))
    world.bind("e a.# p")
    world.count("e")
    world.route("e", b"a", b"b", b"a")
    world.route("e", b"a", b"b", None)
    assert world.asked == [b"a", b"b", None]
    world.bind("e b q")
    assert world.route("e", b"a", b"b") == ["p", "q"]
    assert world.asked == [b"a", b"b", None, b"a", b"b"]


def test_headers_that_mean_the_same_are_looked_up_once() -> None:
    world = Counted(Exchange("e", "headers"))
    world.bind("e k p", n=1)
    world.count("e")
    world.route("e", b"", b"", b"", headers=[{"n": 1, "id": number} for number in range(3)])
    assert len(world.asked) == 1


def test_keys_are_forgotten_rather_than_kept_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "CACHED_KEYS_MAX", 10)
    world = Counted(Exchange("e", "topic"))
    world.bind("e # p")
    keys = [b"%d" % number for number in range(25)]
    assert world.route("e", *keys) == ["p"] * 25
    assert world.kept("e") == 5


def test_large_answers_are_forgotten_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "CACHED_QUEUES_MAX", 5)
    world = Counted(Exchange("e", "topic"))
    world.bind("e #.a p", "e #.a q", "e #.b q", "e #.b r", "e #.c p", "e #.c r")
    assert world.route("e", b"a", b"x.a", b"b", b"c") == ["pq", "pq", "qr", "pr"]
    assert world.kept("e") == 1


def test_a_long_key_is_not_kept() -> None:
    world = Counted(Exchange("e", "fanout"))
    world.route("e", b"k" * 10_000, b"\xff")
    assert world.kept("e") == 0


def test_many_fulfilled_conditions_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "CACHED_CONDITIONS_MAX", 1)
    world = Counted(Exchange("e", "headers"))
    world.bind("e k p", n=1, m=2)
    assert world.route("e", b"", b"", headers=[{"n": 1, "m": 2}, {"n": 1}]) == ["p", ""]
    assert world.kept("e") == 1


# -- against the model ----------------------------------------------------------------------------


def compare(
    examples: int, tables: ModuleType = exchange_table, routers: ModuleType = router
) -> None:
    """Rows come to two instances in two orders, while batches are routed: both routers, and a
    third one that begins with everything, find what the model says."""

    @cases(examples)
    @given(histories, batches, st.randoms(use_true_random=False))
    def judge(rows: list[Row], batch: list[tuple[Any, Any]], order: random.Random) -> None:
        keys, headers = [key for key, _ in batch], [each for _, each in batch]
        naive = NaiveWorld(rows)
        made = []
        for shuffle in (False, True):
            table, one = tables.ExchangeTable(), routers.Router()
            one.apply(table.changes(), 0)
            many = list(rows)
            if shuffle:
                many += many[:3]
                order.shuffle(many)
            for row in many:
                one.apply(table.learn(row).changes, table.version)
                if EXCHANGES[0] in one._routings:
                    one.route(EXCHANGES[0], len(keys), keys, headers)
            made.append((table, one))
        late = routers.Router()
        late.apply(made[0][0].changes(), made[0][0].version)
        assert made[0][0].rows() == made[1][0].rows()
        for name in ("", *EXCHANGES, *FIXED):
            if naive.definition(name) is None:
                assert name not in late._routings
                continue
            expected = naive.route_all(name, keys, headers)
            for one in (made[0][1], made[1][1], late):
                routes = one.route(name, len(keys), keys, headers)
                assert [set(routes.queues_of(at)) for at in range(len(keys))] == expected
                assert routes.unroutable == [at for at, each in enumerate(expected) if not each]

    judge()


def test_any_rows_in_any_order_route_as_in_the_model() -> None:
    compare(EXAMPLES)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_twenty_thousand_histories_route_as_in_the_model() -> None:
    compare(20_000)


PLANTED_TABLE = {
    "a row holds because it came later": (
        "        if before is not None and not holds(row, before):\n"
        "            return Learned([], [row] if conflict(row, before) else [])\n"
        "        self._rows[key]",
        "        self._rows[key]",
    ),
    "a binding of a life that ended counts": (
        " or key.exchange_life not in self._live(key.exchange)",
        "",
    ),
    "a binding of a queue that ended counts": (
        "        if is_live is False:\n            return None\n",
        "",
    ),
    "a binding of another kind counts": (
        'if (conditions is not None) is not (exchange.kind == "headers")',
        'if conditions is None and exchange.kind == "headers"',
    ),
    "bindings of a queue stay when it ends": (
        "for one in self._of_queue.get(row.name, ()):",
        "for one in ():",
    ),
    "bindings do not follow another definition": (
        "for one in self._of_exchange.get(name, ()):",
        "for one in ():",
    ),
    "a later binding does not know that its exchange ended": (
        "if is_over or binding",
        "if binding",
    ),
    "the definition is that of the lowest life": (
        "found = max(rows, key=rank)",
        "found = min(rows, key=lambda row: row.life)",
    ),
    "the default exchange keeps a queue that ended": (
        "[_default(named, bound=False)] if named else []",
        "[]",
    ),
}
PLANTED_ROUTER = {
    "the alternate passes on": (
        "others = alternate.find(",
        "others = self._routings.get(alternate.exchange.alternate, alternate).find(",
    ),
    "a cache outlives a binding": (
        "(change.key.encode(), change.queue)\n        self._answers.clear()",
        "(change.key.encode(), change.queue)",
    ),
    "a long key is routed": ("if question and not is_key(question):", "if question is ...:"),
}
#: bugs that random rows meet too rarely, each with the test that finds it
PLANTED_FOR_ONE: dict[str, tuple[str, str, Callable[[], None]]] = {
    "headers come with any key": (
        "if not key or is_key(key) else",
        "if True else",
        test_headers_do_not_help_a_key_that_is_not_text,
    ),
    "another definition is not taken over": (
        "self._routings[name].exchange = definition",
        "pass",
        test_another_alternate_keeps_the_bindings,
    ),
    "another kind keeps its matcher": (
        "self._routings[name].exchange.kind == definition.kind",
        "'headers' not in (self._routings[name].exchange.kind, definition.kind)",
        test_another_kind_judges_the_same_bindings_in_its_way,
    ),
    "a queue goes with its first binding": (
        "counts[target] -= 1",
        "counts[target] = 0",
        test_a_fanout_exchange_routes_whatever_the_key,
    ),
    "the alternate has the headers of others": (
        "[headers[at] for at in left]",
        "headers[: len(left)]",
        test_the_alternate_sees_the_headers_of_its_messages,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED_TABLE)
def test_a_planted_bug_of_the_table_is_found_by_the_model(name: str) -> None:
    tables = planted(exchange_table, *PLANTED_TABLE[name])
    for change in (ExchangeChange, BindingChange):  # a router knows changes by their classes
        setattr(tables, change.__name__, change)
    with pytest.raises((AssertionError, KeyError)):
        compare(SOUGHT, tables)


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED_ROUTER)
def test_a_planted_bug_of_the_router_is_found_by_the_model(name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        compare(SOUGHT, routers=planted(router, *PLANTED_ROUTER[name]))


@pytest.mark.parametrize("name", PLANTED_FOR_ONE)
def test_a_planted_bug_of_the_router_is_found_by_its_test(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, finds = PLANTED_FOR_ONE[name]
    monkeypatch.setitem(globals(), "Router", planted(router, right, wrong).Router)
    with pytest.raises((AssertionError, KeyError)):
        finds()
