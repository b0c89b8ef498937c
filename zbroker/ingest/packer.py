"""Packs the single publishes of one turn into record batches.

A client that sends one message per zmq message costs one batch per turn, not one per message: runs
of consecutive sequences become one batch, whatever their topics (a topic index goes along).
"""

from __future__ import annotations

from array import array
from typing import Final

from msgspec import Struct, field, msgpack

from zbroker.checksums import crc32c
from zbroker.exchanges.route_column import QUEUES_MAX, encode
from zbroker.exchanges.router import QueueSet, numbered
from zbroker.ingest.contract import Effect
from zbroker.ingest.routing import NOWHERE
from zbroker.limits import BATCH_COUNT_MAX, HEADER_MAX_BYTES
from zbroker.wire.bodies import to_little
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns, Publish

pack = msgpack.Encoder().encode

EXTRAS_BYTES: Final = HEADER_MAX_BYTES // 2  # of a batch; leaves half of a header for the rest
BINARY_HEAD_BYTES: Final = 5  # of a msgpack binary, at most


class PublishRun:
    """Consecutive single publishes of one client: sequences seq, seq + 1, ...

    All of them are recorded, or none is; or, `recorded` None, content decides over each. like: one
    that was checked; so any that differs in its sequence alone needs no check. None: each does.
    """

    __slots__ = (
        "ask", "bytes", "cid", "extras", "extras_bytes", "like", "payloads", "prev", "processed",
        "recorded", "returned", "routed", "routes", "seq", "times", "topics", "which",
    )  # fmt: skip

    def __init__(
        self, publish: Publish, payload: bytes, *, recorded: bool | None = True,
        found: QueueSet | None = None,
    ) -> None:  # fmt: skip
        self.recorded = recorded
        self.seq = publish.seq
        self.prev = publish.prev
        self.cid = publish.cid
        self.ask = self.processed = False
        self.bytes = 0
        self.payloads: list[bytes] = []
        self.topics: dict[str, int] = {}
        self.which: list[int] = []
        self.times: list[int] | None = None if publish.time_ns is None else []
        self.extras: dict[int, Publish] = {}  # those with key, headers or expiry, by index
        self.extras_bytes = 0
        self.routes: dict[int, QueueSet] = {}  # of those to exchanges, by index
        self.routed: dict[QueueSet, None] = {}  # the same, each once
        self.returned: list[tuple[int, int]] = []  # runs of mandatory ones that go to no queue
        self.like: Publish | None = None
        self.add(publish, payload, found)

    @property
    def last(self) -> int:
        """The sequence of the newest one."""
        return self.seq + len(self.payloads) - 1

    def fits(
        self, publish: Publish, payload: bytes, batch_bytes: int, found: QueueSet | None = None
    ) -> bool:
        """True if `publish` may follow in the same batch. found: where it goes."""
        return (
            publish.seq == self.last + 1
            and (found is None or found in self.routed or self._may_go_to(found))
            and (publish.prev == self.last if self.prev is not None else publish.prev is None)
            and (publish.time_ns is None) == (self.times is None)
            and self.has_space(len(payload), batch_bytes)
            and (not self.extras_bytes or self.extras_bytes + extra_size(publish) <= EXTRAS_BYTES)
        )

    def has_space(self, size: int, batch_bytes: int) -> bool:
        """True if the batch can have one more payload, of so many bytes."""
        framed = self.bytes + size + BINARY_HEAD_BYTES
        return framed <= batch_bytes and len(self.payloads) < BATCH_COUNT_MAX

    def is_next(self, publish: Publish) -> bool:
        """True if it is the next one, and nothing of it has to be checked besides its payload."""
        like = self.like
        if like is None or publish.seq != self.last + 1:
            return False
        like.seq = publish.seq
        return like == publish

    def append(self, payload: bytes) -> None:
        """Takes one more, of which `is_next` is true."""
        self.payloads.append(payload)
        self.which.append(self.which[-1])
        self.bytes += len(payload) + BINARY_HEAD_BYTES

    def _may_go_to(self, found: QueueSet) -> bool:
        return sum(map(len, self.routed)) + len(found) <= QUEUES_MAX

    def add(self, publish: Publish, payload: bytes, found: QueueSet | None = None) -> None:
        """Takes one more; `fits` said that it may."""
        topic = publish.topic
        assert topic is not None
        if found is not None:
            self.routes[len(self.payloads)] = found
            self.routed[found] = None
        if has_extra(publish):
            self.extras[len(self.payloads)] = publish
            self.extras_bytes += extra_size(publish)
        self.payloads.append(payload)
        self.which.append(self.topics.setdefault(topic, len(self.topics)))
        self.bytes += len(payload) + BINARY_HEAD_BYTES
        if self.times is not None:
            self.times.append(publish.time_ns)  # type: ignore[arg-type]
        if publish.mandatory and not found:
            self._return(publish.seq)
        if publish.ack is not None:
            self.ask = self.ask or "persisted" in publish.ack
            self.processed = self.processed or "processed" in publish.ack

    def _return(self, seq: int) -> None:
        if self.returned and self.returned[-1][1] == seq - 1:
            seq_before, _ = self.returned.pop()
            self.returned.append((seq_before, seq))
        else:
            self.returned.append((seq, seq))

    def entry(self, publisher: int, session: int) -> tuple[Entry, bytes]:
        """The record batch and its body."""
        body = pack(self.payloads)
        index = array("H", self.which).tobytes() if len(self.topics) > 1 else None
        times = array("q", self.times).tobytes() if self.times is not None else None
        columns = Columns(index, times)
        if self.extras:
            self._put_extras(columns)
        entry = Entry(
            publisher, session, self.seq, len(self.payloads), self.prev, crc32c(body), None,
            list(self.topics), None, columns if columns != Columns() else None,
        )  # fmt: skip
        if self.routes:
            find = self.routes.get
            found = [find(at, NOWHERE) for at in range(len(self.payloads))]
            entry.routes = encode(numbered(found))
        return entry, body

    def _put_extras(self, columns: Columns) -> None:
        """A column for each kind that one of the messages has."""
        found = self.extras.values()
        rows = [self.extras.get(i) for i in range(len(self.payloads))]
        if any(publish.key is not None for publish in found):
            columns.keys = pack([row and row.key for row in rows])
        if any(publish.headers is not None for publish in found):
            columns.headers = pack([row and row.headers for row in rows])
        if any(publish.expires_ns for publish in found):
            expiry = [row.expires_ns or 0 if row is not None else 0 for row in rows]
            columns.expiry = to_little(array("q", expiry))


def has_extra(publish: Publish) -> bool:
    """True if it has a key, headers or an expiry."""
    return not (publish.key is None and publish.headers is None and publish.expires_ns is None)


def extra_size(publish: Publish) -> int:
    """Bytes of key and headers, encoded."""
    return len(pack(publish.key)) + len(pack(publish.headers))


class Burst(Struct):
    """runs: single publishes that are being packed, by connection."""

    now_ms: int
    effects: list[Effect] = field(default_factory=list)
    runs: dict[bytes, PublishRun] = field(default_factory=dict)
