"""What was read from the log, and the messages made of it, shared by all subscriptions.

A batch that a subscription wants as a whole goes out as it came in: same body, same CRC. Its header
is encoded once; only the sid, which differs, is put in between. Where only some topics match, the
body is packed anew with what matched, once for all that want the same ones.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from google_crc32c import value as crc32c
from msgspec import Struct

from zbroker.ids import Origin
from zbroker.journal.format import FLAG_ZSTD, Batch
from zbroker.journal.reader import Cursor, Gap
from zbroker.limits import GIB, HEADER_MAX_BYTES
from zbroker.wire import bodies, codec
from zbroker.wire.messages import Columns, Msg

#: ingest applied the limit when the body came in; that limit may have been lowered since
PLAIN_MAX_BYTES: Final = 1 * GIB

# {"cmd": "msg", "sid": "", ...}: the map's size and these two come first, so a sid can be put in
_SID_AT: Final = 1 + len(b"\xa3cmd\xa3msg\xa3sid")
_HEADER_MAX: Final = HEADER_MAX_BYTES - 128  # leaves room for what `after` lacks: at most 78 bytes


class Part(Struct, gc=False):
    """A message without its sid: the header around it, and the body."""

    before: bytes
    after: bytes
    body: bytes
    messages: int  # that count


class Span(NamedTuple):
    """Messages `first` to `last` (exclusive) of a batch's body."""

    first: int
    last: int


Parts = tuple[Part, ...]
Wanted = tuple[bool, ...]  # for each topic of a batch


@dataclass(slots=True)
class Block:
    """Neighbouring batches and gaps from `start` on; the next read begins at `next`."""

    start: Cursor
    items: Sequence[Batch | Gap]
    next: Cursor
    size: int = 0
    parts: dict[tuple[int, bool] | tuple[int, bool, Wanted], Parts] = field(default_factory=dict)
    messages: dict[int, list[bytes]] = field(default_factory=dict)


class Maker:
    """Makes messages of batches. `here`: positions of this origin need no `origin` in a header."""

    def __init__(self, here: Origin) -> None:
        self._here = here

    def whole(self, block: Block, index: int, wanted: Wanted, *, zstd: bool) -> Parts:
        """All messages of batch `index` that count and whose topic is wanted; made once.

        zstd: the subscriber takes compressed bodies.
        """
        key = (index, zstd) if False not in wanted else (index, zstd, wanted)
        parts = block.parts.get(key)
        if parts is None:
            batch = block.items[index]
            assert isinstance(batch, Batch)
            span = Span(batch.skip, batch.count - batch.cut)
            parts = block.parts[key] = self.some(block, index, span, wanted, zstd=zstd)
        return parts

    def some(self, block: Block, index: int, span: Span, wanted: Wanted, *, zstd: bool) -> Parts:
        """The messages of `span` whose topic is wanted: mostly one part, maybe none."""
        batch = block.items[index]
        assert isinstance(batch, Batch)
        picks = range(*span) if False not in wanted else _picks(batch, span, wanted)
        if not picks:
            return ()
        if len(picks) == span.last - span.first:
            part = self._unchanged(batch, span, zstd=zstd)
            if len(part.after) <= _HEADER_MAX:
                return (part,)
        return self._repacked(block, index, picks)

    def _unchanged(self, batch: Batch, span: Span, *, zstd: bool) -> Part:
        body, crc, name = batch.body, batch.body_crc, None
        if batch.flags & FLAG_ZSTD:
            if zstd:
                name = bodies.CODEC_ZSTD
            else:
                body = bytes(bodies.inflate(body, bodies.CODEC_ZSTD, PLAIN_MAX_BYTES))
                crc = crc32c(body)
        msg = self._msg(batch, span.first, batch.count)
        msg.skip, msg.codec, msg.crc = span.first, name, crc
        if span.last != batch.count:
            msg.take = span.last - span.first
        msg.columns = batch.columns
        _set_topics(msg, batch.topics)
        return _part(msg, bytes(body))

    def _repacked(self, block: Block, index: int, picks: Sequence[int]) -> Parts:
        """What was picked, in as many parts as it takes to keep each header within its limit."""
        batch = block.items[index]
        assert isinstance(batch, Batch)
        messages = block.messages.get(index)
        if messages is None:
            name = bodies.CODEC_ZSTD if batch.flags & FLAG_ZSTD else None
            messages = bodies.unpack(batch.body, name, batch.count, PLAIN_MAX_BYTES)
            block.messages[index] = messages
        body = bodies.pack([messages[pick] for pick in picks])
        msg = self._msg(batch, picks[0], len(picks))
        msg.crc = crc32c(body)
        _set_columns(msg, batch, picks)
        part = _part(msg, body)
        if len(part.after) <= _HEADER_MAX or len(picks) == 1:
            return (part,)
        half = len(picks) // 2
        left = self._repacked(block, index, picks[:half])
        return left + self._repacked(block, index, picks[half:])

    def _msg(self, batch: Batch, first: int, count: int) -> Msg:
        ahead = first - batch.skip
        msg = Msg(
            "", batch.publisher, batch.sequence + ahead, time_of(batch, first), count,
            batch.position + ahead if batch.position else 0,  # none: it is not recorded
        )  # fmt: skip
        if batch.origin_instance:
            origin = (batch.origin_instance, batch.origin_generation)
            if origin != self._here:
                msg.origin = (*origin, batch.origin_position + ahead)
        return msg


def time_of(batch: Batch, index: int) -> int:
    """The log time of message `index` of the body."""
    if batch.columns is None or batch.columns.time is None:
        return batch.log_time
    return bodies.times(batch.columns.time)[index]


def since(batch: Batch, span: Span, time_ns: int) -> int:
    """The first message of `span` whose log time is `time_ns` or later; `span.last` if none is."""
    if batch.columns is None or batch.columns.time is None:
        return span.first if batch.log_time >= time_ns else span.last
    return bisect_left(bodies.times(batch.columns.time), time_ns, span.first, span.last)


def _picks(batch: Batch, span: Span, wanted: Wanted) -> Sequence[int]:
    if batch.columns is None or batch.columns.index is None:
        return range(span.first, span.last) if wanted[0] else ()
    index = bodies.indexes(batch.columns.index)
    return [at for at in range(span.first, span.last) if wanted[index[at]]]


def _set_columns(msg: Msg, batch: Batch, picks: Sequence[int]) -> None:
    """Sets the columns of what was picked, and the topics that are left."""
    old, topics = batch.columns or Columns(), batch.topics
    new = Columns()
    if old.index is not None:
        index = bodies.indexes(old.index)
        left = sorted({index[pick] for pick in picks})
        topics = [batch.topics[topic] for topic in left]
        if len(left) > 1:
            place = {topic: at for at, topic in enumerate(left)}
            new.index = bodies.to_little(array("H", [place[index[pick]] for pick in picks]))
    if old.time is not None:
        times = bodies.times(old.time)
        new.time = bodies.to_little(array("q", [times[pick] for pick in picks]))
    if picks[-1] - picks[0] >= len(picks):
        new.offset = bodies.to_little(array("I", [pick - picks[0] for pick in picks]))
    _set_topics(msg, topics)
    msg.columns = new if new != Columns() else None


def _set_topics(msg: Msg, topics: list[str]) -> None:
    if len(topics) == 1:
        msg.topic = topics[0]
    else:
        msg.topics = topics


def _part(msg: Msg, body: bytes) -> Part:
    header = codec.encode(msg)
    count = msg.count - msg.skip if msg.take is None else msg.take
    return Part(header[:_SID_AT], header[_SID_AT + 1 :], body, count)
