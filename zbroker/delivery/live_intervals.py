"""What conflating subscriptions hold of messages that are not recorded. Pure.

Such messages have no log time that goes on without them, so intervals are of the time in which they
come, whatever clock was asked for. A subscription without credit at the end of an interval is sent
what was due then as soon as it has some; meanwhile what comes is merged further, within the limits
of a conflation. What goes beyond these is dropped and counted, like anything that is not recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zbroker.blocks.frame_builder import Block
from zbroker.blocks.held import Held
from zbroker.delivery.conflation import Conflation
from zbroker.delivery.replay import incoming
from zbroker.delivery.subscription import SubscriptionState


@dataclass(slots=True, eq=False)
class _Holding:
    one: SubscriptionState
    conflation: Conflation
    due: deque[Held] = field(default_factory=deque)


class LiveIntervals:
    """By the key of a subscription that conflates. next_ns: when `ended` has something."""

    def __init__(self) -> None:
        self.next_ns: int | None = None
        self._of: dict[int, _Holding] = {}

    def __contains__(self, one: SubscriptionState) -> bool:
        return one.names.key in self._of

    def add(self, one: SubscriptionState, conflation: Conflation) -> None:
        """It holds what it wants from now on, and goes on with what it holds."""
        self._of.setdefault(one.names.key, _Holding(one, conflation))

    def remove(self, one: SubscriptionState) -> None:
        """It is over; it may never have been here."""
        self._of.pop(one.names.key, None)

    def forget(self, one: SubscriptionState) -> None:
        """What it holds may not be sent any more."""
        holding = self._of.get(one.names.key)
        if holding is not None:
            holding.conflation.forget()
            holding.due.clear()

    def hold(
        self, one: SubscriptionState, block: Block, at: int, picks: Sequence[int], now_ns: int
    ) -> int:
        """Takes in messages of a batch. Returns: how many had to be dropped."""
        holding = self._of[one.names.key]
        messages = incoming(block, at, one.look.type_of)
        if holding.due:
            holding.conflation.prolong(now_ns)
        ended = holding.conflation.add(messages, picks, now_ns)
        self._plan(holding)
        if holding.due:
            return len(ended)
        holding.due.extend(ended)
        return 0

    def ended(self, now_ns: int) -> Iterator[SubscriptionState]:
        """Those for which something is due, now that it is `now_ns`."""
        if self.next_ns is None or now_ns < self.next_ns:
            return
        self.next_ns = None
        for holding in list(self._of.values()):
            if not holding.due:
                holding.due.extend(holding.conflation.due(now_ns))
            if holding.due:
                yield holding.one
            self._plan(holding)

    def due(self, one: SubscriptionState) -> Iterator[Held]:
        """What is due for it, while it has credit and its limit is not reached."""
        holding = self._of.get(one.names.key)
        while holding is not None and holding.due and one.credit > 0 and one.left > 0:
            yield holding.due.popleft()
        if holding is not None:
            self._plan(holding)

    def _plan(self, holding: _Holding) -> None:
        """Notes when its interval ends, unless it has to wait for credit first."""
        conflation = holding.conflation
        if conflation.oldest_position is None or holding.due:
            return
        end_ns = conflation.end_ns
        self.next_ns = end_ns if self.next_ns is None else min(self.next_ns, end_ns)

    def check(self) -> None:
        """Asserts what is always true."""
        for holding in self._of.values():
            holding.conflation.check()
            waits = holding.conflation.oldest_position is not None and not holding.due
            assert not waits or self.next_ns is not None, "it would be held for ever"
