"""Many batch headers at once: `format.decode_batch_header` for a whole block, in one loop.

A walk over the log decodes millions of headers; to call a function for each of them and to look its
result over takes as long again as the decoding. These stop at whatever is not simply the next good
batch, and do not say what that is: decoding one header finds out. Every header's CRC is checked,
also by `skim_headers`, which decodes only what an index needs: little more than half the work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.log.format import (
    BATCH,
    BATCH_MAGIC,
    FLAG_LATE,
    FLAG_SHOWS,
    FLAG_UNIT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    KIND_PUBLISH,
    KIND_STAGED,
    SEQUENCED,
    TAIL_KEPT_BYTES,
    VERSION,
    Batch,
    decode_tail,
    offset_bytes,
    read_batch_header,
    tails,
)

_BATCH_BYTES: Final = BATCH.size
_LENGTH_AT: Final = 8
_CRC_AT: Final = BATCH.size - 4
_unpack: Final = BATCH.unpack_from

#: The same 112 bytes: magic and version, kind, header length, body length, flags, count, skip,
#: position, publisher, cut, header crc
_SKIMMED: Final = struct.Struct("<6sHIIIII4xQQ56xII")
_HEAD: Final = BATCH_MAGIC + VERSION.to_bytes(2, "little")
assert _SKIMMED.size == BATCH.size, "it is the same header"
_skim: Final = _SKIMMED.unpack_from

#: And again: magic and version, kind, header length, body length, count, skip, topics, position,
#: body crc, cut, header crc
_PICKED: Final = struct.Struct("<6sHII4xIIH2xQ60xIII")
assert _PICKED.size == BATCH.size, "it is the same header"
_pick: Final = _PICKED.unpack_from

PICKS_MAX: Final = 256  # headers that are looked at in one go: well under a millisecond
ANSWERS_KEPT: Final = 1_000  # of one Wanted; 0.2 MB if all of them are long


def decode_headers(  # noqa: PLR0913 - each is one thing that a block of the log is read by
    data: bytes, base: int, offset: int, seed: int, position: int, limit: int, window: int,
    stop: int = 0,
) -> list[Batch]:  # fmt: skip
    """The good batches that follow on from `offset`, of positions from `position` below `limit`.

    `data` are bytes of a segment from offset `base` on. Batches begin in the next `window` bytes.
    stop: flags; a batch with one of them is the last one.
    """
    found: list[Batch] = []
    at, size = offset - base, len(data)
    last = min(size - _BATCH_BYTES, at + window - 1)
    while position < limit and at <= last:
        (magic, version, kind, length, body_length, flags, count, skip, topics, _, own, publisher,
         session, sequence, prev, log_time, origin_instance, origin_position, origin_generation,
         body_crc, cut, crc) = _unpack(data, at)  # fmt: skip
        if magic != BATCH_MAGIC:
            at += -(base + at) % GROUP_ALIGN + GROUP_LENGTH
            if data[at : at + 4] != BATCH_MAGIC:
                break
            continue
        body_at = at + length
        taken = count - skip - cut
        if (
            own != position
            or version != VERSION
            or body_at > size
            or length < _BATCH_BYTES
            or length % 8
            or (taken <= 0 and (taken or count))
        ):
            break
        tail = data[at + _BATCH_BYTES : body_at]
        if crc32c(offset_bytes(base + at) + data[at : at + _CRC_AT] + tail, seed) != crc:
            break
        known = tails.get(tail)
        if known is None or len(known[0]) != topics:
            try:
                known = decode_tail(tail, topics)
            except (struct.error, UnicodeDecodeError):
                break
        names, columns, extra = known
        found.append(Batch(
            kind, own, publisher, session, sequence, prev, count, log_time, names, b"", body_crc,
            body_length, skip, flags, origin_instance, origin_generation, origin_position, columns,
            extra, base + at, length, cut,
        ))  # fmt: skip
        if flags & stop:
            break
        position += taken
        at = body_at + (body_length + 7) // 8 * 8
    return found


def announced_length(data: bytes, at: int) -> int:
    """How long the batch header at `data[at:]` says it is. It is not verified yet."""
    return int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 4], "little")


class Sparse:
    """Which batches an index needs: of each block of a segment the first one, the first one of each
    publisher in it, and those that came late. `batches` counts all that were looked at.
    """

    __slots__ = ("batches", "block_bytes", "block_end", "seen", "serial")

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.batches = 0
        self.begin(0)

    def begin(self, serial: int) -> None:
        """Goes on in another segment."""
        self.serial = serial
        self.block_end = 0
        self.seen: set[int] = set()


def skim_headers(  # noqa: PLR0913 - each is one thing that a block of the log is read by
    data: bytes, base: int, offset: int, seed: int, position: int, limit: int, window: int,
    sparse: Sparse,
) -> tuple[list[Batch], int, int]:  # fmt: skip
    """Like `decode_headers`, but only what `sparse` needs; offset and position after the last."""
    found: list[Batch] = []
    at = done = offset - base
    size, seen, block_end = len(data), sparse.seen, sparse.block_end - base
    last = min(size - _BATCH_BYTES, at + window - 1)
    while position < limit and at <= last:
        head, kind, length, body_length, flags, count, skip, own, publisher, cut, crc = _skim(
            data, at
        )
        if head != _HEAD:
            at += -(base + at) % GROUP_ALIGN + GROUP_LENGTH
            if data[at : at + 6] != _HEAD:
                break
            continue
        body_at = at + length
        taken = count - skip - cut
        if (
            own != position
            or body_at > size
            or length < _BATCH_BYTES
            or length % 8
            or (taken <= 0 and (taken or count))
        ):
            break
        covered = data[at : at + _CRC_AT] + data[at + _BATCH_BYTES : body_at]
        if crc32c(offset_bytes(base + at) + covered, seed) != crc:
            break
        begins, late = at >= block_end, flags & FLAG_LATE
        if begins or (kind == KIND_PUBLISH and (late or publisher not in seen)):
            try:
                batch = read_batch_header(data, at, base + at)
            except (struct.error, UnicodeDecodeError):
                break
            found.append(batch)
            if begins:
                seen.clear()
                block_end = _block_end(base + at, sparse.block_bytes) - base
            if kind == KIND_PUBLISH and not late:
                seen.add(publisher)
        sparse.batches += 1
        position += taken
        at = done = body_at + (body_length + 7) // 8 * 8
    sparse.block_end = block_end + base
    return found, base + done, position


def _block_end(offset: int, block_bytes: int) -> int:
    return offset // block_bytes * block_bytes + block_bytes


def take_bodies(found: list[Batch], data: bytes, base: int, stop: int = 0) -> int:
    """Sets the bodies that are whole in `data`; how many are good before the first other one.
    One with a flag of `stop` is another one, too."""
    for index, batch in enumerate(found):
        at = batch.offset + batch.header_length - base
        size = batch.body_length
        batch.body = body = data[at : at + size]
        if len(body) < size or crc32c(body) != batch.body_crc or batch.flags & stop:
            return index
    return len(found)


# -- only what somebody wants -------------------------------------------------------------------


class Gap(NamedTuple):
    """Positions [first, end) that cannot be served, and why."""

    first: int
    end: int
    why: str


class Skipped(NamedTuple):
    """Positions [first, end) that hold nothing that is wanted; their headers are good.

    publisher, sequence, origin, origin_position: of the last message; 0 and None if that is not
    known.
    """

    first: int
    end: int
    publisher: int
    sequence: int
    origin: Origin | None = None
    origin_position: int = 0


Item = Batch | Gap | Skipped


def units(items: Iterable[Batch | Gap]) -> Iterator[list[Batch | Gap]]:
    """Batches that are sent whole or not at all: the parts of a unit together, others alone.

    A gap ends the unit that it cuts. A unit whose end is not among `items` is left out: read on
    from the end of the last one that was returned.
    """
    unit: list[Batch | Gap] = []
    for item in items:
        unit.append(item)
        if isinstance(item, Gap) or not item.flags & FLAG_UNIT:
            yield unit
            unit = []


class TopicSelection:
    """Which batches hold a topic that is wanted; one for each matcher, since it remembers."""

    def __init__(self, wants: Callable[[str], bool]) -> None:
        self._wants = wants
        #: by the end of a header after its fixed part: how many topics that is, negative if
        #: none of them is wanted
        self.known: dict[bytes, int] = {}
        self._segment: tuple[Iterable[str], bool] = ((), False)

    def batch(self, batch: Batch) -> bool:
        """True if it may hold something; always for what holds no messages, never if staged."""
        if batch.kind not in SEQUENCED:
            return True
        return batch.kind == KIND_PUBLISH and self.topics(batch.topics)

    def topics(self, topics: Iterable[str]) -> bool:
        """True if one of these is wanted."""
        return any(map(self._wants, topics))

    def segment(self, topics: Iterable[str]) -> bool:
        """True if one of these is wanted; the last answer is remembered with the object."""
        last, said = self._segment
        if last is not topics:
            said = any(map(self._wants, topics))
            self._segment = (topics, said)
        return said

    def learn(self, tail: bytes, topics: int) -> int | None:
        """What `known` has for this tail, as far as it is kept; None if it is none."""
        try:
            names, _, _ = decode_tail(tail, topics)
        except (struct.error, UnicodeDecodeError):
            return None
        said = topics if any(map(self._wants, names)) else -topics
        if len(tail) <= TAIL_KEPT_BYTES:
            if len(self.known) >= ANSWERS_KEPT:
                self.known.clear()
            self.known[tail] = said
        return said


def pick_headers(  # noqa: C901, PLR0912, PLR0913 - one loop over a block, like the others
    data: bytes, base: int, offset: int, seed: int, position: int, limit: int, budget: int,
    wanted: TopicSelection,
) -> tuple[list[Batch | Skipped], int, int, int]:  # fmt: skip
    """Like `decode_headers` and `take_bodies` for what is wanted; the rest is only stepped over.

    Looks at PICKS_MAX at most. budget: bytes that are wanted, at most.
    Returns: also offset and position after the last batch, maybe beyond `data`; the rest of
    the budget.
    """
    found: list[Batch | Skipped] = []
    at = done = offset - base
    last_at, last, begun, known = -1, len(data) - _BATCH_BYTES, position, wanted.known
    for _ in range(PICKS_MAX):
        if position >= limit or at > last or budget <= 0:
            break
        head, kind, length, body_length, count, skip, topics, own, body_crc, cut, crc = _pick(
            data, at
        )
        if head != _HEAD:
            at += -(base + at) % GROUP_ALIGN + GROUP_LENGTH
            if data[at : at + 6] != _HEAD:
                break
            continue
        body_at = at + length
        taken = count - skip - cut
        if (
            own != position
            or body_at > len(data)
            or length < _BATCH_BYTES
            or length % 8
            or (taken <= 0 and (taken or count))
        ):
            break
        tail = data[at + _BATCH_BYTES : body_at]
        if crc32c(offset_bytes(base + at) + data[at : at + _CRC_AT] + tail, seed) != crc:
            break
        said = known.get(tail)
        if said is None or (said != topics and said != -topics):
            said = wanted.learn(tail, topics)
            if said is None:
                break
        if (said <= 0 and kind == KIND_PUBLISH) or kind == KIND_STAGED:
            last_at = at
        else:
            batch = read_batch_header(data, at, base + at)  # `wanted` could read its tail
            batch.body = body = data[body_at : body_at + body_length]
            if len(body) < body_length or crc32c(body) != body_crc or batch.flags & FLAG_SHOWS:
                break
            if begun < position:
                found.append(_skipped(data, last_at, begun, position))
            begun = position + taken
            found.append(batch)
            budget -= length + body_length
        position += taken
        at = done = body_at + (body_length + 7) // 8 * 8
    if begun < position:
        found.append(_skipped(data, last_at, begun, position))
    return found, base + done, position, budget


def _skipped(data: bytes, at: int, first: int, end: int) -> Skipped:
    """Those positions; the header of the last batch is at `at`."""
    (_, _, kind, _, _, _, count, skip, _, _, _, publisher, _, sequence, _, _, instance, position,
     generation, _, cut, _) = _unpack(data, at)  # fmt: skip
    last = count - skip - cut - 1
    origin = Origin(instance, generation) if kind == KIND_PUBLISH else None
    return Skipped(first, end, publisher, sequence + last, origin, position + last)
