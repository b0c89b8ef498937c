"""Several subscriptions paused or resumed at once, and read together in the order of the log."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Iterator
from functools import partial

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.message import Message
from zbroker.client.subscriber.caller_port import CallerPort
from zbroker.client.subscriber.merge import Merging, by_port, check_doors, checked
from zbroker.client.subscriber.subscription import Subscription
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Pause, Resume


class Combined(Merging[Subscription]):
    """Made by `Client.resume`. Iterate over it for pairs (subscription, message).

    While the broker sends them from one replay they come in the order of the log. Each of them can
    also be read alone. Then what is for the others waits; as they get no credit before they are
    read, one that is not read in the end holds up the others that share its replay.
    """

    _port: CallerPort

    def __iter__(self) -> Iterator[tuple[Subscription, Message]]:
        """Each message with its subscription, until all of them ended. Raises: ZBrokerError."""
        while (one := self._next_one(None)) is not None:
            for one._current in one._rest:  # noqa: B020  (as in Subscription.__iter__)
                yield one, one._current
                one._pass()

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

    def _next_one(self, timeout: float | None) -> Subscription | None:
        """The subscription that has the next message in hand."""
        one = self._in_hand()
        end = None if timeout is None else clock.monotonic() + timeout
        while one is None and (members := self._members()):
            for member in members:
                self._port.asked(member._feed)
            if not self._port.wait(partial(self._is_due, members), end):
                raise ZBrokerError(
                    "timeout", f"no message in {timeout} s", "the subscriptions go on"
                )
            one = self._take(members)
        return one


def pause(subscriptions: Iterable[Subscription], timeout: float) -> None:
    """Pauses them, those of one connection at once. Raises: as `Subscription.pause`."""
    for many in by_port(checked(subscriptions)):
        many[0]._port.ask(Pause([]), [one._feed for one in many], timeout)


def resume(
    doors: ListenerEndpoints, subscriptions: Iterable[Subscription], timeout: float
) -> Combined:
    """Resumes them with one command, on one connection. Raises: as `Subscription.resume`."""
    many = checked(subscriptions)
    check_doors(many, doors)
    running = [one for one in many if not one.paused]
    if running and len(many) > 1:
        pause(running, timeout)
    if len(by_port(many)) > 1:
        port = CallerPort(doors)
        for one in many:
            one._move(port, CREDIT_MAX_BYTES // len(many))
    many[0]._port.ask(Resume([]), [one._feed for one in many], timeout)
    return Combined(many)
