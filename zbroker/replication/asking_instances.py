"""Instances with empty logs that ask their peers what these hold. Pure.

The word of an instance that asks itself is worth nothing yet: it may hear of a third one that holds
what belongs to both. It counts once each instance that it waits for asks, too, and so do those
which they wait for, and so on: then all of them are new, and each opens as a new log.

    c, silent <--asks-- a <--asks-- b    b hears that a waits for c, and waits, too
    c --asks--> a                        b hears that c asks: none of the three has anything

Instances pass on which ones ask, since not all have links to each other. One that has something
does not say that it asks, so none that waits for it opens, also by a word that is late: what an
instance waits for becomes less only where a peer has nothing. Instances that repeat the word of
each other say it over one more each time, so it ends at ASKING_HOPS_MAX.
"""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.replication.holdings import Holdings
from zbroker.wire.replication import ASKING_HOPS_MAX, ASKING_MAX, AskingInstance


def asking_rows(
    name: str, awaits: list[str] | None, peers: Iterable[Holdings]
) -> list[AskingInstance]:
    """What an instance says: that it waits for these, if it asks, and which others ask."""
    found = {} if awaits is None else {name: AskingInstance(name, awaits[:ASKING_MAX])}
    for peer in peers:
        for row in peer.asking:
            known = found.get(row.name)
            nearer = known is None or row.hops + 1 < known.hops
            if nearer and row.name != name and row.hops < ASKING_HOPS_MAX:
                found[row.name] = AskingInstance(row.name, row.awaits, row.hops + 1)
    return sorted(found.values(), key=lambda row: (row.hops, row.name))[:ASKING_MAX]


def has_answered(peer: Holdings, known: Iterable[AskingInstance], name: str) -> bool:
    """Whether what a peer says that it holds is all that can come from there; known: instances that
    ask, as they were heard of before. name: of this instance, while it is not open."""
    if not any(row.hops == 0 for row in peer.asking):
        return not peer.filling
    rows = [*peer.asking, *known]
    return {one for row in rows for one in row.awaits} <= {name, *(row.name for row in rows)}
