"""What a client tells of its connection. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from zbroker.errors import ZBrokerError

Name = Literal[
    "connecting",
    "logged_on",
    "republished",
    "resubscribed",
    "broker_behind",
    "disconnected",
    "closed",
]


class ConnectionState(Struct, frozen=True):
    """What became of a client's connection, and to which URL.

    connecting: it is tried. logged_on: there is a session; what the store holds is being sent.
    republished: all of that is settled, also what was queued and had no number yet; not told if
    nothing was owed. resubscribed: the subscriptions of a connection that was
    lost are there again. broker_behind: this broker lacks what was acknowledged (`error`), and the
    client goes on as was wished. disconnected: the session is lost; it is sought anew. closed:
    nothing more is published; `error` says why.
    """

    name: Name
    url: str
    error: ZBrokerError | None = None
