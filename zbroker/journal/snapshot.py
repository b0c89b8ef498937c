"""State snapshots: what the folds know, written into the log, so that old segments may go. Pure.

    state record   kind 3, one position, origin as all records; its body is a msgpack map
    body           v        format version of this map
                   through  position of the snapshot's first record: parts of one snapshot share it
                   part     0, 1, 2 ...
                   last     true in the last part: the snapshot is complete if all of 0 .. last are
                            there and their bodies are good
                   folds    {name: rows}, each row an array whose new fields come at its end
                   optional names of folds that a release without them may step over

A part says what is true *at its own position*, not at `through`: a large snapshot is written over
many groups while the journal goes on. Folding in log order comes out right all the same, since a
row replaces the state of its key: batches before it are in the row, those after it are
folded on top. So every start is right that begins at a complete snapshot, or before it.

Definitions, exchanges, points, transactions, branches, ranges that are missing and what is staged
are left out where there is nothing of the kind: such a log the release before can read.

A name that this release does not know, and that is not optional, stops the start (unknown_version).
Carrying such rows along would not do: the records after them would go unfolded, and once their
segments are removed the newer release could not make up for that.

A snapshot that is larger than all that was written since the last one waits: where segments are
small and the table is large, snapshots would otherwise cause roll-overs, which cause snapshots. On
a nearly full disk only the first part of one is written, and small ones: removing segments, which
makes room again, needs them. The rest waits until publishers are accepted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, msgpack

from zbroker.errors import StorageError
from zbroker.exchanges.exchange_rows import Row
from zbroker.ids import Origin
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.forgotten_peers import ForgottenRow
from zbroker.journal.group_builder import GroupBuilder
from zbroker.journal.missing_ranges import MissingRow
from zbroker.journal.origins import OriginRow, Tie
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.journal.stages import AppRow, EndedRow, LinkRow, StageRow
from zbroker.journal.transaction_table import TransactionRow
from zbroker.limits import KIB, STATE_BODY_BYTES
from zbroker.log.format import KIND_STATE
from zbroker.log.point_records import SharedPointRow
from zbroker.wire.branches import BranchRow
from zbroker.wire.units import NamedRow

VERSION: Final = 1
TAKEN: Final = "taken"  # the fold of a snapshot that is the state of another instance
_ORIGINS: Final = msgpack.Decoder(list[OriginRow])
_CLOSED: Final = msgpack.Decoder(list[ClosedRow])
_PART_BYTES_GUESS: Final = 256  # of a body, besides its rows
_ROW_SHARE: Final = 8  # a part ends with the row that brings it into its last eighth


class Body(Struct, omit_defaults=True):
    """One part of a snapshot."""

    v: int
    through: int
    part: int
    folds: dict[str, Raw]
    last: bool = False
    optional: list[str] = []


class FoldCodec(NamedTuple):
    """How one fold's state gets into a snapshot and back.

    form: the type of a list of its rows. rows: made lazily, each as of the moment it is asked for.
    fold_row: takes one of them back. always: also without a row its name is there. optional: a
    release that does not know it may step over it.
    """

    name: str
    form: type[list[Any]]
    rows: Callable[[], Iterable[Struct]]
    fold_row: Callable[[Any], None]
    always: bool = True
    optional: bool = False

    def learn(self, rows: Raw) -> None:
        """Takes rows as they were packed. Raises: StorageError unknown_version."""
        try:
            known = msgpack.decode(rows, type=self.form)
        except (DecodeError, UnicodeDecodeError) as error:
            raise _newer(f"a state snapshot has rows of an unknown form: {error}") from None
        for row in known:
            self.fold_row(row)


def folds(sessions: Sessions) -> list[FoldCodec]:
    """Those of this release. Small ones first: a look for a vector needs the first part only."""
    origins, named = sessions.origins, sessions.named
    wiring, points, stages = named.wiring, named.points, sessions.stages
    definitions, lasting, exchanges = named.definitions, named.shared.lasting, sessions.exchanges
    done = sessions.transactions
    return [
        FoldCodec("origins", list[OriginRow], origins.rows, origins.fold_row),
        FoldCodec(
            "closed",
            list[ClosedRow],
            lambda: list(origins.closed),
            origins.fold_closed_row,
            always=False,
        ),
        FoldCodec(
            "missing",
            list[MissingRow],
            sessions.missing.rows,
            sessions.missing.note,
            always=False,
            optional=True,
        ),
        FoldCodec("ties", list[Tie], lambda: list(origins.ties), origins.tie),
        FoldCodec("wiring", list[NamedRow], wiring.rows, wiring.learn, always=False),
        FoldCodec("points", list[NamedRow], points.rows, points.learn, always=False),
        FoldCodec("definitions", list[NamedRow], definitions.rows, definitions.learn, always=False),
        FoldCodec("shared_points", list[SharedPointRow], lasting, named.learn_shared, always=False),
        FoldCodec("exchanges", list[Row], exchanges.lasting, exchanges.learn, always=False),
        FoldCodec("transactions", list[TransactionRow], done.rows, done.learn, always=False),
        FoldCodec(
            "branches", list[BranchRow], done.branches.rows, done.branches.learn, always=False
        ),
        FoldCodec("links", list[LinkRow], stages.link_rows, stages.learn_link, always=False),
        FoldCodec("apps", list[AppRow], stages.app_rows, stages.learn_app, always=False),
        FoldCodec("stages", list[StageRow], stages.rows, stages.learn, always=False),
        FoldCodec(
            "ended",
            list[EndedRow],
            stages.ended_rows,
            stages.learn_ended,
            always=False,
            optional=True,
        ),
        FoldCodec(
            "forgotten",
            list[ForgottenRow],
            sessions.forgotten_peers.rows,
            sessions.forgotten_peers.fold_row,
            always=False,
            optional=True,
        ),
        FoldCodec(
            "publishers",
            list[PublisherRow],
            lambda: sessions.rows(sessions.ids()),
            sessions.fold_row,
        ),
    ]


# -- writing ----------------------------------------------------------------------------------


class Cutter:
    """Cuts the state of all folds into parts of about `part_bytes`, one at a time.

    `through`: the position of the first part. `done`: there is no more.
    """

    def __init__(
        self, parts_of: list[FoldCodec], through: int, part_bytes: int = STATE_BODY_BYTES
    ) -> None:
        self.through = through
        self.done = False
        self.bytes = 0  # of all parts so far
        self._part_bytes = part_bytes - _PART_BYTES_GUESS - part_bytes // _ROW_SHARE
        self._part = 0
        self._rows = _rows(parts_of)
        self._optional = {fold.name for fold in parts_of if fold.optional}

    def cut(self) -> bytes:
        """The body of the next part; its rows are as of now: none is asked for ahead of time."""
        packed: dict[str, list[Raw]] = {}
        size = 0
        while size < self._part_bytes:
            name, row = next(self._rows, ("", b""))
            if not name:
                self.done = True
                break
            rows = packed.setdefault(name, [])
            if row:
                rows.append(Raw(row))
                size += len(row)
        together = {name: Raw(msgpack.encode(rows)) for name, rows in packed.items()}
        optional = sorted(self._optional & packed.keys())
        part = Body(VERSION, self.through, self._part, together, self.done, optional)
        body = msgpack.encode(part)
        self._part += 1
        self.bytes += len(body)
        return body


def _rows(parts_of: list[FoldCodec]) -> Iterator[tuple[str, bytes]]:
    """Every row, packed; where a fold's name is always there an empty one before them."""
    pack = msgpack.Encoder().encode
    for fold in parts_of:
        if fold.always:
            yield fold.name, b""
        for row in fold.rows():
            yield fold.name, pack(row)


# -- reading ----------------------------------------------------------------------------------

_BODY: Final = msgpack.Decoder(Body)


def decode(body: bytes | memoryview) -> Body | None:
    """One part; None if it is none. Raises: StorageError unknown_version."""
    try:
        found = _BODY.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None
    if found.v > VERSION:
        raise _newer(f"a state snapshot has format {found.v}, this release knows {VERSION}")
    return found


def learn(body: Body, parts_of: list[FoldCodec]) -> None:
    """Folds one part. Raises: StorageError unknown_version."""
    known = {fold.name: fold for fold in parts_of}
    for name, rows in body.folds.items():
        if name in known:
            known[name].learn(rows)
        elif name not in body.optional:
            raise _newer(f"a state snapshot holds {name!r}, which this release does not know")


def origins(body: Body) -> list[OriginRow] | None:
    """What a first part says of origins, with those of closed generations."""
    rows = body.folds.get("origins")
    if rows is None:
        return None
    closed = body.folds.get("closed")
    over = _CLOSED.decode(closed) if closed is not None else ()
    return [*(_closed(row) for row in over), *_ORIGINS.decode(rows)]


def _closed(row: ClosedRow) -> OriginRow:
    return OriginRow(
        row.instance, row.generation, row.position, row.messages, row.begun, 0, 0, -1, 0,
        row.stored, row.stored_begun,
    )  # fmt: skip


class Begun(NamedTuple):
    """Per origin the newest message below the first position of a segment, and without ties."""

    messages: dict[Origin, int]
    stored: dict[Origin, int]


def begun(body: Body, first: int) -> Begun | None:
    """The same of a segment whose first position is `first`; None if it is not known.

    A snapshot at that position was written before it was known that its segment would begin.
    """
    rows = origins(body)
    if rows is None:
        return None
    at = [Origin(row.instance, row.generation) for row in rows]
    if body.through == first:
        messages = [row.messages for row in rows]
        stored = [row.of_stored for row in rows]
    elif any(row.begun < 0 for row in rows):
        return None
    else:
        messages = [row.begun for row in rows]
        stored = [row.of_stored_begun for row in rows]
    return Begun(dict(zip(at, messages, strict=True)), dict(zip(at, stored, strict=True)))


def _newer(reason: str) -> StorageError:
    return StorageError(
        "unknown_version", reason, "start the release that wrote it, or a newer one"
    )


class SnapshotParts:
    """Which parts of which snapshots were seen; `complete` is the newest whole one, 0: none."""

    def __init__(self) -> None:
        self.complete = 0
        self._seen: dict[int, set[int]] = {}
        self._counts: dict[int, int] = {}

    def add(self, body: Body) -> None:
        """Takes note of a part whose body is good."""
        seen = self._seen.setdefault(body.through, set())
        seen.add(body.part)
        if body.last:
            self._counts[body.through] = body.part + 1
        if len(seen) == self._counts.get(body.through) and body.through > self.complete:
            self.complete = body.through


STATE_PART_BYTES: Final = STATE_BODY_BYTES + 64 * KIB  # with names and headers around it


class SnapshotWriter:
    """The snapshots of one journal; the parts go into the groups of `to`.

    idle --want--> wanted --due--> being cut, part by part --synced--> idle
    """

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._cutter: Cutter | None = None
        self._wanted = False
        self._first_serial = 0
        self._end = 0  # after its last part, once that is placed
        self._last_bytes = 0  # of the one before
        self.other_bytes = 0  # written since

    @property
    def active(self) -> bool:
        """One is wanted or begun."""
        return self._wanted or self._cutter is not None

    def want(self) -> None:
        """One shall be written; if one is being written, another one after it."""
        self._wanted = True

    @property
    def due(self) -> bool:
        """A part is to be written now. On a nearly full disk a large one waits, too."""
        if self._end or self._to.fenced or not self._to.state_fits:
            return False
        if self._cutter is None:
            return self._wanted and self.other_bytes >= self._last_bytes
        return self._to.accepting or self._cutter.bytes < STATE_BODY_BYTES

    @property
    def reserved(self) -> int:
        """Bytes of a nearly full disk that are left for its next part, if that fits at all."""
        return STATE_PART_BYTES if self.active and self._to.state_fits else 0

    def place(self) -> int:
        """Puts the next part into the group; its size."""
        if self._cutter is None:
            self._wanted, self._first_serial, self.other_bytes = False, 0, 0
            self._cutter = Cutter(folds(self._to.sessions), self._to.next_position)
        body = self._cutter.cut()
        self._to.control(KIND_STATE, body)
        if self._cutter.done:
            self._end = self._to.next_position
        return len(body)

    def written(self, position: int, serial: int) -> None:
        """Everything below `position` is written, the last of it into segment `serial`."""
        if self._cutter is not None and not self._first_serial and self._cutter.through < position:
            self._first_serial = serial

    def synced(self, position: int) -> int:
        """The serial in which it begins if it has become complete and durable, else 0."""
        if not self._end or self._end > position or self._cutter is None:
            return 0
        self._last_bytes = self._cutter.bytes
        self._cutter, self._end = None, 0
        return self._first_serial
