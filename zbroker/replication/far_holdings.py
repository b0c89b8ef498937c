"""What instances hold that send nothing here: their peers pass that on. Pure.

A subscriber that has seen messages which only one host has left waits at the others until they come
there (zbroker.journal.peers_ahead). Without a link to that host they hear of it by the statements
of hosts in between. Nothing else counts what is passed on: each instance speaks for itself.

    c holds 25 of d   --rows-->   b says "25 of d, over 1"   --far-->   a says "25 of d, over 2"

When c holds less, b stops to say it, and a says only what b does. Instances that repeat the word of
each other say it over one more each time, so it ends at HOPS_MAX.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zbroker.ids import Origin
from zbroker.replication.holdings import Holdings
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire.replication import HOPS_MAX, FarPosition

SAID_MAX: Final = 256  # of the origins; the nearest


def far_rows(own: OwnHoldings, peers: Iterable[Holdings]) -> list[FarPosition]:
    """Up to where peers, or instances beyond them, hold each origin of which this one has less."""
    found: dict[Origin, FarPosition] = {}
    for peer in peers:
        near = (FarPosition(r.instance, r.generation, r.position, 1) for r in peer.more_than(own))
        over = (
            FarPosition(far.instance, far.generation, far.position, far.hops + 1)
            for far in peer.far_of(own)
            if far.hops < HOPS_MAX
        )
        for far in (*near, *over):
            known = found.get(far.origin)
            if known is None or (far.position, -far.hops) > (known.position, -known.hops):
                found[far.origin] = far
    return sorted(found.values(), key=lambda far: (far.hops, far.origin))[:SAID_MAX]
