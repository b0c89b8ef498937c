"""zbroker/client/session_link.py: what became of a commit that was not answered."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from zbroker.client import session_link
from zbroker.client.questions import LostError
from zbroker.client.session_keeper import SessionKeeper
from zbroker.client.session_link import SessionLink, Takes
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Heartbeat
from zbroker.wire.transactions import (
    AttachSession,
    DetachSession,
    SessionAttached,
    SessionDetached,
    TransactionCommitted,
)

LONG_S = 60.0
NOTHING = Takes([], [])


class Connection:
    """A connection whose session began in `epoch`. commits: what becomes of each commit."""

    def __init__(
        self, epoch: int, last: tuple[int, int], commits: list[Any], after: int | None = None,
        url: str = "a",
    ) -> None:  # fmt: skip
        self._epoch, self._last, self._commits = epoch, last, commits
        self._after, self.url = after, url
        self.end, self.kept, self.lost, self.closed = 0.0, False, False, False

    def ask(self, command: Any) -> Any:
        if isinstance(command, AttachSession):
            self.attach = command
            stage = f"stage{self._epoch}."
            return SessionAttached("s", self._epoch, stage, *self._last, 70, 2, after=self._after)
        answer = self._commits.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def link(monkeypatch: pytest.MonkeyPatch, *connections: Connection) -> SessionLink:
    """A session that uses these one after the other, and was attached on the first."""
    left = list(connections)

    def ask(_to: Any, _timeout: float, _what: str, begin: Callable[[Any], Any], *_: Any) -> Any:
        return begin(left.pop(0))

    monkeypatch.setattr(session_link, "ask", ask)
    monkeypatch.setattr(session_link.time, "sleep", lambda _s: pytest.fail("it does not wait"))
    made = SessionLink(None, "s", force=False)  # type: ignore[arg-type]
    assert made.begin(LONG_S)[1] == "stage5.1"
    return made


LOST = [
    LostError(late=False),
    ZBrokerError("not_logged_on", "the process is another one"),
]


@pytest.mark.parametrize("how", LOST, ids=["lost", "not logged on any more"])
def test_a_commit_whose_connection_was_lost_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, how: Exception
) -> None:
    first, second = Connection(5, (0, 0), [how]), Connection(6, (5, 1), [])
    at = link(monkeypatch, first, second)
    assert at.commit(2, NOTHING, LONG_S) == TransactionCommitted("s", 1, 70, 2)
    assert first.closed
    assert at.begin(LONG_S)[1] == "stage6.1"


@pytest.mark.parametrize("how", LOST, ids=["lost", "not logged on any more"])
def test_a_commit_that_never_arrived_is_aborted(
    monkeypatch: pytest.MonkeyPatch, how: Exception
) -> None:
    at = link(monkeypatch, Connection(5, (0, 0), [how]), Connection(6, (4, 1), []))
    with pytest.raises(ZBrokerError, match="nothing of the transaction holds") as caught:
        at.commit(2, NOTHING, LONG_S)
    assert caught.value.code == "transaction_aborted"


def test_a_commit_that_is_refused_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ZBrokerError("transaction_aborted", "a message is not held any more")
    at = link(monkeypatch, Connection(5, (0, 0), [refused]))
    with pytest.raises(ZBrokerError, match="not held any more"):
        at.commit(2, NOTHING, LONG_S)


def test_a_transaction_is_named_by_epoch_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    at = link(monkeypatch, Connection(5, (4, 9), []))
    assert at.last == (4, 9)
    assert at.begin(LONG_S)[0] == (5, 2)


@pytest.mark.parametrize("timeout_ms", [0, 60_000])
def test_an_attach_says_which_consumers_it_had(
    monkeypatch: pytest.MonkeyPatch, timeout_ms: int
) -> None:
    first, second = Connection(5, (0, 0), [LOST[0]]), Connection(6, (5, 1), [])
    first.tell = second.tell = lambda _beat: None  # type: ignore[attr-defined]
    at = link(monkeypatch, first, second)
    at.timeout_ms, at._consumers = timeout_ms, lambda: [("work", "h")]
    at._listeners = SimpleNamespace(publisher=SimpleNamespace(heartbeat_s=None))  # type: ignore[assignment]
    at.commit(2, NOTHING, LONG_S)
    assert first.attach.consumers is None, "it had none"
    assert second.attach.consumers == ([("work", "h")] if timeout_ms else None)


def test_without_a_commit_there_is_no_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert link(monkeypatch, Connection(5, (0, 0), [])).last is None


@pytest.mark.parametrize("code", ["session_fenced", "session_elsewhere", "timeout"])
def test_an_outcome_that_cannot_be_asked_for_is_unknown(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    at = link(monkeypatch, Connection(5, (0, 0), [LostError(late=False)]))

    def refused(*_: Any) -> None:
        raise ZBrokerError(code, "no")

    monkeypatch.setattr(session_link, "ask", refused)
    with pytest.raises(ZBrokerError) as caught:
        at.commit(1, NOTHING, LONG_S)
    assert caught.value.code == "outcome_unknown"


@pytest.mark.parametrize(("after", "url", "code"), [
    (5, "b", "transaction_aborted"),
    (6, "b", "transaction_aborted"),  # it was handed over
    (7, "a", "transaction_aborted"),  # an attach was not answered
    (7, "b", "outcome_unknown"),
    (None, "b", "transaction_aborted"),  # an earlier release
])  # fmt: skip
def test_an_epoch_that_goes_on_from_another_one_does_not_tell(
    monkeypatch: pytest.MonkeyPatch, after: int | None, url: str, code: str
) -> None:
    """Two instances had begun the session, neither of which had heard of the other one."""
    second = Connection(8, (0, 0), [], after, url)
    at = link(monkeypatch, Connection(5, (0, 0), [LOST[0]], 0), second)
    with pytest.raises(ZBrokerError) as caught:
        at.commit(2, NOTHING, LONG_S)
    assert caught.value.code == code
    assert at.begin(LONG_S)[0] == (8, 1), "it goes on"


def test_an_instance_where_it_was_not_attached_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, second = Connection(4, (0, 0), [], 3, "b"), Connection(8, (0, 0), [], 7, "b")
    at = link(monkeypatch, Connection(5, (0, 0), [], 0), refused, second)
    with pytest.raises(ZBrokerError, match="whose log is not here yet"):
        at.attach(LONG_S)
    at.attach(LONG_S)
    assert at.not_there("it").code == "outcome_unknown"


def test_a_commit_that_is_known_holds_whatever_came_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = Connection(8, (5, 1), [], 7, "b")
    at = link(monkeypatch, Connection(5, (0, 0), [LOST[0]], 0), second)
    assert at.commit(2, NOTHING, LONG_S).messages == 2


def test_an_instance_that_has_not_heard_of_the_epoch_cannot_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was attached last elsewhere, where the commit may still land."""
    second = Connection(4, (0, 0), [])
    at = link(monkeypatch, Connection(5, (0, 0), [LOST[0]]), second, Connection(4, (0, 0), []))
    with pytest.raises(ZBrokerError, match="whose log is not here yet") as caught:
        at.commit(2, NOTHING, LONG_S)
    assert caught.value.code == "outcome_unknown"
    assert second.closed
    with pytest.raises(ZBrokerError, match="whose log is not here yet") as caught:
        at.begin(LONG_S)
    assert caught.value.code == "session_elsewhere"


# -- sessions with a time-out ---------------------------------------------------------------------


class Kept(Connection):
    """A connection of such a session. said: the commands on it."""

    def __init__(self, epoch: int, refused: ZBrokerError | None = None) -> None:
        super().__init__(epoch, (0, 0), [])
        self._refused = refused
        self.said: list[Any] = []

    def ask(self, command: Any) -> Any:
        self.said.append(command)
        if self._refused is not None:
            raise self._refused
        if isinstance(command, DetachSession):
            return SessionDetached(command.session)
        return super().ask(command)

    def tell(self, command: Any) -> None:
        self.said.append(command)


class Listeners:
    """Whose heartbeats are every 2 s."""

    class publisher:  # noqa: N801 - as the attribute is called
        heartbeat_s = 2.0


def kept(
    monkeypatch: pytest.MonkeyPatch, *connections: Kept, epochs: list[int] | None = None
) -> SessionLink:
    left = list(connections)

    def ask(_to: Any, _timeout: float, _what: str, begin: Callable[[Any], Any], *_: Any) -> Any:
        return begin(left.pop(0))

    monkeypatch.setattr(session_link, "ask", ask)
    heard = (lambda _: None) if epochs is None else epochs.append
    made = SessionLink(
        Listeners(), "s", force=False, timeout_ms=5_000, on_attached=heard  # type: ignore[arg-type]
    )  # fmt: skip
    made.attach(LONG_S)
    return made


def test_a_session_with_a_time_out_asks_for_it_and_for_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Kept(5)
    kept(monkeypatch, first)
    attach, beat = first.said
    assert (attach.timeout_ms, attach.again, beat) == (5_000, False, Heartbeat(2.0))


def test_it_is_attached_again_when_its_connection_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, epochs = Kept(5), Kept(6), []
    at = kept(monkeypatch, first, second, epochs=epochs)
    assert at.keep(LONG_S)
    assert epochs == [5]
    first.lost = True
    assert at.keep(LONG_S)
    assert (epochs, at.epoch) == ([5, 6], 6)
    assert (second.said[0].again, second.said[0].epoch) == (True, 5)


def test_a_transaction_from_before_that_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kept(5)
    at = kept(monkeypatch, first, Kept(6))
    at.begin(LONG_S)
    first.lost = True
    at.keep(LONG_S)
    with pytest.raises(ZBrokerError) as caught:
        at.commit(1, NOTHING, LONG_S)
    assert caught.value.code == "transaction_aborted"
    assert at.begin(LONG_S)[0] == (6, 1)


def test_one_that_is_over_is_not_attached_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kept(5)
    at = kept(monkeypatch, first, Kept(6, ZBrokerError("session_fenced", "it ended: timed out")))
    first.lost = True
    assert not at.keep(LONG_S)
    assert not at.keep(LONG_S)
    with pytest.raises(ZBrokerError, match="timed out"):
        at.begin(LONG_S)


def test_a_broker_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Kept(5)
    at = kept(monkeypatch, first, Kept(6, ZBrokerError("timeout", "no answer")), Kept(7))
    first.lost = True
    assert at.keep(LONG_S)
    assert at.keep(LONG_S)
    assert at.epoch == 7


def test_a_detach_says_the_epoch_and_is_the_last_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Kept(0)
    at = kept(monkeypatch, Kept(5), second)
    at.detach("bad", "no price", LONG_S)
    assert second.said == [DetachSession("s", 5, "bad", "no price")]
    assert not at.keep(LONG_S)


def test_the_end_before_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    at = kept(monkeypatch, Kept(5))
    assert at.ended is None
    assert at._attached is not None
    at._attached.ended, at._attached.code = "exception", "bad"
    assert at.ended == ("exception", "bad", "")


def test_its_keeper_looks_until_there_is_nothing_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    at, looks = kept(monkeypatch, Kept(5)), [True, True, False]
    at.timeout_ms = 8
    monkeypatch.setattr(at, "keep", lambda _timeout: looks.pop(0))
    keeper = SessionKeeper(at)
    keeper.start()
    keeper._thread.join(LONG_S)
    assert looks == []
    keeper.close()
