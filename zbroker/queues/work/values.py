"""What goes into the core of one queue and what comes out of it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from pyroaring import BitMap64

Verb = Literal["ack", "release", "reject", "extend"]
Run = tuple[int, int, int]  # expires_ns, first, behind

MS_NS: Final = 1_000_000  # nanoseconds of a millisecond


@dataclass(slots=True)
class Arrivals:
    """Messages that enter a queue, of one read block.

    priorities, groups: aligned with the sorted positions; None: 0 for each. A priority of 0 is the
    lowest, a group of 0 is no group. barriers: some of the positions. expires: only those that do.
    """

    positions: BitMap64
    priorities: array[int] | None = None  # "Q"
    groups: array[int] | None = None  # "q", a hash of the key
    barriers: BitMap64 | None = None
    expires: Sequence[Run] = field(default_factory=list)


class Outcome(NamedTuple):
    """What is to be committed; its positions are going until the fold reads it, or `undo`.

    why: of "gone": acked rejected purged sent unreadable time_limit max_deliveries max_cancels; of
    "failed": cancelled lease_ended. due_ns: of "failed": not offered again before this wall time,
    0: at once. letter: of "gone": the text of the dead letter to be made of each; "": none.
    delay_ms: of "failed": how long that is from when it was decided.
    """

    positions: BitMap64
    fate: str
    why: str
    due_ns: int = 0
    letter: str = ""
    delay_ms: int = 0


class Offer(NamedTuple):
    """Given to a consumer now.

    barrier: it goes to every consumer and is not leased. first_commit: at-most-once: it is sent
    only after `gone sent` is durable.
    """

    consumer: int
    positions: BitMap64
    barrier: bool = False
    first_commit: bool = False


class SettleResult(NamedTuple):
    """taken: so many messages; ignored: so many were not here, or leased to somebody else."""

    outcomes: list[Outcome]
    taken: int
    ignored: int


class Standing(NamedTuple):
    """Where one message stands. state: ready leased delayed going waiting gone.

    due: monotonic ms at which a lease or delay is over; None: there is none, or it has no end.
    deliveries: with the one that lasts. failures: releases and ended leases.
    """

    state: str
    consumer: int | None = None
    due: int | None = None
    deliveries: int = 0
    failures: int = 0


class Numbers(NamedTuple):
    """Messages by state; together they are all. waiting: behind a barrier, or for their group."""

    ready: int
    leased: int
    delayed: int
    going: int
    waiting: int
