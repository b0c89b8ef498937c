"""Texts of one length for many numbers at once: a table of bytes instead of a text for each row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

_WIDTH: Final = 4
_BASE: Final = 10**_WIDTH
_LOW_DIGITS: Final = 2 * _WIDTH
_LOW: Final = 10**_LOW_DIGITS
#: the digits of each number below 10,000
_DIGITS: Final = np.frombuffer(b"".join(b"%04d" % number for number in range(_BASE)), "<u4")


def numbered(before: str, numbers: Any, digits: int, behind: str) -> pa.Array:  # noqa: ANN401
    """`before`, the number, `behind`, for an array of numbers that all have so many digits."""
    same = int(numbers.min()) // _LOW
    if (
        digits > _LOW_DIGITS and same == int(numbers.max()) // _LOW
    ):  # only the end of the text differs
        before, numbers, digits = f"{before}{same}", numbers - same * _LOW, _LOW_DIGITS
    head, tail = before.encode(), behind.encode()
    rows, room = len(numbers), -(-digits // _WIDTH) * _WIDTH
    table: Any = np.empty((rows, room // _WIDTH), "<u4")
    for column in range(table.shape[1] - 1, 0, -1):
        rest = numbers // _BASE
        table[:, column] = _DIGITS[numbers - rest * _BASE]
        numbers = rest
    table[:, 0] = _DIGITS[numbers]
    length = len(head) + digits + len(tail)
    made: Any = np.empty((rows, length), np.uint8)
    made[:, : len(head)] = np.frombuffer(head, np.uint8)
    made[:, len(head) : len(head) + digits] = table.view(np.uint8)[:, room - digits :]
    made[:, len(head) + digits :] = np.frombuffer(tail, np.uint8)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(made)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)
