"""Where the log of a data source is: a running instance, a directory, or both."""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2

from zbroker.client.connect_types import Credentials
from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import EPOCH, Origin, format_vector
from zbroker.limits import MIB
from zbroker.log.reader import Log
from zbroker.spark.directories import LogDirectory
from zbroker.spark.log_hold import LogHold
from zbroker.spark.ranges import LogRange, plan_ranges
from zbroker.spark.source.offsets import LogState, Offset
from zbroker.spark.source.options import SourceOptions
from zbroker.spark.source.parsers import Point
from zbroker.spark.splitter import at_most, refine

if TYPE_CHECKING:
    from zbroker.client import Client
    from zbroker.wire.messages import RangeList

PARTITION_BYTES: Final = 64 * MIB  # a task costs 50 ms before its first row
_GONE: Final = frozenset({"bookmark_not_found", "bookmark_expired", "bookmark_pending"})
_CONNECT_S: Final = 15.0  # a query ends when its broker is away for longer


class PlanRequest(NamedTuple):
    """Topics, and into how many parts to cut at least."""

    topic: str | None
    regex: bool
    parts: int


class SourceLog:
    """The log that the options name. Opens nothing before it is asked; pickled as its options."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: Client | None = None

    def __getstate__(self) -> SourceOptions:
        return self._options

    def __setstate__(self, options: SourceOptions) -> None:
        self.__init__(options)  # type: ignore[misc]

    # -- what is there ------------------------------------------------------------------------

    def state(self) -> LogState:
        """The log now. Raises: ZBrokerError timeout, no_journal, segments_missing, ..."""
        if not self._options.endpoint:
            with closing(self._log()) as log:
                head = log.end()
                return LogState(Origin(log.instance, log.generation), log.first_position, head)
        here = self._asked("now")
        origin = Origin(here.instance, here.generation)
        log_start = here.log_start
        if self._options.journal:
            with closing(self._log()) as log:
                if (log.instance, log.generation) == origin:
                    log_start = min(log_start, log.first_position)
        return LogState(origin, log_start, here.persisted)

    def _log(self) -> Log:
        return LogDirectory.of(self._options.journal, self._options.archive or None).open()

    def position(self, point: Point, state: LogState) -> int:
        """The position of the first message that `point` lets through, at most the head.

        Raises: ZBrokerError bookmark_expired, bookmark_not_found, bad_bookmark.
        """
        if point == "now":
            return state.head
        if point == EPOCH:
            return state.log_start
        if isinstance(point, int):
            return min(point or state.log_start, state.head)  # positions begin at 1
        ranges = self._plan(point, state.vector_before(state.head), None)
        return ranges[0].first if ranges else state.head

    def kept(self, offset: Offset, state: LogState) -> int | None:
        """The position from which on the log has what comes after `offset` of another generation.

        At most where that generation ended: later messages were never in it. None for a log that
        does not have this generation any more, or never had it. Raises: ZBrokerError.
        """
        if offset.origin.instance != state.origin.instance:
            return None
        if not self._options.endpoint:
            return self._kept_by_directory(offset)
        seen = format_vector({offset.origin: offset.next - 1})
        try:
            here = self._asked(seen)
        except ZBrokerError as error:
            if error.code in _GONE:
                return None
            raise
        return here.first or (here.ranges[0][0] if here.ranges else here.persisted)

    def _kept_by_directory(self, offset: Offset) -> int | None:
        generation = offset.origin.generation
        with closing(self._log()) as log:
            if generation not in log.generations:
                return None
            return min(offset.next, log.end_of(generation) or offset.next)

    def _asked(self, since: str) -> RangeList:
        """The answer of the instance. It names the topics: a look-up needs the right to read."""
        topic, regex = topics_of(self._options)
        client = self._connected()
        return client.ranges(topic, regex=regex, since=since, until="now", timeout=_CONNECT_S)

    # -- planning -----------------------------------------------------------------------------

    def plan(self, first: int, end: Point, state: LogState, wanted: PlanRequest) -> list[LogRange]:
        """Ranges from position `first` to `end`, for the tasks of a job."""
        if isinstance(end, int) and end <= first:
            return []
        until = state.vector_before(end) if isinstance(end, int) else end
        ranges = self._plan(state.vector_before(first), until, wanted)
        return [piece for part in ranges for piece in self._finer(part)]

    def _plan(self, since: str, until: str, wanted: PlanRequest | None) -> list[LogRange]:
        given = self._options
        both = given.journal if given.endpoint and given.journal else None
        return plan_ranges(
            given.endpoint or given.journal, since, until, wanted.parts if wanted else 1,
            topic=wanted.topic if wanted else None, regex=bool(wanted and wanted.regex),
            filter=given.filter if wanted else "", filter_type=given.filter_type,
            journal=both, archive=given.archive or None, credentials=self.credentials(),
        )  # fmt: skip

    def _finer(self, part: LogRange) -> list[LogRange]:
        cuts = refine([(part.first, part.end, part.bytes)], -(-part.bytes // PARTITION_BYTES))
        if self._options.max_records_per_partition is not None:
            cuts = at_most(cuts, self._options.max_records_per_partition)
        return [replace(part, first=first, end=end, bytes=size) for first, end, size in cuts]

    # -- the instance -------------------------------------------------------------------------

    def lease(self) -> LogHold | None:
        """For messages that are read from the instance; None without one."""
        given = self._options
        if not given.endpoint:
            return None
        who = f"spark-{given.reader_name or secrets.token_hex(4)}"
        return LogHold(given.endpoint, who, self.credentials(), given.lease_seconds)

    def credentials(self) -> Credentials | None:
        """Raises: ClientError bad_field, without the variable of the password."""
        given = self._options
        if not given.key_file:
            return None
        password = None
        if given.password_variable:
            password = os.environ.get(given.password_variable)
            if password is None:
                what = f"there is no environment variable {given.password_variable}"
                raise ClientError("bad_field", what, "set it where the driver runs")
        return Credentials(Path(given.key_file), given.server_key, given.user or None, password)

    def _connected(self) -> Client:
        if self._client is None:
            from zbroker.client import connect

            self._client = connect(
                self._options.endpoint,
                name=f"spark-source-{os.getpid()}-{secrets.token_hex(3)}",
                timeout=_CONNECT_S,
                credentials=self.credentials(),
            )
        return self._client

    def close(self) -> None:
        """Closes the connection, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            client.close(flush=False)


def topics_of(options: SourceOptions) -> tuple[str | None, bool]:
    """What to subscribe to, and whether it is a pattern: several topics are one pattern."""
    if options.topic_pattern:
        return options.topic_pattern, True
    if len(options.topics) <= 1:
        return (options.topics or (None,))[0], False
    escape: Any = re2.escape
    return "|".join(escape(topic) for topic in options.topics), True
