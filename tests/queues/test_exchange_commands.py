"""Exchanges and bindings by commands: rights, answers, and the messages that enter queues."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.queues.bench import ANN, BOB, KEY_A, KEY_B, Bench
from zbroker.access.format import parse
from zbroker.config import QueueConfig, RecordConfig
from zbroker.exchanges import BoundQueue
from zbroker.log.format import KIND_EXCHANGE, KIND_WIRING
from zbroker.log.queue_records import QueueDeclaration
from zbroker.queues import exchange_changes
from zbroker.recording import Recording
from zbroker.wire import queue_messages as q
from zbroker.wire.replicas import Replicated

BILLS = QueueConfig("bills", bound=True)


def bench(*configs: QueueConfig, **more: Any) -> Bench:
    at = Bench(*(configs or (BILLS,)), **more)
    at.logon(BOB)
    at.logon()
    return at


def say(at: Bench, command: Any, rid: bytes = ANN) -> Any:
    """The answer, or None as long as there is none."""
    command.cid = "c"
    return at.say(command, rid)


def declare(at: Bench, name: str = "events", kind: str = "topic", **more: Any) -> Any:
    return say(at, q.DeclareExchange(name, kind=kind, **more))


def bind(at: Bench, key: str = "#", queue: str = "bills", exchange: str = "events") -> Any:
    return say(at, q.BindQueue(queue, exchange, key=key))


def unbind(at: Bench, key: str = "#", queue: str = "bills", exchange: str = "events") -> Any:
    return say(at, q.UnbindQueue(queue, exchange, key=key))


def life(at: Bench, name: str = "bills") -> BoundQueue:
    [(queue, numbers)] = at.one(name).definition.names
    return BoundQueue(queue, QueueDeclaration(*numbers))


def keys(at: Bench, exchange: str = "events") -> list[tuple[str, str]]:
    found = at.manager.exchanges.table.bindings(exchange)
    return sorted((binding.queue, binding.key) for binding in found)


DONE = q.ExchangeDone("events", True, "c")
SAME = q.ExchangeDone("events", False, "c")


# -- answers --------------------------------------------------------------------------------------


def test_a_binding_is_answered_when_it_is_durable_and_used() -> None:
    at = bench()
    at.routes_at_once = False
    at.holding = True
    assert declare(at) is None
    at.land()
    assert at.of(q.ExchangeDone) == []
    at.route()
    assert at.last() == DONE
    assert bind(at) is None
    at.route()  # the record has not landed
    assert at.of(q.ExchangeDone) == [DONE]
    at.land()
    assert at.of(q.ExchangeDone) == [DONE]
    at.route()
    assert at.of(q.ExchangeDone) == [DONE, DONE]
    assert keys(at) == [("bills", "#")]


def test_what_is_so_already_is_answered_when_it_is_used() -> None:
    """Another command, that is not answered yet, may have made it so."""
    at = bench()
    at.routes_at_once = False
    assert declare(at) is None
    assert declare(at) is None
    at.route()
    assert at.of(q.ExchangeDone) == [DONE, SAME]


def test_a_repeated_command_changes_nothing() -> None:
    at = bench()
    assert (declare(at), declare(at)) == (DONE, SAME)
    assert (bind(at), bind(at)) == (DONE, SAME)
    assert unbind(at) == DONE
    assert unbind(at).code == "unknown_binding"
    assert say(at, q.DeleteExchange("events")) == DONE
    assert say(at, q.DeleteExchange("events")).code == "unknown_exchange"


def test_an_answer_waits_for_synchronous_destinations() -> None:
    at = bench(replicates=True, sync=True)
    assert declare(at) is None
    at.turn.hear(Replicated(at.journal, at.position, 1))
    at.run()
    assert at.last() == DONE


def test_while_a_binding_is_on_its_way_the_same_one_is_not_ready() -> None:
    at = bench()
    declare(at)
    at.holding = True
    assert bind(at) is None
    assert unbind(at).code == "unknown_binding"
    assert bind(at).code == "not_ready"
    assert bind(at, "other") is None
    at.land()
    assert keys(at) == [("bills", "#"), ("bills", "other")]
    assert say(at, q.DeleteExchange("events")) is None
    assert bind(at, "late").code == "not_ready"


def test_a_unit_that_was_refused_is_answered_so() -> None:
    at = bench()
    at.holding = True
    declare(at)
    at.refuse("too_large")
    assert at.last().code == "too_large"
    at.holding = False
    assert declare(at) == DONE


def test_units_that_landed_with_a_dead_journal_are_found_in_the_log() -> None:
    at = bench()
    declare(at)
    at.receipts = False
    assert bind(at) is None
    at.die()
    at.come_back()
    assert at.last() == DONE
    assert [one.kind for one in at.log].count(KIND_EXCHANGE) == 3  # queue, exchange, binding


def test_nothing_is_answered_before_the_journal_has_said_what_there_is() -> None:
    at = bench()
    at.manager.exchanges.follower.known = False
    assert declare(at).code == "not_ready"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (q.DeclareExchange("amq.mine", kind="topic"), "reserved_name"),
        (q.DeclareExchange("e", kind="none"), "bad_field"),
        (q.DeclareExchange("events", kind="direct"), "exchange_exists"),
        (q.DeclareExchange("none", passive=True), "unknown_exchange"),
        (q.DeleteExchange("amq.topic"), "reserved_name"),
        (q.BindQueue("bills", "none"), "unknown_exchange"),
        (q.BindQueue("none", "events"), "unknown_queue"),
        (q.BindQueue("plain", "events"), "bad_queue"),
        (q.BindQueue("bills", "events", arguments={"n": Raw(b"\1")}), "bad_field"),
        (q.BindQueue("bills", "h", arguments={"n": Raw(b"\x80")}), "bad_field"),
        (q.DeleteExchange("events", if_unused=True), "exchange_in_use"),
    ],
)
def test_what_cannot_be_is_refused(command: Any, code: str) -> None:
    at = bench(BILLS, QueueConfig("plain"))
    declare(at)
    bind(at)
    declare(at, "h", "headers")
    assert say(at, command).code == code


def test_an_exchange_has_to_be_recorded_as_a_whole() -> None:
    rules = [RecordConfig("events"), RecordConfig("other", filter="/a = 1")]
    at = bench(record=Recording(rules))
    assert declare(at, "other").code == "topic_not_recorded"
    assert declare(at, "live").code == "topic_not_recorded"
    assert declare(at) == DONE


def test_bindings_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_changes, "BINDINGS_MAX", 1)
    at = bench()
    declare(at)
    assert bind(at) == DONE
    assert bind(at, "more").code == "too_many"


def test_an_exchange_goes_with_its_last_binding() -> None:
    at = bench()
    declare(at, auto_delete=True)
    bind(at)
    assert unbind(at) == DONE
    assert declare(at, passive=True).code == "unknown_exchange"


# -- rights ---------------------------------------------------------------------------------------


def grants(*rules: str) -> Bench:
    text = f'[principal.ann]\nkeys = ["{KEY_A}"]\nroles = ["r"]\n'
    text += f'[principal.bob]\nkeys = ["{KEY_B}"]\nroles = ["all"]\n[[role.all.allow]]\n'
    text += 'actions = ["configure", "bind", "subscribe", "publish"]\ntopics = ["*"]\n'
    text += '[[role.r.allow]]\nactions = ["consume"]\ntopics = ["mine"]\n'
    for rule in rules:
        actions, topics = rule.split(": ")
        text += f'[[role.r.allow]]\nactions = ["{actions}"]\ntopics = ["{topics}"]\n'
    at = Bench(BILLS, access=parse(text, "access.toml"))
    at.logon(BOB, key=KEY_B)
    say(at, q.DeclareExchange("events", kind="topic"), BOB)
    say(at, q.BindQueue("bills", "events", key="bound"), BOB)
    at.logon(key=KEY_A)
    return at


BIND, UNBIND = q.BindQueue("bills", "events"), q.UnbindQueue("bills", "events", key="bound")
ALTERNATE = q.DeclareExchange("e", alternate="events")


@pytest.mark.parametrize(
    ("command", "rights"),
    [
        (q.DeclareExchange("e"), ["configure: e"]),
        (ALTERNATE, ["configure: e", "subscribe: e", "publish: events"]),
        (q.DeleteExchange("events"), ["configure: events"]),
        (BIND, ["bind: bills", "subscribe: events"]),
        (UNBIND, ["bind: bills"]),
        (q.DeclareExchange("events", passive=True), ["configure: events"]),
        (q.DeclareExchange("events", passive=True), ["publish: events"]),
    ],
)
def test_a_command_takes_these_rights_and_no_fewer(command: Any, rights: list[str]) -> None:
    for missing in rights:
        at = grants(*(one for one in rights if one != missing))
        assert say(at, command).code == "not_entitled"
    answer = say(grants(*rights), command)
    assert isinstance(answer, q.ExchangeDone)


# -- what enters ----------------------------------------------------------------------------------


def test_messages_that_name_a_queue_enter_it() -> None:
    at = bench(BILLS, QueueConfig("audit", bound=True), QueueConfig("t"))
    bills, audit = life(at), life(at, "audit")
    first = at.publish(b"1", b"2", b"3", topic="events", routes=[[bills], [], [audit, bills]])
    assert (at.here("bills"), at.here("audit")) == ([first[0], first[2]], [first[2]])
    more = at.publish(b"1", b"2", topic="events", routes=[[bills], [bills]])
    assert at.here("bills") == [first[0], first[2], *more]
    at.many(2, topic="bills")  # its name is no topic
    assert at.here("bills") == [first[0], first[2], *more]
    also = at.publish(b"x", topics=["t"], routes=[[bills]])
    assert (at.here("t"), at.here("bills")[-1:]) == (also, also)


def test_what_names_another_life_does_not_enter() -> None:
    at = bench()
    bills = life(at)
    other = bills._replace(life=QueueDeclaration(1, 2, 3))
    at.publish(b"1", routes=[[other]])
    assert at.here("bills") == []
    at.log[-1].extra = [(at.log[-1].extra[0][0], b"damaged, or of a newer release")]
    at.restart()
    assert at.here("bills") == []


def test_a_restart_comes_to_the_same_queue() -> None:
    at = bench()
    declare(at)
    bind(at)
    bills = life(at)
    entered = at.publish(b"1", b"2", topic="events", routes=[[bills], []])[:1]
    at.restart()
    assert (at.here("bills"), life(at)) == (entered, bills)
    assert keys(at) == [("bills", "#")]


def test_a_queue_that_is_declared_again_is_another_one() -> None:
    at = bench(QueueConfig("t"))
    say(at, q.DeclareQueue("bills", settings={"bound": True}))
    before = life(at)
    declare(at)
    bind(at)
    say(at, q.DeleteQueue("bills"))
    assert keys(at) == []
    say(at, q.DeclareQueue("bills", settings={"bound": True}))
    after = life(at)
    assert after.life > before.life
    at.publish(b"late", topic="events", routes=[[before]])
    assert at.here("bills") == []
    mine = at.publish(b"new", topic="events", routes=[[after]])
    assert at.here("bills") == mine


def test_a_queue_and_its_row_are_one_unit() -> None:
    at = bench(QueueConfig("t"))
    at.holding = True
    say(at, q.DeclareQueue("bills", settings={"bound": True}))
    assert at.kinds() == [KIND_EXCHANGE, KIND_WIRING]
    at.land()
    assert at.one("bills").definition.created == at.position - 1
    assert at.manager.exchanges.table.rows() != []


def test_a_filter_decides_of_what_was_routed() -> None:
    at = bench(QueueConfig("big", bound=True, filter="/n > 5"))
    big = life(at, "big")
    found = at.publish(*map(numbered, (1, 7, 9)), routes=[[big], [big], []])
    assert at.here("big") == [found[1]]


def numbered(number: int) -> bytes:
    return b'{"n": %d}' % number


def test_many_idle_queues_cost_a_batch_nothing() -> None:
    at = bench(*(QueueConfig(f"q{number}", bound=True) for number in range(50)))
    seven = life(at, "q7")
    at.publish(b"1", b"2", topic="events", routes=[[seven], [BoundQueue("gone", seven.life)]])
    [found] = at.manager.folding.bound.of(at.log[-1])
    assert found.name == "q7"
    at.many(1)
    assert at.manager.folding.bound.of(at.log[-1]) == []
