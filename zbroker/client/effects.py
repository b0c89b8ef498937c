"""What happens to a link, and what its core wants done: values shared by cores and shells. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack, AnyAnswer, Command, Error


class Connected(Struct, gc=False):
    """Event: the socket that Connect asked for has a connection."""


class Lost(Struct, gc=False):
    """Event: that connection is gone."""


class Connect(Struct, gc=False):
    """Effect: close the socket, if any, with all that is queued in it, and make a new one."""


class Send(Struct, gc=False):
    """Effect: send this on the socket."""

    command: Command
    body: bytes | None = None


class LoggedOn(Struct, gc=False):
    """Effect: a session is open; the answer has limits, endpoints and the token."""

    answer: Ack


class Refused(Struct, gc=False):
    """Effect: messages `first` to `last` were finally refused and given up."""

    first: int
    last: int
    error: ZBrokerError


class Ended(Struct, gc=False):
    """Effect: nothing more can be published by this client."""

    error: ZBrokerError


Event = AnyAnswer | Connected | Lost
Effect = Connect | Send | LoggedOn | Refused | Ended


def raised(error: Error) -> ZBrokerError:
    """An error of the broker as its users catch it."""
    return ZBrokerError(error.code, error.reason, error.hint)


def store_ahead(recorded: int, high: int) -> ZBrokerError:
    """The broker lost what it had acknowledged."""
    return ZBrokerError(
        "store_ahead",
        f"the broker acknowledged messages up to {recorded} but now holds only {high}",
        "its log lost acknowledged messages: was an old copy of its disk put back?",
    )


class Backoff:
    """Delays that double from a lowest to a highest, each drawn from its upper half."""

    def __init__(self, limits_ms: tuple[int, int], jitter: Callable[[], float]) -> None:
        self._limits = limits_ms
        self._jitter = jitter
        self.attempt = 0

    def next_ms(self) -> int:
        low, high = self._limits
        top = min(high, low << min(self.attempt, 16))
        self.attempt += 1
        return int(top * (0.5 + 0.5 * self._jitter()))
