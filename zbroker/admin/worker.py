"""The thread that does the work: one thing at a time, niced, requests before the policy.

    request --queued--+
                      +--> running --> done, failed, refused
    policy -----------+

The policy is evaluated every `retention.every`, and again when its last plan is done; a plan is
thrown away by the next evaluation, so nothing old is ever carried out. A failed action rests for a
while that doubles. An interrupted one (by a stop, a kill, a journal that restarts) is found by the
next evaluation, since it left two whole copies. Removals run in the journal meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.admin import retention, words
from zbroker.admin.alarms import Failure
from zbroker.admin.history import INTERRUPTED, HistoryEntry, JobProgress
from zbroker.admin.jobs import Jobs, JobStopped, JournalActions, Rewrite
from zbroker.admin.process_link import WorkThread
from zbroker.admin.requests import RemovalQuery
from zbroker.admin.retention import BlockedRemoval, RetentionDecision, RetentionView
from zbroker.admin.survey import Survey, Tools
from zbroker.clock import format_time
from zbroker.errors import ClientError, StorageError, ZBrokerError
from zbroker.limits import U63_MAX
from zbroker.wire import internal as m

HAND_MAX: Final = 16  # requests that wait; each may name many segments
AGAIN_MS: Final = 1_000  # until the journal is asked again when it is not there
FOLLOW_MS: Final = 500  # how often what the journal does is looked at


class RetryPause(NamedTuple):
    """What failed so often is left alone until then (monotonic ms)."""

    failures: int
    until_ms: int
    failure: Failure | None


class AdminWorker(WorkThread):
    """The loop calls `start` and `stop`; any thread calls the methods before `_run`."""

    def __init__(self, tools: Tools) -> None:
        super().__init__("worker")
        self._tools = tools
        self._retention = tools.config.retention
        self._lock = threading.Lock()
        self._removing = threading.Lock()  # one removal is asked for at a time
        segment_bytes = tools.config.journal.segment_size
        self._jobs = Jobs(tools.paths, tools.link, self._stop, segment_bytes)
        self._hand: deque[HistoryEntry] = deque()
        self._plan: deque[RetentionDecision] = deque()
        self._rests: dict[tuple[str, int], RetryPause] = {}
        self._next_ms = self._follow_ms = 0
        self._running: HistoryEntry | None = None
        self._given_up = 0  # serials up to it are removed: no new copies of them
        self.survey = Survey(tools)
        self.following = JournalActions(tools, self.survey, self._end)
        self.blocked: BlockedRemoval | None = None

    def start(self) -> None:
        """Begins with what an earlier process left."""
        self._thread.start()

    # -- from any thread ----------------------------------------------------------------------

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What the policy tried, failed at and has not done since."""
        return tuple(rest.failure for rest in list(self._rests.values()) if rest.failure)

    def state(self, holders: m.Holders, now_ns: int = 0) -> RetentionView:
        """The state that decisions are made from. Raises: StorageError."""
        now_ms = self._tools.clock.mono_ms()
        with self._lock:
            busy = self._busy()
        return self.survey.state(holders, now_ns)._replace(
            busy=busy,
            resting=frozenset(k for k, rest in list(self._rests.items()) if rest.until_ms > now_ms),
        )

    def _busy(self) -> frozenset[int]:
        entries = [*self._hand, *([self._running] if self._running else [])]
        return frozenset(serial for entry in entries for serial in entry.serials)

    def submit(self, action: str, serials: list[int], size: int, why: str) -> int:
        """Queues a request to archive or compress; its id. Raises: ClientError too_many."""
        with self._lock:
            if len(self._hand) >= HAND_MAX:
                raise ClientError("too_many", f"{HAND_MAX} requests wait already", "wait for them")
            entry = self.entry(action, "hand", why)
            entry = self._tools.history.new(replace(entry, serials=serials, bytes=size))
            self._hand.append(entry)
        self._wake.set()
        return entry.id

    def running(self) -> HistoryEntry | None:
        """The action that runs, with its progress."""
        with self._lock:
            entry = self._running or next(iter(self.following.entries()), None)
        return self._tools.history.get(entry.id) if entry else None

    def entry(self, action: str, by: str, why: str) -> HistoryEntry:
        """A new action, which has no number yet."""
        return HistoryEntry(0, format_time(self._tools.clock.wall_ns()), action, by, why, [])

    def reindex(self) -> HistoryEntry:
        """Has the index rebuilt; the action of that. Raises: ClientError too_many."""
        if any(entry.action == "reindex" for entry in self.following.entries()):
            raise ClientError("too_many", "the index is being rebuilt already", "wait for it")
        entry = self.following.reindex(self.entry("reindex", "hand", "asked for by hand"))
        self._wake.set()
        return entry

    def remove(
        self, entry: HistoryEntry, ask: RemovalQuery, share_max: int
    ) -> tuple[HistoryEntry | None, m.Removal]:
        """Has the oldest segments removed, up to one that is being worked on.

        A copy that is made of a segment while it is removed would come back without it.
        Raises: ClientError not_ready, StorageError.
        """
        with self._removing:
            with self._lock:
                busy = min(self._busy(), default=U63_MAX)
                before, self._given_up = self._given_up, max(self._given_up, ask.through)
                ask = replace(ask, through=min(ask.through, busy - 1))
            made: HistoryEntry | None = None
            try:
                made, removal = self.following.remove(entry, ask, share_max)
            finally:
                with self._lock:
                    gone = made.serials[-1] if made else 0
                    self._given_up = max(before, gone)
        self._wake.set()
        if ask.through == busy - 1 and not removal.blocked:
            removal.blocked = f"segment {busy} is being worked on"
        return made, removal

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        self.begin()
        while not self._stop.is_set():
            self._wake.clear()
            try:
                wait_s = self.turn()
            except Exception:
                # best effort: whatever it was, the instance goes on and the next evaluation looks
                self._tools.log.exception("a bug in the work on segments; no message is lost")
                wait_s = self._retention.every / 1_000
            if wait_s and not self._stop.is_set():
                self._wake.wait(wait_s)

    def begin(self) -> None:
        """Removes the unfinished copies of an earlier process, and ends its actions."""
        tools = self._tools
        for entry in tools.history.interrupted():
            if entry.action == "remove":
                self.following.adopt(entry)
            else:
                tools.history.add(replace(entry, result="failed", reason=INTERRUPTED))
        try:
            thrown = self._jobs.tidy()
        except (OSError, StorageError) as error:
            tools.log.warning("unfinished copies are not looked for: %s; they do no harm", error)
            return
        if thrown:
            entry = self.entry("tidy", "policy", "left over from an earlier run")
            reason = f"{thrown} files thrown away"
            tools.history.new(replace(entry, result="done", reason=reason))
            tools.log.info("%d unfinished copies thrown away; their segments are whole", thrown)

    def turn(self) -> float:
        """Does the next piece of work; how long (s) there is none, without a request."""
        now_ms = self._tools.clock.mono_ms()
        if self.following.anything and now_ms >= self._follow_ms:
            self._follow_ms = now_ms + FOLLOW_MS
            if self.following.look():
                self._rests.pop(("remove", 0), None)
                self._next_ms = 0  # there may be more to remove
        with self._lock:
            self._running = entry = self._hand.popleft() if self._hand else None
        if entry is not None:
            self._perform(entry)
        elif now_ms >= self._next_ms:
            self._evaluate(now_ms)
        elif self._plan:
            self._carry_out(self._plan.popleft())
        else:
            until_ms = self._next_ms
            if self.following.anything:
                until_ms = min(until_ms, self._follow_ms)
            return max(1, until_ms - now_ms) / 1_000
        return 0.0

    def _evaluate(self, now_ms: int) -> None:
        """Replaces the plan by what is due now."""
        tools = self._tools
        self._next_ms = now_ms + AGAIN_MS
        try:
            tools.leases.secure(tools.link)
            complete = self._jobs.summarize(tools.catalog, until=self._interrupts)
            holders = self.survey.holders()
            state = self.state(holders, self.survey.ages(holders))
        except ClientError:
            return  # the journal is starting; only it knows the readers
        except (OSError, StorageError) as error:
            tools.log.warning("the segments cannot be looked at: %s; nothing is changed", error)
            return
        # old segments come first, so a plan without the newest summaries is good enough
        self._next_ms = now_ms + (self._retention.every if complete else AGAIN_MS)
        serials = {0, *(segment.serial for segment in state.segments)}
        self._rests = {key: rest for key, rest in self._rests.items() if key[1] in serials}
        plan = retention.plan(state, self._retention)
        self._plan, self.blocked = deque(plan.decisions), plan.blocked

    def _interrupts(self) -> bool:
        """True if something comes before summaries."""
        return self._stop.is_set() or bool(self._hand)

    def _carry_out(self, decision: RetentionDecision) -> None:
        entry = self.entry(decision.action, "policy", decision.why)
        if decision.action == "remove":
            self._remove(entry, decision.serials[-1])
            return
        with self._lock:
            entry = replace(entry, serials=list(decision.serials), bytes=decision.bytes)
            self._running = entry = self._tools.history.new(entry)
        result = self._perform(entry)
        if result == "done" and not self._plan:
            self._next_ms = 0  # something more may be due now

    def _remove(self, entry: HistoryEntry, through: int) -> None:
        try:
            share = self._retention.remove_share_max
            started, removal = self.remove(entry, RemovalQuery(through), share)
        except (ClientError, StorageError):
            return  # the next evaluation asks again
        if started is None:
            self._tools.log.info("nothing is removed although it is due: %s", removal.blocked)
            self._rest("remove", 0, None)

    # -- one action ---------------------------------------------------------------------------

    def _perform(self, entry: HistoryEntry) -> str:
        """Archives or compresses, whatever comes of it; the result."""
        entry = replace(entry, result="running", progress=JobProgress(0, entry.bytes))
        begun = time.monotonic()
        try:
            self._tools.history.add(entry)
            result, reason = self._rewrite(entry)
        except Exception as error:
            self._end(entry, "failed", f"a bug: {error!r}", time.monotonic() - begun)
            raise
        finally:
            with self._lock:
                self._running = None
        self._end(entry, result, reason, time.monotonic() - begun)
        return result

    def _rewrite(self, entry: HistoryEntry) -> tuple[str, str]:
        """Every segment of it; one that fails does not keep the others from being done."""
        failed: list[str] = []
        refused = 0
        for number, serial in enumerate(entry.serials):
            key = (entry.action, serial)
            try:
                self._rewrite_one(entry, number)
                self._rests.pop(key, None)
            except JobStopped:
                return "failed", "the instance stops; finished or undone at its next start"
            except (ZBrokerError, OSError) as error:
                reason = error.reason if isinstance(error, ZBrokerError) else str(error)
                failed.append(f"segment {serial}: {reason}")
                code = getattr(error, "code", "")
                refused += code == "disk_full"
                if entry.by == "policy" and code not in ("not_ready", "not_found"):
                    self._rest(*key, Failure(entry.action, (serial,), reason))
        if not failed:
            return "done", ""
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return "refused" if refused == len(entry.serials) else "failed", failed[0] + more

    def _rewrite_one(self, entry: HistoryEntry, number: int) -> None:
        """One of its segments; progress takes them as equally large."""
        serial = entry.serials[number]
        with self._lock:
            if serial <= self._given_up:
                raise ClientError("not_found", "it is being removed")
        before = entry.bytes * number // len(entry.serials)

        def tell(done: int) -> None:
            self._tools.history.progress(entry.id, min(before + done, entry.bytes), entry.bytes)

        action: Rewrite = "archive" if entry.action == "archive" else "compress"
        self._jobs.rewrite(action, serial, tell)

    def _rest(self, action: str, serial: int, failure: Failure | None) -> None:
        before = self._rests.get((action, serial))
        failures = before.failures + 1 if before else 1
        wait_ms = retention.retry_ms(failures, self._retention.every)
        until_ms = self._tools.clock.mono_ms() + wait_ms
        self._rests[action, serial] = RetryPause(failures, until_ms, failure)

    def _end(self, entry: HistoryEntry, result: str, reason: str, took_s: float) -> None:
        tools = self._tools
        progress = (tools.history.get(entry.id) or entry).progress
        if result == "done":
            progress = JobProgress(progress.total, progress.total)
        entry = replace(
            entry, result=result, reason=reason, took_s=round(took_s, 3), progress=progress
        )
        tools.history.add(entry)
        level = logging.INFO if result == "done" else logging.WARNING
        tools.log.log(level, "%s", line_of(entry))


def line_of(entry: HistoryEntry) -> str:
    """The line of an action that ended: what happened, why, what it means."""
    which = f" of {words.serials(entry.serials)}" if entry.serials else ""
    took = f" in {entry.took_s:.1f} s" if entry.took_s else ""
    head = f"action {entry.id}: {entry.action}{which} ({entry.by}: {entry.why})"
    if entry.result == "done":
        return f"{head}: done, {words.size(entry.bytes)}{took}"
    retry = "tried again later" if entry.by == "policy" else "ask again"
    return f"{head}: {entry.result}: {entry.reason}; no message is lost by it, {retry}"
