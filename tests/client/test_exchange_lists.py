"""zbroker/client/exchange_lists.py: lists that come in parts, and what is asked again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.client.test_queue_commands import LOST, FakeBroker, T
from zbroker.client import exchange_lists as lists
from zbroker.client.exchange_lists import BindingInfo, ExchangeInfo
from zbroker.errors import ZBrokerError
from zbroker.wire.exchange_lists import (
    BindingList,
    ExchangeList,
    ListBindings,
    ListedBinding,
    ListedExchange,
    ListExchanges,
)
from zbroker.wire.messages import Error


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.client.questions.PAUSE_S", 0)


def exchange(name: str) -> ListedExchange:
    return ListedExchange(name, "topic", "", auto_delete=False, internal=True)


def binding(key: str) -> ListedBinding:
    return ListedBinding("e", "q", key, {"n": 1})


def info(name: str) -> ExchangeInfo:
    return ExchangeInfo(name, "topic", "", auto_delete=False, internal=True)


def exchanges(broker: FakeBroker) -> list[ExchangeInfo]:
    return lists.list_exchanges(broker, ListExchanges(), T)  # type: ignore[arg-type]


def bindings(broker: FakeBroker) -> list[BindingInfo]:
    return lists.list_bindings(broker, ListBindings(), T)  # type: ignore[arg-type]


def test_parts_are_asked_for_until_there_is_no_more() -> None:
    broker = FakeBroker(
        ExchangeList([exchange("a"), exchange("b")], next="b"), ExchangeList([exchange("c")])
    )
    assert exchanges(broker) == [info("a"), info("b"), info("c")]
    assert len(broker.sent) == 2
    broker = FakeBroker(BindingList([binding("1")], next=b"x"), BindingList([binding("2")]))
    assert bindings(broker) == [BindingInfo("e", "q", key, {"n": 1}) for key in "12"]


def test_after_a_lost_part_the_list_begins_again() -> None:
    broker = FakeBroker(
        ExchangeList([exchange("a")], next="a"), LOST,
        ExchangeList([exchange("a")], next="a"), ExchangeList([exchange("b")]),
    )  # fmt: skip
    assert exchanges(broker) == [info("a"), info("b")]
    broker = FakeBroker(BindingList([binding("1")], next=b"x"), LOST, BindingList([binding("1")]))
    assert [one.key for one in bindings(broker)] == ["1"]


def test_what_is_not_ready_is_asked_again() -> None:
    assert exchanges(FakeBroker(Error("not_ready", "it starts"), ExchangeList([]))) == []


def test_options_become_commands() -> None:
    assert lists.exchange_list_options().command == ListExchanges()
    assert lists.exchange_list_options("e").command == ListExchanges(exchange="e")
    made = lists.binding_list_options("e", "q", key="", arguments={"n": 1}).command
    packed: dict[str, Any] = {"n": Raw(b"\x01")}
    assert made == ListBindings(exchange="e", queue="q", key="", arguments=packed)
    assert lists.binding_list_options(arguments={}).command == ListBindings(arguments={})
    assert lists.binding_list_options().command == ListBindings()
    for wrong in (lists.exchange_list_options, lists.binding_list_options):
        with pytest.raises(ZBrokerError):
            wrong("")
