"""Why no broker answers: what can be found out from here, for the one who gave the URL.

`connect` asks when there is no session after a moment, and again when its time is over. Nothing is
asked where a session comes at once.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from zbroker.endpoints import split
from zbroker.errors import ZBrokerError

LOOK_S: Final = 0.3  # a broker that is there has answered by then
PROBE_S: Final = 1.0  # for a connection, and for the first byte on it
_GREETING: Final = b"\xff"  # the first byte of every ZMTP peer
#: answers of a resolver that do not change by waiting
_NO_ADDRESS: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY})
_DOOR: Final = "clients connect to the ingest endpoint, port 9101 unless listen.ingest says other"


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
            return f"what listens on port {at.port} does not speak ZeroMQ: {_DOOR}"
    except socket.gaierror as error:
        return f"the host {at.host!r} cannot be looked up: {error.strerror}"
    except ConnectionRefusedError:
        return f"no process listens on port {at.port} there"
    except OSError as error:
        return f"no connection to port {at.port} there: {error.strerror or error}"
