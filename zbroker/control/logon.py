"""Logging on at an ingest door, to learn where the admin is and to be known there.

The answer names the admin's URL and carries a session token, by which the admin identifies the
client. Only ZeroMQ's monitor reports why a handshake fails; without it every refusal would look
like a broker that does not answer.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from zbroker import endpoints, sockets
from zbroker.client import diagnosis
from zbroker.errors import ZBrokerError
from zbroker.wire import codec
from zbroker.wire import messages as m

if TYPE_CHECKING:
    from zbroker.client.credentials import Credentials

TIMEOUT_S: Final = 5.0
_MONITORED: Final = int(
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class AdminSession(NamedTuple):
    """Where the admin of the broker is, and what is shown to it."""

    admin: str
    token: str

    def __repr__(self) -> str:
        return f"Session(admin={self.admin!r})"


def log_on(url: str, credentials: Credentials | None = None) -> AdminSession:
    """Logs on at the ingest door `url`, and off again. Raises: ZBrokerError, ConfigError."""
    url = endpoints.ingest_url(url)
    if (error := diagnosis.impossible(url)) is not None:
        raise error
    curve = credentials.curve() if credentials else None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = sockets.prepared_dealer(context, url, curve=curve)
        events = dealer.get_monitor_socket(_MONITORED)
        dealer.connect(url)
        _send(dealer, _logon(credentials))
        frames = _answer(dealer, events, url, secured=curve is not None)
        answer = codec.decode(codec.ANSWERS, frames[0].buffer) if frames else None
        _send(dealer, m.Logoff())
        dealer.disable_monitor()
    finally:
        context.destroy(linger=sockets.LINGER_MS)
    return _session(answer, url)


def _logon(credentials: Credentials | None) -> m.Logon:
    name, instance = f"zbroker-admin-{secrets.token_hex(4)}", secrets.token_hex(8)
    given = credentials.given() if credentials is not None else None
    return m.Logon(client=name, instance=instance, cid="1", credentials=given)


def _send(dealer: zmq.Socket[bytes], command: m.ClientCommand) -> None:
    """Without a peer, as after a refused handshake, nothing is sent: the events say why."""
    with suppress(zmq.Again):
        dealer.send(codec.encode(command), zmq.NOBLOCK)


def _answer(
    dealer: zmq.Socket[bytes], events: zmq.Socket[bytes], url: str, *, secured: bool
) -> sockets.Frames | None:
    """What the broker says. Raises: ZBrokerError not_found, auth_failed."""
    poller = zmq.Poller()
    poller.register(dealer, zmq.POLLIN)
    poller.register(events, zmq.POLLIN)
    deadline = time.monotonic() + TIMEOUT_S
    closed = False
    while (left_s := deadline - time.monotonic()) > 0:
        ready = dict(poller.poll(int(left_s * 1000) + 1))
        if dealer in ready:
            return sockets.receive(dealer)
        if events in ready:
            event = int(recv_monitor_message(events)["event"])
            if event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                raise _refused(event, url, secured=secured)
            closed = True  # it may be starting: ZeroMQ tries again
    if closed:
        raise ZBrokerError("auth_failed", f"{url} ends each connection at its handshake", _KEYS)
    why = diagnosis.probe(url)
    told = f"no answer at {url}" + (f": {why}" if why else "")
    raise ZBrokerError("not_found", told, "is the instance running?")


_KEYS: Final = "compare the broker's public key: zbroker-admin key show"


def _refused(event: int, url: str, *, secured: bool) -> ZBrokerError:
    """The reason why the logon failed."""
    if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        reason = f"{url} does not know this key"
        return ZBrokerError("auth_failed", reason, "no principal of the access file has it")
    if secured:
        reason = f"{url} does not encrypt, or has another key"
        return ZBrokerError("auth_failed", reason, _KEYS)
    reason = f"{url} wants to know who you are"
    return ZBrokerError("auth_failed", reason, "give --key and --server-key, or --context")


def _session(answer: object, url: str) -> AdminSession:
    if isinstance(answer, m.Error):
        raise ZBrokerError(answer.code, answer.reason, answer.hint)
    told = (answer.endpoints or {}).get("admin") if isinstance(answer, m.Ack) else None
    if not told:
        raise ZBrokerError("not_found", f"{url} does not say where its admin is", "try again")
    assert isinstance(answer, m.Ack), "only an Ack names it"
    return AdminSession(told, answer.token or "")
