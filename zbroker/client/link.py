"""One connection to a listener of the broker: a DEALER, and a monitor that tells when it is lost.

ZeroMQ reconnects silently, and a broker that was restarted does not know the connection any more.
Without the monitor a publisher that only waits for acks would wait for ever.

Where no broker answers, `impossible`, `timed_out` and `probe` say what can be found out from here.
`connect` asks when there is no session after a moment, and again when its time is over.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from zbroker import sockets
from zbroker.client.effects import Connected, Lost, Rejected, Unreached
from zbroker.endpoints import split
from zbroker.errors import ClientError, ZBrokerError
from zbroker.limits import STORED_MAX_BYTES
from zbroker.sockets import Curve
from zbroker.wire import codec
from zbroker.wire.bodies import Body
from zbroker.wire.messages import AnyAnswer, ClientCommand
from zbroker.wire.queue_messages import AnyQueuesAnswer

WHAT: Final[dict[int, Connected | Unreached | Lost]] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Connected(),
    zmq.EVENT_CONNECT_RETRIED: Unreached(),
    zmq.EVENT_DISCONNECTED: Lost(),
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Rejected(),
}
EVENTS: Final = sum(WHAT) | int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
MECHANISM_MISMATCH: Final = 0x11000002  # ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH of zmq.h
CLOSE_LINGER_MS: Final = 200  # for a logoff or unsubscribe that was just sent
RECONNECT_IVL_MS: Final = 50
RECONNECT_MAX_MS: Final = 1_000

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]
SLICE_MS: Final = 1_000  # of a wait for an answer


class ClientLink:
    """A socket to `endpoint`, being connected in the background.

    heartbeat_s: a frozen broker and a cut link are Lost within two of them; see sockets.py. curve:
    the keys of this client and of its broker. answers: all that the listener may send.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        heartbeat_s: float | None = None,
        curve: Curve | None = None,
        answers: msgspec.msgpack.Decoder[Any] = codec.ANSWERS,
    ) -> None:
        self._answers = answers
        self._mismatch = _mismatch(secured=curve is not None)
        self.socket: Socket = context.socket(zmq.DEALER)
        sockets.know_ipv6(self.socket, endpoint)
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.SNDHWM, 0),
            (zmq.RCVHWM, 0),
            (zmq.RECONNECT_IVL, RECONNECT_IVL_MS),
            (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
            (zmq.HANDSHAKE_IVL, sockets.HANDSHAKE_IVL_MS),
            (zmq.MAXMSGSIZE, STORED_MAX_BYTES),
        ):
            self.socket.setsockopt(option, value)
        sockets.ask_for_heartbeats(self.socket, heartbeat_s)
        if curve is not None:
            sockets.identify(self.socket, curve)
        self._poller: zmq.Poller | None = None
        self.monitor: Socket = self.socket.get_monitor_socket(EVENTS)
        self.socket.connect(endpoint)

    def send(self, command: ClientCommand, body: bytes | None = None) -> None:
        """Queues one command; never blocks: the window and credit are what bounds the queue.

        With a broker that ended the handshake there is no queue for it; events say so.
        """
        header = codec.encode(command)
        with suppress(zmq.Again):
            if body is None:
                sockets.send(self.socket, header, sockets.LAST)
            else:
                sockets.send(self.socket, header, sockets.MORE)
                sockets.send(self.socket, body, sockets.LAST)  # copied: a shared one costs a thread

    def receive(self) -> tuple[AnyAnswer | AnyQueuesAnswer, Body] | None:
        """The next answer and its body, which is not copied. Skips what is unknown here."""
        while (frames := sockets.receive(self.socket)) is not None:
            try:
                answer = codec.decode(self._answers, frames[0].buffer)
            except ClientError:
                continue  # a newer broker may say more than this library understands
            return answer, frames[1].buffer if len(frames) > 1 else b""
        return None

    def has_more(self) -> bool:
        """Whether `receive` would find something; that costs less than to find nothing."""
        return sockets.has_more(self.socket)

    def answers(self, until: float) -> Iterator[AnyAnswer | AnyQueuesAnswer]:
        """Answers until that time of the monotonic clock, or until the connection is lost."""
        while (left := until - time.monotonic()) > 0:
            self.wait(min(int(left * 1_000) + 1, SLICE_MS))
            while (received := self.receive()) is not None:
                yield received[0]
            if any(isinstance(event, Lost) for event in self.events()):
                return

    def events(self) -> list[Connected | Unreached | Lost]:
        """What became of the connection since the last call."""
        events: list[Connected | Unreached | Lost] = []
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)
            if event["event"] != zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                events.append(WHAT[event["event"]])
            elif event["value"] == MECHANISM_MISMATCH:
                events.append(self._mismatch)
        return events

    def wait(self, timeout_ms: int) -> None:
        """Sleeps until there is an answer or an event, at most `timeout_ms`."""
        if self._poller is None:
            self._poller = zmq.Poller()
            self._poller.register(self.socket, zmq.POLLIN)
            self._poller.register(self.monitor, zmq.POLLIN)
        self._poller.poll(timeout_ms)

    def close(self, linger_ms: int = 0) -> None:
        """Closes both sockets."""
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(linger_ms)


def _mismatch(*, secured: bool) -> Rejected:
    """One side encrypts, and the other one does not."""
    if secured:
        return Rejected("the broker does not encrypt", "connect without credentials")
    return Rejected(
        "the broker wants to know who you are",
        "give credentials, on the command line --key and --server-key, or --context",
    )


LOOK_S: Final = 0.3  # a broker that is there has answered by then
PROBE_S: Final = 1.0  # for a connection, and for the first byte on it
_GREETING: Final = b"\xff"  # the first byte of every ZMTP peer
#: answers of a resolver that do not change by waiting
_NO_ADDRESS: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY})
_INGEST_HINT: Final = (
    "clients connect to the ingest endpoint, port 9101 unless listen.ingest says other"
)


def impossible(url: str) -> ZBrokerError | None:
    """What no waiting mends: the host has no address."""
    host = split(url).host
    try:
        socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _NO_ADDRESS:
            return ZBrokerError("not_found", f"the host {host!r} has no address", "check its name")
    return None


def timed_out(url: str, timeout: float, said: str, alone: bool) -> ZBrokerError:
    """No session came. said: what the broker said, if it said something. alone: no other URL."""
    why = said or (probe(url) if alone else "")
    return ZBrokerError(
        "timeout",
        f"no answer from {url} in {timeout} s" + (f"; {why}" if why else ""),
        "is it running? `zbroker start` prints its URL",
    )


def probe(url: str) -> str:
    """The kind of peer at `url`, in words; "" if it is a ZeroMQ socket that does not answer."""
    at = split(url)
    try:
        with socket.create_connection((at.host.strip("[]"), at.port), PROBE_S) as connection:
            with suppress(OSError):  # nothing came: what waits for us to speak first is not ZeroMQ
                if connection.recv(1) == _GREETING:
                    return ""
            return f"what listens on port {at.port} does not speak ZeroMQ: {_INGEST_HINT}"
    except socket.gaierror as error:
        return f"the host {at.host!r} cannot be looked up: {error.strerror}"
    except ConnectionRefusedError:
        return f"no process listens on port {at.port} there"
    except OSError as error:
        return f"no connection to port {at.port} there: {error.strerror or error}"
