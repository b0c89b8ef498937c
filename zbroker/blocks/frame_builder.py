"""Blocks read from the log, and the messages made of them, shared by all subscriptions.

A batch that a subscription wants as a whole goes out as it came in: same body, same CRC. Its header
is encoded once; only the sid, which differs, is put in between. If only some topics match, the body
is repacked with the matching messages, once for all that want the same ones. To a subscriber that
may not have all of a batch (`sees_all` False) its body is never sent unchanged, not even if only a
part of it counts.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from zbroker.checksums import crc32c
from zbroker.filters import Payloads
from zbroker.filters.projection import Select
from zbroker.ids import Origin, Vector
from zbroker.limits import HEADER_MAX_BYTES, STORED_MAX_BYTES
from zbroker.log.batch_index import BatchMetadata, plain_of, time_of
from zbroker.log.cover import PassedRun, passed, steps
from zbroker.log.format import FLAG_ZSTD, Batch
from zbroker.log.reader import Cursor, Item
from zbroker.wire import bodies, codec
from zbroker.wire.messages import Columns, Msg
from zbroker.wire.queue_messages import Job

_SID: Final = b"\xa3sid"
_HEADER_MAX: Final = HEADER_MAX_BYTES - 128  # leaves room for what `after` lacks: at most 78 bytes


class Frame(Struct, gc=False):
    """A message without its sid: the header around it, and the body."""

    before: bytes
    after: bytes
    body: bytes
    messages: int  # that count
    size: int  # in bytes of credit


class MessageSpan(NamedTuple):
    """Messages `first` to `last` (exclusive) of a batch's body."""

    first: int
    last: int


#: Adds to a header what is to be said of the messages `picks` of a body.
Dress = Callable[[Msg | Job, Sequence[int]], None]


def _untyped(topic: str) -> str:
    raise AssertionError(f"nothing is rewritten of {topic}")


class Projection(NamedTuple):
    """The form of messages that are encoded again: which fields are sent. type_of: the type of a
    topic, which only `select` asks for.

    dress: keys added to the header of each part.
    """

    type_of: Callable[[str], str] = _untyped
    zstd: bool = False
    select: Select | None = None
    dress: Dress | None = None


Parts = tuple[Frame, ...]
Wanted = tuple[bool, ...]  # for each topic of a batch


def item_first(item: Item) -> int:
    """Its first position."""
    return item.position if isinstance(item, Batch) else item.first


def item_end(item: Item) -> int:
    """The position after it."""
    return item.end_position if isinstance(item, Batch) else item.end


class Block(Struct):
    """Neighbouring batches and gaps from `start` on; the next read begins at `next`."""

    start: Cursor
    items: Sequence[Item]
    next: Cursor
    size: int = 0
    parts: dict[Hashable, Parts] = field(default_factory=dict)
    messages: dict[int, list[bytes]] = field(default_factory=dict)  # by index in items
    picks: dict[Hashable, list[int]] = field(default_factory=dict)  # what a filter found
    payloads: dict[tuple[int, str], Payloads] = field(default_factory=dict)
    header_columns: dict[int, bodies.HeaderColumn] = field(default_factory=dict)
    made_bytes: int = 0  # of parts and messages, beside what was read
    origins: Vector | None = None  # the newest message of each, in all of it

    def batch(self, at: int) -> Batch:
        """Item `at`, which is one."""
        batch = self.items[at]
        assert isinstance(batch, Batch)
        return batch

    def passed(self, first: int, end: int) -> Vector:
        """The newest message of each origin between two positions; of a whole block looked for
        once.
        """
        items = self.items
        if not items:
            return {}
        whole = first <= item_first(items[0]) and end >= item_end(items[-1])
        if not whole:
            return passed(self._between(first, end), first, end)
        if self.origins is None:
            self.origins = passed(items, first, end)
        return self.origins

    def steps(self, first: int, end: int) -> Iterator[PassedRun]:
        """The steps of a reader between two positions."""
        return steps(self._between(first, end), first, end)

    def _between(self, first: int, end: int) -> Sequence[Item]:
        begin = bisect_right(self.items, first, key=item_end)
        return self.items[begin : bisect_left(self.items, end, key=item_first)]

    def unpacked(self, at: int) -> list[bytes]:
        """The messages of batch `at`; unpacked once for all who look."""
        messages = self.messages.get(at)
        if messages is None:
            batch = self.batch(at)
            messages = bodies.unpack(plain_of(batch), None, batch.count, STORED_MAX_BYTES)
            self.messages[at] = messages
            self.made_bytes += sum(map(len, messages))
        return messages

    def headers(self, at: int) -> bodies.HeaderColumn:
        """The headers of batch `at`; decoded once for all who look, if anybody does."""
        column = self.header_columns.get(at)
        if column is None:
            batch = self.batch(at)
            column = self.header_columns[at] = bodies.HeaderColumn(batch.columns, batch.count)
        return column

    def about(self, at: int) -> BatchMetadata:
        """What filters may ask of the messages of batch `at`."""
        return BatchMetadata(self.batch(at), self.headers(at))

    def keep(self, key: Hashable, parts: Parts) -> Parts:
        """Remembers messages for all who want the same."""
        self.parts[key] = parts
        self.made_bytes += sum(len(part.body) for part in parts)
        return parts


class FrameBuilder:
    """Makes messages of batches. `here`: positions of this origin need no `origin` in a header, but
    for those that were lost here and came back from a peer: they have another place in this log.

    kind: what a message is, for a subscription or for a consumer of a queue.
    """

    def __init__(self, here: Origin, kind: type[Msg] | type[Job] = Msg) -> None:
        self._here = here
        self._kind = kind

    def whole(self, block: Block, index: int, wanted: Wanted, *, zstd: bool) -> Parts:
        """All messages of batch `index` that count and whose topic is wanted; made once.

        For a subscriber that may have all of them. zstd: it accepts compressed bodies.
        """
        key = (index, zstd) if False not in wanted else (index, zstd, wanted)
        parts = block.parts.get(key)
        if parts is None:
            span = counting(block.batch(index))
            parts = block.keep(key, self.some(block, index, span, wanted, zstd=zstd))
        return parts

    def some(
        self, block: Block, index: int, span: MessageSpan, wanted: Wanted, *, zstd: bool
    ) -> Parts:
        """The messages of `span` whose topic is wanted: mostly one part, maybe none."""
        picks = picks_of(block.batch(index), span, wanted)
        if not picks:
            return ()
        return self._made(block, index, picks, span.last - span.first, Projection(zstd=zstd))

    def picked(
        self,
        block: Block,
        index: int,
        picks: Sequence[int],
        look: Projection,
        key: Hashable = None,
        *,
        sees_all: bool,
    ) -> Parts:
        """Messages `picks`, at least one; made once for all who give the same `key`."""
        parts = block.parts.get(key) if key is not None else None
        if parts is None:
            if look.select is not None:
                rewritten = _rewritten(block, index, picks, look)
                parts = self._repacked(block, index, picks, rewritten, look.dress)
            elif sees_all:
                least = (block.batch(index).count + 1) // 2  # else most bytes would be for nothing
                parts = self._made(block, index, picks, max(least, len(picks)), look)
            else:
                parts = self._chosen(block, index, picks, look.dress)
            if key is not None:
                block.keep(key, parts)
        return parts

    def _made(
        self, block: Block, index: int, picks: Sequence[int], least: int, look: Projection
    ) -> Parts:
        """The unchanged body if exactly `least` neighbours are picked, else a repacked one."""
        if least == len(picks) == picks[-1] - picks[0] + 1:
            span = MessageSpan(picks[0], picks[-1] + 1)
            part = self._unchanged(block.batch(index), span, look)
            if len(part.after) <= _HEADER_MAX:
                return (part,)
        return self._chosen(block, index, picks, look.dress)

    def _chosen(self, block: Block, index: int, picks: Sequence[int], dress: Dress | None) -> Parts:
        messages = block.unpacked(index)
        return self._repacked(block, index, picks, [messages[pick] for pick in picks], dress)

    def held(self, held: Held, look: Projection) -> Frame:
        """The message of one key of an interval."""
        data = held.data
        if look.select is not None:
            data = look.select.apply(look.type_of(held.topic), data)
        first, body = held.first, bodies.pack([data])
        msg = Msg(
            "", first.publisher, first.sequence, held.time_ns, 1, first.position, held.topic,
            crc=crc32c(body), columns=held.extra,
        )  # fmt: skip
        if first.origin is not None and first.origin != (*self._here, first.position):
            msg.origin = first.origin
        return _part(msg, body)

    def _unchanged(self, batch: Batch, span: MessageSpan, look: Projection) -> Frame:
        body, crc, name = batch.body, batch.body_crc, None
        if batch.flags & FLAG_ZSTD:
            if look.zstd:
                name = bodies.CODEC_ZSTD
            else:
                body = bytes(plain_of(batch))
                crc = crc32c(body)
        msg = self._msg(batch, span.first, batch.count)
        msg.skip, msg.codec, msg.crc = span.first, name, crc
        if span.last != batch.count:
            msg.take = span.last - span.first
        msg.columns = batch.columns
        _set_topics(msg, batch.topics)
        if look.dress is not None:
            look.dress(msg, range(*span))
        return _part(msg, bytes(body))

    def _repacked(
        self, block: Block, index: int, picks: Sequence[int], messages: Sequence[bytes],
        dress: Dress | None,
    ) -> Parts:  # fmt: skip
        """The picked messages, in as many parts as needed to keep each header within its limit."""
        batch = block.batch(index)
        body = bodies.pack(messages)
        msg = self._msg(batch, picks[0], len(picks))
        msg.crc = crc32c(body)
        _set_columns(msg, batch, picks)
        if dress is not None:
            dress(msg, picks)
        part = _part(msg, body)
        if len(part.after) <= _HEADER_MAX or len(picks) == 1:
            return (part,)
        half = len(picks) // 2
        left = self._repacked(block, index, picks[:half], messages[:half], dress)
        return left + self._repacked(block, index, picks[half:], messages[half:], dress)

    def _msg(self, batch: Batch, first: int, count: int) -> Msg | Job:
        ahead = first - batch.skip
        msg = self._kind(
            "", batch.publisher, batch.sequence + ahead, time_of(batch, first), count,
            batch.position + ahead if batch.position else 0,  # none: it is not recorded
        )  # fmt: skip
        if batch.origin_instance:
            origin = (batch.origin_instance, batch.origin_generation)
            if origin != self._here or batch.origin_position != batch.position:
                msg.origin = (*origin, batch.origin_position + ahead)
        return msg


def counting(batch: Batch) -> MessageSpan:
    """The messages of a batch that count."""
    return MessageSpan(batch.skip, batch.count - batch.cut)


def picks_of(batch: Batch, span: MessageSpan, wanted: Wanted) -> Sequence[int]:
    """The messages of `span` whose topic is wanted."""
    if False not in wanted:
        return range(*span)
    if True not in wanted:
        return ()
    index = bodies.topic_indexes(batch.columns, batch.count)
    return [at for at in range(*span) if wanted[index[at]]]


def _rewritten(block: Block, index: int, picks: Sequence[int], look: Projection) -> list[bytes]:
    """What the selection leaves of each message."""
    assert look.select is not None
    batch, messages = block.batch(index), block.unpacked(index)
    kinds = [look.type_of(topic) for topic in batch.topics]
    of = bodies.topic_indexes(batch.columns, batch.count)
    return [look.select.apply(kinds[of[pick]], messages[pick]) for pick in picks]


def _set_columns(msg: Msg | Job, batch: Batch, picks: Sequence[int]) -> None:
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
    extras = bodies.extras(old, batch.count)
    if extras is not None:
        extras.put(new, picks)
    if picks[-1] - picks[0] >= len(picks):
        new.offset = bodies.to_little(array("I", [pick - picks[0] for pick in picks]))
    _set_topics(msg, topics)
    msg.columns = new if new != Columns() else None


def _set_topics(msg: Msg | Job, topics: list[str]) -> None:
    if len(topics) == 1:
        msg.topic = topics[0]
    else:
        msg.topics = topics


def _part(msg: Msg | Job, body: bytes) -> Frame:
    header = codec.encode(msg)
    count = msg.count - msg.skip if msg.take is None else msg.take
    size = bodies.credit_bytes(body, msg.columns)
    at = _SID_AT[type(msg)]
    return Frame(header[:at], header[at + 1 :], body, count, size)


def _sid_at(kind: type[Msg] | type[Job]) -> int:
    """The place of the sid in the header: the map's size and `cmd` come first, always the same."""
    return codec.encode(kind("", 0, 0, 0, 0, 0)).index(_SID) + len(_SID)


_SID_AT: Final = {kind: _sid_at(kind) for kind in (Msg, Job)}


class MessagePlace(NamedTuple):
    """Which message it is. position: 0 if not recorded; origin: None if it is this instance's."""

    position: int
    publisher: int
    sequence: int
    origin: tuple[int, int, int] | None = None


class Held(NamedTuple):
    """One key at the end of an interval: `first` names the key's first message, the rest is the
    newest one's. since: position of the first message of all that ended with it; a subscriber that
    resumes there gets all of it again, unchanged. extra: columns of one, its key, headers and
    expiry.
    """

    first: MessagePlace
    topic: str
    time_ns: int
    data: bytes
    since: int = 0
    extra: Columns | None = None
