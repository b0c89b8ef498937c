"""What is due by [retention] and why, and what a person's request means. Pure: values in and out.

    plan(state, settings)              what to do now, oldest first, each with its reason
    by_hand(action, state, wanted)     the segments of a request, and those left out, with reasons

Rules. The open segment is never touched, nor one that is being worked on or removed. What two
copies show to be half done is finished first, whatever the settings say now. What is removed now is
neither archived nor compressed before; removal comes first because it takes no work and makes room
(see removal).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from zbroker.admin import view as v
from zbroker.admin.removal import BlockedRemoval, removal
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
    first, blocked = removal(state, settings)
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
