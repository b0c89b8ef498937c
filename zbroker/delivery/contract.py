"""Events and effects that only delivery's core has. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from zbroker.delivery.points import Point
from zbroker.engine import effects as e
from zbroker.ids import Vector
from zbroker.wire.internal import Hello, Live, LiveCredit


class PlanRanges(Struct, gc=False):
    """Split the log between two points by bytes; a long log takes several turns.

    persisted: what the journal said; watermarks that say it may come later. Answered by Planned or
    ReadFailed.
    """

    rid: bytes
    cid: str | None
    start: Point
    end: int
    parts: int
    persisted: int


class FindPassed(Struct, gc=False):
    """Look what of each origin is before `end`, where a subscription begins, from `at` on: before
    that it is `vector`. A part of it in each turn. Answered by PassedFound or ReadFailed.

    cid: of the command, which is answered then.
    """

    key: int
    cid: str | None
    at: int
    end: int
    vector: Vector


class GrantLive(Struct, gc=False):
    """Tell an ingest process how much of what is not recorded it may send. It may be lost."""

    rid: bytes
    grant: LiveCredit


class CloseFiles(Struct, gc=False):
    """Close the files of the log: some may have been removed, and take space while they are open.

    Those that are needed are opened again.
    """


Effect = (
    e.Send | e.Note | e.Say | e.Reconnect | e.Follow | e.FollowMark | e.LoggedOff | e.LoggedOn
    | e.Tell | e.NoteDisconnected | e.ForgetBlocks | e.Exit | PlanRanges | FindPassed | GrantLive
    | CloseFiles
)  # fmt: skip


class DeliveryStats(Struct):
    """Counters since the start."""

    messages_out: int = 0
    bytes_out: int = 0
    unrecorded: int = 0  # messages that ingest passed on
    dropped: int = 0  # unrecorded messages for subscriptions without credit
    rewound: int = 0


class Planned(Struct, gc=False):
    """A Plan was done: half-open ranges [from, to, bytes] that cover what was to be split."""

    plan: PlanRanges
    ranges: list[tuple[int, int, int]]


class PassedFound(Struct, gc=False):
    """A FindPassed was done. vector: what covers all that is before its end, and nothing else."""

    find: FindPassed
    vector: Vector


class LiveReceived(Struct, gc=False):
    """An ingest process sent this, with one body for each entry. size: bytes of all bodies."""

    rid: bytes
    message: Hello | Live
    bodies: Sequence[bytes]
    size: int
