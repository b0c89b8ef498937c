"""Do several instances hold the same messages of each origin? Compares digests of their logs.

    read each log once, in ranges   origin by origin: how far each instance holds it
    one range differs               it is read again in smaller ones, down to the first message

Positions of an origin mean the same everywhere. They are compared from the first one that all logs
still have up to the last one that all have; what an instance lacks after that is lag. Only what was
durable when the comparison began is looked at. An answer can be wrong, or of another instance by
now: each is checked, and a digest is believed for what it is, the word of that instance.

Memory: at most RANGES_MAX ranges of each instance, however long its log is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from zbroker.errors import ZBrokerError
from zbroker.limits import U63_MAX

Ask = Callable[[str], Mapping[str, Any]]  # what an admin answers to GET of this path
Step = Callable[[str, int, int], None]  # the step, the amount done, the whole amount

PATH: Final = "/replication/digests"
RANGES: Final = 4_096  # that the longest log is read in, at most so many of each origin more
RANGES_MAX: Final = 200_000
SIZE_MIN: Final = 1_024
NARROWED: Final = 256  # ranges that a range is read again in
DAMAGED_MAX: Final = 1_000

Position = Annotated[int, Meta(ge=0, le=U63_MAX)]
Origin = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\.[0-9]{1,10}$")]


class LogPlace(Struct, frozen=True):
    """A place in the log of an instance."""

    serial: Position
    offset: Position
    position: Position


class ComparedMessage(Struct, frozen=True):
    """A message as one instance has it; position: in its own log."""

    publisher: str
    sequence: int
    crc: int
    tie: bool
    position: Position

    @property
    def content(self) -> tuple[str, int, int]:
        """What must be the same everywhere."""
        return self.publisher, self.sequence, self.crc


class OriginRange(Struct, frozen=True):
    """What an instance has of a range of an origin."""

    origin: Origin
    range: Position
    first: Position
    last: Position
    messages: Position
    ties: Position
    digest: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
    at: LogPlace
    until: Position
    message: ComparedMessage | None = None

    def joined(self, more: OriginRange) -> OriginRange:
        """Both, of which `more` is later in the log."""
        value = (int(self.digest, 16) + int(more.digest, 16)) % ((1 << 127) - 1)
        return msgspec.structs.replace(
            self, first=min(self.first, more.first), last=max(self.last, more.last),
            messages=self.messages + more.messages, ties=self.ties + more.ties,
            digest=f"{value:032x}", until=max(self.until, more.until),
        )  # fmt: skip


class DigestsAnswer(Struct, frozen=True):
    """The answer of an admin."""

    instance: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$")]
    log_start: Position
    persisted: Position
    done: bool
    next: LogPlace
    damaged: list[tuple[Position, Position]]
    ranges: list[OriginRange]


Ranges = dict[int, OriginRange]


@dataclass(slots=True)
class ComparedLog:
    """One instance, and what it said. limit: the position up to which its log is compared."""

    name: str
    ask: Ask
    instance: str = ""
    log_start: int = 0
    limit: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    origins: dict[str, Ranges] = field(default_factory=dict)

    def begin(self) -> None:
        """Learns what it is, and where its durable log ends now. Raises: ZBrokerError."""
        query = {"size": SIZE_MIN, "seed": "00", "limit": 1}
        found = self._answer(query)
        self.instance, self.log_start = found.instance, found.log_start
        self.limit = found.persisted

    def walk(
        self, asked: Mapping[str, Any], at: LogPlace, limit: int, tell: Callable[[int], None]
    ) -> Iterator[DigestsAnswer]:
        """All of the log from `at` up to `limit`, answer by answer. Raises: ZBrokerError."""
        while at.position < limit:
            place = {"position": at.position, "serial": at.serial, "offset": at.offset}
            found = self._answer({**asked, **place, "limit": limit})
            if (found.instance, found.log_start) != (self.instance, self.log_start):
                reason = f"{self.name}: its log was changed or shortened meanwhile"
                raise ZBrokerError("not_ready", reason, "compare again")
            yield found
            if found.done:
                return
            if found.next.position <= at.position:
                raise ZBrokerError("internal", f"{self.name}: its answers do not go on")
            at = found.next
            tell(at.position)

    def _answer(self, query: Mapping[str, Any]) -> DigestsAnswer:
        said = self.ask(f"{PATH}?{urlencode({k: v for k, v in query.items() if v})}")
        try:
            return msgspec.convert(said, DigestsAnswer)
        except msgspec.ValidationError as error:
            reason = f"{self.name}: its answer is not one: {error}"
            raise ZBrokerError("internal", reason, "is that the admin of an instance?") from None

    def last(self, origin: str) -> int:
        """The last position of an origin that it has; 0: none."""
        return max((one.last for one in self.origins.get(origin, {}).values()), default=0)

    def first(self, origin: str) -> int:
        """The first position that it can be asked for; retention may have removed others."""
        if self.log_start <= 1:
            return 0
        ranges = self.origins.get(origin, {}).values()
        return min((one.first for one in ranges), default=U63_MAX)


@dataclass(slots=True)
class HeldOrigin:
    """How one instance holds an origin.

    last: its newest position; lag: positions that others have after it. messages, ties, missing: in
    the positions that were compared. missing: how many it has less than the one with the most.
    """

    name: str
    last: int
    lag: int
    messages: int = 0
    ties: int = 0
    missing: int = 0


@dataclass(slots=True)
class FirstDifference:
    """The first position of an origin at which instances differ, and what each has there."""

    position: int
    found: dict[str, ComparedMessage | None]


@dataclass(slots=True)
class ComparedOrigin:
    """One origin on all instances.

    state: equal; lag: as far as all have it, it is equal; different; removed: no log has the part
    that another one still has. first, last: the positions that were compared.
    """

    origin: str
    first: int
    last: int
    newest: list[str]
    held: list[HeldOrigin]
    difference: FirstDifference | None = None
    state: str = "equal"


@dataclass(slots=True)
class LogComparison:
    """The result: state is the worst one of the origins."""

    logs: list[ComparedLog]
    origins: list[ComparedOrigin]

    @property
    def state(self) -> str:
        """equal, lag or different."""
        states = {one.state for one in self.origins}
        return next((one for one in ("different", "lag") if one in states), "equal")


def compare_logs(logs: Sequence[ComparedLog], step: Step = lambda *_: None) -> LogComparison:
    """Compares all of them. Raises: ZBrokerError."""
    for log in logs:
        log.begin()
    ids = [log.instance for log in logs]
    for log in logs:
        if ids.count(log.instance) > 1:
            names = " and ".join(one.name for one in logs if one.instance == log.instance)
            reason = f"{names} are one instance, {log.instance}"
            hint = "name two instances; a loopback address of another host needs a tunnel"
            raise ZBrokerError("bad_field", reason, hint)
    size = SIZE_MIN
    while max(log.limit for log in logs) > size * RANGES:
        size *= 2
    seed, total, before = secrets.token_hex(16), sum(log.limit for log in logs), 0
    for log in logs:
        _read(log, {"size": size, "seed": seed}, partial(_step_of, step, before, total))
        before += log.limit
    origins = sorted({origin for log in logs for origin in log.origins})
    narrow = _Narrowing(logs, seed, size)
    return LogComparison(list(logs), [narrow.compare(origin) for origin in origins])


def _step_of(step: Step, before: int, total: int, position: int) -> None:
    step("read", before + position, total)


def _read(log: ComparedLog, asked: Mapping[str, Any], tell: Callable[[int], None]) -> None:
    ranges = 0
    for answer in log.walk(asked, LogPlace(0, 0, 0), log.limit, tell):
        log.damaged += answer.damaged[: DAMAGED_MAX - len(log.damaged)]
        for one in answer.ranges:
            known = log.origins.setdefault(one.origin, {})
            ranges += one.range not in known
            known[one.range] = known[one.range].joined(one) if one.range in known else one
        if ranges > RANGES_MAX:
            reason = f"{log.name}: more than {RANGES_MAX} ranges of origins"
            raise ZBrokerError("too_many", reason, "compare its log offline: journal verify")


class _Narrowing:
    """From ranges that differ to the first message that does."""

    def __init__(self, logs: Sequence[ComparedLog], seed: str, size: int) -> None:
        self._logs = logs
        self._seed = seed
        self._size = size

    def compare(self, origin: str) -> ComparedOrigin:
        """One origin."""
        logs = self._logs
        ends = [log.last(origin) for log in logs]
        newest, first = max(ends), max(log.first(origin) for log in logs)
        last = min(ends)
        names = [log.name for log, end in zip(logs, ends, strict=True) if end == newest]
        held = [
            HeldOrigin(log.name, end, newest - end) for log, end in zip(logs, ends, strict=True)
        ]
        found = ComparedOrigin(origin, first, last, names, held)
        if first > newest:
            found.state = "removed"
            return found
        if len(names) < len(logs):
            found.state = "lag"
        differs: tuple[int, int] | None = None
        for begin, end in self._parts(origin, first, last + 1):
            ranges = [self._whole(log, origin, begin, end) for log in logs]
            self._count(held, ranges)
            if differs is None and _differ(ranges):
                differs = (begin, end)
        for one in held:
            one.missing = max(row.messages for row in held) - one.messages
        if differs is not None:
            found.difference, found.state = self._narrow(origin, *differs), "different"
        return found

    def _parts(self, origin: str, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges of [first, end) in which an instance has something."""
        size = self._size
        there = {begin for log in self._logs for begin in log.origins.get(origin, {})}
        for begin in sorted(there):
            part = max(begin, first), min(begin + size, end)
            if part[0] < part[1]:
                yield part

    def _whole(self, log: ComparedLog, origin: str, begin: int, end: int) -> OriginRange | None:
        """What an instance has of [begin, end), which is a part of one range."""
        at = begin // self._size * self._size
        known = log.origins.get(origin, {}).get(at)
        if known is None or (begin <= known.first and known.last < end):
            return known
        found = self._ask(log, origin, (begin, end), self._size)
        return found.get(at)

    def _ask(self, log: ComparedLog, origin: str, span: tuple[int, int], size: int) -> Ranges:
        """Ranges of this size of [begin, end) of an origin."""
        begin, end = span
        known = log.origins.get(origin, {}).get(begin // self._size * self._size)
        if known is None:
            return {}
        asked = {"size": size, "seed": self._seed, "origin": origin, "first": begin, "end": end}
        found: Ranges = {}
        for answer in log.walk(asked, known.at, known.until, lambda _: None):
            for one in answer.ranges:
                if one.origin != origin or not begin <= one.first <= one.last < end:
                    raise ZBrokerError("internal", f"{log.name}: it answers another question")
                before = found.get(one.range)
                found[one.range] = one if before is None else before.joined(one)
        return found

    @staticmethod
    def _count(held: Sequence[HeldOrigin], ranges: Sequence[OriginRange | None]) -> None:
        for one, part in zip(held, ranges, strict=True):
            one.messages += part.messages if part else 0
            one.ties += part.ties if part else 0

    def _narrow(self, origin: str, begin: int, end: int) -> FirstDifference:
        """The first difference in [begin, end), where there is one."""
        size = self._size
        while size > 1:
            size = max(1, size // NARROWED)
            ranges = [self._ask(log, origin, (begin, end), size) for log in self._logs]
            there = sorted({at for one in ranges for at in one})
            differing = (at for at in there if _differ([one.get(at) for one in ranges]))
            at = next(differing, None)
            if at is None:
                reason = f"origin {origin} differs between {begin} and {end}, and then does not"
                raise ZBrokerError("internal", reason, "compare again")
            begin, end = max(begin, at), min(end, at + size)
        last = [one.get(begin) for one in ranges]
        messages = [one.message if one else None for one in last]
        named = zip((log.name for log in self._logs), messages, strict=True)
        return FirstDifference(begin, dict(named))


def _differ(ranges: Sequence[OriginRange | None]) -> bool:
    found = {(one.messages, one.digest) if one else (0, "") for one in ranges}
    return len(found) > 1
