"""Learns publishers, origins and names from the journal's own log when it starts.

    newest complete state snapshot --> everything after it, in log order --> the table as it was

It comes to the same from every earlier beginning (see snapshot.py). A log whose oldest segments
were removed and that holds no complete snapshot can only tell of publishers that wrote in the rest:
`journal.state_missing`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from msgspec import DecodeError

from zbroker.errors import StorageError
from zbroker.journal import snapshot, snapshot_finder
from zbroker.journal.control_folds import control_folds
from zbroker.journal.sessions import Sessions
from zbroker.log import references
from zbroker.log.format import (
    FLAG_SHOWS,
    KIND_NOOP,
    KIND_ORIGIN,
    KIND_OUTCOMES,
    KIND_OWNERSHIP,
    KIND_PUBLISHER,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_STAGED,
    KIND_STATE,
    KIND_TIE,
    SEQUENCED,
    STAYS,
    STEP_OVER,
    Batch,
)
from zbroker.log.reader import Cursor, Log
from zbroker.log.records import ORIGIN, PUBLISHER

_KNOWN: Final = frozenset(  # that change nothing here
    {KIND_NOOP, KIND_PURGE, KIND_QUEUE, KIND_TIE, KIND_OUTCOMES, KIND_OWNERSHIP}
)
STATE_MISSING: Final = (
    "the oldest segments were removed and no complete state snapshot is left: publishers whose "
    "messages were all removed are unknown, so what they send again of those is stored again; so "
    "are definitions and points made at run time there"
)


class LogFold:
    """Takes every batch from where `begin` says on, in log order, control records with bodies.

    state_serial: of the newest segment in which a complete snapshot begins, 0: there is none.
    """

    def __init__(self, instance: int = 0) -> None:
        self.sessions = Sessions(instance)
        self.state_serial = 0
        self._folds = snapshot.folds(self.sessions)
        self._control_folds = control_folds(self.sessions)
        self._parts = snapshot.SnapshotParts()
        self._serials: dict[int, int] = {}  # of the first part of each snapshot
        self._serial = 0
        self._firsts: dict[int, int] = {}  # where each segment begins
        self._partial = False  # the walk does not begin with the log
        self._taken: set[int] = set()  # snapshots that are the state of another instance
        self._wrote = False  # a record of its own that travels

    @property
    def opened(self) -> bool:
        """The log was open to publishers before: see first_start.py."""
        complete = self._parts.complete
        return self._wrote or bool(complete and complete not in self._taken)

    @property
    def complete(self) -> int:
        """Where the newest complete snapshot begins; 0: there is none."""
        return self._parts.complete

    def begin(self, log: Log, limit: int) -> tuple[Cursor, str]:
        """Where to begin in `log`, which ends at position `limit`; what will be missed, or ""."""
        first = log.first_position
        found = snapshot_finder.newest(log, limit)
        position = found.position if found is not None else first
        self.sessions.origins.meet(log.history.begins)
        self._partial = position > 1
        self._firsts = {start.serial: start.position for start in log.starts}
        return log.seek(position), STATE_MISSING if found is None and first > 1 else ""

    def __call__(self, batch: Batch, serial: int) -> None:
        if serial != self._serial:
            self._next_segment(serial)
        if batch.kind in SEQUENCED:
            self.sessions.fold(batch)
            self._stage(batch, serial)
        else:
            self._control(batch, serial)
        self.sessions.origins.fold(batch)
        if not self._wrote and batch.kind not in STAYS:
            self._wrote = self.sessions.origins.is_own(batch)

    def _stage(self, batch: Batch, serial: int) -> None:
        """A commit whose body is damaged leaves its parts waiting; what it shows is a gap."""
        stages = self.sessions.stages
        if batch.kind == KIND_STAGED:
            known = self.sessions.get(batch.publisher)
            stages.fold(batch, serial, known.principal if known is not None else "")
        elif batch.flags & FLAG_SHOWS:
            record = references.decode(batch.body)
            if record is not None and record.parts:
                stages.fold_commit(record, batch, serial)

    def _next_segment(self, serial: int) -> None:
        """How it begins is known only if the table is whole; a snapshot in it may know more."""
        origins = self.sessions.origins
        origins.begin_segment(serial)
        if self._partial and (not self._serial or not self._parts.complete):
            origins.begun = None
        self._serial = serial

    def _control(self, batch: Batch, serial: int) -> None:
        if batch.kind == KIND_PUBLISHER:
            self._name(batch)
        elif batch.kind == KIND_STATE:
            self._state(batch, serial)
        elif batch.kind == KIND_ORIGIN:
            self._origin(batch)
        elif batch.kind in self._control_folds:
            self._control_folds[batch.kind](batch)
        elif batch.kind not in _KNOWN and not batch.kind & STEP_OVER:
            raise StorageError(
                "unknown_version",
                f"position {batch.position} holds a record of kind {batch.kind}, which this "
                "release does not know and must not step over",
                "start the release that wrote it, or a newer one",
            )

    def _name(self, batch: Batch) -> None:
        """A record whose body is damaged is left out: its next logon brings the name again."""
        with suppress(DecodeError, UnicodeDecodeError):
            record = PUBLISHER.decode(batch.body)
            self.sessions.fold_name(batch.publisher, record.name, record.principal)

    def _origin(self, batch: Batch) -> None:
        """One whose body is damaged leaves the row as it was; its position rises with records."""
        with suppress(DecodeError, UnicodeDecodeError):
            self.sessions.declare(ORIGIN.decode(batch.body), batch.position)

    def _state(self, batch: Batch, serial: int) -> None:
        """A part whose body is damaged is left out, and its snapshot is not complete."""
        body = snapshot.decode(batch.body)
        if body is None:
            return
        snapshot.learn(body, self._folds)
        self._parts.add(body)
        if snapshot.TAKEN in body.folds:
            self._taken.add(body.through)
        if body.part == 0:
            self._serials[body.through] = serial
            begun = snapshot.begun(body, self._firsts.get(serial, 0))
            if begun is not None:
                self.sessions.origins.begun = begun.messages
                self.sessions.origins.stored_begun = begun.stored
        self.state_serial = self._serials.get(self._parts.complete, 0)
