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
    message: m.Answer | m.Heartbeat


class Token(NamedTuple):
    """Answer this logon; the loop adds endpoints and a token, which need a key and a clock."""

    client: Client
    answer: m.Ack


Effect = Send | Token | LinkEffect | LiveEffect
