"""What happens to a link, and what its core wants done: values shared by cores and shells. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire.bodies import Body
from zbroker.wire.messages import Ack, AnyAnswer, ClientCommand, Error, Msg
from zbroker.wire.queue_messages import AnyQueuesAnswer, Job


class Connected(Struct, gc=False):
    """Event: the socket that Connect asked for has a connection."""


class Lost(Struct, gc=False):
    """Event: that connection is gone."""


class Rejected(Lost, gc=False):
    """Event: the broker does not accept the key of this client, or one side has none."""

    why: str = "the broker does not accept the key of this client"
    hint: str = "its public key must be that of a principal in the access file"


class Unreached(Struct, gc=False):
    """Event: no process accepted that connection; the socket tries again."""


class MessagesArrived(Struct, gc=False):
    """Event: messages, with their body."""

    answer: Msg | Job
    body: Body


class NewToken(Struct, gc=False):
    """Event: a session of the publisher, whose token logs on elsewhere."""

    token: str
    own: Origin  # of positions that name no origin
    session: int  # its number: they are counted


class Called(Struct, gc=False):
    """Event: what calls of the program decided since the last turn, to be performed now."""

    effects: list[Effect]


class Connect(Struct, gc=False):
    """Effect: close the socket, if any, with all that is queued in it, and make a new one."""


class SendCommand(Struct, gc=False):
    """Effect: send this on the socket."""

    command: ClientCommand
    body: bytes | None = None


class GetToken(Struct, gc=False):
    """Effect: look for a session newer than this one. Answered by NewToken if there is one."""

    newer_than: int


class LogonAccepted(Struct, gc=False):
    """Effect: a session is open; the answer has limits, endpoints and the token."""

    answer: Ack


class ConnectionLost(Struct, gc=False):
    """Effect: the session is lost; a new one is sought."""


class Republished(Struct, gc=False):
    """Effect: everything that was in the store at the logon is settled."""


class Behind(Struct, gc=False):
    """Effect: `first` to `last` were acknowledged elsewhere, and this broker does not have them."""

    first: int
    last: int


class MessagesRefused(Struct):
    """Effect: messages `first` to `last` were finally refused and given up."""

    first: int
    last: int
    error: ZBrokerError


class Ended(Struct):
    """Effect: nothing more can be published by this client."""

    error: ZBrokerError


Happened = Connected | Unreached | Lost  # to a connection
Event = AnyAnswer | AnyQueuesAnswer | Happened | MessagesArrived | NewToken | Called
#: to the program
Reported = LogonAccepted | ConnectionLost | Republished | Behind | MessagesRefused | Ended
Effect = Connect | SendCommand | GetToken | Reported


def raised(error: Error) -> ZBrokerError:
    """An error of the broker as its users catch it."""
    return ZBrokerError(error.code, error.reason, error.hint)


def broker_behind(recorded: int, high: int, missing: int = 0) -> ZBrokerError:
    """The broker lacks what was acknowledged. missing: ranges of instances that its log lacks."""
    reason = f"messages up to {recorded} were acknowledged, but this broker holds only {high}"
    if missing:
        reason += (
            f"; {missing} range(s) of what instances published are not in its log for good, see "
            "`zbroker-admin replication missing` there"
        )
    return ZBrokerError(
        "broker_behind",
        reason,
        "was an old copy of its disk put back, or is it another instance? "
        'connect with broker_behind="go_on" to publish on without them',
    )


class Backoff:
    """Delays that double from a lowest to a highest, each drawn from its upper half.

    alike: so many in a row are of one size.
    """

    def __init__(
        self, limits_ms: tuple[int, int], jitter: Callable[[], float], alike: int = 1
    ) -> None:
        self._limits = limits_ms
        self._jitter = jitter
        self._alike = alike
        self.attempt = 0

    def next_ms(self) -> int:
        low, high = self._limits
        top = min(high, low << min(self.attempt // self._alike, 16))
        self.attempt += 1
        return int(top * (0.5 + 0.5 * self._jitter()))


def gave_up(patience_ms: int | None, refusal: Error | None) -> ZBrokerError:
    """The error of a client that got no session for so long."""
    said = f"; the broker said {refusal.code}: {refusal.reason}" if refusal is not None else ""
    return ZBrokerError(
        "gave_up",
        f"no broker gave a session for {(patience_ms or 0) / 1_000:g} s{said}",
        "unacknowledged messages are in the publish store; a store in a file keeps them",
    )
