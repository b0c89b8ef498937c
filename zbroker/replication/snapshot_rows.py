"""What state snapshots say of origins: how far each one is in the log before them. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, msgpack

from zbroker.ids import Origin

_ORIGINS: Final = "origins"
_MISSING: Final = "missing"
_MESSAGES, _BEGUN = 3, 4  # in a row: up to which message; and when the segment began
_LAST, _WHY, _AT = 3, 4, 5  # in a row of what is missing
_TAKEN: Final = "taken"
_CLOSED: Final = "closed"  # their rows begin with instance, generation, end
_CLOSED_CRC: Final = 11  # in such a row, then up to where records beyond the end are here
_CRC: Final = 7  # in a row, then the position of the record that has it; releases before have none

#: position of the newest record that travels, and CRC of its content, -1 if that is not known
Rows = dict[Origin, tuple[int, int]]


class _Part(Struct):
    through: int
    part: int
    folds: dict[str, Raw]
    last: bool = False


_PART: Final = msgpack.Decoder(_Part)
_ROWS: Final = msgpack.Decoder(list[list[int]])
_LISTS: Final = msgpack.Decoder(list[list[Any]])


def first_part(body: bytes | memoryview) -> Rows | None:
    """The rows of a first part, which are of the log before it; None of another part."""
    part = _decoded(body)
    return _rows(part) if part is not None and part.part == 0 else None


class HeadRows(NamedTuple):
    """What a first part says of the log before it. messages: the newest of each origin.

    begun: those before its segment, None if that is not known. missing: up to where messages are
    not in the log at all, with the position where that is written. records: the newest that travels
    of each origin. is_taken: the log began with it, as the state of another instance.
    """

    messages: dict[Origin, int]
    begun: dict[Origin, int] | None
    missing: list[tuple[Origin, int, str, int]]
    records: dict[Origin, int]
    is_taken: bool


def head(body: bytes | memoryview, first: int) -> HeadRows | None:
    """The same of a first part in the segment that begins at `first`; None of another part."""
    part = _decoded(body)
    if part is None or part.part != 0:
        return None
    try:
        rows = _LISTS.decode(part.folds[_ORIGINS])
        messages = {Origin(r[0], r[1]): r[_MESSAGES] for r in rows}
        known = part.through == first or all(r[_BEGUN] >= 0 for r in rows)
        begun = None
        if known:
            begun = messages if part.through == first else {
                Origin(r[0], r[1]): r[_BEGUN] for r in rows
            }  # fmt: skip
        found = _LISTS.decode(part.folds[_MISSING]) if _MISSING in part.folds else []
        missing = [(Origin(r[0], r[1]), r[_LAST], r[_WHY], r[_AT]) for r in found]
        records = {origin: at for origin, (at, _) in (_rows(part) or {}).items()}
        return HeadRows(messages, begun, missing, records, _TAKEN in part.folds)
    except (DecodeError, KeyError, IndexError, TypeError):
        return None


def _decoded(body: bytes | memoryview) -> _Part | None:
    try:
        return _PART.decode(body)
    except (DecodeError, UnicodeDecodeError):
        return None


def _rows(part: _Part) -> Rows | None:
    try:
        rows = _ROWS.decode(part.folds[_ORIGINS])
        closed = _ROWS.decode(part.folds[_CLOSED]) if _CLOSED in part.folds else []
        ended: Rows = {
            Origin(r[0], r[1]): (max(r[2], r[_CLOSED_CRC + 1]), r[_CLOSED_CRC])
            if len(r) > _CLOSED_CRC + 1 else (r[2], -1)
            for r in closed
        }  # fmt: skip
        return ended | {
            Origin(r[0], r[1]): (r[_CRC + 1], r[_CRC]) if len(r) > _CRC + 1 and r[_CRC] >= 0
            else (r[2], -1)
            for r in rows
        }  # fmt: skip
    except (DecodeError, KeyError, IndexError):
        return None


class SnapshotRows:
    """Collects the parts of a snapshot. complete: its rows, once all of it was read."""

    def __init__(self) -> None:
        self.complete: Rows | None = None
        self._rows: Rows | None = None
        self._through = self._next = 0

    def add(self, body: bytes | memoryview) -> bool:
        """One part, in the order of the log; True when it completes a snapshot."""
        part = _decoded(body)
        if part is None:
            return False
        if part.part == 0:
            self._rows, self._through, self._next = _rows(part), part.through, 0
        if self._rows is None or (part.through, part.part) != (self._through, self._next):
            return False
        self._next += 1
        if part.last:
            self.complete = self._rows
        return part.last
