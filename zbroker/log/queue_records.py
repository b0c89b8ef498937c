"""Bodies of the records of replicated queues: what all instances of such a queue know. Pure.

    KIND_DEFINITION   one definition made, changed or deleted: ReplicatedDefinition
    KIND_OUTCOMES     what became of messages: OutcomesRecord
    KIND_OWNERSHIP    to which instance messages belong from here on: OwnershipRecord

They go to other instances, so messages are named by origin, and a queue by its name and its life.
Two instances may define one queue while they are apart: these are two lives of one name, see
zbroker.queues.replicated.declarations. Facts are decoded one by one: one of a newer release is
stepped over, and the others of its record count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import DecodeError, Raw, Struct, ValidationError, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector
from zbroker.limits import U63_MAX
from zbroker.log.records import POSITIONS_MAX, runs_of
from zbroker.topics import TopicType


class QueueDeclaration(NamedTuple):
    """From the creation of a queue to its deletion: when, and where. The lowest one goes first."""

    created_ns: int
    instance: int
    generation: int


class Version(NamedTuple):
    """The highest one of a definition holds. number: one more than the highest that was seen."""

    number: int
    instance: int
    generation: int


class VectorEntry(NamedTuple):
    """An entry of a vector."""

    instance: int
    generation: int
    position: int


class ReplicatedDefinition(Struct, omit_defaults=True):
    """Body of a KIND_DEFINITION record.

    begins: a vector; the messages that it covers do not enter. source, definition, by, unit, types:
    as in a DefinitionRecord. definition None: this life has ended, for good.
    """

    name: str
    life: QueueDeclaration
    version: Version
    source: str = "config"
    begins: list[VectorEntry] = []
    definition: dict[str, Any] | None = None
    by: int = 0
    unit: int = 0
    types: list[TopicType] | None = None


class OriginSet(Struct, array_like=True, gc=False):
    """Messages of one origin. steps: [first position, count, gap, count, gap, count ...]."""

    instance: int
    generation: int
    steps: list[int]

    @property
    def origin(self) -> Origin:
        """Where they were accepted first."""
        return Origin(self.instance, self.generation)

    @property
    def positions(self) -> BitMap64:
        """Their origin positions. Raises: ValueError."""
        return of_steps(self.steps)


class QueueFact(Struct, tag_field="fact", array_like=True, omit_defaults=True):
    """Something that happened to messages of a replicated queue."""

    where: list[OriginSet]


class OriginsGone(QueueFact, tag=1):
    """They left the queue, for good. why: as of MessagesGone; migrated: they had left it while it
    was local, or were never in it."""

    why: str = "acked"


class OriginsFailed(QueueFact, tag=2):
    """A delivery of each failed. why, due_ns, delay_ms: as of Failed."""

    why: str = "cancelled"
    due_ns: int = 0
    delay_ms: int = 0


class Moved(QueueFact, tag=3):
    """They belong to the instance `to`. number: of the ownership, one more than it was held under.

    takeover: by hand, from an instance that is away; else the owner gave them. seen: they may have
    been delivered before. back: the owner had no use for them, and gives them back, or is to stop;
    so they do not go back to it.
    """

    to: int
    number: int
    takeover: bool = False
    seen: bool = False
    back: bool = False


class Carried(QueueFact, tag=4):
    """The state that they had when the queue was local: see zbroker.queues.work.carried. It is
    added to all other facts.

    failures, cancels: so many more are counted. due_ns, delay_ms: as of Failed, 0: no time is said.
    seen: they may have been delivered before.
    """

    failures: int = 0
    cancels: int = 0
    due_ns: int = 0
    delay_ms: int = 0
    seen: bool = False


class OriginsNoted(QueueFact, tag=5):
    """A consumer of a replayable queue acknowledged them; that moves nothing."""


class Purged(QueueFact, tag=6):
    """All messages that a vector covers left a replayable queue, for good, also those that are to
    come. where: empty."""

    covered: list[VectorEntry] = []

    @property
    def vector(self) -> Vector:
        """The vector."""
        return {Origin(one.instance, one.generation): one.position for one in self.covered}


class OriginsLocked(QueueFact, tag=7):
    """A prepared branch is to take them, see zbroker.log.records.Locked."""

    branch: tuple[str, str] = ("", "")
    reject: str = ""


AnyQueueFact = OriginsGone | OriginsFailed | Moved | Carried | OriginsNoted | Purged | OriginsLocked


class OutcomesRecord(Struct, omit_defaults=True):
    """Body of a KIND_OUTCOMES and of a KIND_OWNERSHIP record. by, unit: as in a QueueRecord."""

    queue: str
    life: QueueDeclaration
    by: int
    unit: int
    facts: list[Raw] = []


class OriginsOfState(Struct):
    """What a state snapshot says of origins: folds {origins, closed: rows}."""

    folds: dict[str, Raw]
    part: int = 0


DEFINITION: Final = msgpack.Decoder(ReplicatedDefinition)
OUTCOMES: Final = msgpack.Decoder(OutcomesRecord)
_FACT: Final = msgpack.Decoder(AnyQueueFact)
_STATE: Final = msgpack.Decoder(OriginsOfState)
_ROWS: Final = msgpack.Decoder(list[list[Any]])

Record = TypeVar("Record")


def decoded(decoder: msgpack.Decoder[Record], body: bytes | memoryview) -> Record | None:
    """None if the body is not of such a record."""
    try:
        return decoder.decode(body)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        return None


def newer(record: ReplicatedDefinition, than: ReplicatedDefinition) -> bool:
    """Which of two records of one life holds, whichever was read first. An end is final."""
    if (record.definition is None) is not (than.definition is None):
        return record.definition is None
    return record.version > than.version


def packed(facts: Iterable[AnyQueueFact]) -> list[Raw]:
    """The facts of a record."""
    return [Raw(msgpack.encode(fact)) for fact in facts]


def facts_of(record: OutcomesRecord) -> Iterator[AnyQueueFact]:
    """Those that this release knows."""
    for raw in record.facts:
        fact: AnyQueueFact | None = decoded(_FACT, raw)
        if fact is not None:
            yield fact


def steps_of(positions: BitMap64) -> list[int]:
    """The steps of an OriginSet; none for an empty set."""
    steps: list[int] = []
    last = 0
    for first, end in runs_of(positions):
        steps += (first - last, end - first)
        last = end
    return steps


def of_steps(steps: list[int]) -> BitMap64:
    """The same the other way round. Raises: ValueError for anything that is not such a set."""
    found = BitMap64()
    if len(steps) % 2:
        raise ValueError(f"{len(steps)} steps do not make runs")
    at, left = 0, POSITIONS_MAX
    for gap, count in zip(steps[::2], steps[1::2], strict=True):
        first, at = at + gap, at + gap + count
        left -= count
        if gap <= 0 or count <= 0 or at > U63_MAX or left < 0:
            raise ValueError(f"a run of {count} after a gap of {gap} is none of positions")
        found.add_range(first, at)
    return found


class StateOrigins(NamedTuple):
    """reached: how far each origin was in the log before a snapshot. closed: those of which no
    record comes any more."""

    reached: dict[Origin, int]
    closed: frozenset[Origin]


def origins_of_state(body: bytes | memoryview) -> StateOrigins:
    """From the first part of a snapshot; of another part, or one that cannot be read, nothing."""
    part = decoded(_STATE, body)
    folds = part.folds if part is not None and not part.part else {}
    try:
        closed, still_open = (_positions(folds.get(name)) for name in ("closed", "origins"))
    except (DecodeError, UnicodeDecodeError, IndexError, TypeError, ValueError):
        closed, still_open = {}, {}
    return StateOrigins(closed | still_open, frozenset(closed))


def _positions(rows: bytes | Raw | None) -> dict[Origin, int]:
    """Rows begin with instance, generation and position."""
    found = _ROWS.decode(rows) if rows is not None else ()
    return {Origin(int(row[0]), int(row[1])): int(row[2]) for row in found}
