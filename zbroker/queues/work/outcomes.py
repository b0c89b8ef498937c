"""What becomes of messages that are acknowledged, given back, expired or given up. Pure.

acked, rejected, purged, unreadable -------------------------------------------> gone
released, lease ended --expired? too many deliveries? too many releases?--yes--> gone
                        +--no--> failed: back to its place, after a delay
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.consumers import QueueConsumer, QueueConsumers
from zbroker.queues.work.delays import due_of
from zbroker.queues.work.delivery_counts import DeliveryCounts
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.sets import remove, without
from zbroker.queues.work.values import Outcome


class Outcomes:
    """Takes messages out of their places, and says what is to be committed."""

    def __init__(
        self,
        config: QueueConfig,
        places: MessagePlaces,
        consumers: QueueConsumers,
        counting: DeliveryCounts,
    ) -> None:
        self.config = config
        self._places = places
        self._consumers = consumers
        self._counting = counting

    def go(
        self, found: BitMap64, why: str, letter: str = "", holder: QueueConsumer | None = None,
        *, delivered: bool = True,
    ) -> list[Outcome]:  # fmt: skip
        """They are to go. holder: who probably has them. delivered: False if what is leased
        of them reached nobody."""
        if not found:
            return []
        leased = self._take_out(found, holder)
        if not delivered:
            remove(self._places.were_leased, leased)
        self._places.going_to_go(found)
        return [Outcome(found, "gone", why, letter=letter if self.config.dead_letter else "")]

    def fail(
        self, found: BitMap64, why: str, now: Now, delay_ms: int = 0,
        holder: QueueConsumer | None = None,
    ) -> list[Outcome]:  # fmt: skip
        """They come back, unless they are of no use, or came back too often."""
        self._take_out(found, holder)
        outcomes: list[Outcome] = []
        for reason, over in self._given_up(found, why):
            outcomes += self.go(over, reason, reason)
            found = without(found, over)
        for part, delay in self._delays(found, delay_ms):
            self._places.going_to_fail(part)
            due_ns = due_of(now.steady_ns, delay)
            outcomes.append(Outcome(part, "failed", why, due_ns, delay_ms=delay))
        return outcomes

    def _given_up(self, found: BitMap64, why: str) -> list[tuple[str, BitMap64]]:
        """Those that do not come back, each under the first reason that it has."""
        config, counting = self.config, self._counting
        given_up = [("time_limit", found & self._places.expired)]
        if config.max_deliveries:
            over = counting.delivered(config.max_deliveries - 1, found)
            given_up.append(("max_deliveries", over))
        if config.max_cancels and why == "cancelled":
            most = config.max_cancels - 1
            over = counting.cancels.least(most, found) if most else found
            given_up.append(("max_cancels", over))
        rest, parts = found, []
        for reason, over in given_up:
            part = over & rest
            if part:
                parts.append((reason, part))
                rest = without(rest, part)
        return parts

    def _delays(self, found: BitMap64, delay_ms: int) -> list[tuple[BitMap64, int]]:
        """How long each waits that comes back: as was asked, or by how often it failed."""
        retry = self.config.retry_delay
        if not found:
            return []
        if delay_ms or not retry:
            return [(found, delay_ms)]
        steps = self._counting.by_failures(found, len(retry))
        return [(part, retry[step]) for step, part in steps]

    def _take_out(self, found: BitMap64, holder: QueueConsumer | None) -> BitMap64:
        leased = self._places.take_out(found)
        if leased:
            self._consumers.free(leased, holder)
        return leased
