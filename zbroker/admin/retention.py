"""The rules of [retention]: due actions and their reasons, and the segments of a request. Pure.

    plan(state, settings)              what to do now, oldest first, each with its reason
    by_hand(action, state, wanted)     the segments of a request, and those left out, with reasons

The open segment is never touched, nor one that is being worked on or removed. An action that was
interrupted left two copies; it is finished first, whatever the settings say now. Removal comes
next, because it takes no work and makes room; a segment that is removed now is neither archived nor
compressed before.

Removal takes a stretch from the oldest segment on. It stops at the first one that a reader needs,
that no newer state snapshot covers, that is being worked on, or that would make it more than
`remove_share_max` of the log. The journal, which removes, checks all of that again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final, Literal, NamedTuple

from zbroker.admin import words
from zbroker.config import RetentionConfig
from zbroker.limits import U63_MAX

PLAN_MAX: Final = 64  # decisions of one evaluation; the next one finds the rest
RETRY_MAX_MS: Final = 3_600_000  # between two attempts of the policy at a failing action
CLOCK_PACE: Final = 2  # the clock of ages goes at most this much faster than time does


class Copy(NamedTuple):
    """One file of a segment."""

    archived: bool
    packed: bool
    bytes: int


class SegmentView(NamedTuple):
    """A segment; the open one is the newest, and has no known end or times.

    copies: the best one first. size: bytes of the segment file when it is not compressed. first,
    end: its first position, and the one after it. first_time, last_time: log times, ns. All of
    these are None if they are not known. summarized: everything that can be known of it is.
    """

    serial: int
    copies: tuple[Copy, ...]
    size: int
    end: int | None = None
    last_time: int | None = None
    first: int | None = None
    first_time: int | None = None
    is_open: bool = False
    summarized: bool = False

    @property
    def bytes(self) -> int:
        """The size of all its files."""
        return sum(copy.bytes for copy in self.copies)

    @property
    def archived(self) -> bool:
        """No copy is left in the journal directory."""
        return all(copy.archived for copy in self.copies)

    @property
    def packed(self) -> bool:
        """No raw copy is left."""
        return all(copy.packed for copy in self.copies)

    def half_done(self) -> Literal["archive", "compress"] | None:
        """The action that was interrupted and left two copies."""
        if not self.packed and any(copy.packed for copy in self.copies):
            return "compress"
        if not self.archived and any(copy.archived for copy in self.copies):
            return "archive"
        return None


class RetentionView(NamedTuple):
    """Everything that decides.

    segments: oldest first, the open one last. now_ns: for ages. stated: the newest segment with a
    state snapshot. held_from: the lowest position that a reader needs; holders: names of readers;
    queues: what each queue needs, (position, name), the lowest first; silent: processes that did
    not say what they need. removing: go as soon as no reader needs them. busy: being worked on, or
    waiting for it. resting: failed not long ago, by action and serial (0 for a removal).
    free_bytes: of the journal's disk. elsewhere: the archive directory is on another disk.
    """

    segments: tuple[SegmentView, ...]
    now_ns: int
    stated: int
    free_bytes: int
    held_from: int = U63_MAX
    holders: tuple[str, ...] = ()
    queues: tuple[tuple[int, str], ...] = ()
    silent: tuple[str, ...] = ()
    removing: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset()
    resting: frozenset[tuple[str, int]] = frozenset()
    elsewhere: bool = False

    @property
    def log_bytes(self) -> int:
        """The size of the whole log."""
        return _bytes_of(self.segments)

    def sealed(self) -> list[SegmentView]:
        """Those that may be touched at all, oldest first."""
        return [s for s in self.segments[:-1] if s.serial not in self.removing]


class RetentionDecision(NamedTuple):
    """Do this now. bytes: of the files that are read or removed."""

    action: Literal["archive", "compress", "remove"]
    serials: tuple[int, ...]
    bytes: int
    why: str


class BlockedRemoval(NamedTuple):
    """Removal that the settings ask for and that does not happen.

    queues: those that need some of it. A reader goes on by itself, a queue without consumers does
    not.
    """

    code: Literal["held", "share", "stated", "elsewhere"]
    bytes: int
    why: str
    queues: tuple[str, ...] = ()


class RetentionPlan(NamedTuple):
    """The outcome of one evaluation."""

    decisions: list[RetentionDecision]
    blocked: BlockedRemoval | None = None


class SkippedSegment(NamedTuple):
    """A segment that a request leaves out."""

    serial: int
    reason: str


Due = tuple[int, str]  # so many of the oldest segments, and why
_NOTHING: Final[Due] = (0, "")


def plan(state: RetentionView, settings: RetentionConfig) -> RetentionPlan:
    """What to do now: removal first, then interrupted actions, archiving, compressing."""
    first, blocked = plan_removal(state, settings)
    if first is not None:
        state = state._replace(removing=state.removing | frozenset(first.serials))
    rest = _Rewrites(state, settings).decisions()
    decisions = [*([first] if first else []), *rest]
    return RetentionPlan(decisions[:PLAN_MAX], blocked)


def plan_removal(
    state: RetentionView, settings: RetentionConfig
) -> tuple[RetentionDecision | None, BlockedRemoval | None]:
    """At most one decision; none while an earlier removal waits for readers."""
    return _Removal(state, settings).decide()


def age_ms(state: RetentionView, segment: SegmentView) -> int | None:
    """How long ago its last message was; None if it is not known."""
    if segment.last_time is None:
        return None
    return max(0, (state.now_ns - segment.last_time) // 1_000_000)


class _Rules:
    """A state and the settings that are applied to it."""

    def __init__(self, state: RetentionView, settings: RetentionConfig) -> None:
        self._state = state
        self._settings = settings
        self._sealed = state.sealed()

    def _reached(self, segment: SegmentView, setting: str) -> str:
        """Why a segment is old enough for a setting, "" if it is not."""
        limit: int = getattr(self._settings, setting)
        age = age_ms(self._state, segment) if limit else None
        if age is None or age < limit:
            return ""
        old, allowed = words.duration(age), words.duration(limit)
        return f"the last message is {old} old, {setting} is {allowed}"

    def _here(self, segment: SegmentView) -> int:
        """Bytes of a segment on the journal's disk."""
        elsewhere = self._state.elsewhere
        return sum(c.bytes for c in segment.copies if not (c.archived and elsewhere))

    def _missing(self) -> int:
        """Bytes that the journal's disk lacks once everything that is being removed is gone."""
        if not self._settings.min_free:
            return 0
        removing = self._state.removing
        going = sum(self._here(s) for s in self._state.segments if s.serial in removing)
        return self._settings.min_free - self._state.free_bytes - going

    def _little_free(self) -> str:
        free, wanted = words.size(self._state.free_bytes), words.size(self._settings.min_free)
        return f"{free} of the journal's disk are free, min_free is {wanted}"


# -- archiving and compressing --------------------------------------------------------------------


class _Rewrites(_Rules):
    """Interrupted actions, then everything due to be archived, then to be compressed."""

    def decisions(self) -> list[RetentionDecision]:
        free = [s for s in self._sealed if s.serial not in self._state.busy]
        half = [
            RetentionDecision(
                action, (s.serial,), s.size, "it was interrupted: both copies are there"
            )
            for s in free
            if (action := s.half_done())
        ]
        rest = [s for s in free if s.half_done() is None]
        archive = list(self._to_archive(rest))
        moved = {serial for decision in archive for serial in decision.serials}
        compress = self._to_compress([s for s in rest if s.serial not in moved])
        found = [*half, *archive, *compress]
        return [d for d in found if (d.action, d.serials[0]) not in self._state.resting]

    def _to_archive(self, segments: list[SegmentView]) -> Iterator[RetentionDecision]:
        if not self._settings.archive_after:
            return
        missing = self._missing() if self._state.elsewhere else 0
        for segment in segments:
            if segment.archived:
                continue
            why = self._reached(segment, "archive_after")
            if not why and missing <= 0:
                return
            missing -= segment.bytes
            why = why or self._little_free()
            yield RetentionDecision("archive", (segment.serial,), segment.bytes, why)

    def _to_compress(self, segments: list[SegmentView]) -> Iterator[RetentionDecision]:
        for segment in segments:
            why = self._reached(segment, "compress_after")
            if not why:
                return
            if not segment.packed:
                yield RetentionDecision("compress", (segment.serial,), segment.bytes, why)


# -- removing -------------------------------------------------------------------------------------


class _Removal(_Rules):
    """How much the settings ask for, and what stops it."""

    def decide(self) -> tuple[RetentionDecision | None, BlockedRemoval | None]:
        state = self._state
        number, why = max(self._by_age(), self._by_size(), self._by_free(), key=itemgetter(0))
        if not number:
            return None, self._waiting() or self._only_elsewhere()
        if state.removing:
            return None, self._waiting()
        wanted = self._sealed[:number]
        allowed = self._allowed(wanted)
        within = _within(allowed, state.log_bytes * self._settings.remove_share_max // 100)
        blocked = self._why_not_more(wanted, allowed, within)
        if not within or ("remove", 0) in state.resting:
            return None, blocked
        serials = tuple(segment.serial for segment in within)
        return RetentionDecision("remove", serials, _bytes_of(within), why), blocked

    def _by_age(self) -> Due:
        due = _NOTHING
        for count, segment in enumerate(self._sealed, 1):
            why = self._reached(segment, "remove_after")
            if not why:
                break
            due = count, why
        return due

    def _by_size(self) -> Due:
        bytes_max, state = self._settings.max_bytes, self._state
        if not bytes_max:
            return _NOTHING
        total = left = _bytes_of([s for s in state.segments if s.serial not in state.removing])
        count = 0
        while count < len(self._sealed) and left > bytes_max:
            left -= self._sealed[count].bytes
            count += 1
        why = f"the log has {words.size(total)}, max_bytes is {words.size(bytes_max)}"
        return count, why

    def _by_free(self) -> Due:
        """Only segments on the journal's disk: removing others would not make room there.

        If archiving moves segments to another disk, that is done instead.
        """
        if self._state.elsewhere and self._settings.archive_after:
            return _NOTHING
        missing, count = self._missing(), 0
        for segment in self._sealed:
            frees = self._here(segment)
            if missing <= 0 or not frees:
                break
            missing -= frees
            count += 1
        return count, self._little_free()

    def _only_elsewhere(self) -> BlockedRemoval | None:
        """Says that removing the oldest would free nothing where space is missing."""
        missing, oldest = self._missing(), self._sealed[:1]
        if missing <= 0 or self._settings.archive_after or not oldest or self._here(oldest[0]):
            return None
        why = (
            f"{self._little_free()}; the oldest segments are in the archive on another disk, so "
            "removing them would free nothing here"
        )
        return BlockedRemoval("elsewhere", missing, why)

    def _allowed(self, wanted: list[SegmentView]) -> list[SegmentView]:
        """The oldest segments that no reader needs and that a newer state snapshot covers."""
        state = self._state
        for index, segment in enumerate(wanted):
            covered = segment.serial < state.stated and segment.serial not in state.busy
            if self._is_needed(segment) or not covered:
                return wanted[:index]
        return wanted

    def _is_needed(self, segment: SegmentView) -> bool:
        state = self._state
        return bool(state.silent) or segment.end is None or segment.end > state.held_from

    def _why_not_more(
        self, wanted: list[SegmentView], allowed: list[SegmentView], within: list[SegmentView]
    ) -> BlockedRemoval | None:
        """What stops the removal; None if it only waits for a moment."""
        if len(within) < len(allowed):
            oldest, share = allowed[len(within)], self._settings.remove_share_max
            why = f"more than {share} % of the log would go at once (remove_share_max)"
            return None if within else BlockedRemoval("share", oldest.bytes, why)
        rest = wanted[len(allowed) :]
        if not rest:
            return None
        if self._is_needed(rest[0]):
            return self._held(rest)
        if rest[0].serial >= self._state.stated:
            why = f"no complete state snapshot follows segment {rest[0].serial} yet"
            return BlockedRemoval("stated", _bytes_of(rest), why)
        return None

    def _waiting(self) -> BlockedRemoval | None:
        """The readers of files that were given up."""
        rest = [s for s in self._state.segments if s.serial in self._state.removing]
        return self._held(rest) if rest and self._is_needed(rest[0]) else None

    def _held(self, rest: list[SegmentView]) -> BlockedRemoval:
        state, end = self._state, rest[-1].end
        who = ", ".join(state.holders) or "a reader that the journal did not name"
        if state.silent:
            who = f"{', '.join(state.silent)} (did not say yet what it needs)"
        why = f"{words.serials([segment.serial for segment in rest])}: needed by {who}"
        queues = [name for position, name in state.queues if end is None or position < end]
        return BlockedRemoval("held", _bytes_of(rest), why, tuple(queues))


def _within(allowed: list[SegmentView], bytes_max: int) -> list[SegmentView]:
    """As many of the oldest as have at most `bytes_max`."""
    taken = 0
    for index, segment in enumerate(allowed):
        taken += segment.bytes
        if taken > bytes_max:
            return allowed[:index]
    return allowed


def _bytes_of(segments: Iterable[SegmentView]) -> int:
    return sum(segment.bytes for segment in segments)


# -- by hand --------------------------------------------------------------------------------------


def by_hand(
    action: Literal["archive", "compress"],
    state: RetentionView,
    wanted: list[int] | None,
    through: int,
) -> tuple[list[SegmentView], list[SkippedSegment]]:
    """The segments of a request: `wanted`, or all up to `through`; and why others are left out."""
    known = {segment.serial: segment for segment in state.segments}
    if wanted is None:
        wanted = [serial for serial in known if serial <= through]
    taken: list[SegmentView] = []
    skipped: list[SkippedSegment] = []
    for serial in sorted(set(wanted)):
        reason = _why_skipped(action, state, known.get(serial))
        if reason:
            skipped.append(SkippedSegment(serial, reason))
        else:
            taken.append(known[serial])
    return taken, skipped


def _why_skipped(action: str, state: RetentionView, segment: SegmentView | None) -> str:
    if segment is None:
        return "there is no such segment"
    if segment.serial == state.segments[-1].serial:
        return "it is the open one, which is written to"
    if segment.serial in state.removing:
        return "it is being removed"
    if segment.serial in state.busy:
        return "it is being worked on"
    if action == "archive" and segment.archived:
        return "it is in the archive directory"
    if action == "compress" and segment.packed:
        return "it is compressed"
    return ""


def retry_ms(failures: int, every_ms: int) -> int:
    """How long the policy leaves alone what failed so often."""
    return min(every_ms << min(failures, 10), max(every_ms, RETRY_MAX_MS))


# -- ages -----------------------------------------------------------------------------------------


def bounded_ages(segments: list[SegmentView]) -> tuple[SegmentView, ...]:
    """Unknown ends and last times replaced by bounds that newer segments prove: their own.

    A damaged segment would else hold back everything for ever.
    """
    out: list[SegmentView] = []
    end: int | None = None
    last_time: int | None = None
    for segment in reversed(segments):
        known = segment._replace(
            end=end if segment.end is None else segment.end,
            last_time=last_time if segment.last_time is None else segment.last_time,
        )
        end, last_time = known.end, known.last_time
        out.append(known)
    return tuple(reversed(out))


def clock_of_ages(previous_ns: int, elapsed_ns: int, wall_ns: int) -> int:
    """The time that ages are counted with: a clock that jumps ahead is followed slowly.

    Else one wrong date would make everything old at once, and what is removed does not come back.
    previous_ns: what this gave last, 0 at first. elapsed_ns: since then, of a clock without jumps.
    """
    if not previous_ns:
        return wall_ns
    return min(wall_ns, previous_ns + elapsed_ns * CLOCK_PACE)
