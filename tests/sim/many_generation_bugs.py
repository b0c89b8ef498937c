"""Bugs planted in how generations are closed: each must be found by some seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zbroker.journal.core import JournalCore
from zbroker.journal.start_question import UNPROVED, Decision


def _closed_too_early(core: JournalCore) -> None:
    """It is not waited for the answers of all peers."""
    closable = core.closing.closable

    def without(here: int, rows: Any, closed: Any, forgotten: Any) -> Any:
        return closable(here, rows, closed, core.commit.settings.peers)

    core.closing.closable = without  # type: ignore[method-assign]


def _confirmed_by_all(core: JournalCore) -> None:
    """A start without a proof goes on where peers hold no more: positions that only a lost disk had
    given are given again."""
    question: Any = core.question
    heard = question.heard

    def without(answers: Any, here: Any, high: int) -> Any:
        raises = heard(answers, here, high)
        if not raises or question.why != UNPROVED:
            return raises
        question.state = Decision.CONFIRMED
        return False

    question.heard = without


def _not_filled_in(core: JournalCore) -> None:
    """A vector without an entry for a closed generation has seen nothing of it."""
    core.commit.sessions.origins.closed.fill = dict  # type: ignore[method-assign,assignment]


def _not_remembered(core: JournalCore) -> None:
    """A restart does not know that a peer was forgotten."""
    core.commit.sessions.forgotten_peers.names.clear()


JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "closed before all peers answered": _closed_too_early,
    "a start that all peers confirm goes on": _confirmed_by_all,
}
REBOOTS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "a dropped entry is not filled in": _not_filled_in,
    "forgotten peers are not remembered": _not_remembered,
}
#: days, and whether the absent one comes back
OF_REBOOTS: Final = {
    "a dropped entry is not filled in": (40, True),
    "forgotten peers are not remembered": (180, False),
}
ALL: Final = (*JOURNALS,)
