"""Columns of texts and bytes made by copying, not one by one.

Numbers of one publisher rise by one, so ten thousand of their texts differ in four digits only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ALIKE_MIN: Final = 64  # texts with one beginning, on average, for which copying pays
_WIDTH: Final = 4
_BASE: Final = 10**_WIDTH
#: the digits of each number below 10,000
_DIGITS: Final = np.frombuffer(b"".join(b"%04d" % number for number in range(_BASE)), "<u4")

Array = Any  # of numpy, which is not there when types are checked


def of_one_length(kind: pa.DataType, values: object, rows: int, length: int) -> pa.Array:
    """A column whose values stand in `values` one behind the other."""
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(values)])


def whole(some: list[pa.Array]) -> pa.Array:
    """Columns as one."""
    return some[0] if len(some) == 1 else pa.concat_arrays(some)


def numbered(before: str, numbers: Array, behind: str) -> pa.Array:
    """`before`, the number, `behind`, for an array of numbers, none of them negative."""
    starts = numbers // _BASE
    cuts: Array = np.flatnonzero(np.diff(starts)) + 1
    if len(cuts) * ALIKE_MIN > len(numbers):
        return joined(pa.scalar(before), numbers, behind)
    some = [
        _alike(before, int(starts[first]), numbers[first:end], behind)
        for first, end in pairwise([0, *cuts.tolist(), len(numbers)])
    ]
    return whole(some)


def _alike(before: str, start: int, numbers: Array, behind: str) -> pa.Array:
    if start == 0:  # fewer digits than four, perhaps
        return joined(pa.scalar(before), numbers, behind)
    head = f"{before}{start}".encode()
    text = head + bytes(_WIDTH) + behind.encode()
    made = bytearray(text) * len(numbers)
    ends: Array = np.ndarray(len(numbers), "<u4", made, len(head), (len(text),))
    ends[:] = _DIGITS[numbers - start * _BASE]
    return of_one_length(pa.string(), made, len(numbers), len(text))


def joined(before: Any, numbers: Array, behind: str) -> pa.Array:  # noqa: ANN401 - texts, or one
    """The same where numbers are not alike, or each has another text before it."""
    digits = pc.cast(pa.array(numbers), pa.string())
    return pc.binary_join_element_wise(before, digits, behind, "")
