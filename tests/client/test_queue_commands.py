"""zbroker/client/queue_commands.py: what is asked again after trouble, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from zbroker.client import questions
from zbroker.client import queue_commands as commands
from zbroker.client.queue_commands import QueueInfo
from zbroker.errors import Timeout, ZBrokerError
from zbroker.wire.messages import Ack, Error, ListenerLogon
from zbroker.wire.queue_messages import (
    DeclareQueue,
    DeleteQueue,
    PurgeQueue,
    QueueChanged,
    QueueDeclared,
)

LOST = "the connection is lost"
T = 10.0


class FakeBroker:
    """Connections to a broker that gives one answer after the other; LOST: none, and it is over.

    It stands for the endpoints of the listener. sent: all commands besides logons.
    """

    def __init__(self, *answers: Any) -> None:
        self.plan = list(answers)
        self.sent: list[Any] = []
        self.tokens: list[str] = []
        self.number = 1

    def session(self, newer_than: int) -> Any:
        if newer_than >= self.number:
            self.number += 1
        answer = Ack("", token=f"t{self.number}")
        return SimpleNamespace(number=self.number, url="tcp://b", answer=answer)

    def connect(self) -> Any:
        return FakeLink(self)


class FakeLink:
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.last: Any = None

    def send(self, command: Any) -> None:
        self.last = command
        if isinstance(command, ListenerLogon):
            self.broker.tokens.append(command.token)
        else:
            self.broker.sent.append((type(command), getattr(command, "declaration", None)))

    def answers(self, _end: float) -> Iterator[Any]:
        if isinstance(self.last, ListenerLogon) and not _of_logon(self.broker.plan[:1]):
            yield Ack("processed", self.last.cid)
            return
        answer = self.broker.plan.pop(0)
        if answer is not LOST:
            answer.cid = self.last.cid
            yield answer

    def close(self, _linger_ms: int) -> None:
        self.broker = FakeBroker()


def _of_logon(answers: list[Any]) -> bool:
    return bool(answers) and getattr(answers[0], "hint", "") == "logon"


def refusal(code: str) -> Error:
    return Error(code, "no", "do it")


def declared(number: int = 1, *, created: bool = False) -> QueueDeclared:
    return QueueDeclared("q", created, number, 3, 2)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "PAUSE_S", 0)


def declare(at: Any, timeout: float = T, **given: Any) -> QueueInfo:
    return commands.declare(at, *commands.declare_options("q", timeout=timeout, **given))


def delete(at: Any, timeout: float = T) -> None:
    commands.delete(at, *commands.delete_options("q", timeout=timeout))


def purge(at: Any, timeout: float = T) -> int:
    return commands.purge(at, *commands.purge_options("q", timeout=timeout))


# -- options ----------------------------------------------------------------------------------


def test_settings_go_as_a_table_has_them() -> None:
    options = commands.declare_options(
        "q", topic="t", lease=timedelta(seconds=1.5), retry_delay=(timedelta(seconds=1), "2s"),
        max_deliveries=3, regex=True,
    )  # fmt: skip
    assert options.command == DeclareQueue("q", settings={
        "topic": "t", "lease": "1500ms", "retry_delay": ["1000ms", "2s"], "max_deliveries": 3,
        "regex": True,
    })  # fmt: skip


def test_what_no_table_has_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="filter"):
        commands.declare_options("q", filter=b"x")
    with pytest.raises(TypeError):
        commands.declare_options(b"q")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        commands.purge_options(5)  # type: ignore[arg-type]


def test_looking_goes_with_no_settings() -> None:
    with pytest.raises(ZBrokerError, match="lease") as refused:
        commands.declare_options("q", passive=True, lease=5)
    assert refused.value.code == "bad_field"


# -- declare ----------------------------------------------------------------------------------


def test_a_declaration_is_repeated_until_it_is_answered() -> None:
    at = FakeBroker(LOST, refusal("not_ready"), declared(created=True))
    assert declare(at) == QueueInfo("q", True, 3, 2, 1)
    assert at.sent == [(DeclareQueue, None)] * 3


def test_one_without_a_name_is_not_repeated_once_it_was_sent() -> None:
    at = FakeBroker(refusal("not_ready"), LOST)
    with pytest.raises(ZBrokerError, match="there may be a queue or not") as unknown:
        commands.declare(at, *commands.declare_options(timeout=T))
    assert unknown.value.code == "outcome_unknown"
    assert at.sent == [(DeclareQueue, None)] * 2


def test_to_look_takes_a_name() -> None:
    with pytest.raises(ZBrokerError) as refused:
        commands.declare_options(passive=True)
    assert refused.value.code == "bad_field"


def test_a_refusal_is_raised_at_once() -> None:
    at = FakeBroker(refusal("queue_exists"))
    with pytest.raises(ZBrokerError, match="no") as refused:
        declare(at)
    assert refused.value.code == "queue_exists"
    assert len(at.sent) == 1


def test_a_token_that_is_over_is_renewed() -> None:
    at = FakeBroker(Error("auth_failed", "no", "logon"), declared())
    assert declare(at).declaration == 1
    assert at.tokens == ["t1", "t2"]


def test_its_time_is_over_with_what_the_broker_said() -> None:
    at = FakeBroker(refusal("not_ready"))
    with pytest.raises(Timeout, match="not_ready"):
        declare(at, timeout=0)


# -- delete -----------------------------------------------------------------------------------


def test_a_delete_names_the_queue_that_it_found() -> None:
    at = FakeBroker(declared(7), QueueChanged("q", 3))
    delete(at)
    assert at.sent == [(DeclareQueue, None), (DeleteQueue, 7)]


def test_a_delete_that_was_not_answered_is_done_if_the_queue_is_gone() -> None:
    at = FakeBroker(declared(7), LOST, refusal("unknown_queue"))
    delete(at)
    assert at.sent == [(DeclareQueue, None), (DeleteQueue, 7), (DeleteQueue, 7)]


def test_a_delete_that_is_repeated_names_the_first_queue_still() -> None:
    at = FakeBroker(declared(7), LOST, LOST, refusal("not_ready"), QueueChanged("q", 3))
    delete(at)
    assert at.sent[1:] == [(DeleteQueue, 7)] * 4


@pytest.mark.parametrize(
    "answers",
    [
        (refusal("unknown_queue"),),
        (LOST, refusal("unknown_queue")),  # it only looked
        (declared(7), refusal("unknown_queue")),  # somebody else was faster
        (declared(7), refusal("not_ready"), declared(7), refusal("unknown_queue")),
    ],
)
def test_a_queue_that_this_call_did_not_delete_is_unknown(answers: tuple[Any, ...]) -> None:
    with pytest.raises(ZBrokerError) as refused:
        delete(FakeBroker(*answers))
    assert refused.value.code == "unknown_queue"


# -- purge ------------------------------------------------------------------------------------


def test_a_purge_says_how_many() -> None:
    assert purge(FakeBroker(QueueChanged("q", 3))) == 3


def test_a_purge_that_was_refused_for_now_is_repeated() -> None:
    at = FakeBroker(refusal("not_ready"), QueueChanged("q", 3))
    assert purge(at) == 3


def test_a_purge_that_was_not_answered_is_not_repeated() -> None:
    at = FakeBroker(LOST)
    with pytest.raises(ZBrokerError, match="may have been done") as unknown:
        purge(at)
    assert unknown.value.code == "outcome_unknown"
    assert at.sent == [(PurgeQueue, None)]
