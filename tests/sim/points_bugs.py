"""Bugs of points of all instances: each must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zbroker.journal.core import JournalCore
from zbroker.queues.core import QueuesCore


def _shared(core: JournalCore) -> Any:
    return core.commit.sessions.named.shared


def _ends_are_not_remembered(core: JournalCore) -> None:
    """A point that comes after its removal is there."""
    _shared(core)._may_come = lambda one: False


def _the_last_one_is_meant(core: JournalCore) -> None:
    """Of two that were set apart the one that is read later has the name."""
    shared = _shared(core)
    shared.meant = lambda name: next(reversed(shared._points.get(name, {}).values()), None)


def _nobody_hears_of_others(core: Any) -> None:
    """The queues process knows what it wrote itself, and what was there when it began."""
    learn, known = core.manager.points.learn, False

    def once(named: Any) -> None:
        nonlocal known
        if not known:
            known = True
            learn(named)

    core.manager.points.learn = once


JOURNAL: Final[dict[str, Callable[[JournalCore], None]]] = {
    "ends of points are not remembered": _ends_are_not_remembered,
    "the point that is read last is meant": _the_last_one_is_meant,
}
QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "points of others are not heard of": _nobody_hears_of_others,
}
BUGS: Final = (*JOURNAL, *QUEUES)
