"""What goes into the core of one queue and what comes out of it. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field
from pyroaring import BitMap64

Verb = Literal["ack", "release", "reject", "extend"]
Run = tuple[int, int, int]  # expires_ns, first position, end
Branch = tuple[str, str]  # its principal, and the token that it staged under

MS_NS: Final = 1_000_000  # nanoseconds of a millisecond


class Arrivals(Struct):
    """Messages that enter a queue, of one read block.

    priorities, groups: aligned with the sorted positions; None: 0 for each. A priority of 0 is the
    lowest; 0 as a group: the message has none. barriers: some of the positions. expires: runs of
    messages that expire; a run may have positions that are not among `positions`. sizes: bytes of
    each, where the queue limits them; None: they are not known.
    """

    positions: BitMap64
    priorities: array[int] | None = None  # "Q"
    groups: array[int] | None = None  # "q", a hash of the key
    barriers: BitMap64 | None = None
    expires: Sequence[Run] = field(default_factory=list)
    sizes: array[int] | None = None  # "Q"

    def part(self, wanted: BitMap64) -> Arrivals:
        """Those of the messages that are also in `wanted`."""
        positions = self.positions & wanted
        if len(positions) == len(self.positions):
            return self
        ranks = [self.positions.rank(position) - 1 for position in positions]
        barriers, low = self.barriers, positions.min() if positions else None

        def column(numbers: array[int] | None) -> array[int] | None:
            return numbers and array(numbers.typecode, [numbers[rank] for rank in ranks])

        return Arrivals(
            positions,
            column(self.priorities),
            column(self.groups),
            None if barriers is None else barriers & positions,
            [
                (ns, max(first, low), end)
                for ns, first, end in self.expires
                if low is not None and end > low
            ],
            column(self.sizes),
        )


class Lock(NamedTuple):
    """How a branch is to take messages. reject: the text that they are to be dead letters with; "":
    they are to be acknowledged."""

    branch: Branch
    reject: str = ""


class Outcome(NamedTuple):
    """A decision to be committed; its positions are going until the fold reads it, or `undo`.

    why: of "gone": acked rejected purged sent unreadable time_limit max_deliveries max_cancels
    max_length; of "failed": cancelled lease_ended; of "granted", which goes to another instance:
    granted.
    due_ns: of "failed": not offered again before this wall time, 0: at once. letter: of "gone": the
    text of the dead letter to be made of each; "": none.
    delay_ms: of "failed": how long that is from when it was decided. lock: of "locked", which is
    the fate of what a branch of a distributed transaction is to take: how.
    """

    positions: BitMap64
    fate: str
    why: str
    due_ns: int = 0
    letter: str = ""
    delay_ms: int = 0
    lock: Lock | None = None


class Offer(NamedTuple):
    """Given to a consumer now.

    barrier: it goes to every consumer and is not leased. first_commit: at-most-once: it is sent
    only after `gone sent` is durable. acquired: the consumer asked for these.
    """

    consumer: int
    positions: BitMap64
    barrier: bool = False
    first_commit: bool = False
    acquired: bool = False


class SettleResult(NamedTuple):
    """taken: so many messages; ignored: so many were not here, or leased to somebody else."""

    outcomes: list[Outcome]
    taken: int
    ignored: int


class Standing(NamedTuple):
    """The state of one message: ready leased delayed going waiting elsewhere locked gone;
    replayable: acked kept.

    due: monotonic ms at which a lease or delay is over; None: there is none, or it has no end.
    deliveries: with the one that lasts. failures: releases and ended leases.
    """

    state: str
    consumer: int | None = None
    due: int | None = None
    deliveries: int = 0
    failures: int = 0


class Numbers(NamedTuple):
    """Messages by state; together they are all. waiting: for a barrier, or for their group."""

    ready: int
    leased: int
    delayed: int
    going: int
    waiting: int
