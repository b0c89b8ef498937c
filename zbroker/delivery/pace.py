"""How fast a subscription is sent what it wants: `rate`. Pure; time comes in.

A run is a schedule of messages: a start, and how long after it each message is due. The next
message waits for the messages (or bytes, or log time) before it, so nothing is ever more than one
message ahead, and a process that was busy catches up. A subscription that rested, because it
had nothing to send or could not send, catches up nothing: its next message begins a new run.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Literal

from msgspec import Struct

from zbroker.errors import ClientError

RATE_MAX: Final = 10**12  # per second; more is a mistake, not a wish
RATE_MIN: Final = Fraction(1, 10**6)  # one message in eleven days
_DECIMALS: Final = 10**9  # more digits would only make the arithmetic slow
_SECOND: Final = 10**9  # ns
_TEXT_MAX: Final = 32
_LONG_AGO: Final = -(1 << 64)
_UNBOUNDED: Final = 1 << 65  # log times are 64 bits wide

_RATE: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)\s*([A-Z]*)", re.ASCII | re.IGNORECASE)
_SIZES: Final = {
    "GiB": 1 << 30, "GB": 10**9, "MiB": 1 << 20, "MB": 10**6, "KiB": 1 << 10, "KB": 10**3, "B": 1,
}  # fmt: skip
_UNITS: Final = {name.upper(): size for name, size in _SIZES.items()}

Kind = Literal["messages", "bytes", "multiple"]


class Rate(Struct, frozen=True):
    """The most that is sent. value: messages or bytes per second, or a multiple of log time.

    Equal rates have one text, which `parse_rate` reads: "1000", "500KB", "0.5X".
    """

    kind: Kind
    value: Fraction

    def __str__(self) -> str:
        if self.kind == "bytes":
            whole = (name for name, size in _SIZES.items() if self.value % size == 0)
            unit = next(whole, "B")
            return _decimal(self.value / _SIZES[unit]) + unit
        return _decimal(self.value) + ("X" if self.kind == "multiple" else "")


def parse_rate(text: str | int | float) -> Rate:
    """The rate that `"1000"`, `1000`, `0.5`, `"500KB"`, `"1MiB"` or `".5X"` asks for.

    Units: B, KB, MB, GB (powers of 1,000), KiB, MiB, GiB (of 1,024) per second; X; capitals or
    not. Kept to nine decimals.
    Raises: ClientError bad_field, also where it is below `RATE_MIN` or above `RATE_MAX`.
    """
    if isinstance(text, str):
        kind, value = _of_text(text)
    elif isinstance(text, bool) or not 0 < text <= RATE_MAX:
        raise _bad(text)
    else:
        # a float is what it prints as, so that 0.1 and "0.1" are the same rate
        kind, value = "messages", Fraction(str(text))
    value = Fraction(round(value * _DECIMALS), _DECIMALS)
    if not RATE_MIN <= value <= RATE_MAX:
        raise _bad(text)
    return Rate(kind, value)


class ReplayPace:
    """When the next messages of one subscription may be sent.

    kind: says what `take` looks at. next_ns: after a `take` that gave fewer than were offered, when
    the next one is due (monotonic clock). A caller that comes later than that loses nothing.
    """

    def __init__(self, rate: Rate, max_gap_ns: int | None = None) -> None:
        """max_gap_ns: the longest wait between two messages where `rate` is a multiple: a longer
        one brings forward all that comes later. Other kinds do not look at it.
        """
        self.kind: Final = rate.kind
        self.next_ns = 0
        self._run = _run(rate, max_gap_ns)
        self._resting = True

    def take(self, now_ns: int, times: Sequence[int], sizes: Sequence[int]) -> int:
        """How many of the next messages may go at `now_ns`; they count as sent.

        Looks at one more message than go at most. `times` and `sizes` have one item per message: a
        rate in messages reads only the length of `times`, one in bytes only `sizes`, a multiple
        only `times`. Without messages nothing happens; that does not count as rest.
        Units: `now_ns` monotonic clock; `times` log time, ns; `sizes` bytes of payload.
        """
        offered = sizes if self.kind == "bytes" else times
        if self.kind == "messages":
            offered = range(len(times))  # their times are not read
        if not offered:
            return 0
        if self._resting:
            self._run.begin(now_ns, offered)
            self._resting = False
        taken = self._run.take(now_ns, offered)
        if taken < len(offered):
            self.next_ns = self._run.due(offered[taken])
        return taken

    def rest(self) -> None:
        """Nothing was there to send, or it could not be sent: time until the next `take` earns
        nothing. The next message is due when it would have been, or at that `take` if it is later.
        """
        self._resting = True


class _Schedule(ABC):
    """A schedule: a message with so many units before it is due that many steps after the start.

    Whole numbers only, so that nothing drifts; a time between two ns is rounded up.
    """

    def __init__(self, step_ns: Fraction) -> None:
        self._start = _LONG_AGO
        self._steps, self._per = step_ns.numerator, step_ns.denominator
        self._done = 0  # units before the next message

    def begin(self, now_ns: int, offered: Sequence[int]) -> None:
        """A new run; its first message is the next one."""
        self._start, self._done = max(now_ns, self.due(offered[0])), 0

    @abstractmethod
    def take(self, now_ns: int, offered: Sequence[int]) -> int:
        """How many of these may go now; they count as sent."""

    def due(self, _next: int) -> int:
        """When the next message is due."""
        return self._at(self._done)

    def _at(self, units: int) -> int:
        """When a message with that many units before it is due."""
        return self._start - (-units * self._steps // self._per)

    def _within(self, now_ns: int) -> int:
        """The most units before a message that may go now; negative: none may go."""
        return (now_ns - self._start) * self._per // self._steps


class _Messages(_Schedule):
    """The units are messages."""

    def take(self, now_ns: int, offered: Sequence[int]) -> int:
        taken = max(0, min(len(offered), self._within(now_ns) - self._done + 1))
        self._done += taken
        return taken


class _Bytes(_Schedule):
    """The units are bytes."""

    def take(self, now_ns: int, offered: Sequence[int]) -> int:
        done, within = self._done, self._within(now_ns)
        taken = 0
        for size in offered:
            if done > within:
                break
            done += size
            taken += 1
        self._done = done
        return taken


class _Multiple(_Schedule):
    """The units are ns of log time since the run's first message.

    high: the newest log time there was; older ones count as that.
    """

    def __init__(self, multiple: Fraction, max_gap_ns: int | None) -> None:
        super().__init__(1 / multiple)
        self._max_gap_ns = max_gap_ns or 0
        self._gap = _UNBOUNDED if max_gap_ns is None else int(max_gap_ns * multiple)
        self._first = self._high = _LONG_AGO

    def begin(self, now_ns: int, offered: Sequence[int]) -> None:
        if self._high == _LONG_AGO:
            self._start, self._first = now_ns, offered[0]
        else:
            self._start = max(now_ns, self.due(offered[0]))
            self._first = max(self._high, offered[0])
        self._high = self._first

    def take(self, now_ns: int, offered: Sequence[int]) -> int:
        high, newest = self._high, self._newest(now_ns)
        taken = 0
        for time in offered:
            if time - high > self._gap:
                self._shorten(high, time)
                high, newest = time, self._newest(now_ns)
            if time > newest:
                break
            if time > high:
                high = time
            taken += 1
        self._high = high
        return taken

    def due(self, next_: int) -> int:
        """`next_`: its log time."""
        if next_ - self._high > self._gap:
            return self._at(self._high - self._first) + self._max_gap_ns
        return self._at(next_ - self._first)

    def _newest(self, now_ns: int) -> int:
        """The newest log time that may go now."""
        return self._first + self._within(now_ns)

    def _shorten(self, before: int, after: int) -> None:
        """Goes on after a gap as if the gap had been the longest one allowed."""
        self._start = self._at(before - self._first) + self._max_gap_ns
        self._first = after


def _run(rate: Rate, max_gap_ns: int | None) -> _Schedule:
    if rate.kind == "multiple":
        return _Multiple(rate.value, max_gap_ns)
    return (_Messages if rate.kind == "messages" else _Bytes)(_SECOND / rate.value)


def _of_text(text: str) -> tuple[Kind, Fraction]:
    match = _RATE.fullmatch(text.strip()) if len(text) <= _TEXT_MAX else None
    unit = match[2].upper() if match else "?"
    if match is None or unit not in ("", "X", *_UNITS):
        raise _bad(text)
    value = Fraction(match[1])
    if unit in _UNITS:
        return "bytes", value * _UNITS[unit]
    return ("multiple" if unit else "messages"), value


def _bad(text: str | int | float) -> ClientError:
    return ClientError(
        "bad_field",
        f"rate {str(text)[:_TEXT_MAX]!r} is not messages (1000) or bytes ('500KB') a second or a "
        f"multiple of log time ('2X'), from 0.000001 to {RATE_MAX}",
    )


def _decimal(value: Fraction) -> str:
    whole, rest = divmod(round(value * _DECIMALS), _DECIMALS)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")
