"""Records of a closed generation beyond its end, which another host has, are taken again. Pure.

An instance closed a generation where its own log, set back to an older disk, ended; a host that was
not waited for has more of it. Those names are not given back: a vector that passed the closing
record has passed the generation. A person on the owner of the name says whose records are taken
(`replication fork`); from then on such a record is placed like a publish of this instance:

    closed, refused --fork--> taking --a record up to `takes`--> closed again, all beyond is here

    message that is missing here   stored in the newest generation, with its former name (a column)
    message that is here           a noop with that name: another publisher session brought it
    tie                            likewise: its messages are here
    any other record               a noop that counts it: staged parts among them
    commit of a staged batch       refused (stage_unknown): its parts are under names that no log
                                   has but that of the host; a person may skip it

Each leaves a record with its former name, so the log knows after a crash how far it went; a record
that comes twice is here by then. Other instances get them as records of the newest generation; on
the host they are ties. In the end a second closing record says that all is here: a vector that
passes it has passed the old names, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.group_builder import Body, GroupBuilder
from zbroker.journal.holes import Run
from zbroker.journal.origins import Origins
from zbroker.journal.replicated_stages import is_commit
from zbroker.journal.sessions import PublisherState, Recent
from zbroker.log import records
from zbroker.log.format import (
    KIND_CLOSED,
    KIND_NOOP,
    KIND_ORIGIN,
    KIND_PUBLISH,
    KIND_TIE,
    Batch,
    content_column,
    kept_crc,
)
from zbroker.log.former_names import COLUMN_FORMER, FormerName
from zbroker.wire.internal import Record
from zbroker.wire.replicas import ForkOrigin

_NO_COMMIT: Final = (
    "a staged batch of a forked generation is not taken again: its parts have names that only the "
    "host has; run that batch again; `zbroker-admin replication skip` on the instance that sends "
    "this lets the records after it go on"
)
Compare = Callable[[Record, Body, PublisherState, int], None]


class ForkedRecords:
    """Places them into the group of `to`. copy: a record as a batch of this log. compare: notes
    where the same sequence has another content."""

    def __init__(
        self, to: GroupBuilder, copy: Callable[[Record, Body], Batch], compare: Compare
    ) -> None:
        self._to, self._copy, self._compare = to, copy, compare

    @property
    def _origins(self) -> Origins:
        return self._to.sessions.origins

    # -- what a person decides ----------------------------------------------------------------

    def row(self, ask: ForkOrigin) -> ClosedRow:
        """The generation that this is about. Raises: ClientError."""
        origin, here = Origin(ask.instance, ask.generation), self._to.settings.instance
        text = f"{origin.instance:016x}.{origin.generation}"
        if origin.instance != here:
            reason = f"{text} is not of this instance, {here:016x}: ask the one with that number"
            raise ClientError("bad_field", reason)
        row = self._origins.closed.get(origin)
        if row is None and origin not in self._origins.open_rows:
            raise ClientError(
                "not_found", f"nothing of {text} is in this log, and it is not closed"
            )
        if row is None:
            reason = (
                f"{text} is not closed, and nothing was changed: what other instances hold of it "
                "comes here by itself. If a link has stopped it with two CRCs, two data "
                "directories gave different messages the same names, and they are not joined: "
                "keep the one that has more, publish again what only the other one has, and start "
                "that one's instance on an empty data directory"
            )
            raise ClientError("bad_field", reason)
        if ask.last <= row.reach:
            reason = f"the host holds {text} up to {ask.last}; up to {row.reach} it is here already"
            raise ClientError("not_found", reason)
        return row

    def begin(self, ask: ForkOrigin) -> int:
        """From here on its records are taken. Returns: where the generation ended here. Asked twice
        it is one record. Raises: ClientError."""
        row = self.row(ask)
        if not ask.dry_run and (row.host, row.takes) != (ask.host, ask.last):
            said = records.OriginRecord(
                ask.instance, ask.generation, since=row.reach + 1, position=ask.last,
                forked=ask.host,
            )  # fmt: skip
            self._to.control(KIND_ORIGIN, records.encode(said))
            self._to.sessions.declare(said, self._to.next_position - 1)
        return row.end

    # -- one record ---------------------------------------------------------------------------

    def place(self, record: Record, body: Body) -> tuple[int, int]:
        """Places one that is not here. Returns: how many messages were here already, and up to
        which sequence that is not known. Raises: ClientError stage_unknown."""
        origin = Origin(record.instance, record.generation)
        if is_commit(record):
            raise ClientError("stage_unknown", _NO_COMMIT)
        if record.kind == KIND_PUBLISH:
            return self._publish(record, body, origin)
        name, tied = FormerName(origin, 0, record.last), (0, 0)
        if record.kind == KIND_TIE:
            tied = record.seq - record.skip, record.seq
            name = FormerName(origin, record.seq, record.position)
        self._noop(record, name, tied)
        return 0, 0

    def _publish(self, record: Record, body: Body, origin: Origin) -> tuple[int, int]:
        to, sessions = self._to, self._to.sessions
        seen = self._origins.get(origin).position
        known = sessions.meet(record.publisher)
        begins = record.seq - record.skip  # of the body
        first = record.seq + max(0, seen - record.position + 1)
        last = record.seq + record.last - record.position
        missing, held, doubtful = sessions.runs(record.publisher, first, last)
        if held:
            self._compare(record, body, known, begins)
        name = FormerName(origin, record.seq, record.position)
        for run in sorted(missing + held + doubtful):
            if run in missing:
                self._store(record, body, known, run)
            else:
                self._noop(record, name, run)
        if missing:
            known.remember(Recent(begins, record.count, record.crc, to.next_position - 1))
        here = sum(end - begin + 1 for begin, end in held)
        to.duplicates += here
        return here, doubtful[-1][1] if doubtful else 0

    def _store(self, record: Record, body: Body, known: PublisherState, run: Run) -> None:
        """A message as this instance would publish it now, with the name that it had."""
        to = self._to
        whole = self._copy(record, body)
        whole.origin_instance, whole.origin_generation = to.settings.instance, to.generation
        name = FormerName(Origin(record.instance, record.generation), record.seq, record.position)
        whole.extra = [*whole.extra, name.column()]
        whole.prev = record.prev if run[0] == record.seq else run[0] - 1
        self._origins.fold_former(to.store_run(known, whole, record.seq - record.skip, run))

    def _noop(self, record: Record, name: FormerName, run: Run) -> None:
        """Counts a record, or messages that are here: of these only the last takes a position."""
        to, (begin, end) = self._to, run
        position = to.next_position
        former = [column for column in record.extra if column[0] == COLUMN_FORMER]
        crc = content_column(kept_crc(record.extra, record.crc))
        batch = Batch(
            KIND_NOOP, position, record.publisher if end else 0, 0, end, max(0, begin - 1),
            end - begin + 1, to.now(), [], b"", crc32c(b""), 0, end - begin, 0,
            to.settings.instance, to.generation, position, None,
            [crc, *former, name.column()],
        )  # fmt: skip
        to.put(batch)
        self._origins.fold_former(batch)

    def skip(self, origin: Origin, last: int) -> None:
        """A person gave up a record of it that is refused."""
        self._noop(Record(KIND_NOOP, *origin, last, 0, 0), FormerName(origin, 0, last), (0, 0))

    def finish(self, origin: Origin) -> None:
        """Says so when all that was to be taken is here."""
        row = self._origins.closed.get(origin)
        if row is not None and 0 < row.takes <= row.beyond:
            said = records.ClosedRecord(origin.generation, row.end, row.beyond)
            self._to.control(KIND_CLOSED, records.encode(said))
