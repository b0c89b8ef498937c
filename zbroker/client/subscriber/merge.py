"""Several subscriptions as one, for both clients: which is next, and how they come together.

The broker combines only what goes to one connection. So subscriptions that are resumed together
move to a connection of their own, paused where they are, and are resumed there by one command.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from operator import length_hint
from typing import Generic, TypeVar

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.feed import FeedBatch
from zbroker.client.subscriber.reader_state import ReaderState
from zbroker.client.subscriber.transport import SubscriberTransport
from zbroker.client.waits import end_of
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES, SUBSCRIPTIONS_MAX
from zbroker.wire.messages import Pause, Resume

S = TypeVar("S", bound=ReaderState)


class Merging(Generic[S]):
    """Subscriptions that were resumed together."""

    def __init__(self, subscriptions: Sequence[S]) -> None:
        self.subscriptions = tuple(subscriptions)
        self._port: SubscriberTransport = self.subscriptions[0]._port

    @property
    def groups(self) -> list[list[S]]:
        """Those that share one replay now, the largest group first; one of its own is in none.

        The broker combines what was paused at the same position and has the same rate, and, where
        it conflates, does so alike and ends at the same place.
        """
        found: list[list[S]] = []
        for one in self._members():
            if any(one in group for group in found):
                continue
            together = self._port.combined_with(one._feed)
            if together:
                found.append([other for other in self.subscriptions if other._feed in together])
        return sorted(found, key=len, reverse=True)

    @property
    def combined(self) -> list[S]:
        """The largest of the groups that share one replay now; empty if there is none."""
        return next(iter(self.groups), [])

    def _members(self) -> list[S]:
        """Those that are open and were not resumed with others since."""
        return [one for one in self.subscriptions if not one._closed and one._port is self._port]

    def _in_hand(self) -> S | None:
        """The one whose batch is begun, and is finished first."""
        for one in self.subscriptions:
            one._pass()
        return next((one for one in self.subscriptions if length_hint(one._rest)), None)

    def _is_due(self, members: list[S]) -> bool:
        """Something came for one of `members`, or they are others now."""
        return any(one._feed.inbox for one in members) or self._members() != members

    def _take(self, members: list[S]) -> S | None:
        """The one that now has the next message in hand, if what came first is one."""
        waiting = [one for one in members if one._feed.inbox]
        if waiting and (one := min(waiting, key=_arrival))._take():
            return one
        return None

    async def _next_one(self, timeout: float | None) -> S | None:
        """The subscription that has the next message in hand."""
        one, end = self._in_hand(), end_of(timeout)
        while one is None and (members := self._members()):
            for member in members:
                self._port.asked(member._feed)
            if not await self._port.until(partial(self._is_due, members), end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            one = self._take(members)
            for member in members:
                await member._report_caught_up()
        return one

    async def _next(self, timeout: float | None) -> tuple[S, Message] | None:
        one = await self._next_one(timeout)
        if one is None:
            return None
        one._current = message = next(one._rest)
        return one, message


def _arrival(one: ReaderState) -> int:
    """An item that is not a batch goes first: it only says how far another one came."""
    head = one._feed.inbox[0]
    return head.arrival if isinstance(head, FeedBatch) else 0


async def pause_together(subscriptions: Iterable[ReaderState], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    for many in _by_port(_checked(subscriptions)):
        await many[0]._port.ask(Pause([]), [one._feed for one in many], timeout)


async def resume_together(
    listeners: ListenerEndpoints, subscriptions: Iterable[S], timeout: float
) -> list[S]:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = _checked(subscriptions)
    if any(one._listeners is not listeners for one in many):
        raise ZBrokerError("bad_field", "only subscriptions of one client are resumed together")
    running = [one for one in many if not one.paused]
    if running and len(many) > 1:
        await pause_together(running, timeout)
        many = _checked(many)
    if len(_by_port(many)) > 1:
        port = many[0]._port_type(listeners)
        for one in many:
            one._move(port, CREDIT_MAX_BYTES // len(many))
    await many[0]._port.ask(Resume([]), [one._feed for one in many], timeout)
    return many


def _checked(subscriptions: Iterable[S]) -> list[S]:
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


def _by_port(subscriptions: Iterable[S]) -> list[list[S]]:
    """Those of each connection."""
    ports: dict[SubscriberTransport, list[S]] = defaultdict(list)
    for one in subscriptions:
        ports[one._port].append(one)
    return list(ports.values())
