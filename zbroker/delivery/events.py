"""What the delivery core hears besides messages of the journal and the common events. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from zbroker.delivery.effects import PlanRanges
from zbroker.wire.internal import Hello, Live


class Planned(Struct, gc=False):
    """A Plan was done: half-open ranges [from, to, bytes] that cover what was to be split."""

    plan: PlanRanges
    ranges: list[tuple[int, int, int]]


class LiveReceived(Struct, gc=False):
    """An ingest process sent this, with one body for each entry. size: bytes of all bodies."""

    rid: bytes
    message: Hello | Live
    bodies: Sequence[bytes]
    size: int
