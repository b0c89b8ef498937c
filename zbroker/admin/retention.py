"""The rules of [retention]: what is due now and why, and which segments a request selects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from zbroker.admin import words
from zbroker.config import RetentionConfig
from zbroker.limits import U63_MAX

PLAN_MAX: Final = 64  # decisions of one evaluation; the next one finds the rest
RETRY_MAX_MS: Final = 3_600_000  # between two attempts of the policy at what fails


class RetentionPlan(NamedTuple):
    """The outcome of one evaluation."""

    decisions: list[RetentionDecision]
    blocked: BlockedRemoval | None = None


class SkippedSegment(NamedTuple):
    """A segment that a request leaves out."""

    serial: int
    reason: str


def plan(state: RetentionView, settings: RetentionConfig) -> RetentionPlan:
    """What to do now: removal first, then what is half done, archiving, compressing."""
    first, blocked = plan_removal(state, settings)
    going = frozenset(first.serials) if first else frozenset[int]()
    decisions = [first] if first else []
    decisions += _rewrites(state._replace(removing=state.removing | going), settings)
    return RetentionPlan(decisions[:PLAN_MAX], blocked)


# -- archiving and compressing --------------------------------------------------------------------


def _rewrites(state: RetentionView, settings: RetentionConfig) -> list[RetentionDecision]:
    """Half done ones first, then everything due to be archived, then to be compressed."""
    free = [s for s in state.sealed() if s.serial not in state.busy]
    half = [d for segment in free for d in _finish(segment)]
    rest = [segment for segment in free if segment.half_done() is None]
    archive = list(_to_archive(state, settings, rest))
    moved = {serial for decision in archive for serial in decision.serials}
    compress = _to_compress(state, settings, [s for s in rest if s.serial not in moved])
    found = [*half, *archive, *compress]
    return [d for d in found if (d.action, d.serials[0]) not in state.resting]


def _finish(segment: SegmentView) -> Iterator[RetentionDecision]:
    action = segment.half_done()
    if action:
        why = "it was interrupted: both copies are there"
        yield RetentionDecision(action, (segment.serial,), segment.size, why)


def _to_archive(
    state: RetentionView, settings: RetentionConfig, segments: list[SegmentView]
) -> Iterator[RetentionDecision]:
    if not settings.archive_after:
        return
    missing = missing_bytes(state, settings) if state.elsewhere else 0
    for segment in segments:
        if segment.archived:
            continue
        age = age_ms(state, segment)
        if age is not None and age >= settings.archive_after:
            why = aged(age, "archive_after", settings.archive_after)
        elif missing > 0:
            why = little_free(state, settings)
        else:
            return
        missing -= segment.bytes
        yield RetentionDecision("archive", (segment.serial,), segment.bytes, why)


def _to_compress(
    state: RetentionView, settings: RetentionConfig, segments: list[SegmentView]
) -> Iterator[RetentionDecision]:
    after = settings.compress_after
    for segment in segments if after else []:
        age = age_ms(state, segment)
        if age is None or age < after:
            return
        if not segment.packed:
            why = aged(age, "compress_after", after)
            yield RetentionDecision("compress", (segment.serial,), segment.bytes, why)


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


class BlockedRemoval(NamedTuple):
    """Removal that the settings ask for and that does not happen.

    queues: those that need some of it. A reader goes on by itself, a queue that nobody takes from
    does not.
    """

    code: Literal["held", "share", "stated", "elsewhere"]
    bytes: int
    why: str
    queues: tuple[str, ...] = ()


class DueRemoval(NamedTuple):
    """So many of the oldest segments, and why."""

    number: int
    why: str


def plan_removal(
    state: RetentionView, settings: RetentionConfig
) -> tuple[RetentionDecision | None, BlockedRemoval | None]:
    """At most one decision; none while an earlier removal waits for readers."""
    segments = state.sealed()
    due = max(_asked(state, settings, segments), key=lambda found: found.number)
    if not due.number:
        return None, _waiting(state) or _only_elsewhere(state, settings, segments)
    wanted = segments[: due.number]
    if state.removing:
        return None, _waiting(state)
    allowed = _allowed(state, wanted)
    total = sum(segment.bytes for segment in state.segments)
    within = _within_share(allowed, total * settings.remove_share_max // 100)
    blocked = _why_not_more(state, settings, wanted, allowed, within)
    if not within or ("remove", 0) in state.resting:
        return None, blocked
    serials = tuple(segment.serial for segment in within)
    return RetentionDecision("remove", serials, sum(s.bytes for s in within), due.why), blocked


def _asked(
    state: RetentionView, settings: RetentionConfig, segments: list[SegmentView]
) -> list[DueRemoval]:
    """How much each setting asks for."""
    found = [DueRemoval(0, "")]
    if settings.remove_after:
        found.append(_by_age(state, settings.remove_after, segments))
    if settings.max_bytes:
        found.append(_by_size(state, settings.max_bytes, segments))
    if settings.min_free:
        found.append(_by_free(state, settings, segments))
    return found


def _by_age(state: RetentionView, after_ms: int, segments: list[SegmentView]) -> DueRemoval:
    due = DueRemoval(0, "")
    for count, segment in enumerate(segments, 1):
        age = age_ms(state, segment)
        if age is None or age < after_ms:
            break
        due = DueRemoval(count, aged(age, "remove_after", after_ms))
    return due


def _by_size(state: RetentionView, bytes_max: int, segments: list[SegmentView]) -> DueRemoval:
    going = sum(s.bytes for s in state.segments if s.serial in state.removing)
    total = left = sum(segment.bytes for segment in state.segments) - going
    count = 0
    while count < len(segments) and left > bytes_max:
        left -= segments[count].bytes
        count += 1
    return DueRemoval(
        count, f"the log has {words.size(total)}, max_bytes is {words.size(bytes_max)}"
    )


def _by_free(
    state: RetentionView, settings: RetentionConfig, segments: list[SegmentView]
) -> DueRemoval:
    """Only what makes room on the journal's disk: the archive is not spent for it in vain.

    Where archiving moves segments to another disk, that is done instead (see actions).
    """
    if state.elsewhere and settings.archive_after:
        return DueRemoval(0, "")
    missing = missing_bytes(state, settings)
    count = 0
    while count < len(segments) and missing > 0 and (frees := here(state, segments[count])):
        missing -= frees
        count += 1
    return DueRemoval(count, little_free(state, settings))


def _only_elsewhere(
    state: RetentionView, settings: RetentionConfig, segments: list[SegmentView]
) -> BlockedRemoval | None:
    """Tells when removing the oldest would free nothing where space is missing."""
    missing = missing_bytes(state, settings)
    if missing <= 0 or settings.archive_after or not segments or here(state, segments[0]):
        return None
    why = (
        f"{little_free(state, settings)}; the oldest segments are in the archive on another "
        "disk, so removing them would free nothing here"
    )
    return BlockedRemoval("elsewhere", missing, why)


def _allowed(state: RetentionView, wanted: list[SegmentView]) -> list[SegmentView]:
    """As many of the oldest as nobody needs any more and a newer state snapshot covers."""
    if state.silent:
        return []
    for index, segment in enumerate(wanted):
        needed = segment.end is None or segment.end > state.held_from
        if needed or segment.serial >= state.stated or segment.serial in state.busy:
            return wanted[:index]
    return wanted


def _within_share(allowed: list[SegmentView], bytes_max: int) -> list[SegmentView]:
    taken = 0
    for index, segment in enumerate(allowed):
        taken += segment.bytes
        if taken > bytes_max:
            return allowed[:index]
    return allowed


def _why_not_more(
    state: RetentionView,
    settings: RetentionConfig,
    wanted: list[SegmentView],
    allowed: list[SegmentView],
    within: list[SegmentView],
) -> BlockedRemoval | None:
    """What stops the removal; None where it only waits for a moment."""
    if len(within) < len(allowed):
        oldest, share = allowed[len(within)], settings.remove_share_max
        why = f"more than {share} % of the log would go at once (remove_share_max)"
        return None if within else BlockedRemoval("share", oldest.bytes, why)
    rest = wanted[len(allowed) :]
    if not rest:
        return None
    if state.silent or rest[0].end is None or rest[0].end > state.held_from:
        return _held(state, rest)
    if rest[0].serial >= state.stated:
        why = f"no complete state snapshot stands behind segment {rest[0].serial} yet"
        return BlockedRemoval("stated", sum(segment.bytes for segment in rest), why)
    return None


def _waiting(state: RetentionView) -> BlockedRemoval | None:
    """Who keeps files that were given up from going."""
    rest = [segment for segment in state.segments if segment.serial in state.removing]
    if not rest or not (state.silent or rest[0].end is None or rest[0].end > state.held_from):
        return None
    return _held(state, rest)


def _held(state: RetentionView, rest: list[SegmentView]) -> BlockedRemoval:
    who = ", ".join(state.holders) or "a reader that the journal did not name"
    if state.silent:
        who = f"{', '.join(state.silent)} (did not say yet what it needs)"
    what = words.serials([segment.serial for segment in rest])
    total, end = sum(segment.bytes for segment in rest), rest[-1].end
    queues = [name for position, name in state.queues if end is None or position < end]
    return BlockedRemoval("held", total, f"{what}: needed by {who}", tuple(queues))


CLOCK_PACE: Final = 2  # the clock of ages goes at most this much faster than time does


class Copy(NamedTuple):
    """One file of a segment."""

    archived: bool
    packed: bool
    bytes: int


class SegmentView(NamedTuple):
    """What the policy knows of a segment; the open one is the newest.

    end: position behind it. last_time: log time of its last message, ns; None where nobody knows.
    size: bytes of the segment file when it is not compressed.
    """

    serial: int
    copies: tuple[Copy, ...]
    size: int
    end: int | None
    last_time: int | None

    @property
    def bytes(self) -> int:
        """Of all its files."""
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
        """What left two copies behind."""
        if not self.packed and any(copy.packed for copy in self.copies):
            return "compress"
        if not self.archived and any(copy.archived for copy in self.copies):
            return "archive"
        return None


class RetentionView(NamedTuple):
    """Everything that decides.

    segments: oldest first, the open one last. now_ns: for ages. stated: the newest segment with a
    state snapshot. held_from: the lowest position that somebody needs, `holders` name them;
    queues: what each queue needs, (position, name), the lowest first; silent: rooms that did not
    say what they need. removing: go as soon as nobody needs them. busy: being worked on, or waiting
    for it. resting: failed not long ago, by action and serial (0 for a removal). free_bytes: of the
    journal's disk. elsewhere: the archive directory is on another disk.
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

    def sealed(self) -> list[SegmentView]:
        """Those that may be touched at all, oldest first."""
        return [s for s in self.segments[:-1] if s.serial not in self.removing]


class RetentionDecision(NamedTuple):
    """Do this now. bytes: of the files that are read or removed."""

    action: Literal["archive", "compress", "remove"]
    serials: tuple[int, ...]
    bytes: int
    why: str


def age_ms(state: RetentionView, segment: SegmentView) -> int | None:
    """How long ago its last message was; None where nobody knows."""
    if segment.last_time is None:
        return None
    return max(0, (state.now_ns - segment.last_time) // 1_000_000)


def bounded_ages(segments: list[SegmentView]) -> tuple[SegmentView, ...]:
    """Unknown ends and last times replaced by what newer segments prove: not behind their own.

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


def here(state: RetentionView, segment: SegmentView) -> int:
    """Bytes of a segment on the journal's disk."""
    return sum(c.bytes for c in segment.copies if not (c.archived and state.elsewhere))


def missing_bytes(state: RetentionView, settings: RetentionConfig) -> int:
    """What the journal's disk lacks, when everything that is being removed is gone."""
    going = sum(here(state, s) for s in state.segments if s.serial in state.removing)
    return settings.min_free - state.free_bytes - going if settings.min_free else 0


def aged(age: int, setting: str, limit_ms: int) -> str:
    """The reason for a segment of age `age` (ms)."""
    old, limit = words.duration(age), words.duration(limit_ms)
    return f"the last message is {old} old, {setting} is {limit}"


def little_free(state: RetentionView, settings: RetentionConfig) -> str:
    """The reason where space is missing."""
    free, wanted = words.size(state.free_bytes), words.size(settings.min_free)
    return f"{free} of the journal's disk are free, min_free is {wanted}"
