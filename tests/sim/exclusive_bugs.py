"""Bugs that can be planted in the world of exclusive queues: each breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zbroker.queues.core import QueuesCore
from zbroker.queues.timed_sessions import SessionKey


def _open_to_all(core: Any) -> None:
    core._exclusive.check = lambda *given: None


def _open_to_its_principal(core: Any) -> None:
    """Of a connection: all that have this principal may use it."""
    exclusive, check = core._exclusive, core._exclusive.check

    def checks(connection: Any, one: Any, command: Any) -> None:
        principal, session, _ = exclusive._owner(one)
        if session or connection.token.principal != principal:
            check(connection, one, command)

    exclusive.check = checks


def _open_to_others_of_the_session(core: Any) -> None:
    """A program that attaches the session has what another one declared in it."""
    exclusive, over = core._exclusive, core._exclusive.is_over

    def is_over(one: Any) -> bool:
        _, session, _ = exclusive._owner(one)
        found: bool = over(one)
        kept = core.manager.sessions.get(SessionKey(*exclusive._owner(one)[:2]))
        return found and not (session and kept is not None)

    exclusive.is_over = is_over


def _lost_connection_is_not_noticed(core: Any) -> None:
    core._exclusive.gone = lambda connection: None


def _stays_after_a_start(core: Any) -> None:
    """A connection of the process before is not missed."""
    exclusive, over = core._exclusive, core._exclusive.is_over

    def is_over(one: Any) -> bool:
        _, session, _ = exclusive._owner(one)
        return bool((session or one.name in exclusive._owners) and over(one))

    exclusive.is_over = is_over


def _ends_with_the_connection(core: Any) -> None:
    """One of a session goes when that has lost its connection."""
    exclusive, sessions = core._exclusive, core.manager.sessions
    over = exclusive.is_over

    def is_over(one: Any) -> bool:
        principal, session, _ = exclusive._owner(one)
        kept = sessions.get(SessionKey(principal, session))
        return over(one) or bool(kept is not None and not kept.rid)

    exclusive.is_over = is_over


def _ends_before_sessions_are_known(core: Any) -> None:
    """After a start a session that was not heard of is over."""
    exclusive, sessions = core._exclusive, core.manager.sessions

    def is_over(one: Any) -> bool:
        principal, session, holder = exclusive._owner(one)
        kept = sessions.get(SessionKey(principal, session))
        if not session:
            owner = exclusive._owners.get(one.name)
            return owner is None or not core.shared.is_here(owner)
        return kept is None or kept.holder != holder

    exclusive.is_over = is_over


def _over_is_not_noticed(core: Any) -> None:
    """Queues of sessions are not looked at when these are over."""
    core._exclusive.tick = lambda: None


#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "an exclusive queue is open to all": _open_to_all,
    "an exclusive queue is open to its principal": _open_to_its_principal,
    "an exclusive queue is open to the next program": _open_to_others_of_the_session,
    "a lost owner is not noticed": _lost_connection_is_not_noticed,
    "an exclusive queue outlives the process": _stays_after_a_start,
    "an exclusive queue ends with the connection of its session": _ends_with_the_connection,
    "a start ends what sessions own": _ends_before_sessions_are_known,
    "sessions that are over keep their queues": _over_is_not_noticed,
}
