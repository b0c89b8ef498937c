"""What peers hold of other instances and this log does not: it still comes. Pure.

Readers take the first record of a generation for the end of the older ones, since what an instance
lost never comes. Another host may still have what that instance lost: then it comes back, also to
this one, but the new generation may be here first, with the same messages under other names.
Readers that have seen such positions wait for them (locate_vector.py). They wait no longer when the
peer says that it holds less, when the generation is closed, or when a person forgets the peer.
"""

from __future__ import annotations

from collections.abc import Mapping

from zbroker.ids import Origin
from zbroker.journal.closed_generations import ClosedGenerations


class PeersAhead:
    """instance: the one of this log. A start looks at its generations (start_question.py)."""

    def __init__(self, instance: int) -> None:
        self._instance = instance
        self._rows: dict[str, dict[Origin, int]] = {}  # by peer, as it said last

    def heard(self, peer: str, rows: Mapping[Origin, int]) -> None:
        """A peer says what it holds; rows of which it holds no more than this log may be left out.
        What it said before counts no more."""
        self._rows[peer] = {one: at for one, at in rows.items() if one.instance != self._instance}

    def forget(self, peer: str) -> None:
        """The peer is gone for good."""
        self._rows.pop(peer, None)

    def beyond(self, here: Mapping[Origin, int], closed: ClosedGenerations) -> dict[Origin, int]:
        """Up to where peers hold each generation of which they have more. here: how far the log is
        durable. closed: generations of which no more comes."""
        found: dict[Origin, int] = {}
        for rows in self._rows.values():
            for origin, at in rows.items():
                if at > max(here.get(origin, 0), found.get(origin, 0)) and origin not in closed:
                    found[origin] = at
        return found
