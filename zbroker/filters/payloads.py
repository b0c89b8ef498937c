"""The messages of a batch, for all filters that look at it: what they share is decoded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from zbroker.formats import FormatError, decode, decoder, reader
from zbroker.formats.pairs import Malformed

BROKEN: Final = (
    msgspec.MsgspecError, FormatError, Malformed, UnicodeDecodeError, RecursionError
)  # fmt: skip

_ABSENT: Final = object()
_MALFORMED: Final = object()
_FAST: Final[dict[str, Callable[[bytes], Any]]] = {
    "json": msgspec.json.Decoder().decode,
    "msgpack": msgspec.msgpack.Decoder().decode,
}


class Payloads:
    """Messages of one type."""

    __slots__ = ("_asker", "_decode", "_is_whole", "_values", "data", "suspect", "type")

    def __init__(self, type: str, data: Sequence[bytes]) -> None:  # noqa: A002
        check_type(type)
        self.type = type
        self.data = data
        #: one may have a map that is slow to build: each has to be looked at before
        self.suspect = type == "msgpack" and decoder.suspect(data)
        fast = None if self.suspect else _FAST.get(type)
        self._decode = fast or partial(decode, type)
        self._values: list[Any] | None = None
        self._asker: object = None
        self._is_whole = True  # nothing malformed was met

    def is_shared(self, asker: object) -> bool:
        """True once somebody else has asked too: then it pays to decode messages whole."""
        if self._asker is None:
            self._asker = asker
        elif self._asker is not asker:
            self._asker = _ABSENT
        return self._asker is _ABSENT

    def values(self, at: Sequence[int]) -> tuple[Sequence[int], list[Any]]:
        """Those of `at` whose bytes are what the type says, and their decoded values."""
        known, is_first = self._values, self._values is None
        if known is None:
            known = self._values = [_ABSENT] * len(self.data)
        missing = at if is_first else [i for i in at if known[i] is _ABSENT]
        values = self._decoded(missing)
        for i, value in zip(missing, values, strict=True):
            known[i] = value
        return self._good(at, values if is_first else list(map(known.__getitem__, at)))

    def _good(self, at: Sequence[int], values: list[Any]) -> tuple[Sequence[int], list[Any]]:
        if self._is_whole:
            return at, values
        good = [(i, value) for i, value in zip(at, values, strict=True) if value is not _MALFORMED]
        return [i for i, _ in good], [value for _, value in good]

    def _decoded(self, at: Sequence[int]) -> list[Any]:
        data = self.data
        try:
            return list(map(self._decode, map(data.__getitem__, at)))
        except BROKEN:
            return [self._careful(data[i]) for i in at]

    def _careful(self, data: bytes) -> Any:  # noqa: ANN401 - what a payload may hold
        try:
            return self._decode(data)
        except BROKEN:
            self._is_whole = False
            return _MALFORMED


def check_type(type: str) -> None:  # noqa: A002
    """Raises: ValueError for a type that there is not; ZBrokerError missing_package."""
    reader(type)
