"""zbroker/queues/chosen_names.py: queues whose names the broker chooses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import ANN, Bench, bench
from tests.queues.test_client_definitions import REPLAY, grants
from zbroker.log.format import KIND_WIRING
from zbroker.log.records import WIRING
from zbroker.queues.chosen_names import ChosenNames, is_chosen
from zbroker.server.budgets import Budget
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

NAME = "gen-" + "a" * 26


def declare(at: Bench, name: str = "", rid: bytes = ANN, **settings: Any) -> Any:
    return at.say(q.DeclareQueue(name, "d", {"topic": "t", **settings}), rid)


def test_no_name_comes_twice() -> None:
    names = [made.next() for made in [ChosenNames(1), ChosenNames(2)] * 2]
    assert len(set(names)) == 4
    assert all(is_chosen(name) for name in names)


@pytest.mark.parametrize("name", ["gen-", "gen-x", NAME + "a", NAME.upper(), f"a{NAME}", ""])
def test_other_names_are_free(name: str) -> None:
    assert not is_chosen(name)


def test_a_queue_without_a_name_gets_one() -> None:
    at = bench()
    first, second = declare(at), declare(at)
    assert first.created
    assert second.created
    assert first.queue != second.queue
    assert is_chosen(first.queue)
    positions = at.many(2)
    assert at.here(first.queue) == at.here(second.queue) == positions
    assert not declare(at, first.queue).created, "it is there, so its name may be said"


def test_the_right_is_about_the_name_that_was_chosen() -> None:
    at = grants(REPLAY, 'actions = ["configure"]\ntopics = ["gen-*"]')
    assert declare(at).created
    assert declare(grants(REPLAY)).code == "not_entitled"


def test_only_the_broker_makes_such_a_queue() -> None:
    at = bench()
    assert declare(at, NAME).code == "bad_queue"
    assert at.ask(s.Define(0, "create", NAME, {"topic": "t"})).code == "bad_queue"
    assert declare(at, "gen-mine").created


def test_a_deleted_one_is_forgotten() -> None:
    at = bench()
    name = declare(at).queue
    at.say(q.DeleteQueue(name, "d"))
    assert name not in at.manager.rows
    [record] = [
        one for one in (WIRING.decode(each.body) for each in at.log if each.kind == KIND_WIRING)
        if one.name == name and one.definition is None
    ]  # fmt: skip
    assert record.forgotten
    at.restart()
    at.logon()
    assert name not in at.manager.rows
    assert declare(at, name).code == "bad_queue"


def test_a_deleted_one_does_not_count() -> None:
    at = grants(REPLAY, 'actions = ["configure"]\ntopics = ["gen-*"]', budget=Budget(queues=2))
    for _ in range(5):
        at.say(q.DeleteQueue(declare(at).queue, "d"))
    assert [declare(at).queue[:4] for _ in range(2)] == ["gen-"] * 2
    assert declare(at).code == "too_many"


def test_a_deleted_one_of_a_name_of_its_own_is_remembered() -> None:
    at = bench()
    declare(at, "mine")
    at.say(q.DeleteQueue("mine", "d"))
    assert "mine" in at.manager.rows
    assert declare(at, "mine").declaration == 2


def test_one_of_several_instances_has_a_name() -> None:
    assert declare(bench(), scope="distributed").code == "bad_queue"


def test_to_look_takes_a_name() -> None:
    assert bench().say(q.DeclareQueue("", "d", passive=True)).code == "unknown_queue"
