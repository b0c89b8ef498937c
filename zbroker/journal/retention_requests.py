"""What readers and the admin ask besides the log: holders, leases, removal of segments. Pure.

    Remove --> log start raised, announced --> readers say that they are beyond it
           --> note.oldest, durable (KeepFrom) --> files unlinked, oldest first --> index forgets

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

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer, Note
from zbroker.errors import ClientError
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.retention import Kept, LogStart, RemovalLimits, RemovalPlan
from zbroker.journal.stages import Key
from zbroker.limits import HOLDINGS_MAX
from zbroker.log import records
from zbroker.log.format import KIND_ABORT
from zbroker.wire import internal as m

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
    """Of one journal. due: there is something for `step` to do."""

    def __init__(self, commit: GroupCommit, settings: RetentionSettings) -> None:
        self._commit, self._settings = commit, settings
        self.floor = LogStart(commit.floor, settings.readers)
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
        if process in self.floor.readers:
            self.floor.heard(process, holds)
            self.due = True

    def ask(self, rid: bytes, ask: object, now: Now) -> Effects:
        """Answers the admin."""
        if self._commit.process_of(rid) != ADMIN:
            return ()
        return self.requests[type(ask)](rid, ask, now)

    def _lease(self, rid: bytes, ask: m.Lease, now: Now) -> Effects:
        try:
            self.floor.lease(ask.holding, ask.ttl_ms, now.mono_ms)
        except ClientError as error:
            return [Answer(rid, m.Done(ask.cid, error.code, error.reason))]
        return [Answer(rid, m.Done(ask.cid))]

    def _holders(self, rid: bytes, ask: m.AskHolders, _now: Now) -> Effects:
        commit, floor = self._commit, self.floor
        holders = m.Holders(
            ask.cid, floor.position, commit.persisted, commit.log_time, floor.holdings,
            floor.silent, floor.going, commit.state_serial,
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
        plan = self.floor.plan(kept, limits)
        if through < ask.through and not plan.blocked:
            text = f"segment {through + 1} has staged messages that a commit shows, or that wait"
            plan = plan._replace(blocked=text)
        if plan.segments and not ask.dry_run:
            effects += self._raise(plan)
        serials = [one.serial for one in plan.segments]
        held_by = list(plan.held_by[:HOLDINGS_MAX])
        removal = m.Removal(ask.cid, serials, plan.floor, plan.blocked, held_by)
        return [*effects, Answer(event.rid, removal)]

    def _kept(self, segments: Sequence[ev.SegmentSize]) -> list[Kept]:
        """The segments from the log start on."""
        above = [one for one in segments if one.first >= self.floor.position]
        ends = [one.first for one in above[1:]] + [self._commit.written]
        return [
            Kept(one.serial, one.first, end, one.bytes)
            for one, end in zip(above, ends, strict=True)
        ]

    def _held_from(self, kept: list[Kept]) -> int:
        """Segments before this one are more of the log than stages may hold back."""
        size = 0
        for one in reversed(kept):
            size += one.bytes
            if size > self._settings.staged_max_bytes:
                return one.serial + 1
        return 0

    def _end_stages(self, keys: list[Key]) -> Effects:
        """By a record of the next group: what they hold back goes with the next removal."""
        if not keys or self._commit.fenced:
            return ()
        self._commit.append_control(KIND_ABORT, records.encode(records.AbortRecord(keys)))
        text = (
            f"{len(keys)} stages that were never committed were ended, since they were old or held "
            "back too much of the log; readers never saw them, and a commit of them is refused: "
            "stage them again"
        )
        return [Note("journal.stages_ended", text)]

    def _raise(self, plan: RemovalPlan) -> Effects:
        self.floor.raise_to(plan)
        self._commit.floor = self.floor.position
        serials = ", ".join(str(one.serial) for one in plan.segments)
        text = (
            f"positions below {self.floor.position} are not served any more; the files of segments "
            f"{serials} go when no reader needs them"
        )
        return [self._commit.watermarks(), Note("journal.floor_raised", text, "info")]

    def step(self, now: Now) -> Effects:
        """Ends leases, and removes what no reader needs any more; never while a group is written
        or synced."""
        self.due = False
        self.floor.tick(now.mono_ms)
        effects = list(self._end_stages(self._commit.sessions.stages.overdue(now.mono_ms)))
        if self._leftovers:
            self._leftovers, through = 0, self._leftovers
            return [*effects, self._unlink(through)]
        due = self.floor.due()
        if due and not self._unlinking and now.mono_ms >= self._retry_ms:
            effects += (je.KeepFrom(due[-1] + 1), self._unlink(due[-1]))
        return effects

    def _unlink(self, through: int) -> je.Effect:
        self._unlinking = True
        return je.Unlink(through)

    def unlinked(self, event: ev.Unlinked) -> Effects:
        """The files are gone."""
        self._unlinking = False
        self.floor.gone(event.through)
        self._commit.sessions.stages.removed(event.through)
        text = f"segments up to {event.through} are gone, {event.freed_bytes} bytes"
        return [
            je.ForgetRemoved(self._commit.floor),
            Note("journal.removed", text, "info"),
        ]

    def not_unlinked(self, event: ev.NotUnlinked, now: Now) -> Effects:
        """They are not, or not all: it is tried again later."""
        self._unlinking = False
        self._retry_ms = now.mono_ms + RETRY_MS
        text = (
            f"{event.reason}; they are not served any more and still take space; it is tried again"
        )
        return [Note("journal.not_removed", text)]

    # -- copies and index ---------------------------------------------------------------------

    def _rebuild(self, rid: bytes, ask: m.Reindex, _now: Now) -> Effects:
        if self._rebuilding:
            reason = "the index is being made anew already"
            return [Answer(rid, m.Done(ask.cid, "too_many", reason))]
        self._rebuilding = True
        return [je.RebuildIndex(rid, ask.cid)]

    def rebuilt(self, event: ev.IndexRebuilt) -> Effects:
        """The index was made anew, or could not be."""
        self._rebuilding = False
        return [Answer(event.rid, event.done)]
