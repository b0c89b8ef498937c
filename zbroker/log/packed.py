"""A packed segment: the bytes of a segment file, compressed so that any part can be read alone.

The file is in the seekable format of Zstandard, so `zstd -d` gives back the segment byte for byte:

    head     a skippable frame: magic, version, frames, instance, serial, size, frame sizes; the
             compressed size of every data frame; CRC-32C of all that
    frames   independent ones with content checksums: the first DATA_AT bytes (headers are read
             without the rest), then FRAME_BYTES each
    table    a skippable frame, the standard seek table: the same sizes in another place

Either list of sizes is enough to read everything. A frame that is damaged reads as zeros, which
fail the CRCs of the batches in it, so exactly those are a gap. Without both lists the file is
unreadable.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import zstandard

from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.limits import KIB, MIB
from zbroker.log.format import DATA_AT

VERSION: Final = 1
LEVEL: Final = 3  # zstd's own default; higher ones cost several times the time for a few percent
FRAME_BYTES: Final = 256 * KIB  # small enough to read one batch, large enough to compress well
FRAME_MAX_BYTES: Final = 64 * MIB  # of a frame that somebody else's program made
#: Three blocks of the largest size: a reader that goes on where it stopped, and a second one at
#: another place, decompress nothing twice.
FRAMES_CACHE_BYTES: Final = 4 * MIB
TABLES_MAX: Final = 64  # of packed files kept in memory; 16 KiB each for a segment of 256 MiB
_FIRST_READ_BYTES: Final = 16 * KIB  # the head and the first frame of most segments

#: magic, version, frames, instance, serial, size, bytes of the first frame, of the others, -
HEAD: Final = struct.Struct("<8sIIQQQIII")
HEAD_MAGIC: Final = b"zbrkpack"
assert HEAD.size == 52, "docs/reference/packed.md says 52"
_SKIPPABLE: Final = struct.Struct("<II")  # magic, length of what follows
_HEAD_FRAME: Final = 0x184D2A50
_TABLE_FRAME: Final = 0x184D2A5E
_ENTRY: Final = struct.Struct("<II")  # compressed, decompressed size; perhaps a checksum, too
_FOOTER: Final = struct.Struct("<IBI")  # entries, descriptor, magic
_FOOTER_MAGIC: Final = 0x8F92EAB1
_WITH_CHECKSUMS: Final = 0x80
_RESERVED: Final = 0x7C
_CRC_BYTES: Final = 4

Read = Callable[[int, int], bytes]  # offset, size -> bytes of the packed file


class FrameTable(NamedTuple):
    """Where the frames are: frame i is [at[i], at[i + 1]) and gives [base[i], base[i + 1])."""

    at: array[int]
    base: array[int]

    @property
    def size(self) -> int:
        """Bytes of the segment file that was packed."""
        return self.base[-1]


class PackedHeader(NamedTuple):
    """What the first frame says."""

    instance: int
    serial: int
    size: int


# -- making one -------------------------------------------------------------------------------


def cuts(size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of what goes into each frame of a segment of `size` bytes."""
    if size:
        yield 0, min(DATA_AT, size)
    for offset in range(DATA_AT, size, FRAME_BYTES):
        yield offset, min(FRAME_BYTES, size - offset)


def frames_at(size: int) -> int:
    """Offset of the first data frame of a packed segment of `size` bytes."""
    frames = sum(1 for _ in cuts(size))
    return _SKIPPABLE.size + HEAD.size + 4 * frames + _CRC_BYTES


def compressor() -> zstandard.ZstdCompressor:
    """Makes data frames by its `compress`; it releases the GIL."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)


def encode_head(head: PackedHeader, lengths: list[int]) -> bytes:
    """The first frame; `lengths` are the compressed sizes of all data frames."""
    fields = HEAD.pack(
        HEAD_MAGIC, VERSION, len(lengths), head.instance, head.serial, head.size, DATA_AT,
        FRAME_BYTES, 0,
    )  # fmt: skip
    content = fields + struct.pack(f"<{len(lengths)}I", *lengths)
    content += _crc(content)
    return _SKIPPABLE.pack(_HEAD_FRAME, len(content)) + content


def encode_table(head_bytes: int, size: int, lengths: list[int]) -> bytes:
    """The seek table; the first of its entries is the head, which gives nothing."""
    entries = [(head_bytes, 0), *zip(lengths, (length for _, length in cuts(size)), strict=True)]
    content = b"".join(_ENTRY.pack(*entry) for entry in entries)
    content += _FOOTER.pack(len(entries), 0, _FOOTER_MAGIC)
    return _SKIPPABLE.pack(_TABLE_FRAME, len(content)) + content


def _crc(content: bytes) -> bytes:
    return crc32c(content).to_bytes(_CRC_BYTES, "little")


# -- reading its lists of sizes ---------------------------------------------------------------


def read_table(name: str, read: Read, file_bytes: int) -> FrameTable | None:
    """Where the frames are, by the head or else by the seek table; None if both are bad.

    Raises: StorageError unknown_version.
    """
    return read_head(name, read, file_bytes)[1] or read_seek_table(read, file_bytes)


def read_head(
    name: str, read: Read, file_bytes: int
) -> tuple[PackedHeader | None, FrameTable | None]:
    """What the head says; None if it is damaged or none of ours. Raises: StorageError."""
    data = read(0, min(_FIRST_READ_BYTES, file_bytes))
    if len(data) < _SKIPPABLE.size + HEAD.size:
        return None, None
    magic, length = _SKIPPABLE.unpack_from(data)
    end = _SKIPPABLE.size + length
    if magic != _HEAD_FRAME or not HEAD.size + _CRC_BYTES <= length <= file_bytes:
        return None, None
    if end > len(data):
        data += read(len(data), end - len(data))
    content, crc = data[_SKIPPABLE.size : end - _CRC_BYTES], data[end - _CRC_BYTES : end]
    if content[:8] != HEAD_MAGIC or _crc(content) != crc:
        return None, None
    _, version, frames, instance, serial, size, first, other, _ = HEAD.unpack_from(content)
    if version != VERSION:
        reason = f"{name} is packed in version {version}; this release knows {VERSION}"
        hint = "start the release that packed it, or unpack it with `zstd -d` and remove it"
        raise StorageError("unknown_version", reason, hint)
    fits = 0 < first <= FRAME_MAX_BYTES and 0 < other <= FRAME_MAX_BYTES
    if length != HEAD.size + 4 * frames + _CRC_BYTES or not fits:
        return None, None
    lengths = struct.unpack_from(f"<{frames}I", content, HEAD.size)
    if frames != (1 + max(0, -(-(size - first) // other)) if size else 0):
        return None, None
    starts = [0, *range(first, size, other)] if size else []
    table = FrameTable(array("Q", accumulate(lengths, initial=end)), array("Q", [*starts, size]))
    return PackedHeader(instance, serial, size), table


def read_seek_table(read: Read, file_bytes: int) -> FrameTable | None:
    """The standard table at the end of the file; None if it is damaged or missing."""
    if file_bytes < _SKIPPABLE.size + _FOOTER.size:
        return None
    footer = read(file_bytes - _FOOTER.size, _FOOTER.size)
    if len(footer) < _FOOTER.size:
        return None
    count, descriptor, magic = _FOOTER.unpack(footer)
    entry = _ENTRY.size + (4 if descriptor & _WITH_CHECKSUMS else 0)
    length = count * entry + _FOOTER.size
    start = file_bytes - length - _SKIPPABLE.size
    if magic != _FOOTER_MAGIC or descriptor & _RESERVED or start < 0:
        return None
    data = read(start, _SKIPPABLE.size + length)
    whole = len(data) == _SKIPPABLE.size + length
    if not whole or _SKIPPABLE.unpack_from(data) != (_TABLE_FRAME, length):
        return None
    entries = struct.iter_unpack(
        "<II4x" if entry > _ENTRY.size else "<II", data[_SKIPPABLE.size : -_FOOTER.size]
    )
    lengths, sizes = zip(*entries, strict=True) if count else ((), ())
    if sum(lengths) != start or max(sizes, default=0) > FRAME_MAX_BYTES:
        return None
    return FrameTable(
        array("Q", accumulate(lengths, initial=0)), array("Q", accumulate(sizes, initial=0))
    )


# -- reading frames ---------------------------------------------------------------------------


class Frames:
    """Decompressed frames used lately, of all packed files that one reader reads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._bytes = 0
        self._zstd = zstandard.ZstdDecompressor()
        self.decompressed = 0

    def get(self, key: tuple[str, int]) -> bytes | None:
        """A frame that is kept; `key` is (file, number of the frame)."""
        data = self._kept.get(key)
        if data is not None:
            self._kept.move_to_end(key)
        return data

    def decompress(self, key: tuple[str, int], data: bytes, size: int) -> bytes | None:
        """The `size` bytes that are packed in `data`; None if it is not such a frame."""
        self.decompressed += 1
        try:
            if zstandard.frame_content_size(data) != size:  # before memory is taken for it
                return None
            plain = self._zstd.decompress(data, allow_extra_data=False)
        except zstandard.ZstdError:
            return None
        self._kept[key] = plain
        self._bytes += size
        while self._bytes > FRAMES_CACHE_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1])
        return plain


class Packed:
    """One packed file. `read` reads of the segment that it was made from."""

    def __init__(self, name: str, read: Read, file_bytes: int, frames: Frames) -> None:
        self._name = name
        self._read = read
        self._frames = frames
        self._file_bytes = file_bytes
        self._table = read_table(name, read, file_bytes)

    @property
    def size(self) -> int:
        """Bytes of the segment file; 0 if this one is unreadable."""
        return self._table.size if self._table else 0

    def consistent(self) -> bool:
        """True if both lists of sizes are good and say the same: a check after it was written."""
        read, size = self._read, self._file_bytes
        head, listed = read_head(self._name, read, size)[1], read_seek_table(read, size)
        if head is None or listed is None:
            return False
        return (head.at, head.base) == (listed.at[1:], listed.base[1:])

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the segment file, fewer only at its end; those of damaged frames are zeros.

        Raises: StorageError file_missing.
        """
        table = self._table
        if table is None:
            return b""
        end, parts = min(offset + size, table.size), list[bytes | memoryview]()
        index = bisect_right(table.base, offset) - 1
        while offset < end:
            first, stop = table.base[index], table.base[index + 1]
            if stop > offset:
                whole = self._frame(table, index)
                parts.append(memoryview(whole)[offset - first : end - first])
            offset, index = stop, index + 1
        return b"".join(parts)

    def _frame(self, table: FrameTable, index: int) -> bytes:
        key, size = (self._name, index), table.base[index + 1] - table.base[index]
        kept = self._frames.get(key)
        if kept is not None:
            return kept
        start = table.at[index]
        try:
            data = self._read(start, table.at[index + 1] - start)
        except StorageError as error:
            if error.code == "file_missing":
                raise
            return bytes(size)  # the disk cannot read it
        return self._frames.decompress(key, data, size) or bytes(size)
