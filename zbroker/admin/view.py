"""What the policy sees: segments with their copies, who needs them, disks, ages. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from zbroker.admin import words
from zbroker.config import RetentionConfig
from zbroker.limits import U63_MAX

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
