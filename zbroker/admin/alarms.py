"""Alarms from numbers: the problem, what it means for the data, what to do. Pure.

    found(facts)              the problems of now, one entry per code
    AlarmWatch.look(facts)    the same with memory: since when, and counters that grew lately
    queue_findings(seen)      the problems of queues; those of links: zbroker.admin.link_alarms

An alarm is in /status as long as its reason lasts. Limits of a queue are part of its definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from zbroker.admin import words
from zbroker.admin.documents import setting
from zbroker.admin.retention import BlockedRemoval
from zbroker.clock import format_time
from zbroker.config import RetentionConfig
from zbroker.wire.queue_surveys import QueueRow

DISK_PERCENT: Final = 80  # from here on an operator should look
LATELY_NS: Final = 600 * 1_000_000_000  # how long an alarm outlives the last growth of its counter
#: a reader may need a moment to let go; a queue may be full for moments, that is what its limit is
PATIENCE_NS: Final = {"held": 30 * 1_000_000_000, "queue_full": 30 * 1_000_000_000}
_NS_PER_MS: Final = 1_000_000
HELD_PART: Final = 10  # of what a rule allows: held back for a while, that is an alarm
KEEPER_PART: Final = 2  # a queue that needs half of the log or more is named
CLOCK_BEHIND_MS: Final = 60_000  # less is how clocks are corrected
#: statistics of the journal that only ever grow: by how much lately is an alarm. Any disk stalls
#: once in a while: one late write is counted and logged, no more
COUNTERS: Final = {"flush_late": 3, "unprepared": 1}


class DiskUsage(NamedTuple):
    """A disk of the log."""

    path: str
    free_bytes: int
    total_bytes: int


class Failure(NamedTuple):
    """An action that failed and did not succeed since."""

    action: str
    serials: tuple[int, ...]
    reason: str


class AlarmFinding(NamedTuple):
    """Something that is wrong now."""

    code: str
    what: str
    means: str
    next: str


class AlarmFacts(NamedTuple):
    """Everything that alarms are made of.

    journal: its statistics. grown: by which counters of it grew lately. blocked: removal that does
    not happen. held_alarm: bytes. clock_behind_ms: how late the clock of ages is. queues: their
    problems, see queue_findings; links: likewise. rules: why the access file is not used.
    keeper: the queue that needs most of the log, and how much. in_doubt_ms: how old the oldest
    prepared transaction is; None: not too old.
    """

    journal: Mapping[str, Any]
    disks: tuple[DiskUsage, ...] = ()
    blocked: BlockedRemoval | None = None
    held_alarm: int = 0
    failures: tuple[Failure, ...] = ()
    clock_behind_ms: int = 0
    grown: Mapping[str, int] = {}
    queues: tuple[AlarmFinding, ...] = ()
    rules: str = ""
    keeper: tuple[str, int] | None = None
    links: tuple[AlarmFinding, ...] = ()
    in_doubt_ms: int | None = None


class Alarm(NamedTuple):
    """A finding, and since when (ns since 1970)."""

    since_ns: int
    finding: AlarmFinding


def found(facts: AlarmFacts) -> list[AlarmFinding]:
    """The problems of now, the worst first."""
    return [
        *_disks(facts), *_journal(facts), *facts.links, *_rules(facts), *_retention(facts),
        *facts.queues, *_in_doubt(facts),
    ]  # fmt: skip


def held_limit(settings: RetentionConfig) -> int:
    """How much may be held back without an alarm: a part of what the rules allow."""
    rules = [rule // HELD_PART for rule in (settings.max_bytes, settings.min_free) if rule]
    return min([settings.held_alarm, *rules])


def _disks(facts: AlarmFacts) -> Iterator[AlarmFinding]:
    if not facts.journal.get("accepting", 1):
        free = f"; {words.size(facts.disks[0].free_bytes)} are free" if facts.disks else ""
        yield AlarmFinding(
            "disk_full",
            f"the journal's disk is nearly full{free}",
            "publishers are refused with disk_full and keep their messages; reading goes on",
            f"{_space(facts)}; publishing resumes by itself",
        )
    full = [disk for disk in facts.disks if _percent(disk) >= DISK_PERCENT]
    if full:
        lines = (
            f"{disk.path} is {_percent(disk)} % full ({words.size(disk.free_bytes)} free)"
            for disk in full
        )
        yield AlarmFinding(
            "disk_80",
            "; ".join(lines),
            "nothing yet; when the journal's disk is full, publishers are refused"
            if facts.journal.get("accepting", 1)
            else "publishers are refused: see disk_full",
            _space(facts),
        )


def _space(facts: AlarmFacts) -> str:
    """What to do for more of it. A queue that needs most of the log makes everything else vain."""
    size = int(facts.journal.get("bytes", 0))
    if facts.keeper is not None and 0 < size <= KEEPER_PART * facts.keeper[1]:
        name, needs = facts.keeper
        return (
            f"queue {name} needs {words.size(needs)} of the log, no segment of that can be "
            f"removed: zbroker-admin queue explain {name}; or free space there by other means"
        )
    return "zbroker-admin journal remove, [retention] in the config, or free space there"


def _percent(disk: DiskUsage) -> int:
    used = disk.total_bytes - disk.free_bytes
    return used * 100 // disk.total_bytes if disk.total_bytes > 0 else 0


#: statistic of the journal: the problem, what it means for the data, what to do
_JOURNAL: Final = {
    "damage": (
        "damaged places in the log: {damage}; {finding_texts}",
        "exactly these messages cannot be read; a replay reports them as gaps, the rest is served",
        "zbroker-admin journal verify names them; see docs/howto/a-file-is-damaged.md",
    ),
    "conflicts": (
        "{conflicts} batches came again with another content",
        "the first content is in the log, the other one was not stored there",
        "zbroker-admin journal conflicts shows them; two programs use one client name, or a "
        "publisher forgot what it sent",
    ),
    "index_failed": (
        "the bookmark index cannot be written: {index_failed}",
        "no message is lost; replays from a bookmark take longer until it is rebuilt",
        "free space or repair the disk, then zbroker-admin journal rebuild-index",
    ),
    "flush_late": (
        "{flush_late} times lately a message was not on stable storage within "
        "journal.flush_interval",
        "nothing is lost: it is acknowledged when it is durable, so later than wanted",
        "the disk is slow: see who else writes to it; journal.sync_ms in the status",
    ),
    "unprepared": (
        "{unprepared} segments lately were not filled with zeros in time",
        "nothing is lost; writes to these segments take longer",
        "a faster disk, or a larger journal.segment_size",
    ),
}


def _journal(facts: AlarmFacts) -> Iterator[AlarmFinding]:
    numbers = {"finding_texts": "", **facts.journal, **dict.fromkeys(COUNTERS, 0), **facts.grown}
    for code, (what, means, then) in _JOURNAL.items():
        if numbers.get(code):
            yield AlarmFinding(code, what.format_map(numbers).rstrip("; "), means, then)


def _rules(facts: AlarmFacts) -> Iterator[AlarmFinding]:
    if facts.rules:
        yield AlarmFinding(
            "access_file",
            f"the access file cannot be used: {facts.rules}",
            "the rules before it hold on: a key that was taken out still lets clients in, a new "
            "one does not",
            "mend it; zbroker-admin access check FILE says when it is right",
        )


def _retention(facts: AlarmFacts) -> Iterator[AlarmFinding]:
    blocked = facts.blocked
    if blocked is not None and blocked.queues:
        yield _kept_by_queues(blocked)
    elif blocked is not None and (blocked.code != "held" or blocked.bytes > facts.held_alarm):
        yield _blocked(blocked)
    if facts.failures:
        yield _failed(facts.failures)
    if facts.clock_behind_ms >= CLOCK_BEHIND_MS:
        yield AlarmFinding(
            "clock_jumped",
            f"the clock jumped ahead by {words.duration(facts.clock_behind_ms)}",
            "ages of segments follow it slowly, so nothing is removed too early",
            "set the clock right, if it is wrong; this ends by itself",
        )


def _kept_by_queues(blocked: BlockedRemoval) -> AlarmFinding:
    """At once: a queue does not let go by itself as a reader does."""
    first, more = blocked.queues[0], len(blocked.queues) - 1
    others = f" and {more} more queue{'s' if more > 1 else ''}" if more else ""
    return AlarmFinding(
        "queue_holds",
        f"[retention] wants to remove {words.size(blocked.bytes)} and cannot: queue {first}"
        f"{others} needs the log from there on",
        "retention does not work: no message is lost, but the log grows until the disk is full, "
        "and then publishers of every topic are refused",
        f"zbroker-admin queue explain {first}: start its consumers, or let go with zbroker-admin "
        f"queue purge {first} or queue delete {first}",
    )


def _blocked(blocked: BlockedRemoval) -> AlarmFinding:
    size = words.size(blocked.bytes)
    if blocked.code == "held":
        return AlarmFinding(
            "held",
            f"{size} should be removed and are still needed: {blocked.why}",
            "nothing is lost; the disk fills up until its readers go on",
            "zbroker-admin journal holders; end what is stuck",
        )
    means = "nothing is removed; the disk may fill up"
    hints = {
        "share": "raise retention.remove_share_max, or remove by hand: zbroker-admin journal "
        "remove",
        "stated": "a snapshot is written with each new segment; if none comes, see the log",
        "elsewhere": "move segments there: retention.archive_after, or zbroker-admin journal "
        "archive",
    }
    return AlarmFinding("removal_blocked", f"{size}: {blocked.why}", means, hints[blocked.code])


def _failed(failures: tuple[Failure, ...]) -> AlarmFinding:
    newest = failures[-1]
    which = f" of {words.serials(newest.serials)}" if newest.serials else ""
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return AlarmFinding(
        "action_failed",
        f"{newest.action}{which} failed: {newest.reason}{more}",
        "every message is where it was; no copy goes before another one is whole",
        "zbroker-admin action ls; it is tried again by itself",
    )


def in_doubt_ms(journal: Mapping[str, Any], limit_ms: int, now_ns: int) -> int | None:
    """How long the oldest prepared transaction of the journal's statistics waits; None: not as long
    as the limit. The statistic has whole seconds."""
    since_s = int(journal.get("branches_since_s", 0))
    if not limit_ms or not journal.get("branches_prepared"):
        return None
    age_ms = now_ns // _NS_PER_MS - since_s * 1_000
    return age_ms if age_ms >= limit_ms else None


def _in_doubt(facts: AlarmFacts) -> Iterator[AlarmFinding]:
    if facts.in_doubt_ms is None:
        return
    count = int(facts.journal["branches_prepared"])
    many = "transactions are" if count > 1 else "transaction is"
    yield AlarmFinding(
        "transaction_in_doubt",
        f"{count} distributed {many} prepared and not decided, the oldest for "
        f"{words.duration(facts.in_doubt_ms)}",
        "nothing is lost; locked messages go to no consumer, published ones are not visible, and "
        "the log is kept for both",
        "zbroker-admin transaction ls names them; start their transaction manager, or do by hand "
        "what it decided: zbroker-admin transaction commit, or rollback",
    )


class AlarmWatch:
    """Remembers since when each alarm is raised."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._grown: dict[str, list[tuple[int, int]]] = {name: [] for name in COUNTERS}

    def look(self, facts: AlarmFacts, now_ns: int) -> list[Alarm]:
        """The alarms of now; `facts.grown` is filled in here."""
        grown = {name: self._growth(name, facts.journal, now_ns) for name in COUNTERS}
        grown = {name: size for name, size in grown.items() if size >= COUNTERS[name]}
        findings = found(facts._replace(grown=grown))
        self._since = {f.code: self._since.get(f.code, now_ns) for f in findings}
        alarms = [Alarm(self._since[finding.code], finding) for finding in findings]
        return [a for a in alarms if now_ns - a.since_ns >= PATIENCE_NS.get(a.finding.code, 0)]

    def _growth(self, name: str, stats: Mapping[str, Any], now_ns: int) -> int:
        """How much a counter grew in the last LATELY_NS; one that fell belongs to a new process."""
        value = int(stats.get(name, 0))
        before = self._before.get(name, value)
        self._before[name] = value
        steps = [step for step in self._grown[name] if now_ns - step[0] < LATELY_NS]
        if value > before:
            steps.append((now_ns, value - before))
        self._grown[name] = steps
        return sum(size for _, size in steps)


NAMED_MAX: Final = 3  # in one finding; `queue ls` names all


class QueueObservation(NamedTuple):
    """What rows are judged by.

    known_ms: how long a queue is known to have had no consumer, by name. dead: recent dead letters,
    by name. now_ns: wall clock. ago_ms: how long ago a row was reported, by name. stays_ms: for how
    long one message was the oldest of those that belong to other instances, by name.
    """

    rows: Sequence[QueueRow]
    known_ms: Mapping[str, int]
    dead: Mapping[str, int]
    now_ns: int
    ago_ms: Mapping[str, int] = {}
    stays_ms: Mapping[str, int] = {}


#: findings about queues: what each means for the data, what to do
_QUEUES: Final = {
    "queue_size": (
        "nothing is lost; the log is kept from there on, and the disk may fill up",
        "more consumers, or zbroker-admin queue explain; a replayable queue is emptied by "
        "zbroker-admin queue purge",
    ),
    "queue_idle": (
        "nothing is lost; the log is kept for these messages, and the disk may fill up",
        "start its consumers; zbroker-admin queue explain says why nothing is delivered; "
        "zbroker-admin queue delete, if it is not needed any more",
    ),
    "queue_elsewhere": (
        "nothing is lost; these messages wait for the instance that owns them, and the log is kept "
        "for them here, too",
        "zbroker-admin queue explain names it: start it, or its consumers; if it stays away, "
        "zbroker-admin queue takeover",
    ),
    "queue_full": (
        "publishers of these queues are refused with queue_full; the messages in the queues stay",
        "start more consumers, or raise max_length or max_bytes: zbroker-admin queue alter; "
        "zbroker-admin queue explain says why nothing is delivered",
    ),
    "dead_letters": (
        "these messages are given up by their queues; in the log they stay",
        "read the reasons there; zbroker-admin queue requeue brings them back",
    ),
}


def queue_findings(seen: QueueObservation) -> list[AlarmFinding]:
    """One for each thing that is wrong now."""
    texts = {
        "queue_size": _large(seen.rows),
        "queue_idle": _idle(seen),
        "queue_elsewhere": _elsewhere(seen),
        "queue_full": [
            f"{row.name} is full: {row.depth} messages" for row in seen.rows if row.full
        ],
        "dead_letters": _dead(seen),
    }
    return [AlarmFinding(code, few(each), *_QUEUES[code]) for code, each in texts.items() if each]


def largest_queue(rows: Sequence[QueueRow]) -> tuple[str, int] | None:
    """The queue that needs most of the log, and so many bytes of it."""
    most = max(rows, key=lambda row: row.bytes, default=None)
    return None if most is None or not most.bytes else (most.name, most.bytes)


def _large(rows: Sequence[QueueRow]) -> list[str]:
    over = [row for row in rows if 0 < setting(row, "size_alarm") < row.bytes]
    return [
        f"{row.name} holds {words.size(row.bytes)} of the log from position {row.holding} on, "
        f"its size_alarm is {words.size(setting(row, 'size_alarm'))}"
        for row in sorted(over, key=lambda row: -row.bytes)
    ]


def _idle(seen: QueueObservation) -> list[str]:
    idle = [(ms, row) for row in seen.rows if (ms := _idle_ms(row, seen)) is not None]
    return [_lying(row, ms, seen) for ms, row in sorted(idle, key=lambda one: -one[0])]


def _idle_ms(row: QueueRow, seen: QueueObservation) -> int | None:
    """How long messages that a consumer could take have waited; None: not too long.

    Leased and delayed messages do not count, nor those of other instances. A new message does not
    wait long, however long no message was taken before. A replayable queue may be read some day.
    """
    limit = setting(row, "idle_alarm")
    waiting = row.depth - row.leased - row.delayed - row.going - row.elsewhere
    if row.kind != "work" or not limit or waiting <= 0:
        return None
    if row.idle_ms is None:
        idle = seen.known_ms.get(row.name, 0)
    else:
        idle = row.idle_ms + seen.ago_ms.get(row.name, 0)
    if row.oldest_ns is not None:
        idle = min(idle, (seen.now_ns - row.oldest_ns) // _NS_PER_MS)
    return idle if idle >= limit else None


def _lying(row: QueueRow, idle_ms: int, seen: QueueObservation) -> str:
    since = format_time(seen.now_ns - idle_ms * _NS_PER_MS)
    if row.idle_ms is None:
        what = f"was never consumed since {since}"
    else:
        what = f"has messages, and no consumer takes any since {since}"
    return (
        f"{row.name} {what} ({words.duration(idle_ms)}): {row.depth} messages; "
        f"it holds the log from position {row.holding} on"
    )


def _elsewhere(seen: QueueObservation) -> list[str]:
    """An instance that works them off has another oldest one soon, however many there are."""
    rows = []
    for row in seen.rows:
        limit, stays = setting(row, "idle_alarm"), seen.stays_ms.get(row.name, 0)
        if row.elsewhere and row.elsewhere_ns is not None and 0 < limit <= stays:
            rows.append((seen.now_ns - row.elsewhere_ns, row))
    return [
        f"{row.name} has {row.elsewhere} messages of other instances; the oldest, at position "
        f"{row.elsewhere_first}, waits for {words.duration(age_ns // _NS_PER_MS)}"
        for age_ns, row in sorted(rows, key=lambda one: -one[0])
    ]


def _dead(seen: QueueObservation) -> list[str]:
    rows = [row for row in seen.rows if seen.dead.get(row.name)]
    rows.sort(key=lambda row: -seen.dead[row.name])
    return [_given_up(row, seen.dead[row.name]) for row in rows]


def _given_up(row: QueueRow, count: int) -> str:
    topic = setting(row, "dead_letter")
    where = f"they are in {topic}" if topic else "it has no dead_letter topic: only counted"
    return f"{row.name}: {count} dead letter{'' if count == 1 else 's'} lately, {where}"


def few(lines: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(lines) - NAMED_MAX
    return "; ".join([*lines[:NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
