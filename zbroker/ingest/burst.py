"""What ingest collects while it handles a burst of commands. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from zbroker.ingest.effects import Effect
from zbroker.ingest.packer import PublishRun


@dataclass(slots=True)
class Burst:
    """runs: single publishes that are being packed, by connection."""

    now_ms: int
    effects: list[Effect] = field(default_factory=list)
    runs: dict[bytes, PublishRun] = field(default_factory=dict)
