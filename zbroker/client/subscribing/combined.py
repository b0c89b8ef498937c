"""Several subscriptions paused or resumed at once, and read together in the order of the log.

The broker combines only what goes to one connection. So subscriptions that are resumed together
move to a connection of their own, paused where they are, and are resumed there by one command.
"""

from __future__ import annotations

import time as clock
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint

from zbroker.client.door import Doors
from zbroker.client.message import Message
from zbroker.client.subscribing.feed import Batch
from zbroker.client.subscribing.line import Line
from zbroker.client.subscribing.subscription import Subscription
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES, SUBSCRIPTIONS_MAX
from zbroker.wire.messages import Pause, Resume


class Combined:
    """Made by `Client.resume`. Iterate over it for pairs (subscription, message).

    While the broker sends them from one replay they come in the order of the log. Each of them can
    also be read alone. Then what is for the others waits; as they get no credit before they are
    read, one that is not read in the end holds up the others that share its replay.
    """

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.subscriptions = tuple(subscriptions)
        self._line = self.subscriptions[0]._line

    @property
    def combined(self) -> list[Subscription]:
        """Those that share one replay now; empty if each of them has its own.

        The broker combines what was paused at the same position and has the same rate.
        """
        for one in self._members():
            together = self._line.combined_with(one._feed)
            if together:
                return [other for other in self.subscriptions if other._feed in together]
        return []

    def __iter__(self) -> Iterator[tuple[Subscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        while (one := self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in Subscription.__iter__)
                yield one, one._current

    def next(self, timeout: float | None = None) -> tuple[Subscription, Message] | None:
        """The next message and its subscription; None when all of them ended.

        Raises: ZBrokerError, also "timeout".
        """
        one = self._next_one(timeout)
        if one is None:
            return None
        one._current = message = next(one._rest)
        return one, message

    def close(self) -> None:
        """Closes all of them."""
        for one in self.subscriptions:
            one.close()

    def _members(self) -> list[Subscription]:
        """Those that are open and were not resumed with others since."""
        return [one for one in self.subscriptions if not one._closed and one._line is self._line]

    def _next_one(self, timeout: float | None) -> Subscription | None:
        """The subscription that has the next message in hand. What was begun is finished first."""
        for one in self.subscriptions:
            if length_hint(one._rest):
                return one
        end = None if timeout is None else clock.monotonic() + timeout
        while members := self._members():
            if not self._line.wait(
                lambda now=members: any(one._feed.inbox for one in now) or self._members() != now,  # type: ignore[misc]
                end,
            ):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            waiting = [one for one in members if one._feed.inbox]
            if waiting and (one := min(waiting, key=_arrival))._take():
                return one
        return None


def _arrival(one: Subscription) -> int:
    """What is no batch goes first: it only says how far another one came."""
    head = one._feed.inbox[0]
    return head.arrival if isinstance(head, Batch) else 0


def pause(subscriptions: Iterable[Subscription], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    by_line: dict[Line, list[Subscription]] = defaultdict(list)
    for one in checked(subscriptions):
        by_line[one._line].append(one)
    for line, many in by_line.items():
        line.ask(Pause([]), [one._feed for one in many], timeout)


def resume(doors: Doors, subscriptions: Iterable[Subscription], timeout: float) -> Combined:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = checked(subscriptions)
    if any(one._doors is not doors for one in many):
        raise ZBrokerError("bad_field", "only subscriptions of one client are resumed together")
    if len(many) > 1:
        running = [one for one in many if not one.paused]
        if running:
            pause(running, timeout)
    if len({one._line for one in many}) > 1:
        line = Line(doors)
        for one in many:
            one._move(line, CREDIT_MAX_BYTES // len(many))
    many[0]._line.ask(Resume([]), [one._feed for one in many], timeout)
    return Combined(many)


def checked(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """Each of them once, as they were given. Raises: ZBrokerError bad_field, too_many, closed."""
    many = list(dict.fromkeys(subscriptions))
    if not many:
        raise ZBrokerError("bad_field", "no subscription was given")
    if len(many) > SUBSCRIPTIONS_MAX:
        raise ZBrokerError("too_many", f"{len(many)} subscriptions; {SUBSCRIPTIONS_MAX} at most")
    for one in many:
        one._check_open()
        if one._feed.live:
            raise ZBrokerError("bad_field", "with live delivery there is neither pause nor resume")
    return many
