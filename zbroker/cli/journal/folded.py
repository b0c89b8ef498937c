"""What a start of the journal would learn from its log, for commands that read the files."""

from __future__ import annotations

from typing import Any

from zbroker.journal.fold import LogFold
from zbroker.journal.sessions import Sessions
from zbroker.log.format import FLAG_SHOWS, SEQUENCED
from zbroker.log.reader import Gap, Log


def folded(log: Log) -> LogFold:
    """What the newest state snapshot says, and what follows it."""
    fold, end = LogFold(log.instance), log.end()
    cursor, _ = fold.begin(log, end)
    for item in log.headers(cursor, end):
        if isinstance(item, Gap):
            continue
        batch, at = item
        if batch.body_length and (batch.kind not in SEQUENCED or batch.flags & FLAG_SHOWS):
            batch.body = log.body(batch, at) or b""
        fold(batch, at.serial)
    return fold


def missing_rows(sessions: Sessions) -> list[dict[str, Any]]:
    """Ranges of origins that are not in the log, as `replication missing` lists them."""
    ranges = sessions.ranges_missing()
    known = {(one.instance, one.generation, one.last) for one in ranges}
    rows = [
        {"origin": f"{one.instance:016x}.{one.generation}", "first": one.first, "last": one.last,
         "why": one.why} for one in ranges
    ]  # fmt: skip
    return rows + [
        {"origin": str(origin), "first": 1, "last": seen.since - 1, "why": "topics"}
        for origin, seen in sessions.origins.open_rows.items()
        if seen.since > 1 and (*origin, seen.since - 1) not in known
    ]
