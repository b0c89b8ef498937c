"""Payloads to values, by message type. Nothing but the type decides how bytes are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from zbroker.errors import ZBrokerError
from zbroker.formats import maps
from zbroker.formats.pairs import Malformed, by_name, by_tag

Value = Any  # what JSON or msgpack can say: maps, lists, text, bytes, numbers, times, None

_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Malformed)


class FormatError(ZBrokerError):
    """A payload is not what its type says; code bad_payload."""


def decode(type: str, data: bytes) -> Value:  # noqa: A002
    """The value of a payload; None if it has no fields.

    Raises: FormatError; ValueError for a type that is not in `TYPES`.
    """
    read = _READ.get(type)
    if read is None:
        raise ValueError(f"{type!r} is none of the message types {', '.join(TYPES)}")
    try:
        return read(data)
    except _BROKEN as error:
        raise FormatError("bad_payload", f"the payload is not {type}: {error}") from None


def _auto(data: bytes) -> Value:
    try:
        return msgspec.json.decode(data)
    except _BROKEN:
        return None


def _msgpack(data: bytes) -> Value:
    maps.check(data)
    return msgspec.msgpack.decode(data)


def _binary(_data: bytes) -> None:
    return None


_READ: Final[dict[str, Callable[[bytes], Value]]] = {
    "auto": _auto,
    "json": msgspec.json.decode,
    "msgpack": _msgpack,
    "nvfix": by_name,
    "fix": by_tag,
    "binary": _binary,
}
TYPES: Final = tuple(_READ)
