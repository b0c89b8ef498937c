"""What links need of the log: the journal removes nothing of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from zbroker.limits import HOLDINGS_MAX
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.internal import Holding, Holds


class LinkNeeds:
    """As the journal heard it last."""

    def __init__(self, outgoing: Mapping[str, OutgoingLink], own: OwnHoldings) -> None:
        self._outgoing, self._own = outgoing, own
        self._said = -1, False  # log start, and whether a link is eager
        self._since: dict[str, tuple[int, int]] = {}  # mark of each link, since when (ms)

    def say(
        self, journal: int, log_start: int, end: int, wall_ms: int, *, eager: bool, again: bool
    ) -> Holds | None:
        """The part of the log that a destination may lack. end: of the log, in case all
        destinations have been forgotten.

        Returns: None if the journal has heard that last, and `again` is false.
        """
        if not journal or not self._outgoing:
            return None
        if (log_start, eager) == self._said and not again:
            return None
        self._said = log_start, eager
        lowest = sorted(
            (link.needs, name) for name, link in self._outgoing.items()
            if name not in self._own.forgotten or link.state in ("finding", "sending")
        )  # fmt: skip
        for mark, name in lowest:
            if name not in self._since or self._since[name][0] != mark:
                self._since[name] = mark, wall_ms
        holdings = [
            Holding("replication", name, mark, self._since[name][1])
            for mark, name in lowest[:HOLDINGS_MAX]
        ]
        return Holds(journal, log_start, lowest[0][0] if lowest else end, holdings, eager)
