"""Ties that a destination refused, since it lacks their messages, and what may bring these. Pure.

    refused --sent again: records before it in this log are not there yet--> origin_gap: it waits
            --all of these are there--> expired: this log does not have the messages any more
            --they are in a newer generation of the same instance, which cannot begin there before
              the tie is taken--> gap: another instance has to send them

An instance that was set back takes messages again in its newer generation, and gets their older
names back as ties. A destination that refused such a tie, as with a full disk, takes nothing of the
newer generation over this link until it has what was refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zbroker.ids import Origin

EXPIRED: Final = "expired"
GAP: Final = "gap"
BEFORE_TIE: Final = "origin_gap"  # the destination lacks what is before a tie, or what it ties


class RefusedTies:
    """Those of one link. are_in_circle: one waits for a newer generation, which waits for it."""

    def __init__(self) -> None:
        self.are_in_circle = False
        self._newest: dict[Origin, int] = {}  # where the newest one of each origin ends
        # of these, sent again: when nothing before them was missing there, or a newer generation
        self._alone: set[tuple[Origin, int]] = set()
        self._before_newer: set[tuple[Origin, int]] = set()

    def begin(self) -> None:
        """The log is read again."""
        self.are_in_circle = False
        self._alone.clear()
        self._before_newer.clear()

    def is_again(self, origin: Origin, last: int) -> bool:
        """Whether a tie that ends there was refused before."""
        return self._newest.get(origin) == last

    def given(self, origin: Origin, last: int, lacking: Iterable[Origin]) -> None:
        """Such a one is sent again. lacking: origins of which the destination lacks something that
        is before it in this log."""
        lacking = [*lacking]
        if not lacking:
            self._alone.add((origin, last))
        elif any(map(origin.precedes, lacking)):
            self._before_newer.add((origin, last))

    def refused(self, origin: Origin, last: int, stopped: Mapping[Origin, str]) -> str:
        """One is refused. stopped: origins that do not go on, and why. Returns: why it stops."""
        self._newest[origin] = last
        if (origin, last) in self._alone:
            return EXPIRED
        newer = (one for one, why in stopped.items() if why == BEFORE_TIE)
        if (origin, last) in self._before_newer and any(map(origin.precedes, newer)):
            self.are_in_circle = True
            return GAP
        return BEFORE_TIE
