"""Segment headers of which both copies are damaged, put together from what is good in each.

The copies say the same, 8 bytes at a time. Where they differ one of them is right, and the CRC
tells which choice is: a header that is found this way is the one that was written. A journal that
is read through `MendedDirectory` shows it in place of the damaged ones; the files stay as they are.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Final

from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, SEGMENT, SegmentHeader, decode_segment_header
from zbroker.log.places import SegmentPlaces

_WORD: Final = 8


def mended(first: bytes, second: bytes) -> bytes | None:
    """The header that both were copies of, or None if a word is damaged in both."""
    if len(first) < SEGMENT.size or len(second) < SEGMENT.size:
        return None
    starts = range(0, SEGMENT.size, _WORD)
    pairs = [sorted({first[at : at + _WORD], second[at : at + _WORD]}) for at in starts]
    for words in product(*pairs):
        data = b"".join(words)
        if isinstance(decode_segment_header(data), SegmentHeader):
            return data
    return None


class MendedDirectory(RealDisk):
    """A directory, read only. `headers`: by file name, what is shown in place of both copies."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, read_only=True)
        self.headers: dict[str, bytes] = {}

    def read(self, name: str, offset: int, size: int) -> bytes:
        data = super().read(name, offset, size)
        header = self.headers.get(name)
        if header is None:
            return data
        for at in (0, HEADER_COPY_AT):
            data = _overlaid(data, at - offset, header)
        return data


def _overlaid(data: bytes, at: int, patch: bytes) -> bytes:
    """`data` with `patch` at `at`, as far as it reaches into it."""
    start, end = max(at, 0), min(at + len(patch), len(data))
    return data if start >= end else data[:start] + patch[start - at : end - at] + data[end:]


def mend(places: SegmentPlaces) -> list[int]:
    """Mends what can be mended of unreadable raw segments; the serials of those."""
    found: list[int] = []
    for place in places.copies():
        disk, name = places.disk(place), places.name(place)
        if place.packed or isinstance(places.header(place), SegmentHeader):
            continue
        assert isinstance(disk, MendedDirectory), (
            "headers are mended in what is read, not in the files"
        )
        copies = [places.read(place, at, SEGMENT.size) for at in (0, HEADER_COPY_AT)]
        header = mended(*copies)
        if header is not None:
            disk.headers[name] = header
            found.append(place.serial)
    return found
