"""zbroker/client/exchange_commands.py: what is sent, and what is asked again after trouble."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.client.test_queue_commands import LOST, FakeBroker, T
from zbroker.client import exchange_commands as commands
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Error
from zbroker.wire.queue_messages import BindQueue, DeclareExchange, ExchangeDone

DONE, SAME = ExchangeDone("e", True), ExchangeDone("e", False)
NOT_READY = Error("not_ready", "it is being changed")


def perform(broker: FakeBroker, options: commands.ExchangeOptions) -> bool:
    return commands.perform(broker, options.command, T)  # type: ignore[arg-type]


def test_it_says_whether_something_changed() -> None:
    assert perform(FakeBroker(DONE), commands.declare_options("e"))
    assert not perform(FakeBroker(SAME), commands.bind_options("q", "e"))


def test_what_is_not_ready_and_what_is_lost_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbroker.client.questions.PAUSE_S", 0)
    broker = FakeBroker(NOT_READY, LOST, SAME)
    assert not perform(broker, commands.bind_options("q", "e"))
    assert len(broker.sent) == 3


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (commands.delete_options("e"), "unknown_exchange"),
        (commands.unbind_options("q", "e"), "unknown_binding"),
        (commands.unbind_options("q", "e"), "unknown_queue"),
    ],
)
def test_what_is_gone_after_a_lost_answer_was_done(
    options: commands.ExchangeOptions, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbroker.client.questions.PAUSE_S", 0)
    assert not perform(FakeBroker(LOST, Error(code, "gone")), options)
    with pytest.raises(ZBrokerError, match="gone"):
        perform(FakeBroker(Error(code, "gone")), options)


def test_a_bind_to_what_is_gone_is_refused_also_after_a_lost_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbroker.client.questions.PAUSE_S", 0)
    with pytest.raises(ZBrokerError, match="gone"):
        perform(FakeBroker(LOST, Error("unknown_queue", "gone")), commands.bind_options("q", "e"))


def test_options_become_commands() -> None:
    made = commands.declare_options("e", "headers", alternate="f", internal=True).command
    assert made == DeclareExchange("e", kind="headers", alternate="f", internal=True)
    bound = commands.bind_options("q", "e", "k", {"n": 1, "x-match": "any"}).command
    packed: dict[str, Any] = {"n": Raw(b"\x01"), "x-match": Raw(b"\xa3any")}
    assert bound == BindQueue("q", "e", key="k", arguments=packed)
    with pytest.raises(TypeError):
        commands.bind_options("q", "e", arguments={"n": [1]})  # type: ignore[dict-item]
    with pytest.raises(ZBrokerError):
        commands.bind_options("", "e")
