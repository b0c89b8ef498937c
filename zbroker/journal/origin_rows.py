"""What a journal tells of its origins, so that peers know what to send. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.ids import Origin
from zbroker.journal.sessions import Sessions
from zbroker.wire.replication import ClosedGeneration, OriginPosition


def travelling(
    sessions: Sessions,
) -> tuple[list[OriginPosition], list[ClosedGeneration], list[str], int]:
    """How far each origin is here, counted by records that travel; which have ended, where; the
    forgotten peers; how many generations of this instance are open, without the newest."""
    rows, origins = [], sessions.origins
    for row in origins.rows():
        own = row.instance == origins.instance  # its names and states are nowhere else
        at = row.crc_at if own or (row.crc >= 0 and not row.digest) else row.position
        if at:
            kept = 0
            if row.digest:  # what its topics leave out may have moved it
                kept = max(origins.get(Origin(row.instance, row.generation)).kept, row.crc_at)
            said = row.instance, row.generation, at, row.digest, row.since
            rows.append(OriginPosition(*said, kept if kept < at else 0))
    closed = [ClosedGeneration(*row.origin, row.reach, row.digest) for row in origins.closed]
    older = max(0, len(origins.open_generations()) - 1)
    return rows, closed, sorted(sessions.forgotten_peers.names), older


def newest(rows: Iterable[OriginPosition], closed: Iterable[ClosedGeneration]) -> dict[int, int]:
    """The newest generation of each instance that these name."""
    found: dict[int, int] = {}
    named = [(one.instance, one.generation) for one in rows]
    named += [(one.instance, one.generation) for one in closed]
    for instance, generation in named:
        found[instance] = max(generation, found.get(instance, 0))
    return found
