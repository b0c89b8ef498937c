"""All running subscriptions and whose turn it is: how far the log is durable, who has to read next.

Subscriptions that have caught up and those that replay wait in two queues that alternate, so the
newest messages wait for at most one block of a replay.
"""

from __future__ import annotations

from collections import deque

from zbroker.delivery.blocks import Maker
from zbroker.delivery.effects import Read
from zbroker.delivery.points import Point
from zbroker.delivery.subscription import Subscription
from zbroker.ids import Origin


class Cursors:
    """Running subscriptions by key. `here` and `maker` are None until the journal was heard of."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.here: Origin | None = None
        self.maker: Maker | None = None
        self.floor = 0
        self.persisted = 0
        self.running: dict[int, Subscription] = {}
        self._queues: tuple[deque[Subscription], deque[Subscription]] = (deque(), deque())
        self._turn = 0

    def heard(self, incarnation: int, here: Origin, floor: int, persisted: int) -> int | None:
        """What the journal says of itself.

        Returns: None, or, if it is another journal than before, how many cursors had to go back
        because they stood behind its end.
        """
        restarted = incarnation != self.incarnation
        if restarted:
            self.incarnation, self.here, self.maker = incarnation, here, Maker(here)
            self.floor, self.persisted = floor, persisted
        # a welcome may be older than marks that were read before it
        self.floor, self.persisted = max(self.floor, floor), max(self.persisted, persisted)
        rewound = sum(self._look_again(one) for one in self.running.values()) if restarted else None
        for one in self.running.values():
            one.dry = False
            self.wake(one)
        return rewound

    def _look_again(self, one: Subscription) -> bool:
        """Looks for the cursor by its position: files may differ. True if it had to go back."""
        behind_end = one.position > self.persisted
        one.target = min(one.target, self.persisted)
        one.go_to(Point(min(one.position, self.persisted), *one.hint))
        return behind_end

    def add(self, one: Subscription) -> None:
        """Takes in a subscription that was located."""
        self.running[one.names.key] = one
        self.wake(one)

    def remove(self, one: Subscription) -> None:
        """Forgets a subscription; its place in a queue is skipped later."""
        one.running = False
        self.running.pop(one.names.key, None)

    def wake(self, one: Subscription) -> None:
        """Queues a subscription if it has something to read."""
        if not one.queued and not one.dry and one.due(self.persisted):
            one.queued = True
            self._queues[not one.caught_up].append(one)

    @property
    def busy(self) -> bool:
        """True if a read is wanted."""
        return any(self._queues)

    def next_read(self) -> Read | None:
        """Whose turn it is, and what it has to read."""
        while self.busy:
            self._turn ^= 1
            one = (self._queues[self._turn] or self._queues[self._turn ^ 1]).popleft()
            one.queued = False
            if one.due(self.persisted):
                return self._read(one)
        return None

    def _read(self, one: Subscription) -> Read:
        limit = min(self.persisted, one.until)
        return Read(one.names.key, one.cursor, one.seek, limit, one.block_bytes, live=one.caught_up)

    def check(self) -> None:
        """Asserts what is always true."""
        for key, one in self.running.items():
            assert one.running
            assert one.names.key == key
            assert one.position <= max(self.persisted, one.target), one
            assert one.queued or one.dry or not one.due(self.persisted), (
                f"{one} would wait for ever"
            )
