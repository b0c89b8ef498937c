"""Payloads to values, by message type. Nothing but the type decides how bytes are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from zbroker.errors import ClientError, ZBrokerError
from zbroker.formats import bson, maps, protobuf, types, xml
from zbroker.formats.pairs import Malformed, by_name, by_tag

Value = Any  # what JSON or msgpack can say: maps, lists, text, bytes, numbers, times, None

_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Malformed)


class FormatError(ZBrokerError):
    """A payload is not what its type says; code bad_payload."""


def decode(type: str, data: bytes) -> Value:  # noqa: A002
    """The value of a payload; None if it has no fields.

    Raises: FormatError; ZBrokerError missing_package; ValueError for a type that there is not.
    """
    read = _READ.get(type) or reader(type)
    try:
        return read(data)
    except _BROKEN as error:
        name = types.name_of(type)
        raise FormatError("bad_payload", f"the payload is not {name}: {error}") from None


@lru_cache(maxsize=64)
def reader(type: str) -> Callable[[bytes], Value]:  # noqa: A002
    """What reads payloads of a type; it raises as `decode`, without the name of the type.

    Raises: ZBrokerError missing_package; ValueError for a type that there is not.
    """
    known = _READ.get(type)
    if known is not None:
        return known
    try:
        found = types.parse(type)
        if found.name == "protobuf" and found.message:
            return protobuf.reader(found.descriptors, found.message)
    except ClientError as error:
        raise ValueError(error.reason) from None
    raise ValueError(f"{type[:64]!r} says too little of the type")


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
    "bson": bson.decode,
    "xml": xml.decode,
}
TYPES: Final = types.NAMES
