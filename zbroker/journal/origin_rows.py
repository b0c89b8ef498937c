"""What a journal tells of its origins, so that peers know what to send. Pure."""

from __future__ import annotations

from zbroker.journal.origins import Origins
from zbroker.wire.replication import ClosedGeneration, OriginPosition


def travelling(origins: Origins) -> tuple[list[OriginPosition], list[ClosedGeneration]]:
    """How far each origin is here, counted by records that travel; and which have ended, where."""
    rows = []
    for row in origins.rows():
        own = row.instance == origins.instance  # its names and states are nowhere else
        at = row.crc_at if own or row.crc >= 0 else row.position
        if at:
            said = row.instance, row.generation, at, row.digest, row.since
            rows.append(OriginPosition(*said))
    return rows, [ClosedGeneration(*row.origin, row.end) for row in origins.closed]
