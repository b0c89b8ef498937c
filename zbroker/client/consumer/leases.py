"""How long the leases of a consumer last by its own clock, and when they are extended. Pure.

All leases are extended together, each half of a lease: so none is older than that. An extension
counts from when it was sent, once it was answered.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyroaring import BitMap64


class ConsumerLeases:
    """lease_ms: as long as a lease of the queue lasts; 0: for ever, or there are none."""

    def __init__(self) -> None:
        self.lease_ms = 0
        self._due_ms: int | None = None  # when they are to be extended; None: none is held
        self._extended_ms = 0
        self._round: set[str] = set()  # the commands of the newest extension
        self._round_ms = 0
        self._longer: dict[int, int] = {}  # by position: the program's own, and until when

    def begin(self, lease_ms: int, now_ms: int) -> None:
        """The broker told what it still knows of them: that is extended at once."""
        self.lease_ms, self._extended_ms = lease_ms, now_ms
        self._round.clear()
        self._due_ms = now_ms if lease_ms else None

    def came(self, now_ms: int) -> None:
        """More of them begin."""
        if self._due_ms is None and self.lease_ms:
            self._due_ms = now_ms + self.lease_ms // 2

    def lengthen(self, positions: Iterable[int], lease_ms: int, now_ms: int) -> None:
        """The program asked for these: the next extensions must not make them shorter."""
        if lease_ms > self.lease_ms > 0:
            for position in positions:
                self._longer[position] = now_ms + lease_ms

    def hold(self, came_ms: int, now_ms: int) -> bool:
        """True if a lease that began at `came_ms` still lasts."""
        return not self.lease_ms or max(came_ms, self._extended_ms) + self.lease_ms > now_ms

    # -- extending ----------------------------------------------------------------------------

    def is_due(self, now_ms: int) -> bool:
        return self._due_ms is not None and now_ms >= self._due_ms

    def next_wake_ms(self) -> int | None:
        return self._due_ms

    def extend(self, leased: BitMap64, now_ms: int) -> BitMap64:
        """What of `leased` is to be extended now; when the next time is."""
        if self._longer:
            ends = now_ms + self.lease_ms
            self._longer = {
                position: until_ms
                for position, until_ms in self._longer.items()
                if until_ms > ends and position in leased
            }
            leased = leased - BitMap64(self._longer)
        self._due_ms = now_ms + max(1, self.lease_ms // 2) if leased or self._longer else None
        return leased

    def sent(self, cids: Iterable[str], now_ms: int) -> None:
        """The commands that extend all of them."""
        self._round, self._round_ms = set(cids), now_ms

    def settled(self, cid: str) -> None:
        """One of them is done."""
        if cid in self._round:
            self._round.discard(cid)
            if not self._round:
                self._extended_ms = self._round_ms
