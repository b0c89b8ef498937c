"""What clients and operators see of exchanges and bindings, part by part."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, msgpack

from tests.queues.bench import ANN, BOB, HERE, KEY_A, KEY_B, Bench
from tests.queues.test_exchange_commands import BILLS, bench, bind, declare, say
from zbroker.access.format import parse
from zbroker.config import QueueConfig
from zbroker.exchanges import Binding, BindingRow, DeclaredQueue, ExchangeRow
from zbroker.exchanges.exchange import Exchange
from zbroker.log.queue_records import QueueDeclaration, Version
from zbroker.queues import exchange_lists
from zbroker.wire import exchange_lists as w
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_messages as q

PREDECLARED = ["amq.direct", "amq.fanout", "amq.match", "amq.topic"]
AUDIT = QueueConfig("audit", bound=True)
ONE = [("h", "audit", "")]
THERE = QueueDeclaration(5, 0xDEF, 1)  # of another instance


def packed(arguments: dict[str, Any]) -> dict[str, Raw]:
    return {name: Raw(msgpack.encode(value)) for name, value in arguments.items()}


def exchanges(at: Bench, rid: bytes = ANN, **more: Any) -> list[str]:
    answer = say(at, w.ListExchanges(**more), rid)
    assert isinstance(answer, w.ExchangeList)
    return [row.exchange for row in answer.rows]


def bindings(at: Bench, rid: bytes = ANN, **more: Any) -> list[tuple[str, str, str]]:
    answer = say(at, w.ListBindings(**more), rid)
    assert isinstance(answer, w.BindingList)
    return [(row.exchange, row.queue, row.key) for row in answer.rows]


def filled() -> Bench:
    at = bench(BILLS, AUDIT)
    declare(at)
    declare(at, "direct", "direct")
    declare(at, "h", "headers")
    bind(at, "order.*")
    bind(at)
    bind(at, queue="audit")
    bind(at, "k", exchange="direct")
    for arguments in ({"n": 1}, {"n": 2, "x-match": "any"}):
        say(at, q.BindQueue("audit", "h", arguments=packed(arguments)))
    return at


def learn_from_elsewhere(at: Bench) -> None:
    """Another instance binds a local queue of its own, that has the name of one here."""
    [life] = at.manager.exchanges.table._live("events")
    binding = Binding("events", life, "bills", THERE, "there")
    rows = [DeclaredQueue("bills", THERE, local=True), BindingRow(binding, Version(1, 0xDEF, 1))]
    at.manager.exchanges.learn(rows, at.position)


# -- clients --------------------------------------------------------------------------------------


def test_exchanges_are_listed_by_name_as_they_were_declared() -> None:
    at = bench()
    declare(at, alternate="other", auto_delete=True, internal=True)
    answer = say(at, w.ListExchanges())
    assert [row.exchange for row in answer.rows] == [*PREDECLARED, "events"]
    assert answer.rows[-1] == w.ListedExchange("events", "topic", "other", True, True)
    assert (answer.cid, answer.next) == ("c", None)


def test_one_exchange_is_there_or_not() -> None:
    at = filled()
    assert exchanges(at, exchange="events") == ["events"]
    assert exchanges(at, exchange="none") == []


def test_bindings_are_listed_in_one_order() -> None:
    assert bindings(filled()) == [
        ("direct", "bills", "k"),
        ("events", "audit", "#"),
        ("events", "bills", "#"),
        ("events", "bills", "order.*"),
        ("h", "audit", ""),
        ("h", "audit", ""),
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"exchange": "direct"}, [("direct", "bills", "k")]),
        ({"queue": "audit", "exchange": "events"}, [("events", "audit", "#")]),
        ({"queue": "bills", "key": "#"}, [("events", "bills", "#")]),
        ({"key": "order.*", "exchange": "events"}, [("events", "bills", "order.*")]),
        ({"exchange": "direct", "queue": "audit"}, []),
        ({"exchange": "none"}, []),
        ({"queue": "none"}, []),
        ({"exchange": "direct", "arguments": {}}, [("direct", "bills", "k")]),
        ({"exchange": "h", "arguments": packed({"n": 1})}, ONE),
        ({"exchange": "h", "arguments": packed({"n": 1.0, "x-match": "all"})}, ONE),
        ({"exchange": "h", "arguments": packed({"n": 1, "x-match": "any"})}, []),
        ({"exchange": "h", "arguments": {}}, []),
    ],
)  # fmt: skip
def test_a_query_says_whether_a_queue_is_bound_like_that(wanted: Any, found: Any) -> None:
    assert bindings(filled(), **wanted) == found


def test_arguments_are_shown_as_they_count() -> None:
    answer = say(filled(), w.ListBindings(exchange="h"))
    shown = sorted((row.arguments for row in answer.rows), key=lambda one: str(one["n"]))
    assert shown == [{"n": 1, "x-match": "all"}, {"n": 2, "x-match": "any"}]


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_the_parts_of_a_list_are_the_list(limit: int) -> None:
    at = filled()
    found, after = [], b""
    for _ in range(10):
        answer = say(at, w.ListBindings(after=after, limit=limit))
        assert 1 <= len(answer.rows) <= limit
        found += answer.rows
        if answer.next is None:
            break
        after = answer.next
    assert found == say(at, w.ListBindings()).rows
    names: list[str] = []
    more: str | None = ""
    while more is not None:
        part = say(at, w.ListExchanges(after=more, limit=limit))
        names += [row.exchange for row in part.rows]
        more = part.next
    assert names == exchanges(at)


def test_a_part_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    at = filled()
    monkeypatch.setattr(w, "LISTED_MAX_BYTES", 20)
    answer = say(at, w.ListBindings())
    assert len(answer.rows) == 2  # the second one is beyond it
    assert answer.next is not None


def test_a_part_goes_on_where_it_was_although_that_binding_is_gone() -> None:
    at = filled()
    first = say(at, w.ListBindings(limit=3))
    say(at, q.UnbindQueue("bills", "events", key="#"))
    rest = say(at, w.ListBindings(after=first.next))
    assert [row.key for row in rest.rows] == ["order.*", "", ""]


def test_what_is_no_next_is_refused() -> None:
    assert say(filled(), w.ListBindings(after=b"\x91\x01")).code == "bad_field"
    values = {"n": Raw(b"\x80")}
    assert say(filled(), w.ListBindings(arguments=values)).code == "bad_field"


def test_the_same_binding_of_two_lives_is_listed_once() -> None:
    at = filled()
    twin = QueueDeclaration(7, 0xDEF, 1)
    [mine] = at.manager.exchanges.table.bindings("direct")
    rows = [
        ExchangeRow("direct", twin, Version(9, 0xDEF, 1), Exchange("direct", "direct")),
        BindingRow(Binding("direct", twin, "bills", mine.queue_life, "k"), Version(1, 0xDEF, 1)),
    ]  # fmt: skip
    at.manager.exchanges.learn(rows, at.position)
    assert at.manager.exchanges.table.binding_count_of("direct") == 2
    assert bindings(at, exchange="direct") == [("direct", "bills", "k")]


def test_local_queues_of_other_instances_are_not_listed() -> None:
    at = filled()
    learn_from_elsewhere(at)
    assert ("events", "bills", "there") not in bindings(at)


def test_nothing_is_listed_before_the_journal_has_said_what_there_is() -> None:
    at = bench()
    at.manager.exchanges.follower.known = False
    assert say(at, w.ListExchanges()).code == "not_ready"
    assert say(at, w.ListBindings()).code == "not_ready"


# -- rights ---------------------------------------------------------------------------------------


def grants(*rules: str) -> Bench:
    text = f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n'
    text += f'[principal.bob]\nkeys = ["{KEY_B}"]\nroles = ["all"]\n[[role.all.allow]]\n'
    text += 'actions = ["configure", "bind", "subscribe"]\ntopics = ["*"]\n'
    text += '[[role.r.allow]]\nactions = ["consume"]\ntopics = ["mine"]\n'
    for rule in rules:
        actions, topics = rule.split(": ")
        text += f'[[role.r.allow]]\nactions = ["{actions}"]\ntopics = ["{topics}"]\n'
    at = Bench(BILLS, AUDIT, access=parse(text, "access.toml"))
    at.logon(BOB, key=KEY_B)
    for exchange in ("events", "secret"):
        say(at, q.DeclareExchange(exchange, kind="topic"), BOB)
        for queue in ("bills", "audit"):
            say(at, q.BindQueue(queue, exchange), BOB)
    at.logon(key=KEY_A)
    return at


@pytest.mark.parametrize("action", ["configure", "publish", "subscribe"])
def test_an_exchange_is_seen_with_a_right_to_it(action: str) -> None:
    at = grants(f"{action}: events")
    assert exchanges(at) == ["events"]
    assert exchanges(at, exchange="secret") == []


def test_without_a_right_nothing_is_seen() -> None:
    at = grants("consume: bills", "replay: events")
    assert (exchanges(at), bindings(at)) == ([], [])


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("bind: bills", [("events", "bills", ""), ("secret", "bills", "")]),
        ("configure: events", [("events", "audit", ""), ("events", "bills", "")]),
        ("publish: events", []),
        ("subscribe: events", []),
    ],
)
def test_a_binding_is_seen_by_those_who_may_take_it_back(rule: str, seen: Any) -> None:
    assert bindings(grants(rule)) == seen


# -- operators ------------------------------------------------------------------------------------


def test_operators_see_all_of_them() -> None:
    at = filled()
    learn_from_elsewhere(at)
    found = at.ask(x.AskExchangeRows(3))
    assert found.cid == 3
    assert [row.name for row in found.rows] == [*PREDECLARED, "direct", "events", "h"]
    assert [row.bindings for row in found.rows] == [0, 0, 0, 0, 1, 4, 2]
    assert [row.predeclared for row in found.rows] == [True] * 4 + [False] * 3
    bound = at.ask(x.AskBindingRows(4, "events", limit=10))
    assert [(row.queue, row.key, row.instance, row.here) for row in bound.rows] == [
        ("audit", "#", HERE.instance, True),
        ("bills", "#", HERE.instance, True),
        ("bills", "order.*", HERE.instance, True),
        ("bills", "there", 0xDEF, False),
    ]
    assert bound.left_out == 0


def test_operators_ask_for_some_of_them() -> None:
    at = filled()
    assert [row.name for row in at.ask(x.AskExchangeRows(1, "events")).rows] == ["events"]
    assert at.ask(x.AskExchangeRows(1, "none")).rows == []
    bound = at.ask(x.AskBindingRows(1, queue="audit", limit=2))
    assert [(row.exchange, row.queue) for row in bound.rows] == [
        ("events", "audit"),
        ("h", "audit"),
    ]
    assert bound.left_out == 1


def test_operators_are_refused_before_the_journal_has_said_what_there_is() -> None:
    at = bench()
    at.manager.exchanges.follower.known = False
    for question in (x.AskExchangeRows(1), x.AskBindingRows(1)):
        assert at.ask(question).code == "not_ready"


def test_what_changes_between_two_answers_is_in_the_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sorted bindings are kept, of one exchange at a time."""
    monkeypatch.setattr(exchange_lists, "KEPT_MIN", 0)
    at = filled()
    for exchange in ("events", "direct", "events"):
        assert len(bindings(at, exchange=exchange)) == (3 if exchange == "events" else 1)
    say(at, q.UnbindQueue("bills", "events", key="#"))
    assert bindings(at, exchange="events") == [
        ("events", "audit", "#"),
        ("events", "bills", "order.*"),
    ]
    bind(at, "new")
    assert ("events", "bills", "new") in bindings(at, exchange="events")
    say(at, q.DeleteExchange("events"))
    declare(at)
    assert bindings(at, exchange="events") == []
