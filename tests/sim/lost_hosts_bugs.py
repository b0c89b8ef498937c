"""Bugs of a first start, planted in the simulated instances: each must be found by some seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zbroker.journal import first_state
from zbroker.journal.core import JournalCore


def _publishers_at_once(core: JournalCore) -> None:
    gate = core._gate

    def without() -> None:
        gate()
        core.commit.waits = ""
        core.commit.fenced = core.question.open

    core._gate = without  # type: ignore[method-assign]
    core._gate()


def _into_any_log(core: JournalCore) -> None:
    """A state is taken whatever the log has; it is asked for again after each start."""
    core.first.takes_state = True
    core.first._empty = True
    states: Any = core.commit.states
    place = states.place

    def anyway(state: first_state.FirstState) -> Any:
        class Empty(type(core.commit.sessions)):  # type: ignore[misc]
            is_empty = True

        sessions = core.commit.sessions
        before, sessions.__class__ = sessions.__class__, Empty
        try:
            return place(state)
        finally:
            sessions.__class__ = before

    states.place = anyway


def _without_publishers(core: JournalCore) -> None:
    states: Any = core.commit.states
    place = states.place
    states.place = lambda state: place(state._replace(publishers=[]))


def _without_begins(core: JournalCore) -> None:
    core.commit.sessions.missing.note = lambda row: None  # type: ignore[method-assign]


JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "publishers log on before the state": _publishers_at_once,
    "a state is taken into any log": _into_any_log,
    "highs are missing in the state": _without_publishers,
    "rows do not say where they begin": _without_begins,
}
