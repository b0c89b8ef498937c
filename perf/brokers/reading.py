"""What a subscriber does with the messages it gets, the same for every broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perf.arrival_schedule import Arrivals


@dataclass
class Reading:
    """How many messages, from where, and what comes of them.

    start: from the beginning of the topic, else what is published from now on. ready: is called
    just before a topic is read from its beginning, or once nothing new can be missed. timed: the
    messages carry stamps; else a byte of each and its sequence are added up, so that the client
    has to make both.
    """

    count: int
    start: bool
    ready: Callable[[], None]
    timed: bool = False
    total: int = 0
    ended: float = 0.0
    arrivals: Arrivals = field(default_factory=Arrivals)

    def subscribing(self) -> None:
        """A client is about to subscribe: old messages may come at once."""
        if self.start:
            self.ready()

    def subscribed(self) -> None:
        """It gets everything that is published from now on."""
        if not self.start:
            self.ready()

    def took(self, count: int) -> bool:
        """Some messages came; whether these were the last."""
        self.count -= count
        if self.count <= 0:
            self.ended = time.perf_counter()
        return self.count <= 0

    def stamps(self, bodies: Sequence[bytes]) -> bool:
        """Timed messages that came together; whether these were the last."""
        self.arrivals.take(list(bodies), time.perf_counter())
        return self.took(len(bodies))
