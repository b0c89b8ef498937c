"""Which segments may go, and which readers still need them. Pure.

    kept --plan, raise_to--> going --all readers beyond it--> due --gone--> forgotten

    Remove --> log start raised, announced --> readers say that they are beyond it
           --> note.oldest, durable (KeepFrom) --> files unlinked, oldest first --> index forgets

The log start is the oldest position that is served. It is raised first; the files go when every
registered reader has said that it knows this log start (so it opens nothing below it any more) and
that no cursor of its own is below it. A reader that said nothing holds everything, also after its
Hello: another process may have other cursors.

A lease is for a user without a cursor: an export, a backup, a job. It ends by itself, it keeps the
log start from being raised past it, and none is given below the log start. Leases are forgotten
with this process; the admin repeats its leases before it asks for a removal.

A crash at each step:

    log start raised    nothing changed on the disk: the next start serves it all again; a client
                        that got bookmark_expired meanwhile may ask again, as may the admin
    note, first slot    the slots say the old or the new `oldest`; with the new one the next start
                        unlinks the segments below it, and every reader was beyond them
    note, both slots    the same for sure: only now the first file goes, so no start ever misses a
                        segment unless the note says that it was removed
    unlinking           files that are left are below `oldest`, and the next start unlinks them; in
                        a power cut any of the removals may be undone
    index               entries that point at no file are found out when they are used, and
                        forgotten at the next removal

The log start is announced before it is durable: a durable one makes readers step over files that
are still read. So a cursor below a raised log start is served to its end, and Holders shows the
segments that wait for it as `removing`. Only the process "admin" may ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer, Note
from zbroker.errors import ClientError
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.stages import StageKey, abort_of
from zbroker.limits import HOLDINGS_MAX, U63_MAX
from zbroker.log import records
from zbroker.log.format import KIND_ABORT
from zbroker.transaction_tokens import OF_TRANSACTIONS
from zbroker.wire import internal as m
from zbroker.wire.internal import Holding, Holds

LEASES_MAX: Final = 1_000  # a client that leases per message instead of per job shall notice
_REPLICATION: Final = "replication"
_QUEUES: Final = "queues"  # this process reads for queues, and names each of them


class Kept(NamedTuple):
    """A segment with positions [first, end); `bytes` of all its copies."""

    serial: int
    first: int
    end: int
    bytes: int


class RemovalPlan(NamedTuple):
    """Removable segments, oldest first; the log start after them; why not more."""

    segments: list[Kept]
    log_start: int
    blocked: str = ""
    held_by: Sequence[Holding] = ()


class RemovalLimits(NamedTuple):
    """How far a removal may go.

    stated: serial of the newest complete state snapshot; open: serial of the open segment.
    share_max: percent of the log's bytes. without: this queue counts as one that needs nothing, to
    find out what a purge of it would make removable.
    """

    through: int
    stated: int
    open: int
    share_max: int = 100
    without: str = ""


class LogStart:
    """The log start, the readers that hold it back, and the segments that are going.

    readers: processes with cursors; nothing goes before all of them have spoken.
    """

    def __init__(self, position: int, readers: Iterable[str]) -> None:
        self.position = position
        self._readers: dict[str, Holds | None] = dict.fromkeys(readers)
        self._leases: dict[str, tuple[Holding, int]] = {}  # by holder: until when, monotonic ms
        self._going: deque[Kept] = deque()

    # -- needs of readers ---------------------------------------------------------------------

    @property
    def readers(self) -> Collection[str]:
        """The processes that are waited for."""
        return self._readers.keys()

    def hello(self, process: str) -> None:
        """A process began again: needs that the one before it said are void."""
        if process in self._readers:
            self._readers[process] = None

    def heard(self, process: str, holds: Holds) -> None:
        """A reader says what it needs."""
        if process in self._readers:
            self._readers[process] = holds

    def eager(self, *, sendable: bool) -> bool:
        """Whether a reader wants to hear what is written before it is durable. sendable: so that
        links send it."""
        return any(
            holds is not None and holds.eager and (sendable or process != _REPLICATION)
            for process, holds in self._readers.items()
        )

    def lease(self, holding: Holding, ttl_ms: int, now_ms: int) -> None:
        """Gives, renews or (ttl_ms 0) ends a lease. Raises: ClientError."""
        if ttl_ms <= 0:
            self._leases.pop(holding.who, None)
            return
        if holding.position < self.position:
            raise ClientError("bookmark_expired", f"the oldest position kept is {self.position}")
        if holding.who not in self._leases and len(self._leases) >= LEASES_MAX:
            raise ClientError("too_many", f"there are {LEASES_MAX} leases")
        self._leases[holding.who] = (holding, now_ms + ttl_ms)

    def tick(self, now_ms: int) -> None:
        """Leases end."""
        for who in [who for who, (_, until) in self._leases.items() if until <= now_ms]:
            del self._leases[who]

    @property
    def silent(self) -> list[str]:
        """Readers that did not say yet what they need at this log start."""
        known = self._readers.items()
        return [name for name, holds in known if holds is None or holds.log_start < self.position]

    @property
    def holdings(self) -> list[Holding]:
        """Everything that is needed, the lowest first."""
        found = [holding for holding, _ in self._leases.values()]
        for process, holds in self._readers.items():
            if holds is not None:
                found += holds.holdings or _unnamed(process, holds)
        return sorted(found, key=lambda holding: (holding.position, holding.who))

    def _lowest(self, without: str) -> int:
        """No reader that has spoken needs a position below it, but for this queue."""
        needed = [holding.position for holding, _ in self._leases.values()]
        needed += [_needed(holds, without) for holds in self._readers.values() if holds is not None]
        return min(needed, default=U63_MAX)

    # -- removal ------------------------------------------------------------------------------

    def plan(self, segments: Sequence[Kept], limits: RemovalLimits) -> RemovalPlan:
        """How many of the oldest `segments` may go; nothing changes."""
        chosen: list[Kept] = []
        blocked, held_by = "", list[Holding]()
        allowed = sum(one.bytes for one in segments) * limits.share_max // 100
        lowest = self._lowest(limits.without)
        stated = self._state_before(segments, limits.stated)
        for one in segments:
            if one.serial > limits.through:
                break
            allowed -= one.bytes
            blocked = self._blocked(one, limits, lowest, allowed)
            if not blocked and one.end > stated:
                blocked = f"segment {one.serial} has the state that an empty instance begins with"
            if blocked:
                held_by = self._held_by(one, limits.without) if one.end > lowest else []
                break
            chosen.append(one)
        log_start = chosen[-1].end if chosen else self.position
        return RemovalPlan(chosen, log_start, blocked, held_by)

    def _state_before(self, segments: Sequence[Kept], newest: int) -> int:
        """An instance whose disk is new begins with the first snapshot of the log (first_state.py).
        What destinations lack has to come after that, or it would never get there: so the segment
        before that place stays, unless a newer snapshot is before it. One without positions has no
        snapshot: a generation ended there before its first group. newest: serial of the newest.
        """
        holds = self._readers.get(_REPLICATION)
        before = [one for one in segments if holds is not None and one.first <= holds.lowest]
        if not before or before[-1].serial > newest:
            return U63_MAX
        stating = (one.first for one in reversed(before[:-1]) if one.first < one.end)
        return next(stating, U63_MAX)

    def _blocked(self, one: Kept, limits: RemovalLimits, lowest: int, allowed: int) -> str:
        if one.serial >= limits.open:
            return f"segment {one.serial} is the open one"
        if one.serial >= limits.stated:
            return f"no complete state snapshot is after segment {one.serial} yet"
        if unheard := [process for process, holds in self._readers.items() if holds is None]:
            return f"{', '.join(unheard)} did not say yet what it needs"
        if one.end > lowest:
            return f"segment {one.serial} is still needed"
        if allowed < 0:
            return f"one run removes {limits.share_max} percent of the log at most"
        return ""

    def _held_by(self, one: Kept, without: str) -> list[Holding]:
        return [
            holding for holding in self.holdings
            if holding.position < one.end and not _is_queue(holding, without)
        ]  # fmt: skip

    def raise_to(self, plan: RemovalPlan) -> None:
        """The log start is after the plan's segments from now on, and they are going."""
        assert plan.log_start >= self.position, "a log start never falls"
        self.position = plan.log_start
        self._going += plan.segments

    @property
    def going(self) -> list[int]:
        """Serials of segments that are below the log start and not gone yet."""
        return [one.serial for one in self._going]

    def due(self) -> list[int]:
        """Serials that no reader needs any more, oldest first."""
        passed = min(
            (
                min(holds.log_start, holds.lowest) if holds else 0
                for holds in self._readers.values()
            ),
            default=U63_MAX,
        )
        return [one.serial for one in self._going if one.end <= passed]

    def gone(self, through: int) -> None:
        """The files of these segments are gone."""
        while self._going and self._going[0].serial <= through:
            self._going.popleft()

    def check(self) -> None:
        """Asserts what is always true."""
        assert all(holding.position >= self.position for holding, _ in self._leases.values())
        assert all(one.end <= self.position for one in self._going)
        assert self.going == sorted(self.going)


def _needed(holds: Holds, without: str) -> int:
    """The lowest position that a reader needs."""
    others = [one.position for one in holds.holdings if not _is_queue(one, without)]
    if len(others) == len(holds.holdings):
        return holds.lowest
    return min(others, default=U63_MAX)


def _is_queue(holding: Holding, name: str) -> bool:
    return bool(name) and (holding.who, holding.what) == (_QUEUES, name)


def _unnamed(process: str, holds: Holds) -> list[Holding]:
    """A reader that needs something and names no holder."""
    return [Holding(process, "", holds.lowest, 0)] if holds.lowest < U63_MAX else []


ADMIN: Final = "admin"
RETRY_MS: Final = 10_000  # after files that could not be unlinked

Effects = Sequence[je.Effect]


class RetentionSettings(NamedTuple):
    """readers: the processes with cursors. staged_max_bytes: what the stages of one principal may
    hold back of the log. leftovers: segments up to this one have files that an interrupted removal
    left; 0: none has."""

    readers: tuple[str, ...]
    staged_max_bytes: int = 0
    leftovers: int = 0


class RetentionRequests:
    """Answers one journal's readers and admin. due: there is something for `step` to do."""

    def __init__(self, commit: GroupCommit, settings: RetentionSettings) -> None:
        self._commit, self._settings = commit, settings
        self.log_start = LogStart(commit.log_start, settings.readers)
        self.due = bool(settings.leftovers)
        self._leftovers = settings.leftovers
        self._unlinking = self._rebuilding = False
        self._retry_ms = 0
        self.requests: dict[type, Callable[[bytes, Any, Now], Effects]] = {
            m.Lease: self._lease,
            m.AskHolders: self._holders,
            m.Remove: lambda rid, ask, _: [je.MeasureSegments(rid, ask)],
            m.Retire: lambda rid, ask, _: [je.RetireCopy(rid, ask, commit.serial)],
            m.Reindex: self._rebuild,
        }

    # -- requests -----------------------------------------------------------------------------

    def holds(self, rid: bytes, holds: m.Holds) -> None:
        """A reader says what it needs."""
        process = self._commit.process_of(rid)
        if process in self.log_start.readers:
            self.log_start.heard(process, holds)
            self.due = True

    def ask(self, rid: bytes, ask: object, now: Now) -> Effects:
        """Answers the admin."""
        if self._commit.process_of(rid) != ADMIN:
            return ()
        return self.requests[type(ask)](rid, ask, now)

    def _lease(self, rid: bytes, ask: m.Lease, now: Now) -> Effects:
        try:
            self.log_start.lease(ask.holding, ask.ttl_ms, now.mono_ms)
        except ClientError as error:
            return [Answer(rid, m.Done(ask.cid, code=error.code, reason=error.reason))]
        return [Answer(rid, m.Done(ask.cid))]

    def _holders(self, rid: bytes, ask: m.AskHolders, _now: Now) -> Effects:
        commit, log_start = self._commit, self.log_start
        holders = m.Holders(
            ask.cid, log_start.position, commit.persisted, commit.log_time, log_start.holdings,
            log_start.silent, log_start.going, commit.state_serial,
        )  # fmt: skip
        return [Answer(rid, holders)]

    # -- removal ------------------------------------------------------------------------------

    def measured(self, event: ev.SegmentsMeasured) -> Effects:
        """A removal goes on, or its dry run."""
        ask, commit = event.ask, self._commit
        stages = commit.sessions.stages
        kept = self._kept(event.segments)
        through = stages.removable(ask.through)
        effects: list[je.Effect] = []
        if through < ask.through and not ask.dry_run:
            effects += self._end_stages(stages.held_before(self._held_from(kept)))
        without = ask.without if ask.dry_run else ""
        limits = RemovalLimits(through, commit.state_serial, commit.serial, ask.share_max, without)
        plan = self.log_start.plan(kept, limits)
        if through < ask.through and not plan.blocked:
            text = f"segment {through + 1} has staged messages that a commit shows, or that wait"
            plan = plan._replace(blocked=text)
        if plan.segments and not ask.dry_run:
            effects += self._raise(plan)
        serials = [one.serial for one in plan.segments]
        held_by = list(plan.held_by[:HOLDINGS_MAX])
        removal = m.Removal(ask.cid, serials, plan.log_start, plan.blocked, held_by)
        return [*effects, Answer(event.rid, removal)]

    def _kept(self, segments: Sequence[ev.SegmentSize]) -> list[Kept]:
        """The segments from the log start on."""
        above = [one for one in segments if one.first >= self.log_start.position]
        ends = [one.first for one in above[1:]] + [self._commit.written]
        pairs = zip(above, ends, strict=True)
        return [Kept(one.serial, one.first, end, one.bytes) for one, end in pairs]

    def _held_from(self, kept: list[Kept]) -> int:
        """Segments before this one are more of the log than stages may hold back."""
        size = 0
        for one in reversed(kept):
            size += one.bytes
            if size > self._settings.staged_max_bytes:
                return one.serial + 1
        return 0

    def _end_stages(self, keys: list[StageKey]) -> Effects:
        """By a record of the next group: what they hold back goes with the next removal."""
        if not keys or self._commit.fenced:
            return ()
        self._commit.append_control(KIND_ABORT, records.encode(abort_of(keys)))
        count = sum(not key.token.startswith(OF_TRANSACTIONS) for key in keys)
        if not count:  # of transactions alone, which were rolled back: that is usual
            text = f"{len(keys)} transactions that were not committed were ended"
            return [Note("journal.transactions_ended", text, "info", {"transactions": len(keys)})]
        text = (
            f"{count} stages that were never committed were ended, since they were old or held "
            "back too much of the log; readers never saw them, and a commit of them is refused: "
            "stage them again"
        )
        return [Note("journal.stages_ended", text, values={"stages": count})]

    def _raise(self, plan: RemovalPlan) -> Effects:
        self.log_start.raise_to(plan)
        self._commit.log_start = self.log_start.position
        serials = ", ".join(str(one.serial) for one in plan.segments)
        text = (
            f"positions below {self.log_start.position} are not served any more; the files of "
            f"segments {serials} go when no reader needs them"
        )
        values = {"position": self.log_start.position, "segments": serials}
        return [self._commit.watermarks(), Note("journal.floor_raised", text, "info", values)]

    def step(self, now: Now) -> Effects:
        """Ends leases, and removes what no reader needs any more; never while a group is written
        or synced."""
        self.due = False
        self.log_start.tick(now.mono_ms)
        effects = list(self._end_stages(self._commit.sessions.stages.overdue(now.mono_ms)))
        if self._leftovers:
            self._leftovers, through = 0, self._leftovers
            return [*effects, self._unlink(through)]
        due = self.log_start.due()
        if due and not self._unlinking and now.mono_ms >= self._retry_ms:
            effects += (je.KeepFrom(due[-1] + 1), self._unlink(due[-1]))
        return effects

    def _unlink(self, through: int) -> je.Effect:
        self._unlinking = True
        return je.Unlink(through)

    def unlinked(self, event: ev.Unlinked) -> Effects:
        """The files are gone."""
        self._unlinking = False
        self.log_start.gone(event.through)
        self._commit.sessions.stages.removed(event.through)
        text = f"segments up to {event.through} are gone, {event.freed_bytes} bytes"
        values = {"through": event.through, "bytes": event.freed_bytes}
        return [
            je.ForgetRemoved(self._commit.log_start),
            Note("journal.removed", text, "info", values),
        ]

    def not_unlinked(self, event: ev.NotUnlinked, now: Now) -> Effects:
        """They are not, or not all: it is tried again later."""
        self._unlinking = False
        self._retry_ms = now.mono_ms + RETRY_MS
        text = (
            f"{event.reason}; they are not served any more and still take space; it is tried again"
        )
        return [Note("journal.not_removed", text, values={"reason": event.reason})]

    # -- copies and index ---------------------------------------------------------------------

    def _rebuild(self, rid: bytes, ask: m.Reindex, _now: Now) -> Effects:
        if self._rebuilding:
            reason = "the index is being rebuilt already"
            return [Answer(rid, m.Done(ask.cid, code="too_many", reason=reason))]
        self._rebuilding = True
        return [je.RebuildIndex(rid, ask.cid)]

    def rebuilt(self, event: ev.IndexRebuilt) -> Effects:
        """The index was rebuilt, or could not be."""
        self._rebuilding = False
        return [Answer(event.rid, event.done)]
