"""GET /replication/digests: digests of what this log holds of each origin, read in slices.

Nothing is kept from one request to the next: each reads on from where the one before says, for
SLICE_MS at most, and answers with RANGES_MAX digests at most. So a comparison of long logs takes as
long as it takes, and no memory of the instance. Headers are read and checked, bodies are not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from zbroker.admin.content_digests import ContentDigests, DigestScope, RangeDigest
from zbroker.admin.requests import DigestsQuery
from zbroker.clock import Clock
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.paths import Paths

Document = dict[str, Any]
End = Callable[[], int]  # how far the log is durable. Raises: ClientError, StorageError

SLICE_MS: Final = 200  # of reading; a request has to be answered soon
RANGES_MAX: Final = 1_000  # of one answer
SIZE_MIN: Final = 1_024  # of the ranges of a whole log: one batch may have 64 of them
NICE: Final = 19


class DigestReports:
    """Answers from any thread. end: how far the log is durable."""

    def __init__(self, paths: Paths, end: End, clock: Clock) -> None:
        self._paths = paths
        self._end = end
        self._clock = clock
        self._one = threading.Lock()  # a comparison asks for one thing at a time

    def answer(self, asked: DigestsQuery) -> Document:
        """Raises: ClientError bad_field, not_ready; StorageError."""
        only = scope_of(asked)
        positions = U63_MAX if only is None else only.end - only.first
        if asked.size < SIZE_MIN and positions > asked.size * RANGES_MAX:
            reason = f"ranges of {asked.size} positions are too many"
            raise ClientError("bad_field", reason, f"take {SIZE_MIN}, or fewer positions at once")
        persisted = self._end()
        limit = min(persisted, asked.limit or persisted)
        # the thread is that of one request
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        digests = ContentDigests(asked.size, bytes.fromhex(asked.seed), only)
        with self._one, closing(Log(self._paths.journal, self._paths.archive)) as log:
            log.refresh()
            first = log.first_position
            position = max(asked.position, first)
            damaged, cursor = self._read(log, digests, asked, Cursor(0, 0, position), limit)
            return {
                "instance": f"{self._paths.instance:016x}",
                "log_start": first,
                "persisted": persisted,
                "done": cursor.position >= limit,
                "next": cursor._asdict(),
                "damaged": damaged,
                "ranges": [
                    document_of(origin, number * asked.size, one)
                    for (origin, number), one in digests.found.items()
                ],
            }

    def _read(
        self, log: Log, digests: ContentDigests, asked: DigestsQuery, at: Cursor, limit: int
    ) -> tuple[list[list[int]], Cursor]:
        """Damaged positions, and where the next request reads on."""
        until_ms = self._clock.mono_ms() + SLICE_MS
        damaged: list[list[int]] = []
        if at.position >= limit:
            return damaged, at
        cursor = log.seek(at.position, asked.serial, asked.offset)
        for found, serial in log.header_lists(cursor, limit):
            batches = [item for item in found if isinstance(item, Batch)]
            digests.take(batches, serial)
            damaged += [[gap.first, gap.end] for gap in found if isinstance(gap, Gap)]
            last = found[-1]
            if isinstance(last, Gap):
                cursor = log.seek(last.end)
            else:
                cursor = Cursor(serial, last.end_offset, last.end_position)
            if self._clock.mono_ms() >= until_ms or len(digests.found) >= RANGES_MAX:
                return damaged, cursor
        return damaged, cursor._replace(position=max(cursor.position, limit))


def scope_of(asked: DigestsQuery) -> DigestScope | None:
    """The one origin that is asked for. Raises: ClientError bad_field."""
    try:
        bytes.fromhex(asked.seed)
    except ValueError:
        raise ClientError("bad_field", "the query: `seed` is not hexadecimal") from None
    if not asked.origin:
        return None
    instance, _, generation = asked.origin.partition(".")
    try:
        origin = Origin(int(instance, 16), int(generation))
    except ValueError:
        reason = "the query: `origin` is an instance and a generation, as in 10b714bc24174273.5"
        raise ClientError("bad_field", reason) from None
    return DigestScope(origin, asked.first, asked.end)


def document_of(origin: Origin, begin: int, one: RangeDigest) -> Document:
    """A range that begins at position `begin` of its origin."""
    found: Document = {
        "origin": f"{origin.instance:016x}.{origin.generation}",
        "range": begin,
        "first": one.first,
        "last": one.last,
        "messages": one.messages,
        "ties": one.ties,
        "digest": f"{one.value:032x}",
        "at": one.at._asdict(),
        "until": one.until,
    }
    if one.message is not None:
        message = one.message._asdict()
        found["message"] = message | {"publisher": f"{one.message.publisher:016x}"}
    return found
