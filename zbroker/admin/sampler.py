"""Once a second, what all processes tell: for /history, for rates, and for who asks what is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from zbroker.admin.document import Stats, stats_of
from zbroker.admin.rings import Rings
from zbroker.admin.supervisor_link import SupervisorLink
from zbroker.clock import Clock
from zbroker.wire.internal import Status


class Sampler:
    """`take` by the loop's thread, the rest by any."""

    def __init__(
        self,
        supervisor: SupervisorLink,
        clock: Clock,
        more: Callable[[], Mapping[str, Stats]] = dict,
    ) -> None:
        """more: statistics of rooms beside those that they tell the supervisor."""
        self._supervisor = supervisor
        self._more = more
        self._clock = clock
        self._rings = Rings()
        self._lock = threading.Lock()  # of the rings

    def take(self) -> Status | None:
        """Asks; None if the supervisor is silent: then this second has no sample."""
        status = self._supervisor.status()
        if status is not None:
            stats = stats_of(status)
            for room, numbers in self._more().items():
                stats[room] = stats.get(room, {}) | numbers
            with self._lock:
                self._rings.take(stats, self._now_s())
        return status

    def status(self) -> Status | None:
        """As it is now."""
        return self._supervisor.status()

    def rates(self) -> dict[str, float]:
        """Of the last seconds."""
        with self._lock:
            return self._rings.rates()

    def history(self, seconds: int) -> dict[str, Any]:
        """The document of GET /history."""
        with self._lock:
            wall_s = self._clock.wall_ns() / 1e9
            return self._rings.history(seconds, self._now_s(), wall_s)

    def _now_s(self) -> float:
        return self._clock.mono_ms() / 1_000
