"""What a journal tells of its origins, so that peers know what to send. Pure."""

from __future__ import annotations

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
        at = row.crc_at if own or row.crc >= 0 else row.position
        if at:
            said = row.instance, row.generation, at, row.digest, row.since
            rows.append(OriginPosition(*said))
    closed = [ClosedGeneration(*row.origin, row.end) for row in origins.closed]
    older = max(0, len(origins.open_generations()) - 1)
    return rows, closed, sorted(sessions.forgotten_peers.names), older
