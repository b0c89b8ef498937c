"""How units of the queue process and commits of staged messages enter a group. Pure.

    unit     parts that land side by side in one group, or not at all
               control part   one record: facts of a queue, a definition, a point, a purge
               publish part   messages, with the next sequences of "$broker.<instance>.<generation>"
    commit   one batch that shows staged messages, of "$staged.<app>.<instance>.<generation>"

Only this log gives the sequences of these publishers. They are named after the log's origin, so the
messages of two instances stay apart where they are replicated, and a generation after a lost end
does not give the same bookmarks again.

All parts but the last say that the next batch belongs to them. Names are placed before the first
part, so that nothing else lands inside a unit.

A unit is refused as a whole. Where one is refused for now, the later ones of its sort (with
messages or without) are refused as well, until their sender confirms the refusals: so each sort
lands in the order in which it was sent. Nothing is compared with the log: the sender finds out
there which units landed before a restart.

A batch of an app is committed once, and none that is older than the newest one: Spark gives its
batches rising numbers and repeats the last one. So a commit that comes again after any crash is the
same or does nothing. An app may be "<name>/<run>": then the publisher of "<name>" publishes for all
runs, since publishers are known for ever and runs are not.

A client commits and aborts tokens. That is all that is staged under them here, whatever the
generation: it cannot know that one has begun, and all that was acknowledged to it is in either. A
part that was lost with the end of a log is missing in the count until it has come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from zbroker.checksums import crc32c
from zbroker.errors import Bug, ClientError
from zbroker.ids import Origin, publisher_id
from zbroker.journal import named_records
from zbroker.journal.group_builder import (
    BATCH_BYTES,
    DISK_FULL,
    NAMES_FULL,
    NOT_READY,
    Body,
    GroupBuilder,
    columns_bytes,
)
from zbroker.journal.sessions import PublisherState
from zbroker.journal.stages import Stage
from zbroker.limits import BATCH_COUNT_MAX, GROUP_MAX_BYTES
from zbroker.log import references
from zbroker.log.format import (
    FLAG_SHOWS,
    FLAG_UNIT,
    KIND_DEFINITION,
    KIND_EXCHANGE,
    KIND_OUTCOMES,
    KIND_OWNERSHIP,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_WIRING,
    Batch,
    content_column,
)
from zbroker.log.references import CommitRecord, PartsOrigin, Reference
from zbroker.wire import bodies
from zbroker.wire import internal as m
from zbroker.wire.stages import STAGES_MAX, CommitStages, StagesDone
from zbroker.wire.units import BROKER_NAME, FOR_NOW, UNIT_PARTS_MAX, CommitUnits, UnitPart

STAGED_NAME: Final = "$staged"
MESSAGES_MAX: Final = (1 << 32) - 1  # of one commit, as are the next two
PARTS_MAX: Final = 1_000_000
TOPICS_MAX: Final = 10_000

_RETURNING: Final = "peers may hold a commit of this instance that comes back first; ask again"
_HELD: Final = "a unit that was sent before it was refused for now"
_CONTROL: Final = frozenset({
    KIND_QUEUE, KIND_WIRING, KIND_POINT, KIND_PURGE, KIND_DEFINITION, KIND_OUTCOMES, KIND_OWNERSHIP,
    KIND_EXCHANGE,
})  # fmt: skip


class CommitUnit(NamedTuple):
    """Parts that land together, each with its body; `size`: bytes of log that it takes at most.

    confirmed: when it was sent, its sender had seen the receipts up to this ordinal.
    """

    parts: list[UnitPart]
    bodies: list[Body]
    size: int
    confirmed: int = 0


def units_of(commit: CommitUnits, sent: Sequence[Body]) -> Iterator[CommitUnit]:
    """The units of a Commit, which came with these bodies. Raises: Bug."""
    count = sum(map(len, commit.units))
    if count != len(sent):
        raise Bug(f"{count} parts came with {len(sent)} bodies")
    at = 0
    for parts in commit.units:
        taken = list(sent[at : at + len(parts)])
        at += len(parts)
        size = BATCH_BYTES * (1 + len(parts)) + sum(map(len, taken))  # one may be the name
        size += sum(columns_bytes(part) for part in parts)
        yield CommitUnit(parts, taken, size, commit.confirmed)


def broker_name(origin: Origin) -> str:
    """The name that the broker itself publishes under in the log of this origin."""
    return f"{BROKER_NAME}.{origin.instance:016x}.{origin.generation}"


def staged_name(app: str, origin: Origin) -> str:
    """The name that commits of an app publish under in the log of this origin."""
    return f"{STAGED_NAME}.{app}.{origin.instance:016x}.{origin.generation}"


class OwnPublishers:
    """Publishes in the broker's own names; a session of each is opened once in a process."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._opened: set[str] = set()

    def open(self, name: str) -> PublisherState:
        """Raises: ClientError publisher_collision."""
        to = self._to
        known = to.sessions.get(publisher_id(name)) if name in self._opened else None
        if known is None:
            known = to.sessions.open(name, "", to.wall_ns)
            self._opened.add(name)
        return known

    def publish(
        self, known: PublisherState, part: UnitPart, body: Body, *, flags: int = 0
    ) -> Batch:
        """Puts a batch with the next sequences of this publisher into the group."""
        to, high = self._to, known.high
        entry = m.Entry(
            known.id, known.session, high + 1, part.count, high, part.crc, None, part.topics, None,
            part.columns,
        )  # fmt: skip
        batch = to.batch_of(entry, body, 0, known)
        batch.flags = flags
        to.put(batch)
        to.messages += batch.taken
        to.sessions.accepted(entry, to.next_position - 1, to.generation)
        return batch


class Units:
    """Places units into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self.taken = 0  # units
        self._own = OwnPublishers(to)
        self._held = [0, 0]  # ordinals of the newest units that were refused for now, by sort

    def begin(self) -> None:
        """Another sender, or the same one on another connection: its ordinals begin again."""
        self._held = [0, 0]

    def place(self, ordinal: int, unit: CommitUnit, *, fits: bool) -> m.ReceiptItem:
        """Judges one unit: all of it goes into the group, or nothing. fits: it has space."""
        sort = any(part.kind == KIND_PUBLISH for part in unit.parts)
        try:
            if unit.confirmed < self._held[sort]:
                raise ClientError("not_ready", _HELD)
            self._check(unit, fits)
            known = self._publisher(unit)
        except ClientError as error:
            self._to.refused += 1
            if error.code in FOR_NOW:
                self._held[sort] = ordinal
            return m.ReceiptItem(ordinal, 0, 0, 0, error.code, error.reason)
        first, before = self._to.next_position, len(self._to.batches)
        for part, body in zip(unit.parts, unit.bodies, strict=True):
            if known is not None and part.kind == KIND_PUBLISH:
                self._own.publish(known, part, body)
            else:
                self._to.control(part.kind, bytes(body))
        for batch in self._to.batches[before:-1]:
            batch.flags |= FLAG_UNIT
        self.taken += 1
        return m.ReceiptItem(ordinal, self._to.next_position - 1, first)

    def _check(self, unit: CommitUnit, fits: bool) -> None:
        """Raises: ClientError."""
        if self._to.fenced:
            raise ClientError("not_ready", NOT_READY)
        if not 0 < len(unit.parts) <= UNIT_PARTS_MAX:
            code = "too_large" if unit.parts else "bad_field"
            raise ClientError(code, f"a unit has 1 to {UNIT_PARTS_MAX} parts")
        sizes = [len(body) for body in unit.bodies]
        if sum(sizes) - max(sizes) > GROUP_MAX_BYTES:
            reason = f"a unit has at most {GROUP_MAX_BYTES} bytes besides its largest part"
            raise ClientError("too_large", reason)
        for part, body in zip(unit.parts, unit.bodies, strict=True):
            _check_part(part, body)
        if not fits:
            raise ClientError("disk_full", DISK_FULL)

    def _publisher(self, unit: CommitUnit) -> PublisherState | None:
        """The publisher of a unit with messages; its name is in the log before the unit.

        Raises: ClientError publisher_collision.
        """
        to = self._to
        if not any(part.kind == KIND_PUBLISH for part in unit.parts):
            return None
        known = self._own.open(broker_name(Origin(to.settings.instance, to.generation)))
        if not known.named:
            to.name(known)
        return known


def _check_part(part: UnitPart, body: Body) -> None:
    """Raises: ClientError bad_field, bad_frame."""
    if crc32c(body) != part.crc:
        raise ClientError("bad_field", "the checksum of a part is not that of its body")
    if part.kind == KIND_PUBLISH:
        _check_messages(part, body)
    elif part.kind not in _CONTROL:
        raise ClientError("bad_field", f"a record of kind {part.kind} cannot be in a unit")
    elif part.count != 1 or part.topics or part.columns is not None:
        raise ClientError("bad_field", "a control record has no topics and columns, and counts one")
    elif part.kind in named_records.KINDS and not named_records.name_of(body):
        raise ClientError("bad_field", "a definition or point has no name")


def _check_messages(part: UnitPart, body: Body) -> None:
    if not 0 < part.count <= BATCH_COUNT_MAX or not part.topics:
        raise ClientError("bad_field", f"a batch has topics, and 1 to {BATCH_COUNT_MAX} messages")
    if part.columns is not None:
        bodies.check_columns(part.columns, part.count, len(part.topics))
    elif len(part.topics) > 1:
        raise ClientError("bad_field", "key `columns.index` is needed for several topics")
    bodies.check_packed(body, part.count, None, len(body))


class CommitPlacer:
    """Places commits into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to, self._own = to, OwnPublishers(to)

    def place(self, ask: CommitStages) -> StagesDone:
        """What becomes of it; nothing is placed twice."""
        stages = self._to.sessions.stages
        last = stages.last(ask.principal, ask.app)
        if last is not None and ask.batch <= last.batch:
            same = ask.batch == last.batch
            place = (last.position, last.count) if same else (0, 0)
            return StagesDone(ask.cid, *place, already=True)
        if not ask.stages:
            return StagesDone(ask.cid)
        if self._to.commits_wait():
            return StagesDone(ask.cid, code="not_ready", reason=_RETURNING)
        try:
            chosen = self._chosen(ask)
            if ask.asks_topics:
                topics = dict.fromkeys(topic for stage in chosen for topic in stage.topics)
                return StagesDone(ask.cid, topics=list(topics))
            position, count = self._commit(ask, chosen)
        except ClientError as error:
            self._to.refused += 1
            return StagesDone(ask.cid, code=error.code, reason=error.reason)
        return StagesDone(ask.cid, position, count)

    def _chosen(self, ask: CommitStages) -> list[Stage]:
        """Raises: ClientError."""
        if self._to.fenced:
            raise ClientError("not_ready", NOT_READY)
        if not self._to.accepting:
            raise ClientError("disk_full", DISK_FULL)
        if len(ask.stages) > STAGES_MAX or len({one.token for one in ask.stages}) < len(ask.stages):
            raise ClientError("bad_field", f"a commit names 1 to {STAGES_MAX} stages, each once")
        chosen: list[Stage] = []
        for one in ask.stages:
            found = self._to.sessions.stages.own(ask.principal, one.token)
            have = sum(stage.messages for stage in found)
            if not have or have != one.messages:
                text = f"of stage {one.token[:64]!r} {have} messages are here, not {one.messages}"
                raise ClientError("stage_unknown", text)
            chosen += found
        return chosen

    def _commit(self, ask: CommitStages, chosen: list[Stage]) -> tuple[int, int]:
        """Position and count of its messages. Raises: ClientError."""
        parts: list[Reference] = [part for stage in chosen for part in stage.parts]
        topics = list(dict.fromkeys(topic for stage in chosen for topic in stage.topics))
        count = sum(stage.messages for stage in chosen)
        if len(parts) > PARTS_MAX or len(topics) > TOPICS_MAX or count > MESSAGES_MAX:
            text = f"a commit shows at most {PARTS_MAX} parts and {TOPICS_MAX} topics"
            raise ClientError("too_large", text)
        known = self._publisher(ask.app.partition("/")[0], ask.principal)
        tokens = [stage.key.token for stage in chosen]
        origins = _origins_of(chosen)
        record = CommitRecord(ask.app, ask.batch, tokens, parts, ask.principal, origins)
        body = references.encode(record)
        part = UnitPart(KIND_PUBLISH, crc32c(body), topics, count)
        batch = self._own.publish(known, part, body, flags=FLAG_SHOWS)
        travels = references.encode_by_identity(record, batch.origin)
        batch.extra = [content_column(crc32c(travels))]  # where its parts are here is not content
        self._to.sessions.stages.committed(record, batch)
        return batch.position, count

    def _publisher(self, app: str, principal: str) -> PublisherState:
        """The publisher of an app; its name is in the log before its messages.

        It counts as a name of the principal that commits first; others may have apps of that name.
        Raises: ClientError publisher_collision, not_entitled, too_many.
        """
        to = self._to
        origin = Origin(to.settings.instance, to.generation)
        known = self._own.open(staged_name(app, origin))
        if not known.named:
            if to.sessions.names_of(principal) >= to.settings.names_max:
                raise ClientError("too_many", NAMES_FULL)
            known.principal = known.principal or principal
            to.name(known)
        return known


def _origins_of(chosen: list[Stage]) -> list[PartsOrigin]:
    found = []
    for origin, stages in groupby(chosen, key=lambda stage: stage.key.origin):
        parts = [len(stage.parts) for stage in stages]
        found.append(PartsOrigin(origin.instance, origin.generation, len(parts), sum(parts)))
    return found
