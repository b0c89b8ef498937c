"""The state of another instance, with which a log begins that has nothing. Pure.

    StatePart 0, 1 ... last  --judged as a whole-->  state records, one unit, in one group

Origins are taken, publishers with their sequences, apps with their commits, sessions with the last
transaction of each, branches, and what all instances have in common: definitions of replicated
queues, points, exchanges. What belongs to its instance stays there: other queue definitions, points
that are places in one log, open stages (a sender chooses a place where none is open).
Positions of the sender's log mean nothing here, so they go.

The parts are kept in memory until the last one is here, and nothing of them is in the log before:
a crash of either side begins again, with another sender if need be. The records are written as this
release writes its own snapshots, with one more fold, `taken`, which says that the snapshot is one
that was taken: until one of its own follows, the log was never open (first_start.py).

The sender is a peer, so each row is checked like a record: a wrong one refuses the whole state.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, msgpack
from msgspec.structs import replace

from zbroker.errors import StorageError
from zbroker.exchanges.exchange_rows import Row, decoded_rows
from zbroker.ids import Origin, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.group_builder import BATCH_BYTES, Body, GroupBuilder
from zbroker.journal.link_sessions import LinkSession, Refusal, owner_of
from zbroker.journal.missing_ranges import MissingRow
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import SESSION_MAX, PublisherRow, Sessions
from zbroker.journal.stages import AppRow
from zbroker.journal.transaction_table import TransactionRow, TransactionTable
from zbroker.limits import (
    BATCH_COUNT_MAX,
    END_TEXT_MAX,
    GROUP_BUFFERS_MAX,
    MIB,
    NAME_MAX_BYTES,
    STATE_BODY_BYTES,
    U63_MAX,
)
from zbroker.log.format import FLAG_UNIT, KIND_STATE
from zbroker.log.point_records import SharedPointRow, wrong_point
from zbroker.log.records import EPOCH_MAX
from zbroker.wire.branches import BranchRow
from zbroker.wire.replication import GENERATION_MAX, INSTANCE_MAX, STATE_PARTS_MAX
from zbroker.wire.units import NamedRow

STATE_MAX_BYTES: Final = 64 * MIB  # of many 100,000 publishers; all of it is one group
_U32: Final = (1 << 32) - 1
_SAFE: Final = U63_MAX - BATCH_COUNT_MAX
_TAKEN: Final = snapshot.TAKEN

_FORMS: Final[dict[str, msgpack.Decoder[Any]]] = {
    "origins": msgpack.Decoder(list[OriginRow]),
    "closed": msgpack.Decoder(list[ClosedRow]),
    "publishers": msgpack.Decoder(list[PublisherRow]),
    "apps": msgpack.Decoder(list[AppRow]),
    "definitions": msgpack.Decoder(list[NamedRow]),
    "shared_points": msgpack.Decoder(list[SharedPointRow]),
    "exchanges": msgpack.Decoder(list[Raw]),
    "transactions": msgpack.Decoder(list[TransactionRow]),
    "branches": msgpack.Decoder(list[BranchRow]),
}


class FirstState(NamedTuple):
    """A state that was judged. source: the instance that sent it; bytes: of its parts."""

    source: int
    origins: list[OriginRow]
    closed: list[ClosedRow]
    publishers: list[PublisherRow]
    apps: list[AppRow]
    definitions: list[NamedRow]
    shared_points: list[SharedPointRow]
    exchanges: list[Row]
    transactions: list[TransactionRow]
    branches: list[BranchRow]
    bytes: int

    @property
    def size(self) -> int:
        """Bytes of log that it takes, at most."""
        parts = 2 + 2 * self.bytes // STATE_BODY_BYTES
        return 2 * self.bytes + parts * BATCH_BYTES + STATE_BODY_BYTES


class Taken(Struct, array_like=True):
    """A row of the fold `taken`: the state of this instance is here, from `position` on."""

    instance: int
    position: int


class _Wrong(Exception):
    """A row that cannot be."""


class StateReceiver:
    """Collects the parts of one state for the log of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._from: LinkSession | None = None
        self._parts: list[bytes] = []
        self.bytes = 0

    @property
    def parts(self) -> int:
        """How many are here."""
        return len(self._parts)

    def forget(self) -> None:
        """It comes again, or not at all."""
        self._from, self._parts, self.bytes = None, [], 0

    def take(
        self, link: LinkSession | None, part: int, body: Body, *, last: bool
    ) -> FirstState | Refusal | None:
        """One part. Returns: the state, once it is whole; None: more is to come."""
        if link is None or link.ended:
            return "dropped", "a newer session of this link has begun"
        if part == 0:
            self.forget()
            self._from = link
        if link is not self._from or part != len(self._parts):
            return self._refused("dropped", "the parts of a state come in order, over one link")
        if link.digest or not link.brings_everything:
            reason = "a state is of all topics, and this source may not bring all of them"
            return self._refused("not_entitled", reason)
        self._parts.append(bytes(body))
        self.bytes += len(body)
        if len(self._parts) > STATE_PARTS_MAX or self.bytes > STATE_MAX_BYTES:
            reason = f"a state has at most {STATE_MAX_BYTES} bytes in {STATE_PARTS_MAX} parts"
            return self._refused("too_large", reason)
        if not last:
            return None
        try:
            state = _judged(link.peer, self._parts, Origin(self._here, self._to.generation))
        except _Wrong as wrong:
            return self._refused("bad_field", f"the state is refused: {wrong}")
        self.forget()
        return state

    @property
    def _here(self) -> int:
        return self._to.settings.instance

    def _refused(self, code: str, reason: str) -> Refusal:
        self.forget()
        return code, reason

    def place(self, state: FirstState) -> Refusal | None:
        """Puts it into the group, as one unit. Returns: why it is not taken."""
        to = self._to
        if not to.sessions.is_empty:
            return (
                "not_empty",
                "the log has records by now; a state is taken into an empty one",
            )
        if not to.accepting:
            return "disk_full", "there is no space for the state; free some, it comes again"
        begun, position = len(to.batches), to.next_position
        bodies = _bodies(state, position, self._here)
        if len(bodies) > GROUP_BUFFERS_MAX // 4:
            return "too_large", "the state has more parts than one group may have"
        for body in bodies:
            to.control(KIND_STATE, body)
        for batch in to.batches[begun:-1]:
            batch.flags |= FLAG_UNIT
        learn(state, to.sessions, position)
        return None


def learn(state: FirstState, sessions: Sessions, position: int) -> None:
    """What the log knows once the state is in it, at `position`.

    A message of before that comes again is acknowledged when destinations hold all of the state.
    """
    for origin in state.origins:
        sessions.origins.fold_row(origin)
    for over in state.closed:
        sessions.origins.fold_closed_row(over)
    ends = [(one.instance, one.generation, one.position) for one in state.origins]
    ends += [(*over.origin, over.reach) for over in state.closed]
    for instance, generation, end in ends:
        if end:
            sessions.missing.note(MissingRow(instance, generation, 1, end, "state", position))
    for publisher in state.publishers:
        sessions.fold_row(replace(publisher, high_position=position))
    for app in state.apps:
        sessions.stages.learn_app(replace(app, position=max(1, position - app.count + 1)))
    for definition in state.definitions:
        sessions.named.definitions.learn(replace(definition, position=position))
    for point in state.shared_points:
        sessions.named.learn_shared(replace(point, position=position if point.covers else 0))
    for row in state.exchanges:
        sessions.exchanges.learn(row)
    _learn_transactions(state, sessions.transactions, position)


def _learn_transactions(state: FirstState, done: TransactionTable, position: int) -> None:
    for session in state.transactions:
        done.learn(session)
    for branch in state.branches:
        done.branches.learn(replace(branch, position=position))


def _bodies(state: FirstState, position: int, here: int) -> list[bytes]:
    """The records of a snapshot that says this."""
    sessions = Sessions(here)
    sessions.origins.begun = None
    learn(state, sessions, position)
    cutter, found = snapshot.Cutter(snapshot.folds(sessions), position), []
    while not cutter.done:
        found.append(cutter.cut())
    first = snapshot.decode(found[0])
    assert first is not None, "it was made a moment ago"
    first.folds[_TAKEN] = Raw(msgpack.encode([Taken(state.source, position)]))
    first.optional = sorted([*first.optional, _TAKEN])
    return [msgpack.encode(first), *found[1:]]


# -- judging ----------------------------------------------------------------------------------


def _judged(source: int, parts: list[bytes], here: Origin) -> FirstState:
    """Raises: _Wrong."""
    rows: dict[str, list[Any]] = {name: [] for name in _FORMS}
    for number, part in enumerate(parts):
        for name, packed in _folds(part, number, last=number == len(parts) - 1).items():
            if name not in _FORMS:
                raise _Wrong(f"it has {name!r}, which is not of a state that travels")
            try:
                rows[name] += _FORMS[name].decode(packed)
            except (DecodeError, UnicodeDecodeError) as error:
                raise _Wrong(f"rows of {name}: {error}") from None
    origins = [_origin(row, source) for row in rows["origins"]]
    closed = [_closed(row) for row in rows["closed"]]
    publishers = [_publisher(row, here) for row in rows["publishers"]]
    apps = [_app(row) for row in rows["apps"]]
    names = [(row.instance, row.generation) for row in origins] + [row.origin for row in closed]
    for keys in (names, [row.id for row in publishers]):
        if len(set(keys)) < len(keys):
            raise _Wrong("a row is there twice")
    newest = [(row.instance, row.generation) for row in origins]
    newest += [(row.instance, row.by_generation) for row in closed]
    if any(one >= here and one[0] == here.instance for one in newest):
        raise _Wrong("it has records of this instance that are newer than its own generation")
    exchanges = list(decoded_rows(rows["exchanges"]))
    transactions = [_session(row) for row in rows["transactions"]]
    branches = [_branch(row) for row in rows["branches"]]
    size = sum(map(len, parts))
    return FirstState(
        source, origins, closed, publishers, apps, rows["definitions"],
        [_point(row) for row in rows["shared_points"]], exchanges, transactions, branches, size,
    )  # fmt: skip


def _folds(part: bytes, number: int, *, last: bool) -> dict[str, Raw]:
    try:
        body = snapshot.decode(part)
    except StorageError as error:
        raise _Wrong(error.reason) from None
    if body is None or body.part != number or body.last != last:
        raise _Wrong(f"part {number} is not one of a state snapshot")
    return body.folds


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise _Wrong(what)


def _origin(row: OriginRow, source: int) -> OriginRow:
    """The same row as it is here: nothing of the origin up to its position is in this log."""
    known = 0 < row.instance <= INSTANCE_MAX and 0 <= row.generation <= GENERATION_MAX
    _demand(known, "an origin with a number that cannot be")
    numbers = (row.position, row.messages, row.crc_at, row.of_stored)
    _demand(all(0 <= number <= _SAFE for number in numbers), "a position that cannot be")
    _demand(-1 <= row.crc <= _U32, "a CRC that cannot be")
    _demand(row.digest == 0, "an origin that is there under a filter")
    end = max(row.messages, row.crc_at)
    position = end if row.instance == source else max(row.position, end)
    return OriginRow(
        row.instance, row.generation, position, position, -1, 0, position + 1, row.crc,
        row.crc_at if row.crc >= 0 else 0, position, -1,
    )  # fmt: skip


def _closed(row: ClosedRow) -> ClosedRow:
    """The same row as it is here, likewise."""
    known = 0 < row.instance <= INSTANCE_MAX and 0 <= row.generation < row.by_generation
    _demand(known and row.by_generation <= GENERATION_MAX, "a generation that cannot be")
    numbers = (row.end, row.by_position, row.position, row.beyond, row.again_position)
    _demand(all(0 <= number <= _SAFE for number in numbers), "a position that cannot be")
    _demand(0 <= row.again_generation <= GENERATION_MAX, "a generation that cannot be")
    _demand(-1 <= row.crc <= _U32, "a CRC that cannot be")
    return ClosedRow(
        row.instance, row.generation, row.end, row.by_generation, row.by_position, row.end,
        row.end, -1, row.end, -1, crc=row.crc, beyond=row.beyond,
        again_generation=row.again_generation, again_position=row.again_position,
    )  # fmt: skip


def _publisher(row: PublisherRow, here: Origin) -> PublisherRow:
    _demand(0 <= row.id <= INSTANCE_MAX, "a publisher id that cannot be")
    _demand(not row.name or row.id == publisher_id(row.name), "a name that has another id")
    texts = (row.name, row.principal)
    _demand(all(len(text.encode()) <= NAME_MAX_BYTES for text in texts), "a name that is too long")
    _demand(0 < row.high <= _SAFE, "a sequence that cannot be")
    sessions = (row.session, row.newest, row.wrote)
    _demand(all(0 <= one <= SESSION_MAX for one in sessions), "a session that cannot be")
    _demand(0 <= row.wrote_at <= INSTANCE_MAX, "an instance that cannot be")
    _demand(0 <= row.wrote_in <= GENERATION_MAX, "a generation that cannot be")
    _demand(0 <= row.given_up <= row.high, "holes that cannot be")
    end = 0
    for hole in row.holes:
        _demand(end < hole.first <= hole.last <= row.high, "holes that cannot be")
        issued = hole.issued == 0 or hole.first <= hole.issued <= hole.last
        _demand(issued, "holes that cannot be")
        end = hole.last
    owner = owner_of(row.name)
    own = owner is not None and owner.instance == here.instance
    _demand(not own or owner < here, "a name of this instance that it did not give")  # type: ignore[operator]
    return replace(row, high_position=0, late_position=0, session=0)


def _app(row: AppRow) -> AppRow:
    texts = (row.app, row.principal)
    _demand(all(len(text.encode()) <= NAME_MAX_BYTES for text in texts), "an app's name")
    numbers = (row.batch, row.count, row.instance, *row.earlier)
    _demand(all(0 <= number <= INSTANCE_MAX for number in numbers), "a commit that cannot be")
    _demand(0 <= row.generation <= GENERATION_MAX, "a commit that cannot be")
    return replace(row, position=0)


def _point(row: SharedPointRow) -> SharedPointRow:
    _demand(row.instance > 0, "a point without an instance")
    _demand(not wrong_point(row), f"a point: {wrong_point(row)}")
    return row


def _session(row: TransactionRow) -> TransactionRow:
    texts = (row.principal, row.session, row.holder, row.ended, row.code)
    _demand(all(len(text.encode()) <= NAME_MAX_BYTES for text in texts), "a session's name")
    _demand(len(row.text) <= END_TEXT_MAX, "a session's end")
    _demand(0 < row.epoch <= EPOCH_MAX, "an epoch that cannot be")
    _demand(0 <= row.committed <= row.epoch, "an epoch that cannot be")
    _demand(0 < row.instance <= INSTANCE_MAX, "an instance that cannot be")
    numbers = (row.number, row.messages, row.timeout_ms)
    _demand(all(0 <= number <= U63_MAX for number in numbers), "a transaction that cannot be")
    return replace(row, position=0)


def _branch(row: BranchRow) -> BranchRow:
    texts = (row.principal, row.session, *row.queues)
    _demand(all(len(text.encode()) <= NAME_MAX_BYTES for text in texts), "a branch's name")
    _demand(0 < row.epoch <= EPOCH_MAX, "an epoch that cannot be")
    _demand(0 < row.instance <= INSTANCE_MAX, "an instance that cannot be")
    numbers = (row.number, row.messages, row.accepted, row.prepared_ns)
    _demand(all(0 <= number <= U63_MAX for number in numbers), "a branch that cannot be")
    return replace(row, position=0)
