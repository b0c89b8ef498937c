"""/replication: the links to other instances and from them, and changes to them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from zbroker.admin.documents import row_document
from zbroker.admin.link_alarms import GRACE_MS, NO_LINKS, LinkObservation, is_up
from zbroker.admin.process_link import PeriodicThread, ReplicationLink
from zbroker.admin.requests import EmptyRequest, FreshRequest, LinkRequest, parse, parse_query
from zbroker.admin.retention import SegmentView
from zbroker.clock import Clock
from zbroker.config.replication import DestinationConfig
from zbroker.errors import Bug, ClientError, StorageError
from zbroker.limits import U63_MAX
from zbroker.wire.replicas import ChangeLink, Links, MissingRange, ReplicationRow
from zbroker.wire.replication import OriginPosition

Document = dict[str, Any]
Segments = Callable[[], Sequence[SegmentView]]

STALE_MS: Final = 10_000  # older rows are not reported as if they were current
SEGMENTS_MS: Final = 10_000  # how often it is looked up how much of the log a link needs
#: keys of a row that say something of links to destinations only
_OUTGOING: Final = ("mark", "on_the_way_bytes")
_CHANGES: Final = ("pause", "resume", "downgrade", "upgrade", "skip", "forget", "fork")


class LinkReports:
    """Answers from any thread. destinations: of the config."""

    def __init__(
        self, link: ReplicationLink, watch: LinkWatch, destinations: Iterable[DestinationConfig]
    ) -> None:
        self._link = link
        self._to = {one.name: one.to for one in destinations}
        self.watch = watch

    def all(self, query: str = "") -> Document:
        """GET /replication. Raises: ClientError not_ready, bad_field."""
        parse_query(EmptyRequest, query)
        said = self._link.look()
        needs = self.watch.needs(said.rows)
        rows = sorted(said.rows, key=lambda row: (row.direction != "out", row.name))
        return {
            "replicates": self._link.on,
            "persisted": said.persisted,
            "needed": said.needed,
            "through": None if said.needed is None or said.through == U63_MAX else said.through,
            "links": [self._row(row, needs.get(row.name)) for row in rows],
            "origins": [_origin(row) for row in said.origins],
            "phase": said.phase,
            "waits": said.waits,
            "state_bytes": said.state_bytes,
            "missing": [*map(_missing, said.ranges), *_left_out(said)],
        }

    def _row(self, row: ReplicationRow, needs: int | None) -> Document:
        goes = row.direction == "out"
        found = row_document(
            row, "address", "instance",
            instance=f"{row.instance:016x}" if row.instance else "",
            to=self._to.get(row.name, []) if goes else [], log_bytes=needs if goes else None,
            address=None if goes else row.address,
        )  # fmt: skip
        return found if goes else found | dict.fromkeys(_OUTGOING)

    def post(self, name: str, what: str, body: bytes) -> Document:
        """POST /replication/`name`/`what`; it is done when this returns. Raises: ClientError."""
        ask = parse(LinkRequest, body)
        for known in _CHANGES:
            if what == known:
                done = self._link.change(ChangeLink(0, known, name, ask.dry_run, ask.origin))
                return {"link": name, "dry_run": ask.dry_run, "text": done.text}
        raise Bug(f"core let {what!r} in")

    def fresh(self, body: bytes) -> Document:
        """POST /replication/fresh; it is done when this returns. Raises: ClientError."""
        ask = parse(FreshRequest, body)
        done = self._link.change(ChangeLink(0, "fresh", "", ask.dry_run))
        return {"dry_run": ask.dry_run, "text": done.text}

    def summary(self) -> Document:
        """All links together, for the status; empty where the config has none.

        Numbers are None while the process is silent.
        """
        if not self._link.on:
            return {}
        said = self.watch.newest()
        keys = (
            "up", "sources", "lag", "paused", "downgraded", "stopped", "needed", "open_generations"
        )  # fmt: skip
        numbers: Document = dict.fromkeys(keys)
        if said is not None:
            out = outgoing(said.rows)
            numbers = {
                "up": sum(is_up(row) for row in out),
                "sources": len(said.rows) - len(out),
                "lag": max((row.lag for row in out), default=0),
                "paused": sum(row.paused for row in out),
                "downgraded": sum(row.downgraded for row in out),
                "stopped": sum(len(row.stopped) for row in out),
                "needed": said.needed,
                "open_generations": said.open_generations,
            }
        return {"destinations": len(self._to), **numbers}


def outgoing(rows: Iterable[ReplicationRow]) -> list[ReplicationRow]:
    """The links to destinations."""
    return [row for row in rows if row.direction == "out"]


def _origin(row: OriginPosition) -> Document:
    digest = f"{row.digest:016x}" if row.digest else ""
    said = {"origin": _origin_text(row), "position": row.position}
    return said | {"topics": digest, "since": row.begins}


def _left_out(said: Links) -> list[Document]:
    """Origins whose topics were changed: what the older ones left out is not here."""
    known = {(row.instance, row.generation, row.last) for row in said.ranges}
    return [
        _missing(MissingRange(row.instance, row.generation, 1, row.begins - 1, "topics"))
        for row in said.origins
        if row.begins > 1 and (row.instance, row.generation, row.begins - 1) not in known
    ]


def _missing(row: MissingRange) -> Document:
    return {"origin": _origin_text(row), "first": row.first, "last": row.last, "why": row.why}


def _origin_text(row: OriginPosition | MissingRange) -> str:
    return f"{row.instance:016x}.{row.generation}"


class _Stop(NamedTuple):
    """An origin that is not sent: since when it is seen so, when it was last, and why."""

    first_ms: int
    last_ms: int
    code: str


class LinkWatch(PeriodicThread):
    """What the replication process reports each second: for status, metrics and alarms.

    A link is tried again each second after a refused record, and then its origin does not count as
    stopped for a moment; so what was seen lately counts. Answers any thread.
    """

    def __init__(self, link: ReplicationLink, clock: Clock, segments: Segments) -> None:
        """segments: of the log, for how much of it is needed; it may raise StorageError."""
        super().__init__("links")
        self._link = link
        self._clock = clock
        self._read_segments = segments
        self._lock = threading.Lock()  # of all that follows
        self._said: Links | None = None
        self._said_ms = 0
        self._down_ms: dict[str, int] = {}  # since when a link is seen without a session
        self._stops: dict[str, dict[str, _Stop]] = {}
        self._segments: Sequence[SegmentView] = ()
        self._segments_ms: int | None = None

    def look(self) -> None:
        """Asks once."""
        try:
            said = self._link.look()
        except ClientError:
            return  # it starts, or hangs: the answer from before grows old
        self._look_at_segments(outgoing(said.rows))
        with self._lock:
            self._take(said, self._clock.mono_ms())

    def _look_at_segments(self, rows: Sequence[ReplicationRow]) -> None:
        """A link that lacks nothing needs none of them."""
        now_ms, before_ms = self._clock.mono_ms(), self._segments_ms
        if not any(row.lag for row in rows):
            return
        if before_ms is not None and now_ms - before_ms < SEGMENTS_MS:
            return
        try:
            found = self._read_segments()
        except StorageError:
            return  # the journal's own complaint says more
        with self._lock:
            self._segments, self._segments_ms = found, now_ms

    def _take(self, said: Links, now_ms: int) -> None:
        out = outgoing(said.rows)
        self._said, self._said_ms = said, now_ms
        down = [row.name for row in out if not is_up(row)]
        self._down_ms = {name: self._down_ms.get(name, now_ms) for name in down}
        self._stops = {row.name: self._stopped(row, now_ms) for row in out}

    def _stopped(self, row: ReplicationRow, now_ms: int) -> dict[str, _Stop]:
        before = self._stops.get(row.name, {})
        kept = {o: one for o, one in before.items() if now_ms - one.last_ms < GRACE_MS}
        for origin, code in row.stopped.items():
            first_ms = kept[origin].first_ms if origin in kept else now_ms
            kept[origin] = _Stop(first_ms, now_ms, code)
        return kept

    # -- from any thread ------------------------------------------------------------------------

    def newest(self) -> Links | None:
        """The newest answer; None, if none came for a while."""
        with self._lock:
            fresh = self._clock.mono_ms() - self._said_ms < STALE_MS
            return self._said if fresh else None

    def naming(self, instances: AbstractSet[int]) -> Links | None:
        """The newest answer; if that does not know all of these, the process is asked first. In the
        first seconds the answer of before may be older than the first greeting of a link."""
        said = self.newest()
        if said is None or instances - {row.instance for row in said.rows}:
            self.look()
        return self.newest()

    def needs(self, rows: Iterable[ReplicationRow]) -> dict[str, int]:
        """Bytes of sealed segments that are kept for each destination."""
        with self._lock:
            segments = self._segments
        return {row.name: _kept(segments, row) for row in outgoing(rows)}

    def seen(self) -> LinkObservation:
        """The links that may be reason for an alarm."""
        said, now_ms = self.newest(), self._clock.mono_ms()
        if said is None:
            return NO_LINKS
        with self._lock:
            down_ms = {name: now_ms - since_ms for name, since_ms in self._down_ms.items()}
            stopped = {name: _lasting(stops, now_ms) for name, stops in self._stops.items()}
        rows = outgoing(said.rows)
        needs = self.needs(rows)
        missing = Counter(_origin_text(row) for row in said.ranges)
        return LinkObservation(
            rows, said.needed, down_ms, stopped, needs, said.open_generations, missing
        )


def _kept(segments: Iterable[SegmentView], row: ReplicationRow) -> int:
    """The open segment is never removed, so it does not count."""
    if not row.lag:
        return 0
    sealed = (one for one in segments if not one.is_open)
    return sum(one.bytes for one in sealed if one.end is None or one.end > row.mark)


def _lasting(stops: Mapping[str, _Stop], now_ms: int) -> dict[str, str]:
    """Origins that are stopped for longer than what ends by itself, and why."""
    return {o: one.code for o, one in stops.items() if now_ms - one.first_ms >= GRACE_MS}
