"""What the ingest process is started with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from zbroker.access.core import Access
from zbroker.limits import CLIENTS_MAX
from zbroker.recording import Recording


@dataclass(slots=True, frozen=True)
class PublishLimits:
    """What ingest enforces; see `[limits]` of the settings."""

    message_bytes: int
    batch_bytes: int
    window_bytes: int
    clients: int
    publisher_time: bool = False
    clients_per_principal: int = CLIENTS_MAX


class IngestSettings(NamedTuple):
    """recording: which topics are recorded; None: all. workers: of delivery, by name.

    live: the link to each of them. access: who may do what; None: everybody everything. key: of
    the tokens of the instance. disconnects: how many there were by operators. spin_us: how long
    the process looks at its sockets before it sleeps, while that pays.
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
