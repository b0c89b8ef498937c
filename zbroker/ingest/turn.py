"""What one turn of ingest is about: the limits it keeps and what it collects. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from zbroker.errors import ClientError
from zbroker.ingest.effects import Effect
from zbroker.ingest.packer import Run
from zbroker.limits import CLIENTS_MAX
from zbroker.wire.messages import ClientCommand


@dataclass(slots=True, frozen=True)
class Limits:
    """What ingest tells and enforces; see `[limits]` of the settings."""

    message_bytes: int
    batch_bytes: int
    window_bytes: int
    clients: int
    publisher_time: bool = False
    clients_per_principal: int = CLIENTS_MAX


class Item(NamedTuple):
    """One command of a turn: decoded, or the error that decoding gave."""

    rid: bytes
    command: ClientCommand | ClientError
    body: bytes | None
    cid: str | None = None
    key: str = ""  # the CURVE key of its connection


@dataclass(slots=True)
class Turn:
    """What one turn collects."""

    now_ms: int
    effects: list[Effect] = field(default_factory=list)
    runs: dict[bytes, Run] = field(default_factory=dict)
