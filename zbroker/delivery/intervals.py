"""What the subscriptions of one replay hold back under conflation, and when it is due. Pure.

All of them conflate alike. Their intervals end together and what is due goes out in the order of
the messages that it stands for, so it has the order of the log across all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from zbroker.blocks.frame_builder import Block, time_of
from zbroker.delivery.conflation import BatchMessages, Conflation
from zbroker.delivery.subscription import SubscriptionState

Chosen = Sequence[tuple[SubscriptionState, Sequence[int]]]


class Intervals:
    """`members`: the list of the replay, which changes."""

    def __init__(self, members: list[SubscriptionState]) -> None:
        self._members = members

    @property
    def by_replay(self) -> bool:
        """True if intervals are of the time of the replay: its pace comes before conflation."""
        return self._all[0].by_replay

    @property
    def _all(self) -> list[Conflation]:
        return [one.conflation for one in self._members if one.conflation is not None]

    @property
    def _seen(self) -> tuple[int, int]:
        """The newest log time that one of them passed, and when."""
        return max(one.seen for one in self._all)

    def begin(self, now_ns: int, *, at_end: bool) -> None:
        """Ends intervals whose time is over; those of log time only at the end of the log.

        at_end: nothing is written behind what was passed; what is written and not durable yet may
        belong to the open interval.
        """
        if self.by_replay:
            if any(one.is_over(now_ns) for one in self._all):
                self.close()
        elif at_end:
            log_ns, since_ns = self._seen
            self._close_before(log_ns + now_ns - since_ns)

    def add(
        self, block: Block, at: int, chosen: Chosen, messages: BatchMessages, now_ns: int
    ) -> None:
        """Holds what is wanted of a batch."""
        early = 0
        for one, picks in chosen:
            conflation = one.conflation
            assert conflation is not None, "all of them conflate, or none does"
            before = conflation.closed_early
            one.ready.extend(conflation.add(messages, picks, now_ns))
            conflation.seen = (time_of(block.batch(at), picks[-1]), now_ns)
            early += conflation.closed_early - before
        if len(self._members) > 1:
            if early:
                self.close()
            elif not self.by_replay:
                self._close_before(self._seen[0])

    def close(self) -> None:
        """Ends the open interval of all of them."""
        for one in self._members:
            if one.conflation is not None:
                one.ready.extend(one.conflation.flush())

    def _close_before(self, log_ns: int) -> None:
        for one in self._members:
            if one.conflation is not None:
                one.ready.extend(one.conflation.due(log_ns))

    def first(self) -> SubscriptionState | None:
        """The one that is sent next; None if nothing is due."""
        due = [one for one in self._members if one.ready and one.left > 0]
        return min(due, key=_position) if due else None

    def ends_ns(self, now_ns: int, *, at_end: bool) -> int | None:
        """When the open interval is over (monotonic), if time alone ends it."""
        ends = [one.end_ns for one in self._all if one.oldest_position is not None]
        if not ends or not (at_end or self.by_replay):
            return None
        log_ns, since_ns = (0, 0) if self.by_replay else self._seen
        return max(now_ns + 1, since_ns + min(ends) - log_ns)


def _position(one: SubscriptionState) -> int:
    return one.ready[0].first.position
