"""Alarms of links to other instances: the problem, what it means for the data, what to do. Pure.

A link that comes back by itself, as after a restart of the other instance, raises no alarm, and
neither does a refusal that ends soon. A link that a person has paused raises one at once, since it
is easily forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from zbroker.admin import words
from zbroker.admin.alarms import AlarmFinding, few
from zbroker.wire.replicas import ReplicationRow

OPEN_GENERATIONS_MAX: Final = 32  # a month of daily reboots
GRACE_MS: Final = 10_000  # a restart of the other instance, and the Hello after it

_HERE_ONLY: Final = (
    "messages that are published meanwhile may be on this host only; nothing is lost, the log is "
    "kept for the destination, and the disk may fill up"
)

Rows = Sequence[ReplicationRow]


class LinkObservation(NamedTuple):
    """What links to destinations are judged by.

    needed: synchronous destinations that acknowledgements wait for; None: there are none. down_ms:
    for how long a link is without a session, by name. stopped: origins that stay stopped, and why,
    by name. log_bytes: of sealed segments that are kept for a link, by name. open_generations: of
    this instance, that wait for the answers of destinations. missing: how many ranges of each
    origin are not in this log, by `<instance hex>.<generation>`.
    """

    rows: Rows = ()
    needed: int | None = None
    down_ms: Mapping[str, int] = {}
    stopped: Mapping[str, Mapping[str, str]] = {}
    log_bytes: Mapping[str, int] = {}
    open_generations: int = 0
    missing: Mapping[str, int] = {}


NO_LINKS: Final = LinkObservation()


def is_up(row: ReplicationRow) -> bool:
    """True if a link to a destination has a session, and is to go on."""
    return row.state in ("finding", "sending") and not row.paused


#: why an origin is stopped: what to do
_STOPPED: Final = {
    "digest_differs": "the destination has it under other topics or another filter, or this log "
    "has: give all links of it the same ones, or have it taken from here with zbroker-admin "
    "replication skip",
    "fork": "the log says under replication.record_refused which: a generation was closed without "
    "what one of the two has (zbroker-admin replication fork on its instance), or one is a copy: "
    "keep both data directories, and start the wrong one again on a new one",
    "gap": "the log here is damaged: zbroker-admin journal verify names the place; the destination "
    "has to get these messages from another instance",
}
_REFUSED: Final = (
    "the reason is in the log of this instance, under replication.record_refused; it is tried "
    "again each second"
)


def link_findings(seen: LinkObservation, bytes_max: int) -> list[AlarmFinding]:
    """One for each thing that is wrong now, the worst first. bytes_max: see RetentionConfig."""
    away = [row for row in seen.rows if row.paused or seen.down_ms.get(row.name, 0) >= GRACE_MS]
    reached = sum(row.mode == "sync" and row not in away for row in seen.rows)
    waits = seen.needed is not None and reached < seen.needed
    missed = [row for row in away if waits and row.mode == "sync"]
    others = [row for row in away if row not in missed]
    found = [
        _unreachable(seen, missed, reached),
        _stopped(seen),
        _downgraded(seen, [row for row in seen.rows if row.downgraded]),
        _down(seen, [row for row in others if not row.paused]),
        _paused([row for row in others if row.paused]),
        _late(seen, bytes_max),
        _unanswered(seen),
    ]
    return [finding for finding in found if finding is not None]


def _unreachable(seen: LinkObservation, rows: Rows, reached: int) -> AlarmFinding | None:
    if not rows:
        return None
    name, which = rows[0].name, few([_away(seen, row) for row in rows])
    return AlarmFinding(
        "sync_unreachable",
        f"acknowledgements wait for {seen.needed} synchronous "
        f"{_destinations(seen.needed or 0)}, and {reached} can be reached: {which}",
        "publishers wait: what they publish is in the log here, and is not acknowledged; nothing "
        "is lost",
        f"zbroker-admin replication info {name} says why; zbroker-admin replication downgrade "
        f"{name}, if it will take long: then acknowledged messages may be lost with this host",
    )


def _away(seen: LinkObservation, row: ReplicationRow) -> str:
    if row.paused:
        return f"{row.name} is paused by hand"
    why = f", problem: {row.problem}" if row.problem else ""
    return f"no link to {row.name} for {words.duration(seen.down_ms.get(row.name, 0))}{why}"


def _down(seen: LinkObservation, rows: Rows) -> AlarmFinding | None:
    if not rows:
        return None
    return AlarmFinding(
        "link_down",
        few([_away(seen, row) for row in rows]),
        _HERE_ONLY,
        f"zbroker-admin replication info {rows[0].name}; look whether the instance there runs, and "
        "whether this host reaches its listen.replication",
    )


def _paused(rows: Rows) -> AlarmFinding | None:
    if not rows:
        return None
    return AlarmFinding(
        "link_paused",
        few([f"{row.name} is paused by hand, and lacks {row.lag} positions" for row in rows]),
        _HERE_ONLY,
        f"zbroker-admin replication resume {rows[0].name}",
    )


def _downgraded(seen: LinkObservation, rows: Rows) -> AlarmFinding | None:
    if not rows:
        return None
    by_hand = [row.name for row in rows if row.by_hand]
    hint = (
        f"zbroker-admin replication upgrade {by_hand[0]}" if by_hand
        else f"zbroker-admin replication info {rows[0].name}; it is waited for again by itself as "
        "soon as it has caught up"
    )  # fmt: skip
    return AlarmFinding(
        "link_downgraded",
        few([_why_downgraded(row) for row in rows]),
        f"acknowledgements wait for {seen.needed or 'no'} synchronous "
        f"{_destinations(seen.needed or 0)}: acknowledged messages may be lost with this host",
        hint,
    )


def _why_downgraded(row: ReplicationRow) -> str:
    if row.by_hand:
        return f"{row.name} is downgraded by hand"
    return f"{row.name} is downgraded: it lagged for longer than its downgrade_after"


def _stopped(seen: LinkObservation) -> AlarmFinding | None:
    found = [
        (origin, name, code)
        for name, origins in sorted(seen.stopped.items())
        for origin, code in sorted(origins.items())
    ]
    if not found:
        return None
    return AlarmFinding(
        "origin_stopped",
        few([f"origin {origin} is not sent to {name}: {code}" for origin, name, code in found]),
        "its messages are stored here and do not get there from here; nothing is lost, the log is "
        "kept for the destination, and acknowledgements of a synchronous one wait",
        _STOPPED.get(found[0][2], _REFUSED),
    )


def _late(seen: LinkObservation, bytes_max: int) -> AlarmFinding | None:
    rows = [row for row in seen.rows if seen.log_bytes.get(row.name, 0) > bytes_max]
    if not rows:
        return None
    rows.sort(key=lambda row: -seen.log_bytes[row.name])
    return AlarmFinding(
        "link_lag",
        few([
            f"{row.name} lacks {words.size(seen.log_bytes[row.name])} of the log, from position "
            f"{row.mark} on" for row in rows
        ]),
        "these messages may be on this host only; the log is kept from there on, and the disk may "
        "fill up",
        f"zbroker-admin replication info {rows[0].name}: is the network or the disk there too "
        "slow? If it is gone for good, take its [[destination]] out of the config",
    )  # fmt: skip


def _unanswered(seen: LinkObservation) -> AlarmFinding | None:
    rows = [row for row in seen.rows if row.unanswered and not row.forgotten]
    if seen.open_generations < OPEN_GENERATIONS_MAX or not rows:
        return None
    return AlarmFinding(
        "generations_open",
        f"{seen.open_generations} generations of this instance wait for an answer of "
        f"{few([row.name for row in rows])}",
        "nothing is lost; each start without these hosts adds one, and tables, bookmarks and what "
        "instances say to each other grow",
        f"bring {rows[0].name} back; if its host is gone for good: zbroker-admin replication "
        f"forget {rows[0].name}",
    )


def _destinations(count: int) -> str:
    return "destination" if count == 1 else "destinations"
