"""Questions to a listener, each on a connection of its own, until it is answered.

session --connect, logon accepted--> asked --answer--> done
   ^        |                          |
   +--lost, refused for now, a token that is over
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from typing import Any, Final, TypeVar

from zbroker.client.effects import Lost, raised
from zbroker.client.endpoints import ListenerEndpoints, wait_for_session
from zbroker.client.link import CLOSE_LINGER_MS, ClientLink
from zbroker.errors import Timeout, ZBrokerError
from zbroker.wire.messages import Error, ListenerLogon, RangeList, Ranges

PAUSE_S: Final = 0.2
NOT_READY: Final = frozenset({"not_ready", "not_logged_on"})

T = TypeVar("T")


class LostError(Exception):
    """There was no answer. late: the time is over; else the connection is lost."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late


class QuestionLink:
    """One connection, to the broker at `url`. Its methods raise: ZBrokerError, what the broker
    says; LostError."""

    def __init__(self, link: ClientLink, end: float, url: str = "") -> None:
        self._link, self.end, self.url = link, end, url  # answers are waited for until `end`
        self.kept = False  # it is not closed when its question is answered
        self._cids = 0

    def log_on(self, token: str) -> None:
        """To be called first."""
        self.ask(ListenerLogon(token))

    def ask(self, command: Any) -> Any:  # noqa: ANN401 - any command with a cid, and its answer
        """The answer to one command."""
        self._cids += 1
        command.cid = str(self._cids)
        self._link.send(command)
        for answer in self._link.answers(self.end):
            if isinstance(answer, Error) and answer.cid in (command.cid, None):
                raise raised(answer)
            if getattr(answer, "cid", None) == command.cid:
                return answer
        raise LostError(late=clock.monotonic() >= self.end)

    def tell(self, command: Any) -> None:  # noqa: ANN401 - any command
        """Sends a command that has no answer."""
        self._link.send(command)

    @property
    def lost(self) -> bool:
        """The connection was lost since the last answer or look; drops all that came."""
        while self._link.receive() is not None:
            pass  # heartbeats: nothing was asked
        return any(isinstance(event, Lost) for event in self._link.events())

    def close(self) -> None:
        """All that was sent before still goes."""
        self._link.close(CLOSE_LINGER_MS)


def ask(
    listeners: ListenerEndpoints, timeout: float, what: str,
    question: Callable[[QuestionLink], T], again: frozenset[str] = NOT_READY, hint: str = "",
) -> T:  # fmt: skip
    """What `question` returns for a connection that is logged on, tried until `timeout`.

    what: the call, as errors name it. again: codes that are waited for. hint: of the time-out.
    A question may keep its connection (`kept`), and close it when it is over.
    Raises: ZBrokerError with the broker's code, or "timeout".
    """
    end = clock.monotonic() + timeout
    newer_than, said = 0, ""
    while True:
        session = wait_for_session(listeners, newer_than, end)
        connection = QuestionLink(listeners.connect(), end, session.url)
        try:
            try:
                connection.log_on(session.answer.token or "")
            except ZBrokerError as error:
                if error.code != "auth_failed":
                    raise
                newer_than, said = session.number, str(error)
            else:
                return question(connection)
        except ZBrokerError as error:
            if error.code not in again:
                raise
            said = str(error)
        except LostError:
            pass
        finally:
            if not connection.kept:
                connection.close()
        left = end - clock.monotonic()
        if left <= 0:
            last = f"; the broker said: {said}" if said else ""
            raise Timeout("timeout", f"{what}: no answer in {timeout} s{last}", hint)
        clock.sleep(min(PAUSE_S, left))


def ask_ranges(listeners: ListenerEndpoints, command: Ranges, timeout: float) -> RangeList:
    """Ranges of the log, of the delivery listener. Raises: as `ask`."""
    answer = ask(listeners, timeout, "ranges", lambda to: to.ask(command))
    assert isinstance(answer, RangeList)
    return answer
