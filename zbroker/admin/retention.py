"""The rules of [retention]: what is due now and why, and which segments a request selects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from zbroker.admin import view as v
from zbroker.admin import words
from zbroker.config import RetentionConfig

PLAN_MAX: Final = 64  # decisions of one evaluation; the next one finds the rest
RETRY_MAX_MS: Final = 3_600_000  # between two attempts of the policy at what fails


class RetentionPlan(NamedTuple):
    """The outcome of one evaluation."""

    decisions: list[v.RetentionDecision]
    blocked: BlockedRemoval | None = None


class SkippedSegment(NamedTuple):
    """A segment that a request leaves out."""

    serial: int
    reason: str


def plan(state: v.RetentionView, settings: RetentionConfig) -> RetentionPlan:
    """What to do now: removal first, then what is half done, archiving, compressing."""
    first, blocked = plan_removal(state, settings)
    going = frozenset(first.serials) if first else frozenset[int]()
    decisions = [first] if first else []
    decisions += _rewrites(state._replace(removing=state.removing | going), settings)
    return RetentionPlan(decisions[:PLAN_MAX], blocked)


# -- archiving and compressing --------------------------------------------------------------------


def _rewrites(state: v.RetentionView, settings: RetentionConfig) -> list[v.RetentionDecision]:
    """Half done ones first, then everything due to be archived, then to be compressed."""
    free = [s for s in state.sealed() if s.serial not in state.busy]
    half = [d for segment in free for d in _finish(segment)]
    rest = [segment for segment in free if segment.half_done() is None]
    archive = list(_to_archive(state, settings, rest))
    moved = {serial for decision in archive for serial in decision.serials}
    compress = _to_compress(state, settings, [s for s in rest if s.serial not in moved])
    found = [*half, *archive, *compress]
    return [d for d in found if (d.action, d.serials[0]) not in state.resting]


def _finish(segment: v.SegmentView) -> Iterator[v.RetentionDecision]:
    action = segment.half_done()
    if action:
        why = "it was interrupted: both copies are there"
        yield v.RetentionDecision(action, (segment.serial,), segment.size, why)


def _to_archive(
    state: v.RetentionView, settings: RetentionConfig, segments: list[v.SegmentView]
) -> Iterator[v.RetentionDecision]:
    if not settings.archive_after:
        return
    missing = v.missing_bytes(state, settings) if state.elsewhere else 0
    for segment in segments:
        if segment.archived:
            continue
        age = v.age_ms(state, segment)
        if age is not None and age >= settings.archive_after:
            why = v.aged(age, "archive_after", settings.archive_after)
        elif missing > 0:
            why = v.little_free(state, settings)
        else:
            return
        missing -= segment.bytes
        yield v.RetentionDecision("archive", (segment.serial,), segment.bytes, why)


def _to_compress(
    state: v.RetentionView, settings: RetentionConfig, segments: list[v.SegmentView]
) -> Iterator[v.RetentionDecision]:
    after = settings.compress_after
    for segment in segments if after else []:
        age = v.age_ms(state, segment)
        if age is None or age < after:
            return
        if not segment.packed:
            why = v.aged(age, "compress_after", after)
            yield v.RetentionDecision("compress", (segment.serial,), segment.bytes, why)


# -- by hand --------------------------------------------------------------------------------------


def by_hand(
    action: Literal["archive", "compress"],
    state: v.RetentionView,
    wanted: list[int] | None,
    through: int,
) -> tuple[list[v.SegmentView], list[SkippedSegment]]:
    """The segments of a request: `wanted`, or all up to `through`; and why others are left out."""
    known = {segment.serial: segment for segment in state.segments}
    if wanted is None:
        wanted = [serial for serial in known if serial <= through]
    taken: list[v.SegmentView] = []
    skipped: list[SkippedSegment] = []
    for serial in sorted(set(wanted)):
        reason = _why_skipped(action, state, known.get(serial))
        if reason:
            skipped.append(SkippedSegment(serial, reason))
        else:
            taken.append(known[serial])
    return taken, skipped


def _why_skipped(action: str, state: v.RetentionView, segment: v.SegmentView | None) -> str:
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
    state: v.RetentionView, settings: RetentionConfig
) -> tuple[v.RetentionDecision | None, BlockedRemoval | None]:
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
    return v.RetentionDecision("remove", serials, sum(s.bytes for s in within), due.why), blocked


def _asked(
    state: v.RetentionView, settings: RetentionConfig, segments: list[v.SegmentView]
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


def _by_age(state: v.RetentionView, after_ms: int, segments: list[v.SegmentView]) -> DueRemoval:
    due = DueRemoval(0, "")
    for count, segment in enumerate(segments, 1):
        age = v.age_ms(state, segment)
        if age is None or age < after_ms:
            break
        due = DueRemoval(count, v.aged(age, "remove_after", after_ms))
    return due


def _by_size(state: v.RetentionView, bytes_max: int, segments: list[v.SegmentView]) -> DueRemoval:
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
    state: v.RetentionView, settings: RetentionConfig, segments: list[v.SegmentView]
) -> DueRemoval:
    """Only what makes room on the journal's disk: the archive is not spent for it in vain.

    Where archiving moves segments to another disk, that is done instead (see actions).
    """
    if state.elsewhere and settings.archive_after:
        return DueRemoval(0, "")
    missing = v.missing_bytes(state, settings)
    count = 0
    while count < len(segments) and missing > 0 and (frees := v.here(state, segments[count])):
        missing -= frees
        count += 1
    return DueRemoval(count, v.little_free(state, settings))


def _only_elsewhere(
    state: v.RetentionView, settings: RetentionConfig, segments: list[v.SegmentView]
) -> BlockedRemoval | None:
    """Tells when removing the oldest would free nothing where space is missing."""
    missing = v.missing_bytes(state, settings)
    if missing <= 0 or settings.archive_after or not segments or v.here(state, segments[0]):
        return None
    why = (
        f"{v.little_free(state, settings)}; the oldest segments are in the archive on another "
        "disk, so removing them would free nothing here"
    )
    return BlockedRemoval("elsewhere", missing, why)


def _allowed(state: v.RetentionView, wanted: list[v.SegmentView]) -> list[v.SegmentView]:
    """As many of the oldest as nobody needs any more and a newer state snapshot covers."""
    if state.silent:
        return []
    for index, segment in enumerate(wanted):
        needed = segment.end is None or segment.end > state.held_from
        if needed or segment.serial >= state.stated or segment.serial in state.busy:
            return wanted[:index]
    return wanted


def _within_share(allowed: list[v.SegmentView], bytes_max: int) -> list[v.SegmentView]:
    taken = 0
    for index, segment in enumerate(allowed):
        taken += segment.bytes
        if taken > bytes_max:
            return allowed[:index]
    return allowed


def _why_not_more(
    state: v.RetentionView,
    settings: RetentionConfig,
    wanted: list[v.SegmentView],
    allowed: list[v.SegmentView],
    within: list[v.SegmentView],
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


def _waiting(state: v.RetentionView) -> BlockedRemoval | None:
    """Who keeps files that were given up from going."""
    rest = [segment for segment in state.segments if segment.serial in state.removing]
    if not rest or not (state.silent or rest[0].end is None or rest[0].end > state.held_from):
        return None
    return _held(state, rest)


def _held(state: v.RetentionView, rest: list[v.SegmentView]) -> BlockedRemoval:
    who = ", ".join(state.holders) or "a reader that the journal did not name"
    if state.silent:
        who = f"{', '.join(state.silent)} (did not say yet what it needs)"
    what = words.serials([segment.serial for segment in rest])
    total, end = sum(segment.bytes for segment in rest), rest[-1].end
    queues = [name for position, name in state.queues if end is None or position < end]
    return BlockedRemoval("held", total, f"{what}: needed by {who}", tuple(queues))
