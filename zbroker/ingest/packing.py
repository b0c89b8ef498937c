"""Packs the single publishes of one turn into record batches.

A client that sends one message per zmq message costs one batch per turn, not one per message: runs
of consecutive sequences become one batch, whatever their topics (a topic index goes along).
"""

from __future__ import annotations

from array import array

from google_crc32c import value as crc32c
from msgspec import msgpack

from zbroker.limits import BATCH_COUNT_MAX
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns, Publish

pack = msgpack.Encoder().encode


class Run:
    """Consecutive single publishes of one client: sequences seq, seq + 1, ...

    All of them are recorded, or none is; or, `recorded` None, content decides over each.
    """

    __slots__ = (
        "ask", "bytes", "cid", "payloads", "prev", "processed", "recorded", "seq", "times",
        "topics", "which",
    )  # fmt: skip

    def __init__(self, publish: Publish, payload: bytes, *, recorded: bool | None = True) -> None:
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
        self.add(publish, payload)

    def fits(self, publish: Publish, payload: bytes, batch_bytes: int) -> bool:
        """True if `publish` may follow in the same batch."""
        last = self.seq + len(self.payloads) - 1
        return (
            publish.seq == last + 1
            and (publish.prev == last if self.prev is not None else publish.prev is None)
            and (publish.time_ns is None) == (self.times is None)
            and len(self.payloads) < BATCH_COUNT_MAX
            and self.bytes + len(payload) + 5 <= batch_bytes
        )

    def add(self, publish: Publish, payload: bytes) -> None:
        """Takes one more; `fits` said that it may."""
        topic = publish.topic
        assert topic is not None
        self.payloads.append(payload)
        self.which.append(self.topics.setdefault(topic, len(self.topics)))
        self.bytes += len(payload) + 5  # a msgpack binary has a header of at most 5 bytes
        if self.times is not None:
            self.times.append(publish.time_ns)  # type: ignore[arg-type]
        if publish.ack is not None:
            self.ask = self.ask or "persisted" in publish.ack
            self.processed = self.processed or "processed" in publish.ack

    def entry(self, publisher: int, session: int) -> tuple[Entry, bytes]:
        """The record batch and its body."""
        body = pack(self.payloads)
        index = array("H", self.which).tobytes() if len(self.topics) > 1 else None
        times = array("q", self.times).tobytes() if self.times is not None else None
        columns = Columns(index, times) if index is not None or times is not None else None
        entry = Entry(
            publisher, session, self.seq, len(self.payloads), self.prev, crc32c(body), None,
            list(self.topics), None, columns,
        )  # fmt: skip
        return entry, body
