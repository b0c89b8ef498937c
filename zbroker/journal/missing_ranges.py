"""Ranges of origins that are not in this log, and why. Pure.

A log that began with the state of another instance (first_state.py) has nothing of what was before
that state; a range that a person gave up (`replication skip`) is not here, either. A reader whose
vector ends in such a range would miss messages without a word, so its bookmark is expired; and no
other instance gets them from here. Names of messages that were taken again under others (`forked`)
are listed with them; no reader misses anything by that.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from zbroker.ids import Origin

Why = Literal["state", "skipped"]
RANGES_MAX: Final = 10_000  # each is a decision of a person, or an origin of a first state


class MissingRow(Struct, array_like=True, gc=False, frozen=True):
    """Positions `first` to `last` of an origin are not here. at: where in this log that is written.

    why: "state", the log began with the state of another instance; "skipped", by a person.
    """

    instance: int
    generation: int
    first: int
    last: int
    why: Why
    at: int = 0

    @property
    def origin(self) -> Origin:
        """The origin that has the range."""
        return Origin(self.instance, self.generation)


class MissingRanges:
    """The ranges of one log, the oldest first."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Origin, int], MissingRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, row: MissingRow) -> None:
        """Once, whether from its record or from a snapshot; the oldest go when there are many."""
        self._rows[row.origin, row.last] = row
        if len(self._rows) > RANGES_MAX:
            del self._rows[next(iter(self._rows))]

    def rows(self) -> list[MissingRow]:
        """All of them."""
        return list(self._rows.values())

    def below(self) -> dict[Origin, int]:
        """A vector that covers them all."""
        found: dict[Origin, int] = {}
        for row in self._rows.values():
            found[row.origin] = max(row.last, found.get(row.origin, 0))
        return found


def merged(one: dict[Origin, int], other: dict[Origin, int]) -> dict[Origin, int]:
    """The vector that covers what either of the two covers."""
    return {origin: max(one.get(origin, 0), other.get(origin, 0)) for origin in {*one, *other}}
