"""Staged parts and commits of other instances, as they come into this log. Pure.

    part     stored whole, in a stage of its own instance, whatever else is here of its sequences:
             that stage may be aborted, and then only the parts of another one count
    commit   names its parts by identity. Stored with their places in this log, and refused as long
             as one of them is not here (`stage_unknown`), so the rest of its origin waits
             a batch of its app that another instance committed, too: only noted (noop), and kept
             as a conflict: readers here have the other one

A batch of an app that both sides of a cut committed is shown once on each instance, not the same
one on all of them: which came first differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from msgspec.structs import replace

from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal.group_builder import Body, GroupBuilder
from zbroker.journal.stages import AppRow, StageKey
from zbroker.log import references
from zbroker.log.format import (
    COLUMN_CONTENT_CRC,
    FLAG_LATE,
    FLAG_SHOWS,
    KIND_NOOP,
    KIND_PUBLISH,
    Batch,
    content_column,
    kept_crc,
)
from zbroker.log.references import COLUMN_STAGE, CommitRecord, Reference
from zbroker.wire import internal as m
from zbroker.wire.internal import Record

_NO_COMMIT: Final = "the body of a commit does not say which messages it shows"


def is_commit(record: Record) -> bool:
    """Whether it shows staged parts."""
    return record.kind == KIND_PUBLISH and bool(record.flags & FLAG_SHOWS)


class ReplicatedStages:
    """Places them into the group of `to`. copy: a record as a batch of this log."""

    def __init__(self, to: GroupBuilder, copy: Callable[[Record, Body], Batch]) -> None:
        self._to = to
        self._copy = copy

    def place(self, record: Record, body: Body, seen: int) -> None:
        """Places one. seen: how far records of its origin are here. Raises: ClientError."""
        if record.position <= seen:
            reason = "a part of this staged batch, or commit, is here already: it is never cut"
            raise ClientError("bad_field", reason)
        if is_commit(record):
            self._commit(record, body)
        elif all(tag != COLUMN_STAGE for tag, _ in record.extra):
            raise ClientError("bad_field", "a staged part has a column with its token")
        else:
            batch = self._put(record, body)
            known = self._to.sessions.meet(record.publisher)
            self._to.sessions.stages.placed(batch, known.principal)

    def _put(self, record: Record, body: Body) -> Batch:
        to = self._to
        known = to.sessions.meet(record.publisher)
        batch = self._copy(record, body)
        late = batch.sequence + batch.taken - 1 <= known.high
        batch.flags = batch.flags & ~FLAG_LATE | (FLAG_LATE if late else 0)
        to.put(batch)
        to.sessions.stored(known, batch)
        to.sessions.origins.fold(batch)
        return batch

    def _commit(self, record: Record, body: Body) -> None:
        stages, origin = self._to.sessions.stages, Origin(record.instance, record.generation)
        said = references.decode(body)
        if (
            said is None
            or not crc32c(body) == record.crc == kept_crc(record.extra, record.crc)
            or not _is_whole(said, record)
        ):
            raise ClientError("bad_field", _NO_COMMIT)
        other = stages.committed_elsewhere(said, origin)
        if other is not None:
            self._conflict(record, body, other)
            return
        resolved = replace(said, parts=self._resolve(said))
        data = references.encode(resolved)
        extra = [column for column in record.extra if column[0] != COLUMN_CONTENT_CRC]
        extra.append(content_column(record.crc))
        batch = self._put(replace(record, crc=crc32c(data), extra=extra), data)
        stages.committed(resolved, batch)
        self._to.messages += batch.taken

    def _resolve(self, said: CommitRecord) -> list[Reference]:
        """The parts of a commit in this log. Raises: ClientError stage_unknown."""
        found: list[Reference] = []
        tokens, parts = iter(said.stages), iter(said.parts)
        for run in said.origins:
            here = self._here(
                Origin(run.instance, run.generation), said, islice(tokens, run.stages)
            )
            for part in islice(parts, run.parts):
                place = here.get(part.position)
                if place is None or place.count != part.count:
                    what = f"{part.count} staged messages of position {part.position}"
                    reason = f"{what} of {run.instance:016x}.{run.generation} are not here"
                    raise ClientError("stage_unknown", reason)
                found.append(place)
        return found

    def _here(
        self, origin: Origin, said: CommitRecord, tokens: Iterator[str]
    ) -> dict[int, Reference]:
        """By identity the parts of these stages."""
        get = self._to.sessions.stages.get
        found = (get(StageKey(origin, said.principal, token)) for token in tokens)
        return {part.identity: part for stage in found if stage is not None for part in stage.parts}

    def _conflict(self, record: Record, body: Body, other: AppRow) -> None:
        to = self._to
        entry = m.Entry(
            record.publisher, record.session, record.seq, record.count, record.prev, record.crc,
            None, record.topics, record.log_time,
        )  # fmt: skip
        to.conflict(entry, body, other.position)
        last = record.position + record.count - 1
        noop = Record(
            KIND_NOOP, record.instance, record.generation, last, record.after, record.log_time,
            extra=[content_column(record.crc)],
        )  # fmt: skip
        batch = self._copy(noop, b"")
        to.put(batch)
        to.sessions.origins.fold(batch)


def _is_whole(said: CommitRecord, record: Record) -> bool:
    """Whether it says where each of its messages and stages is from, all of its own instance."""
    return (
        not (record.skip or record.cut)
        and sum(part.count for part in said.parts) == record.count
        and all(part.count > 0 for part in said.parts)
        and all(
            run.instance == record.instance and run.stages >= 0 and run.parts >= 0
            for run in said.origins
        )
        and sum(run.stages for run in said.origins) == len(said.stages)
        and sum(run.parts for run in said.origins) == len(said.parts)
    )
