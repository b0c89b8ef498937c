"""zbroker/client/session_link.py: what became of a commit that was not answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zbroker.client import session_link
from zbroker.client.questions import LostError
from zbroker.client.session_link import SessionLink
from zbroker.errors import ZBrokerError
from zbroker.wire.transactions import AttachSession, SessionAttached, TransactionCommitted

LONG_S = 60.0


class Connection:
    """A connection whose session began in `epoch`. commits: what becomes of each commit."""

    def __init__(self, epoch: int, last: tuple[int, int], commits: list[Any]) -> None:
        self._epoch, self._last, self._commits = epoch, last, commits
        self.end, self.kept, self.lost, self.closed = 0.0, False, False, False

    def ask(self, command: Any) -> Any:
        if isinstance(command, AttachSession):
            return SessionAttached("s", self._epoch, f"stage{self._epoch}.", *self._last, 70, 2)
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
    assert at.commit(2, [], LONG_S) == TransactionCommitted("s", 1, 70, 2)
    assert first.closed
    assert at.begin(LONG_S)[1] == "stage6.1"


@pytest.mark.parametrize("how", LOST, ids=["lost", "not logged on any more"])
def test_a_commit_that_never_arrived_is_aborted(
    monkeypatch: pytest.MonkeyPatch, how: Exception
) -> None:
    at = link(monkeypatch, Connection(5, (0, 0), [how]), Connection(6, (4, 1), []))
    with pytest.raises(ZBrokerError, match="nothing of the transaction holds") as caught:
        at.commit(2, [], LONG_S)
    assert caught.value.code == "transaction_aborted"


def test_a_commit_that_is_refused_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ZBrokerError("transaction_aborted", "a message is not held any more")
    at = link(monkeypatch, Connection(5, (0, 0), [refused]))
    with pytest.raises(ZBrokerError, match="not held any more"):
        at.commit(2, [], LONG_S)


def test_a_transaction_is_named_by_epoch_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    at = link(monkeypatch, Connection(5, (4, 9), []))
    assert at.last == (4, 9)
    assert at.begin(LONG_S)[0] == (5, 2)


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
        at.commit(1, [], LONG_S)
    assert caught.value.code == "outcome_unknown"
