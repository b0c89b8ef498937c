"""Which older generations of this instance may be closed: no peer can bring more of them. Pure.

    open --all peers were asked after it ended, and what they hold of it is here--> closed

A peer's answer counts for the generations before the one in which it was asked: its Hello ended the
links of older sessions there, so nothing of theirs is on its way any more. They are closed in their
order. A peer that was forgotten counts as one that answered and holds nothing, until it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zbroker.journal.origins import Origins, Seen
from zbroker.journal.start_question import PeerAnswer
from zbroker.limits import U63_MAX
from zbroker.log.records import ClosedRecord


class ClosableGeneration(NamedTuple):
    """A generation of this instance, and how far a peer has it."""

    generation: int
    held: int

    def record(self, origins: Origins, here: int) -> ClosedRecord | None:
        """What closes it; None if it is closed, or is not here any more as far as it is held."""
        row = origins.open_generations().get(self.generation)
        if row is None or self.generation >= here or not is_whole(row, self.held):
            return None
        return ClosedRecord(self.generation, row.crc_at)


class GenerationCloser:
    """peers: names of those that are configured. forgotten: those that are not waited for."""

    def __init__(self, peers: Iterable[str]) -> None:
        self._peers = frozenset(peers)
        self._asked_in: dict[str, int] = {}  # own generation in which each answered last
        self._held: dict[int, int] = {}  # of each generation, by any peer

    def heard(self, answers: Iterable[PeerAnswer]) -> None:
        """What peers hold of this instance."""
        for answer in answers:
            self._asked_in[answer.peer] = max(answer.asked_in, self._asked_in.get(answer.peer, 0))
            for generation, position in answer.holds.items():
                self._held[generation] = max(position, self._held.get(generation, 0))

    def forget(self, peer: str) -> None:
        """What it answered before counts no more."""
        self._asked_in.pop(peer, None)

    def copied(self, forgotten: Iterable[str]) -> Mapping[int, int] | None:
        """How far some peer has each generation; None: there are no peers that are waited for."""
        return self._held if self._peers - frozenset(forgotten) else None

    def has_answered(self, peer: str, here: int) -> bool:
        """Whether a peer has said what it holds since generation `here` began."""
        return self._asked_in.get(peer, 0) >= here

    def have_answered(self, here: int, forgotten: Iterable[str]) -> bool:
        """Whether all that are waited for have."""
        return all(self.has_answered(peer, here) for peer in self._peers - frozenset(forgotten))

    def closable(
        self, here: int, rows: Mapping[int, Seen], closed: Iterable[int], forgotten: Iterable[str]
    ) -> list[ClosableGeneration]:
        """Those that may be closed, oldest first. here: the current generation. rows: of the open
        ones. closed: numbers of those that are closed already."""
        if not self._peers:
            return []
        waited = self._peers - frozenset(forgotten)
        before = min((self._asked_in.get(peer, 0) for peer in waited), default=U63_MAX)
        done = frozenset(closed)
        found: list[ClosableGeneration] = []
        for generation in sorted({*rows, *self._held} - done):
            held = self._held.get(generation, 0)
            if generation >= min(before, here) or not is_whole(rows.get(generation), held):
                break
            found.append(ClosableGeneration(generation, held))
        return found


def is_whole(row: Seen | None, held: int) -> bool:
    """Whether a generation is here as far as a peer has it, and it is known where it ends."""
    if row is None:
        return not held
    return row.position >= held and row.messages <= row.crc_at
