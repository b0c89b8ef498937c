"""Who still needs which part of the log, and which segments may go. Pure.

    kept --plan, raise_to--> going --all readers beyond it--> due --gone--> forgotten

The floor is the oldest position that is served. It is raised first; the files go when every
registered reader has said that it knows this floor (so it opens nothing below any more) and that no
cursor of its own stands below. Silence means: holds everything. A reader is silent again when it
says Hello: another process may have other cursors.

A lease stands for somebody without a cursor: an export, a backup, a job. It ends by itself, it
keeps the floor from being raised past it, and none is given below the floor. Leases are forgotten
with this process; whoever asks for removals says its leases first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.wire.internal import Holding, Holds

LEASES_MAX: Final = 1_000  # one who leases per message instead of per job shall notice
_QUEUES: Final = "queues"  # who reads for queues, and names each of them


class Kept(NamedTuple):
    """A segment with positions [first, end); `bytes` of all its copies."""

    serial: int
    first: int
    end: int
    bytes: int


class RemovalPlan(NamedTuple):
    """What may be removed: `segments`, oldest first; the floor behind them; why not more."""

    segments: list[Kept]
    floor: int
    blocked: str = ""
    held_by: Sequence[Holding] = ()


class RemovalLimits(NamedTuple):
    """How far a removal may go.

    stated: serial of the newest complete state snapshot; open: serial of the open segment.
    share_max: percent of the log's bytes. without: this queue counts as one that needs nothing, for
    who asks what a purge of it would make removable.
    """

    through: int
    stated: int
    open: int
    share_max: int = 100
    without: str = ""


class LogStart:
    """The floor of one log, who holds it down, and what is going.

    readers: rooms with cursors; nothing goes before all of them have spoken.
    """

    def __init__(self, position: int, readers: Iterable[str]) -> None:
        self.position = position
        self._readers: dict[str, Holds | None] = dict.fromkeys(readers)
        self._leases: dict[str, tuple[Holding, int]] = {}  # by who: until when, monotonic ms
        self._going: deque[Kept] = deque()

    # -- who needs what -----------------------------------------------------------------------

    @property
    def readers(self) -> Collection[str]:
        """The rooms that are waited for."""
        return self._readers.keys()

    def hello(self, room: str) -> None:
        """A room begins anew: what its last process said is void."""
        if room in self._readers:
            self._readers[room] = None

    def heard(self, room: str, holds: Holds) -> None:
        """A reader says what it needs."""
        if room in self._readers:
            self._readers[room] = holds

    @property
    def eager(self) -> bool:
        """True if a reader wants to hear what is written before it is durable."""
        return any(holds is not None and holds.eager for holds in self._readers.values())

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
        """Readers that did not say yet what they need at this floor."""
        return [
            room
            for room, holds in self._readers.items()
            if holds is None or holds.floor < self.position
        ]

    @property
    def holdings(self) -> list[Holding]:
        """Everything that is needed, the lowest first."""
        found = [holding for holding, _ in self._leases.values()]
        for room, holds in self._readers.items():
            if holds is not None:
                found += holds.holdings or _unnamed(room, holds)
        return sorted(found, key=lambda holding: (holding.position, holding.who))

    def _lowest(self, without: str) -> int:
        """Positions below it are needed by nobody who has spoken, but for this queue."""
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
        for one in segments:
            if one.serial > limits.through:
                break
            allowed -= one.bytes
            blocked = self._blocked(one, limits, lowest, allowed)
            if blocked:
                held_by = self._held_by(one, limits.without) if one.end > lowest else []
                break
            chosen.append(one)
        floor = chosen[-1].end if chosen else self.position
        return RemovalPlan(chosen, floor, blocked, held_by)

    def _blocked(self, one: Kept, limits: RemovalLimits, lowest: int, allowed: int) -> str:
        if one.serial >= limits.open:
            return f"segment {one.serial} is the open one"
        if one.serial >= limits.stated:
            return f"no complete state snapshot stands behind segment {one.serial} yet"
        if unheard := [room for room, holds in self._readers.items() if holds is None]:
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
        """The floor stands behind the plan's segments from now on, and they are going."""
        assert plan.floor >= self.position, "a floor never falls"
        self.position = plan.floor
        self._going += plan.segments

    @property
    def going(self) -> list[int]:
        """Serials of segments that are below the floor and not gone yet."""
        return [one.serial for one in self._going]

    def due(self) -> list[int]:
        """Serials that nobody needs any more, oldest first."""
        passed = min(
            (min(holds.floor, holds.lowest) if holds else 0 for holds in self._readers.values()),
            default=U63_MAX,
        )
        return [one.serial for one in self._going if one.end <= passed]

    def gone(self, through: int) -> None:
        """The files of these segments are no more."""
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


def _unnamed(room: str, holds: Holds) -> list[Holding]:
    """A reader that needs something and does not say who it is for."""
    return [Holding(room, "", holds.lowest, 0)] if holds.lowest < U63_MAX else []
