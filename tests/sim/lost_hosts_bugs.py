"""Bugs of a first start, planted in the simulated instances: each must be found by some seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import structs

from zbroker.journal import first_state
from zbroker.journal.core import JournalCore
from zbroker.journal.first_start import FirstStart
from zbroker.log.format import Batch
from zbroker.replication.core import ReplicationCore
from zbroker.replication.records import Pending


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
    core.first = FirstStart(core.commit.settings.peers, opened=False, empty=True)
    core._gate()
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


def _past_the_state(core: ReplicationCore) -> None:
    def passed(batch: Batch) -> None:
        """What it says is not read."""

    for link in core.outgoing.values():
        link.selection.proved = passed  # type: ignore[method-assign]


JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "publishers log on before the state": _publishers_at_once,
}
#: too rare for seeds: histories that are written down find them
INTO_ANY_LOG: Final = "a state is taken into any log"
WITHOUT_HIGHS: Final = "highs are missing in the state"
WITHOUT_BEGINS: Final = "rows do not say where they begin"
WRITTEN_JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    INTO_ANY_LOG: _into_any_log,
    WITHOUT_HIGHS: _without_publishers,
    WITHOUT_BEGINS: _without_begins,
}


#: too rare for seeds: a history that is written down finds it
WRITTEN_DOWN: Final[dict[str, Callable[[ReplicationCore], None]]] = {
    "a link passes over the state that its log begins with": _past_the_state,
}


def _ties_wait_for_ever(core: ReplicationCore) -> None:
    """A tie that is refused is never known to have its messages nowhere."""
    for link in core.outgoing.values():
        selection: Any = link.selection
        selection._lacking = lambda position, origin: [Pending(position, origin, 0)]


def _ties_wait_for_nothing(core: ReplicationCore) -> None:
    """What the destination lacks before a tie is not looked at."""
    for link in core.outgoing.values():
        selection: Any = link.selection
        selection._lacking = lambda _position, _origin: []


def _the_word_of_one_that_asks_counts(core: ReplicationCore) -> None:
    for link in core.outgoing.values():
        peer: Any = link.peer
        take = peer.take

        def without(statement: Any, take: Any = take, **how: Any) -> Any:
            return take(structs.replace(statement, asking=[]), **how)

        peer.take = without


#: likewise; see two_new_disks
ASKING: Final[dict[str, Callable[[ReplicationCore], None]]] = {
    "the word of one that asks counts": _the_word_of_one_that_asks_counts,
}
#: likewise; see tie_of_removed_messages
TIES: Final[dict[str, Callable[[ReplicationCore], None]]] = {
    "a tie whose messages no log has is refused for ever": _ties_wait_for_ever,
    "a tie is given up while its messages may come": _ties_wait_for_nothing,
}
ALL: Final = tuple(JOURNALS)
