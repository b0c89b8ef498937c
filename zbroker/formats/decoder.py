"""Payloads to values, by message type. Nothing but the type decides how bytes are read."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgpack
import msgspec

from zbroker.errors import ClientError, ZBrokerError
from zbroker.formats import bson, protobuf, types, xml
from zbroker.formats.pairs import Malformed, by_name, by_tag

Value = Any  # what JSON or msgpack can say: maps, lists, text, bytes, numbers, times, None

#: entries of a map with keys that are neither text nor binary: their hash has no secret seed, so
#: keys that all collide can be computed; 64 * 64 / 2 steps are 0.2 ms at worst
ODD_KEYS_MAX: Final = 64
_SEEDED: Final = frozenset({str, bytes})
_HEADS: Final = ((b"\xde", 2), (b"\xdf", 4))  # of maps with more than 15 entries; width of a count
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


def show(type: str, data: bytes) -> Any:  # noqa: A002, ANN401 - a value of JSON
    """A payload as a value of JSON.

    Bytes without fields are {"text": ...} where type is "auto" and they are UTF-8, else
    {"base64": ...}; with "error" beside it where they are not what `type` says.
    Raises: ValueError for a type that there is not.
    """
    if type == "binary":
        return _base64(data)
    try:
        return _jsonable(decode("json" if type == "auto" else type, data))
    except FormatError as error:
        if type == "auto":
            return _text(data)
        return {**_base64(data), "error": error.reason}


def _text(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return _base64(data)


def _jsonable(value: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    if isinstance(value, dict):
        return {_key(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, msgspec.msgpack.Ext):
        return {"ext": value.code, **_base64(bytes(value.data))}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    return value


def _key(key: Any) -> str:  # noqa: ANN401 - msgpack takes any
    return key if isinstance(key, str) else str(_jsonable(key))


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": b64encode(data).decode()}


# -- how each type is read ------------------------------------------------------------------------


def _auto(data: bytes) -> Value:
    try:
        return msgspec.json.decode(data)
    except _BROKEN:
        return None


def _msgpack(data: bytes) -> Value:
    check(data)
    return msgspec.msgpack.decode(data)


_READ: Final[dict[str, Callable[[bytes], Value]]] = {
    "auto": _auto,
    "json": msgspec.json.decode,
    "msgpack": _msgpack,
    "nvfix": by_name,
    "fix": by_tag,
    "binary": lambda _data: None,
    "bson": bson.decode,
    "xml": xml.decode,
}
TYPES: Final = types.NAMES


# -- maps of msgpack ------------------------------------------------------------------------------


def suspect(payloads: Sequence[bytes]) -> bool:
    """True if one of them may hold a big map.

    Most payloads have no byte that such a map begins with, which two searches in all of them show.
    """
    most = max(map(len, payloads), default=0) // 2  # entries of the longest: two bytes or more each
    together = b"".join(payloads)
    return any(_announced(together, head, width, most) for head, width in _HEADS)


def check(data: bytes) -> None:
    """Raises: Malformed, if a big map has a key that is neither text nor binary."""
    if not suspect((data,)):
        return
    try:
        msgpack.unpackb(data, object_pairs_hook=_check_keys, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:  # Malformed is a ValueError
        raise Malformed(str(error) or type(error).__name__) from None


def _announced(data: bytes, head: bytes, width: int, most: int) -> bool:
    """True if a map with more entries, but no more than there is room for, may begin somewhere."""
    at = data.find(head)
    while at >= 0:
        if ODD_KEYS_MAX < int.from_bytes(data[at + 1 : at + 1 + width], "big") <= most:
            return True
        at = data.find(head, at + 1)
    return False


def _check_keys(pairs: list[tuple[Any, Any]]) -> None:
    if len(pairs) > ODD_KEYS_MAX and not _SEEDED.issuperset([type(key) for key, _ in pairs]):
        raise Malformed(f"a map of more than {ODD_KEYS_MAX} entries has keys of text or binary")
