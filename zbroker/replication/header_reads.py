"""Reads of a link that need no bodies: of records that are not sent from here. Pure.

    a whole read ends with such a record --> the next one is of headers, as far as they go on
    one of them has to be sent by now    --> the same is read whole

An instance has the records of its peers in its log, and each of its links reads all of that. What a
destination has itself, or gets from another instance, is passed over: so its bodies stay where they
are, which is most of what such a read costs.
"""

from __future__ import annotations

from collections.abc import Mapping

from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.format import Batch
from zbroker.replication.effects import LinkBlock, is_unsent
from zbroker.replication.holdings import Holdings
from zbroker.replication.own_holdings import OwnHoldings


class HeaderReads:
    """Those of one link, which sends all topics. peer: what the destination says."""

    def __init__(self, own: OwnHoldings, peer: Holdings) -> None:
        self._own, self._peer = own, peer
        self._go_on = False

    def unsent(self) -> Mapping[Origin, int]:
        """Up to where records of each origin need no bodies in the next read; empty: read all."""
        return self._unsent() if self._go_on else {}

    def suffice(self, block: LinkBlock) -> bool:
        """Whether all of a block can be judged; else the same is to be read again."""
        items = block.items
        if block.only_headers:
            unsent = self._unsent()
            if not all(is_unsent(item, unsent) for item in items):
                self._go_on = False
                return False
        last = items[-1] if items else None
        if isinstance(last, Batch):
            self._go_on = is_unsent(last, {last.origin: self._through(last.origin)})
        else:
            self._go_on = False
        return True

    def _unsent(self) -> dict[Origin, int]:
        peer = self._peer
        known = {*peer.rows, *peer.closed, Origin(peer.instance, peer.generation)}
        return {origin: self._through(origin) for origin in known}

    def _through(self, origin: Origin) -> int:
        """Up to where records of one origin need no bodies."""
        peer = self._peer
        if origin.instance == peer.instance:
            itself = origin.generation >= peer.generation
        else:
            itself = origin.instance != self._own.instance and origin.instance in peer.sources
        return U63_MAX if itself else peer.position(origin, 0)
