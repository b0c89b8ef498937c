"""A publisher at a fixed rate that never waits for answers, and what its messages say of time.

A message is due at a fixed moment, whatever happened to the ones before it. It carries when it was
due and when it was handed to the client: the latency from `due` has no coordinated omission, since
a publisher that is held up makes its messages late instead of leaving them out.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

STAMP: Final = struct.Struct("<dd")
FILLER: Final = b"." * (100 - STAMP.size)  # messages have 100 bytes, as in the other workloads
LEAD_S: Final = 0.05  # before the first message is due


class Schedule(NamedTuple):
    """Messages a second, and for how many seconds."""

    rate: int
    seconds: float

    @property
    def count(self) -> int:
        """All messages."""
        return int(self.rate * self.seconds)

    def due_s(self, number: int) -> float:
        """When a message is due, from the beginning; the first one has number 0."""
        return number / self.rate

    def due_by(self, elapsed_s: float) -> int:
        """How many messages are due by then."""
        return min(self.count, int(elapsed_s * self.rate) + 1) if elapsed_s >= 0 else 0


def pace(
    schedule: Schedule,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[list[bytes]]:
    """Payloads when they are due; all that became due meanwhile come together, at once."""
    begun, sent = clock() + LEAD_S, 0
    while sent < schedule.count:
        now = clock()
        due = schedule.due_by(now - begun)
        if due > sent:
            yield [
                STAMP.pack(begun + schedule.due_s(number), now) + FILLER
                for number in range(sent, due)
            ]
            sent = due
        else:
            sleep(max(0.0, begun + schedule.due_s(sent) - now))


class Arrivals:
    """What a subscriber makes of the stamps: seconds of each message, in the order they came."""

    def __init__(self) -> None:
        self.from_due: list[float] = []
        self.from_sent: list[float] = []

    def take(self, payloads: list[bytes], now: float) -> None:
        """Some messages that came together."""
        for payload in payloads:
            due, sent = STAMP.unpack_from(payload)
            self.from_due.append(now - due)
            self.from_sent.append(now - sent)
