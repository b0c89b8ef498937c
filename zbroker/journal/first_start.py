"""The first start of a log that has peers: do others hold something that it has to get first? Pure.

    ASKING --all peers answered, none holds anything--> OPEN, a fresh log
    ASKING --a peer holds something; all answered, or WAIT_MS are over--> FILLING
    FILLING --no peer holds anything any more--> ASKING
    ASKING, FILLING, FOLLOWING --a person says that it is a fresh one--> OPEN
    FILLING --the state of a peer is durable here, or its log has everything--> FOLLOWING
    FOLLOWING --the log holds what all peers held that answered--> OPEN

While it is not open no publisher may log on: it would begin below what its peers hold of it, and
they would take its messages for duplicates. Records of peers are taken while it follows; before
that they would make the log one that is not empty, which takes no state.

A peer that is filling or following itself has not answered yet: what it says that it holds is less
than what belongs there. One that asks has answered once all that it waits for ask, too, and so on:
then none of them holds anything (zbroker.replication.asking_instances).

A log was opened once if its own records are in it, or a state snapshot of its own; the fence keeps
both out before. So a crash at any point begins here again, with what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final

from zbroker.ids import Origin

WAIT_MS: Final = 2_000  # for the answers that are missing, once one peer holds something


class FirstPhase(Enum):
    """See above."""

    ASKING = "asking"
    FILLING = "filling"
    FOLLOWING = "following"
    OPEN = "open"


class FirstStart:
    """`phase`: where it is. peers: names of those that are configured; none: there is no question.

    opened: the log was open before. empty: nothing is in it that travels, and no publisher.
    """

    def __init__(self, peers: Iterable[str], *, opened: bool, empty: bool) -> None:
        self.missing = set(peers)
        self._filling: set[str] = set()  # of those: they get what others hold first
        asks = bool(self.missing) and not opened
        self.phase = FirstPhase.ASKING if asks else FirstPhase.OPEN
        self.takes_state = empty and not opened
        self._empty = empty
        self._held: dict[str, dict[Origin, int]] = {}  # as each peer said first
        self.wanted: dict[Origin, int] = {}  # what they hold, all together
        self._until_ms: int | None = None
        self.fresh = False  # it opens as a new log, without anything of another one

    @property
    def is_open(self) -> bool:
        """Publishers may log on."""
        return self.phase is FirstPhase.OPEN

    @property
    def fills(self) -> bool:
        """The log gets what peers hold, and has less than belongs there."""
        return self.phase in (FirstPhase.FILLING, FirstPhase.FOLLOWING)

    @property
    def awaits(self) -> list[str] | None:
        """Peers that did not answer, or hold something; None: it does not ask, or has something."""
        if self.phase is not FirstPhase.ASKING or not self._empty:
            return None
        return sorted(self.missing | {peer for peer, held in self._held.items() if held})

    @property
    def places(self) -> bool:
        """Records of peers are taken."""
        return self.phase in (FirstPhase.FOLLOWING, FirstPhase.OPEN) or not self._empty

    def heard(self, peer: str, rows: Mapping[Origin, int], *, filling: bool = False) -> None:
        """A peer says what it holds. Its first word counts, unless it holds less now: records
        that it takes meanwhile are on their way, and never end. filling: its log fills, too."""
        before = self._held.get(peer)
        if filling:
            self._filling.add(peer)
        else:
            self.missing.discard(peer)
            self._filling.discard(peer)
        if self.is_open or (filling and before is None):
            return
        held = {origin: at for origin, at in rows.items() if at}
        if before is None or any(held.get(one, 0) < at for one, at in before.items()):
            self._held[peer] = held
            self.wanted = {}
            for each in self._held.values():
                for origin, at in each.items():
                    self.wanted[origin] = max(at, self.wanted.get(origin, 0))

    def tick(self, now_ms: int, high: Callable[[Origin], int]) -> bool:
        """True if the phase has changed. high: how far an origin is here."""
        before = self.phase
        if self.phase is FirstPhase.FILLING and not any(self._held.values()):
            self.phase = FirstPhase.ASKING
        if self.phase is FirstPhase.ASKING:
            self._asking(now_ms)
        if self.phase is FirstPhase.FOLLOWING and self._is_ripe(now_ms):
            self.wanted = {one: at for one, at in self.wanted.items() if high(one) < at}
            if not self.wanted:
                self.phase = FirstPhase.OPEN
        return self.phase is not before

    def _asking(self, now_ms: int) -> None:
        if not any(self._held.values()):
            if not self.missing:
                self.phase, self.fresh = FirstPhase.OPEN, True
            return
        if self._is_ripe(now_ms):
            self.phase = FirstPhase.FILLING if self._empty else FirstPhase.FOLLOWING

    def _is_ripe(self, now_ms: int) -> bool:
        if self._until_ms is None:
            self._until_ms = now_ms + WAIT_MS
        return not self.missing or now_ms >= self._until_ms

    @property
    def due_ms(self) -> int | None:
        """When it goes on without the answers that are missing."""
        return None if self.is_open or not self.missing else self._until_ms

    def follow(self) -> bool:
        """The state is durable here, or none is needed. True if the phase has changed."""
        self.takes_state = self._empty = False
        if self.phase is not FirstPhase.FILLING:
            return False
        self.phase = FirstPhase.FOLLOWING
        return True

    def begin_fresh(self) -> bool:
        """A person says that nothing has to come first. True if the phase has changed."""
        changed = not self.is_open
        self.phase, self.takes_state, self.fresh = FirstPhase.OPEN, False, True
        return changed

    def text(self, high: Callable[[Origin], int]) -> str:
        """What it waits for, for people; "" if for nothing."""
        silent = ", ".join(sorted(self.missing))
        way_out = "`zbroker-admin replication fresh` goes on without"
        if self.phase is FirstPhase.ASKING:
            if any(self._held.values()):
                return f"another instance holds data; the answer of {silent} is awaited shortly"
            if filling := self._filling & self.missing:
                return (
                    f"the log is empty, and {', '.join(sorted(filling))} is getting what other "
                    f"instances hold, or waits to hear of them; publishers wait until it has that; "
                    f"{way_out}"
                )
            return (
                f"the log is empty, and {silent} did not answer yet whether they hold data that "
                f"belongs here; publishers wait until they do; {way_out}"
            )
        if self.phase is FirstPhase.FILLING:
            return "the log is empty, and gets the state of another instance first"
        if self.phase is FirstPhase.FOLLOWING:
            left = sum(max(0, at - high(origin)) for origin, at in self.wanted.items())
            return (
                f"the log gets what other instances hold, {left} positions are missing; publishers "
                f"wait until it is here; {way_out}"
            )
        return ""
