"""What ingest's core wants done, beside what its links to journal and delivery want. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zbroker.ingest.clients import Client
from zbroker.ingest.link import LinkEffect
from zbroker.ingest.live import LiveEffect
from zbroker.wire import messages as m


class Send(NamedTuple):
    """One answer to one client. A newer ack may replace an older one that still waits."""

    rid: bytes
    message: m.ServerAnswer | m.Heartbeat


class Token(NamedTuple):
    """Answer this logon; the loop adds endpoints and a token, which need a key and a clock."""

    client: Client
    answer: m.Ack


class Verify(NamedTuple):
    """See whether `password` is the one of `hashed`, then tell the core under this number."""

    number: int
    password: str
    hashed: str

    def __repr__(self) -> str:
        return f"Verify(number={self.number})"


Effect = Verify | Send | Token | LinkEffect | LiveEffect
