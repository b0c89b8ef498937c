"""Builds groups: gives positions and log times to batches that are to be stored. Pure.

    entry of a publisher   judged by its session, cut where it overlaps, placed
    record of a peer       see replicas.py
    control record         a name, a part of a snapshot, a point, a purge
    unit                   see units.py

An entry that falls into holes becomes several batches over the same body, one for each run of
sequences that the log lacks: `skip` and `cut` say which of its messages count.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate, chain
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from zbroker.checksums import crc32c
from zbroker.journal.control_folds import control_folds
from zbroker.journal.end_note import Proof
from zbroker.journal.holes import Run
from zbroker.journal.later_generations import LaterGenerations
from zbroker.journal.sessions import (
    PublisherState,
    Recent,
    Sessions,
    Verdict,
    prev_of,
    refusal,
)
from zbroker.journal.stages import STAGED_MAX_BYTES
from zbroker.limits import (
    JOURNAL_CREDIT_BYTES,
    MIB,
    NAMES_MAX,
    STAGED_BYTES,
    TOPIC_MAX_BYTES,
    U63_MAX,
)
from zbroker.log import records
from zbroker.log.batch_index import time_of
from zbroker.log.format import (
    COLUMN_ROUTES,
    FLAG_LATE,
    FLAG_ZSTD,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_STAGED,
    Batch,
)
from zbroker.log.references import COLUMN_STAGE
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns

Body = bytes | memoryview

CONFLICTS_MAX: Final = 64  # waiting to be taken; more are counted only
CONFLICTS_MAX_BYTES: Final = 8 * MIB
_NO_COLUMNS: Final = Columns()
DISK_FULL: Final = "the disk is nearly full"
NOT_READY: Final = "this instance has not heard yet what its peers hold of it"
STAGES_FULL: Final = (
    "too much waits for a commit (staged_per_principal); it, an abort or time makes room"
)
NAMES_FULL: Final = "as many names of this principal are in the log as may be (names_per_principal)"

BATCH_BYTES: Final = 400  # a batch's header with one topic, zeros, and the name of its publisher
_TOPIC_BYTES: Final = TOPIC_MAX_BYTES + 2


class JournalSettings(NamedTuple):
    """What the core needs to know of its instance."""

    instance: int
    incarnation: int
    durability: str = "disk"
    publisher_time: bool = False
    credit_bytes: int = JOURNAL_CREDIT_BYTES
    names_max: int = NAMES_MAX  # of one principal
    staged_max_bytes: int = STAGED_BYTES  # of one principal, that wait for a commit
    peers: tuple[str, ...] = ()  # that may hold records of this instance


class LogEnd(NamedTuple):
    """Where the log ends at a start. serial: of the open segment. state_serial: of the segment
    with the newest complete state snapshot, 0 if there is none. proof: that nothing is missing."""

    generation: int
    next_position: int
    last_log_time: int
    log_start: int = 1
    serial: int = 0
    state_serial: int = 0
    proof: Proof = Proof.UNKNOWN
    opened: bool = True  # to publishers, by a start before: see first_start.py


class Conflict(Struct):
    """One batch whose sequences are in the log with another content, at `original_position`.

    As it is kept for people: see conflicts.py.
    """

    time_ns: int
    publisher: int
    name: str
    session: int
    seq: int
    count: int
    crc: int
    original_position: int
    topics: list[str]
    codec: str | None = None
    body: bytes = b""


class HasColumns(Protocol):
    """A batch on its way to the log."""

    @property
    def topics(self) -> list[str]: ...

    @property
    def columns(self) -> Columns | None: ...


def _further_columns(entry: m.Entry) -> list[tuple[int, bytes]]:
    found = [(COLUMN_STAGE, entry.stage.encode())] if entry.stage else []
    if entry.routes:
        found.append((COLUMN_ROUTES, entry.routes))
    return found


def columns_bytes(batch: HasColumns) -> int:
    """Bytes of columns and of topics after the first, at most."""
    columns, size = batch.columns, _TOPIC_BYTES * max(0, len(batch.topics) - 1)
    if columns is not None:
        size += len(columns.index or b"") + 2 * len(columns.time or b"") + _TOPIC_BYTES
        size += sum(map(len, filter(None, (columns.keys, columns.headers, columns.expiry))))
    return size


class GroupBuilder:
    """One group at a time, in `batches`. `accepting`: False while the disk is nearly full.

    state_fits: False when not even a part of a state snapshot fits on it. left_bytes: that a
    group has on it at most, while publishers are not accepted.
    decided, fenced: what may be placed. An instance with peers begins undecided and fenced: they
    may hold more of it than it does itself, if its disk is an old copy. A position that it gave
    again before it knows would make the lost record look like a duplicate. So, exactly:
        undecided          nothing
        decided, fenced    records of peers, its lost end among them; of its own only names and
                           meanings of rows, which these need, in the generation decided on
        else               everything
    next_position: of the next message to be placed. log_time: the newest one given.
    """

    def __init__(self, settings: JournalSettings, sessions: Sessions, end: LogEnd) -> None:
        self.settings = settings
        self.sessions = sessions
        self._control_folds = control_folds(sessions)
        self.generation = end.generation
        self.next_position = end.next_position
        self.log_time = end.last_log_time
        self.accepting = True
        self.decided, self.fenced = True, False
        self.started_ns = 0  # when this journal began to serve
        self.waits = ""  # why no publisher may log on yet
        self.commits_wait: Callable[[], bool] = lambda: False  # of stages: one may come from a peer
        self.takes_state = self.fills = False  # see first_start.py
        self.awaits: list[str] | None = None  # likewise
        self.later = LaterGenerations(settings.instance)
        self.state_fits = True
        self.left_bytes = U63_MAX
        self.conflicts = self.refused = self.duplicates = self.messages = self.late = 0
        self.batches: list[Batch] = []
        self.wall_ns = 0
        self._kept: list[Conflict] = []
        self._kept_bytes = 0
        sessions.origins.instance = settings.instance

    def begin(self, wall_ns: int) -> None:
        """Begins a group; its batches get log times of about `wall_ns`."""
        self.batches = []
        self.wall_ns = wall_ns

    def take_conflicts(self) -> list[Conflict]:
        """Conflicts since the last call that are to be kept aside; bounded."""
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        return kept

    # -- publishers of this instance ----------------------------------------------------------

    def place(self, ordinal: int, entry: m.Entry, body: Body) -> m.ReceiptItem:
        """Judges one entry; what the log lacks of it goes into the group."""
        verdict, last = self.sessions.judge(entry), entry.seq + entry.count - 1
        if verdict.what == "accept":
            verdict = self._refusal(entry, len(body)) or verdict
        if verdict.what == "refuse":
            self.refused += 1
            known = self.sessions.get(entry.publisher)
            high = known.high if known is not None else 0
            return m.ReceiptItem(ordinal, 0, high, 0, verdict.code, verdict.reason)
        if verdict.what == "duplicate":
            self.duplicates += entry.count
            if verdict.conflict:
                self.conflict(entry, body, verdict.position)
            return m.ReceiptItem(ordinal, verdict.position, last, entry.count)
        known = self.sessions.get(entry.publisher)
        assert known is not None
        if not known.named:
            self.name(known)
        if verdict.runs:
            return self._place_runs(ordinal, entry, body, verdict.runs)
        batch = self.batch_of(entry, body, verdict.skip, known)
        self.batches.append(batch)
        self.next_position = batch.end_position
        if entry.stage:
            self.sessions.stages.placed(batch, known.principal)
        else:
            self.messages += batch.taken
        self.duplicates += verdict.skip
        self.sessions.accepted(entry, self.next_position - 1, self.generation)
        return m.ReceiptItem(ordinal, self.next_position - 1, last, verdict.skip)

    def _refusal(self, entry: m.Entry, size: int) -> Verdict | None:
        """Why an entry that its session could go on with is not taken now."""
        if self.fenced:
            return refusal("not_ready", NOT_READY)
        if not self.accepting:
            return refusal("disk_full", DISK_FULL)
        known = self.sessions.get(entry.publisher)
        assert known is not None
        if entry.stage and not self._stages_fit(known.principal, size):
            return refusal("disk_full", STAGES_FULL)
        if not known.named and self.sessions.names_of(known.principal) >= self.settings.names_max:
            return refusal("too_many", NAMES_FULL)
        return None

    def _stages_fit(self, principal: str, size: int) -> bool:
        stages, most = self.sessions.stages, self.settings.staged_max_bytes
        if stages.bytes + size > STAGED_MAX_BYTES:
            return False
        return stages.bytes + size <= most or stages.bytes_of(principal) + size <= most

    def batch_of(self, entry: m.Entry, body: Body, skip: int, known: PublisherState) -> Batch:
        """The accepted part of an entry, as it goes to the log."""
        columns, log_time = self._times(entry)
        position = self.next_position
        return Batch(
            KIND_STAGED if entry.stage else KIND_PUBLISH,
            position,
            entry.publisher,
            entry.session,
            entry.seq + skip,
            prev_of(entry, known) if entry.hole else known.high,
            entry.count,
            log_time,
            entry.topics,
            body,
            entry.crc,
            len(body),
            skip,
            FLAG_ZSTD if entry.codec else 0,
            self.settings.instance,
            self.generation,
            position,
            columns,
            _further_columns(entry),
        )

    def _times(self, entry: m.Entry) -> tuple[Columns | None, int]:
        """Columns as they go to disk and the log time of the last message."""
        columns = entry.columns
        if columns is None or columns.time is None or not self.settings.publisher_time:
            if self.settings.publisher_time and entry.time_ns is not None:
                self.log_time = max(entry.time_ns, self.log_time)
            if columns is not None:
                columns = replace(columns, time=None)
            return (columns if columns != _NO_COLUMNS else None), self.now()
        rising = self.rising(array("q", columns.time))
        return replace(columns, time=rising.tobytes()), self.log_time

    def now(self) -> int:
        """Log time of what is placed now: never back; the publishers' own where so configured."""
        if not self.settings.publisher_time:
            self.log_time = max(self.wall_ns, self.log_time)
        return self.log_time

    def rising(self, times: array[int]) -> array[int]:
        """The same times, raised where they go back; the newest one counts from now on."""
        rising = array("q", accumulate(chain((self.log_time,), times), max))[1:]
        self.log_time = rising[-1]
        return rising

    def _place_runs(
        self, ordinal: int, entry: m.Entry, body: Body, runs: tuple[Run, ...]
    ) -> m.ReceiptItem:
        """An entry that falls into holes: only these runs of it are stored, each as a batch."""
        known = self.sessions.get(entry.publisher)
        assert known is not None
        whole = self.batch_of(entry, body, 0, known)
        last = entry.seq + entry.count - 1
        for run in runs:
            whole.prev = (entry.prev or 0) if run[0] == entry.seq else run[0] - 1
            self.store_run(known, whole, entry.seq, run)
        stored = sum(end - begin + 1 for begin, end in runs)
        self.duplicates += entry.count - stored
        end = self.next_position - 1
        known.remember(Recent(entry.seq, entry.count, entry.crc, end))
        return m.ReceiptItem(ordinal, end, last, entry.count - stored)

    def store_run(self, known: PublisherState, whole: Batch, first: int, run: Run) -> Batch:
        """Stores sequences `run` of a batch whose body begins with `first`."""
        begin, end = run
        cut = first + whole.count - 1 - end
        origin_position = whole.origin_position + begin - whole.sequence
        local = whole.origin_instance == self.settings.instance
        if local and whole.origin_generation == self.generation:
            origin_position = self.next_position
        late = end <= known.high
        batch = replace(
            whole,
            position=self.next_position,
            sequence=begin,
            log_time=time_of(whole, whole.count - cut - 1),
            skip=begin - first,
            flags=(whole.flags & ~FLAG_LATE) | (FLAG_LATE if late else 0),
            origin_position=origin_position,
            cut=cut,
        )
        self.put(batch)
        if batch.kind == KIND_STAGED:
            self.sessions.stages.placed(batch, known.principal)
        else:
            self.messages += batch.taken
        self.late += batch.taken if late else 0
        self.sessions.stored(known, batch)
        return batch

    def put(self, batch: Batch) -> None:
        """Gives it the next position."""
        self.batches.append(batch)
        self.next_position = batch.end_position
        if (fold := self._control_folds.get(batch.kind)) is not None:
            fold(batch)

    # -- control records of this instance -----------------------------------------------------

    def control(self, kind: int, body: bytes, publisher: int = 0, session: int = 0) -> None:
        """Places a record that says something besides messages."""
        position = self.next_position
        batch = Batch(
            kind, position, publisher, session, 0, 0, 1, self.now(), [], body, crc32c(body),
            len(body), 0, 0, self.settings.instance, self.generation, position,
        )  # fmt: skip
        self.put(batch)

    def name(self, known: PublisherState) -> None:
        """Puts the name into the log before the first batch of its publisher."""
        if known.name:
            self.sessions.named_in_log(known)
            body = records.encode(records.PublisherRecord(known.name, known.principal))
            self.control(KIND_PUBLISHER, body, known.id, known.session)

    # -- conflicts ----------------------------------------------------------------------------

    def conflict(self, entry: m.Entry, body: Body, position: int) -> None:
        """Counts it and keeps it to be taken, if there is space."""
        self.conflicts += 1
        size = self._kept_bytes + len(body)
        if len(self._kept) < CONFLICTS_MAX and size <= CONFLICTS_MAX_BYTES:
            known = self.sessions.get(entry.publisher)
            name = known.name if known is not None else ""
            run = self.log_time, entry.publisher, name, entry.session, entry.seq, entry.count
            content = bytes(body)
            kept = Conflict(*run, entry.crc, position, entry.topics, entry.codec, content)
            self._kept.append(kept)
            self._kept_bytes = size
