"""Bodies of the control records: what the log says besides messages. Pure.

Maps with string keys, in msgpack: unknown keys are ignored, new ones have a default. State records
are in snapshot.py; a tie and a noop have no body, all of them is in the batch header.

    KIND_PUBLISHER, _POINT, _PURGE, _ABORT, _ORIGIN, _CLOSED, _FORGOTTEN   one struct each
    KIND_TRANSACTION   a session with transactions begins, or commits one: TransactionRecord
    KIND_BRANCH   a branch of a distributed transaction is prepared, or decided: BranchRecord
    KIND_WIRING   one definition made, changed or deleted: DefinitionRecord
    KIND_QUEUE    what became of messages of one queue: QueueRecord, with any number of facts

A definition has a name and an epoch: a queue that was deleted and made again begins a new epoch,
and no fact of an older one counts for it. Positions are those of the instance that wrote the
record. A fact is in the log after the messages that it is about, so a log with a message has all of
its facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, Final, Literal

from msgspec import DecodeError, Meta, Struct, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.limits import END_CODE_MAX, END_TEXT_MAX, HOLDER_MAX, U63_MAX
from zbroker.topics import TopicType
from zbroker.xids import Xid

BRANCH_QUEUES_MAX: Final = 1_000  # that a branch has messages of
EPOCH_MAX: Final = 1 << 62  # of a session: there is always a higher one that can be written


class PublisherRecord(Struct):
    """Body of a KIND_PUBLISHER record: the name is in the log once."""

    name: str
    principal: str = ""


class PointRecord(Struct, omit_defaults=True):
    """Body of a KIND_POINT record: a place in the log with a name.

    vector: the place in this log, by its own positions. removed: the place has no name any more;
    releases that do not know this key keep the name and its place. by, unit: as in a QueueRecord.
    covers: a vector, by the positions of all origins: the same messages are before the point on
    every instance; "": nothing is known but the place.
    """

    name: str
    vector: str
    by: int = 0
    unit: int = 0
    removed: bool = False
    covers: str = ""


class PurgeRecord(Struct, omit_defaults=True):
    """Body of a KIND_PURGE record: `queue` needs nothing any more that `vector` covers.

    by, unit: as in a QueueRecord. life: as there, of a queue of several instances, which needs
    nothing of it on this instance; else 0: the queue of that name.
    """

    queue: str
    vector: str
    by: int = 0
    unit: int = 0
    life: int = 0


class AbortRecord(Struct):
    """Body of a KIND_ABORT record: these stages end here. stages: principal and token of each.

    origins: the instance and generation that each was staged in. Without them an earlier release
    wrote it: all of its own instance.
    """

    stages: list[tuple[str, str]]
    origins: list[Origin] = []


class OriginRecord(Struct, omit_defaults=True):
    """Body of a KIND_ORIGIN record: what the row of an origin means from here on.

    All that the filter with this digest wants of the origin, from `since` on, is here up to the
    position of the row, which is at least `position`; digest 0: everything. Records below `since`
    are not all here, a declared gap. crc: content CRC of the record at `position`; -1: not known.
    skipped: a person gave up the records from here up to `position`; 0: none did. forked: a person
    has the records from `since` up to `position`, beyond the end of a closed generation, taken
    again under new names, from the instance with this id; 0: none did. Nothing else counts then.
    """

    instance: int
    generation: int
    digest: int = 0
    since: int = 0
    position: int = 0
    crc: int = -1
    skipped: int = 0
    forked: int = 0


class ClosedRecord(Struct, omit_defaults=True):
    """Body of a KIND_CLOSED record: a generation of the instance that wrote it has ended.

    There is no record of it beyond the origin position `end`, and all up to there is in each log
    before this record. 0: it had none that travels. forked: what one host had beyond that end, up
    to here, is in the log of its instance again under newer names; in a second such record of one
    generation: before it.
    """

    generation: int
    end: int = 0
    forked: int = 0


class ForgottenRecord(Struct, omit_defaults=True):
    """Body of a KIND_FORGOTTEN record: whether the generations of this instance are closed without
    the answer of this peer."""

    peer: str
    forgotten: bool = True


class TransactionRecord(Struct, omit_defaults=True):
    """Body of a KIND_TRANSACTION record: a session with transactions begins, or it committed one.

    A session has a name of its principal. epoch: higher each time it begins; commits of lower ones
    are refused from here on, and what they staged ends. number: 0: it begins; else it committed the
    transaction with this number, from 1 on in each epoch. messages: how many that shows: they are
    in the batch before this record; what it took from queues is in the records after it, in one
    unit. by, unit: as in a QueueRecord. holder: the program that a begin is of, as it calls itself;
    after: the epoch before it, 0: there was none; None: that is not compared.

    timeout_ms: how long a session that began is kept without a connection. ended: why it ended in
    this epoch, which is of no program; "": it began. code, text: what its program said of that.
    to: the instance that it was handed over to, and is to begin on next, as `holder` had it; 0: it
    was not.
    """

    principal: str
    session: str
    epoch: Annotated[int, Meta(ge=1, le=EPOCH_MAX)]
    number: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    messages: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    by: int = 0
    unit: int = 0
    holder: Annotated[str, Meta(max_length=HOLDER_MAX)] = ""
    after: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] | None = None
    timeout_ms: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    ended: Annotated[str, Meta(max_length=64)] = ""
    code: Annotated[str, Meta(max_length=END_CODE_MAX)] = ""
    text: Annotated[str, Meta(max_length=END_TEXT_MAX)] = ""
    to: Annotated[int, Meta(ge=0)] = 0


class BranchRecord(Struct, omit_defaults=True):
    """Body of a KIND_BRANCH record: what becomes of a branch of a distributed transaction.

    state: prepared: what it staged, as transaction `number` in an epoch of its session, stays
    until the branch is decided; `accepted` messages of these queues are locked, which the records
    after this one say, in one unit. committed: its `messages` are in the batch before this record;
    the records after it say what left the queues. rolled_back: what it staged ends, and they say
    what came back to the queues. forgotten: one that was decided with `heuristic`, which is kept
    until then. forced: by an instance that did not prepare it. by, unit: as in a QueueRecord.
    """

    principal: str
    xid: Xid
    state: Literal["prepared", "committed", "rolled_back", "forgotten"]
    session: str = ""
    epoch: Annotated[int, Meta(ge=0, le=EPOCH_MAX)] = 0
    number: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    messages: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    accepted: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    queues: Annotated[list[str], Meta(max_length=BRANCH_QUEUES_MAX)] = []
    heuristic: bool = False
    forced: bool = False
    by: int = 0
    unit: int = 0


PUBLISHER: Final = msgpack.Decoder(PublisherRecord)
POINT: Final = msgpack.Decoder(PointRecord)
PURGE: Final = msgpack.Decoder(PurgeRecord)
ABORT: Final = msgpack.Decoder(AbortRecord)
ORIGIN: Final = msgpack.Decoder(OriginRecord)
CLOSED: Final = msgpack.Decoder(ClosedRecord)
FORGOTTEN: Final = msgpack.Decoder(ForgottenRecord)
TRANSACTION: Final = msgpack.Decoder(TransactionRecord)
BRANCH: Final = msgpack.Decoder(BranchRecord)

encode = msgpack.encode


RUNS_MAX: Final = 64  # of positions in a list of ends; more are a bitmap
FEW: Final = 64  # positions are looked at one by one: searches for ends take up to 15 times longer
POSITIONS_MAX: Final = 1 << 32  # in a list of ends: it is a few bytes, as a set a megabyte


class DefinitionRecord(Struct, omit_defaults=True):
    """Body of a KIND_WIRING record: what a queue is from here on.

    life: which declaration of its name this is. created: position at which that began; 0: here.
    begins: messages before it do not enter; -1: those before this record. source: "config",
    "admin" or "client:PRINCIPAL". definition: a QueueConfig as a map; None: the queue is deleted.
    by, unit: as in a QueueRecord. types: how its expressions read payloads, the first that fits;
    None: it has no expressions, or was written by a release that took the types of the config.
    routes: the life that routes of messages name, of a queue that is bound. owner: of an exclusive
    queue, the principal, and the name and the program of its session; "": a connection owns it.
    forgotten: of a deletion: no other queue will have this name, so it needs not be known any more.
    """

    name: str
    life: int
    source: str = "config"
    created: int = 0
    begins: int = 0
    definition: dict[str, Any] | None = None
    by: int = 0
    unit: int = 0
    types: list[TopicType] | None = None
    routes: tuple[int, int, int] | None = None
    owner: tuple[str, str, str] | None = None
    forgotten: bool = False


class Fact(Struct, tag_field="fact", array_like=True, omit_defaults=True):
    """Something that happened to messages of a queue."""


class MessagesGone(Fact, tag=1):
    """They left the queue. why: acked, rejected, purged, sent (at-most-once), unreadable, or a
    reason of a dead letter: time_limit, max_deliveries, max_cancels, max_length, forced."""

    where: bytes
    why: str = "acked"


class Failed(Fact, tag=2):
    """They were delivered and come back. why: cancelled, lease_ended. due_ns: log time, 0: now.

    delay_ms: how long they wait, whatever the clock was then; 0: an earlier release wrote it.
    """

    where: bytes
    why: str
    due_ns: int = 0
    delay_ms: int = 0


class Horizon(Fact, tag=3):
    """All before `position` may have been delivered: after a crash it is flagged."""

    position: int


class BarrierDelivered(Fact, tag=4):
    """The barrier at this position was sent to every consumer of this instance."""

    position: int


class Returned(Fact, tag=5):
    """An operator brought them back from the dead letters: their counts begin again at 0.

    priorities, groups: of each, in the order of positions, where the queue has these.
    """

    where: bytes
    priorities: list[int] = []
    groups: list[int] = []


class Noted(Fact, tag=6):
    """A consumer of a replayable queue acknowledged them; that moves nothing."""

    where: bytes


class GoneEarly(Fact, tag=7):
    """They left a replicated queue: their acknowledgement was here before they were."""

    where: bytes


class StandIn(Fact, tag=8):
    """This instance takes over what belongs to `instance`, which is away, as it comes; on false: no
    more. name: of that one, which may be the initial owner; "": not known."""

    instance: int
    name: str = ""
    on: bool = True


class NotedEarly(Fact, tag=9):
    """As Noted, of a queue of several instances: the acknowledgement was here before them."""

    where: bytes


class Locked(Fact, tag=10):
    """A prepared branch is to take them: no consumer gets them until it is decided. branch: its
    principal, and the token that it staged under. reject: they are to be dead letters with this
    text; "": they are to be acknowledged."""

    where: bytes
    branch: tuple[str, str]
    reject: str = ""


AnyFact = (
    MessagesGone | Failed | Horizon | BarrierDelivered | Returned | Noted | GoneEarly | StandIn
    | NotedEarly | Locked
)  # fmt: skip


class QueueRecord(Struct, omit_defaults=True):
    """Body of a KIND_QUEUE record. by, unit: the incarnation of the process that wrote it and the
    number of its unit: so it finds out which of its units are in the log."""

    queue: str
    life: int
    by: int
    unit: int
    facts: list[AnyFact] = []


WIRING: Final = msgpack.Decoder(DefinitionRecord)
QUEUE: Final = msgpack.Decoder(QueueRecord)
_ENDS: Final = msgpack.Decoder(list[int])
_BITMAP: Final = b"\0"


def pack_positions(positions: BitMap64) -> bytes:
    """The bytes of a set: a msgpack array [first, end, first, end ...], or 0 and a bitmap."""
    ends: list[int] = []
    for run in runs_of(positions):
        if len(ends) == 2 * RUNS_MAX:
            return _BITMAP + bytes(positions.serialize())
        ends += run
    return msgpack.encode(ends)


def unpack_positions(data: bytes) -> BitMap64:
    """Raises: ValueError for anything that is not a set of positions."""
    if data == _BITMAP:
        raise ValueError("this bitmap has no bytes")
    if data[:1] == _BITMAP:
        return BitMap64.deserialize(data[1:])
    try:
        ends = _ENDS.decode(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"these are not positions: {error}") from None
    return of_ends(ends)


def of_ends(ends: Sequence[int]) -> BitMap64:
    """The set whose runs are [first, end, first, end ...]. Raises: ValueError."""
    found = BitMap64()
    if len(ends) % 2:
        raise ValueError(f"{len(ends)} ends do not make runs")
    left = POSITIONS_MAX
    for first, end in zip(ends[::2], ends[1::2], strict=True):
        if not 0 <= first < end <= U63_MAX:
            raise ValueError(f"[{first}, {end}) is not a run of positions")
        left -= end - first
        if left < 0:
            raise ValueError(f"these are more than {POSITIONS_MAX} positions")
        found.add_range(first, end)
    return found


def ends_of(positions: BitMap64) -> list[int]:
    """The same the other way round."""
    return [end for run in runs_of(positions) for end in run]


def runs_of(positions: BitMap64) -> Iterator[tuple[int, int]]:
    """The runs of neighbouring positions, each half-open, in order."""
    if not positions:
        return
    at, last, size = positions.min(), positions.max(), len(positions)
    if last - at == size - 1:
        yield at, last + 1
        return
    if size <= FEW:
        yield from _runs_of_few([*positions])
        return
    flat = last - at < POSITIONS_MAX and (last - at) >> 16 <= size
    others = None
    for number in count():
        if number == RUNS_MAX and flat:
            others = positions.flip(at, last + 2)
        end = others.next_set_bit(at) if others is not None else _run_end(positions, at)
        yield at, end
        if end > last:
            return
        at = positions.next_set_bit(end)


def _runs_of_few(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = end = positions[0]
    for position in positions:
        if position != end:
            yield first, end
            first = position
        end = position + 1
    yield first, end


def _run_end(positions: BitMap64, at: int) -> int:
    """Where the run that `at` is in ends, where it does not pay to turn the set over: that takes a
    step for each 65,536 positions of its width."""
    low, step = at + 1, 1  # [at, low) is in it
    while has_run(positions, low, low + step):
        low, step = low + step, 2 * step
    high = low + step  # [low, high) is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has_run(positions, low, middle) else (low, middle)
    return low


def has_run(positions: BitMap64, first: int, end: int) -> bool:
    """Whether all of [first, end) is in the set.

    Counted, since `contains_range` of CRoaring 4 also says so of a range that ends in a stretch of
    65,536 positions of which the set has none: see the tests.
    """
    return bool(positions.range_cardinality(first, end) == end - first)
