"""What ingest's core is started with, what it hears, and what it wants done. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from zbroker.access.core import Access
from zbroker.engine import effects as e
from zbroker.limits import CLIENTS_MAX
from zbroker.recording import Recording
from zbroker.wire.internal import LiveCredit


class PublishLimits(Struct, frozen=True):
    """What ingest enforces; see `[limits]` of the settings."""

    message_bytes: int
    batch_bytes: int
    window_bytes: int
    clients: int
    publisher_time: bool = False
    clients_per_principal: int = CLIENTS_MAX


class IngestSettings(NamedTuple):
    """recording: which topics are recorded; None: all. workers: of delivery, by name.

    live: the link to each of them. access: the rules; None: everything is permitted. key: of the
    tokens of the instance. disconnects: how many there were by operators. spin_us: how long the
    process looks at its sockets before it sleeps, while that pays. replicated: acknowledgements
    wait for synchronous destinations.
    """

    limits: PublishLimits
    incarnation: int
    recording: Recording | None = None
    workers: Sequence[str] = ("delivery",)
    live: Sequence[str] = ("live",)
    access: Access | None = None
    key: bytes = b""
    disconnects: int = 0
    spin_us: int = 0
    replicated: bool = False


class Verify(Struct, gc=False):
    """See whether `password` is the one of `hashed`. Answered by Verified, with this number."""

    number: int
    password: str
    hashed: str

    def __repr__(self) -> str:
        return f"Verify(number={self.number})"


Effect = (
    e.Answer | e.Say | e.Reconnect | e.LoggedOff | e.LoggedOn | e.Tell | e.NoteDisconnected
    | e.Gate | e.Pace | e.RunOn | e.Ready | e.Exit | Verify
)  # fmt: skip


class Verified(Struct, gc=False):
    """A Verify was done."""

    number: int
    good: bool


class Granted(Struct, gc=False):
    """A delivery worker grants credit. worker: they are counted from 0."""

    worker: int
    grant: LiveCredit


class EndpointsRead(Struct, gc=False):
    """The endpoints of the instance. missing: the listeners whose endpoint is not known yet."""

    endpoints: Mapping[str, str]
    missing: Sequence[str] = ()
