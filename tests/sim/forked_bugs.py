"""Bugs in how records of a closed generation are taken again: each must be found by some seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from zbroker.ids import Origin
from zbroker.journal.core import JournalCore
from zbroker.wire.internal import Located

LIVE: Final = "a subscription that goes on does not look at former names"


def _passed_with_the_first(core: JournalCore) -> None:
    """A vector that passes the end of a generation has passed what one host has beyond it."""
    closed = core.commit.sessions.origins.closed
    fill = closed.fill

    def more(vector: Mapping[Origin, int]) -> dict[Origin, int]:
        filled = fill(vector)
        for row in closed:
            if vector.get(row.by, 0) >= row.by_position:
                filled[row.origin] = row.reach
        return filled

    closed.fill = more  # type: ignore[method-assign]


def _closing_is_passed(core: JournalCore) -> None:
    """Newer generations come while a closing waits for a person."""
    replicas: Any = core.commit._replicas
    open_link = replicas.links.open

    def opened(ask: Any) -> Any:
        answer = open_link(ask)
        link = replicas.links.get(ask.number)
        if link is not None:
            link.may_begin = lambda _origin, _high: True
        return answer

    replicas.links.open = opened


def _told_too_early(core: JournalCore) -> None:
    """All is said to be here when the first record is."""
    forks: Any = core.commit._replicas.forks
    place = forks.place

    def placed(record: Any, body: Any) -> Any:
        found = place(record, body)
        row = core.commit.sessions.origins.closed.get(Origin(record.instance, record.generation))
        if row is not None and row.takes:
            row.beyond = row.takes
        return found

    forks.place = placed


JOURNALS: Final[dict[str, Callable[[JournalCore], None]]] = {
    "the first closing covers what a host has beyond it": _passed_with_the_first,
    "a generation begins before a closing that waits": _closing_is_passed,
    "all is taken with the first record": _told_too_early,
}
ALL: Final = (*JOURNALS, LIVE)


def located(bug: str, found: Located) -> Located:
    """A bug of the look-ups."""
    if bug == LIVE:
        found.forked = False
    return found
