"""Packed bodies and their columns: one msgpack array of binaries, optionally compressed.

Every size that a body announces (items, bytes when uncompressed) is compared with what is allowed
before anything is allocated for it. One wrong count would shift positions and break every reader.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import zstandard
from msgspec import Raw

from zbroker.errors import ClientError
from zbroker.limits import EXTRA_MAX_BYTES
from zbroker.wire.messages import Columns

CODEC_ZSTD: Final = "zstd"

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[bytes])
_FIXARRAY, _ARRAY16, _ARRAY32 = 0x90, 0xDC, 0xDD
_BINARY_HEADS: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}  # bytes before a binary, by the first of them

_KEYS: Final = msgspec.msgpack.Decoder(list[bytes | None])
_HEADERS: Final = msgspec.msgpack.Decoder(list[dict[str, Any] | None])
_RAW_HEADERS: Final = msgspec.msgpack.Decoder(list[dict[str, Raw] | None])
_ITEMS: Final = msgspec.msgpack.Decoder(list[Raw])
_ANY: Final = msgspec.msgpack.Decoder()
_NIL: Final = Raw(b"\xc0")
_SCALARS: Final = frozenset({str, int, float, bool, bytes, type(None)})
_SCALAR_HEADS: Final = frozenset(
    (*range(0x80), *range(0xA0, 0xC1), *range(0xC2, 0xC7), *range(0xCA, 0xD4), *range(0xD9, 0xDC),
     *range(0xE0, 0x100))
)  # fmt: skip  # first bytes of text, numbers, bools, binaries and nil
_NO_HEADERS: Final = "`columns.headers` must be an array of maps or nil"
_NO_MSGPACK: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError)

STRIDED_MIN: Final = 128  # 2 us, as long as making so many messages

Body = bytes | memoryview
Scalar = str | int | float | bool | bytes | None
Headers = dict[str, Scalar]
T = TypeVar("T")


def text_or_base64(data: bytes, name: str = "data") -> dict[str, str]:
    """A payload or key for JSON: under `name` if it is UTF-8, else under `<name>_base64`."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def pack(messages: Sequence[bytes]) -> bytes:
    """The packed body of `messages`."""
    return _ENCODER.encode(messages)


def unpack(body: Body, codec: str | None, count: int, max_bytes: int) -> list[bytes]:
    """The `count` messages of a packed body of at most `max_bytes`, compressed or not.

    Raises: ClientError bad_frame or too_large.
    """
    return unpacked(inflate(body, codec, max_bytes), count)


def unpacked(plain: Body, count: int) -> list[bytes]:
    """The `count` messages of a packed body that is not compressed.

    Raises: ClientError bad_frame.
    """
    held = announced(plain)
    if held != count:
        raise ClientError("bad_frame", f"the body holds {held} messages, `count` says {count}")
    try:
        return _DECODER.decode(plain)
    except (msgspec.DecodeError, MemoryError) as error:
        raise ClientError("bad_frame", f"the body is not an array of binaries: {error}") from None


def check_packed(body: Body, count: int, codec: str | None, max_bytes: int) -> None:
    """Raises: ClientError bad_frame or too_large, unless `body` holds exactly `count` binaries."""
    plain = inflate(body, codec, max_bytes)
    if stride_of(plain, count) is None:
        unpacked(plain, count)


class Stride(NamedTuple):
    """Where the binaries of a packed body are that all have one length, in bytes."""

    first: int  # where the first one begins
    step: int  # from one to the next
    length: int


def stride_of(plain: Body, count: int) -> Stride | None:
    """Where the `count` binaries of a body are; None if they differ in length, are empty, or are
    so few that making them takes less time.

    Every step begins with the type and the one length that reaches the next step, so this proves
    the array without making its messages, in a fifth of the time. Raises: ClientError bad_frame.
    """
    if count < STRIDED_MIN or announced(plain) != count:
        return None
    array = {_ARRAY16: 3, _ARRAY32: 5}.get(plain[0], 1)
    step, rest = divmod(len(plain) - array, count)
    head = _BINARY_HEADS.get(plain[array], 0) if step and not rest else 0
    if not 0 < head < step or int.from_bytes(plain[array + 1 : array + head], "big") != step - head:
        return None
    common = bytes(plain[array : array + head])
    if any(plain[array + i :: step] != common[i : i + 1] * count for i in range(head)):
        return None
    return Stride(array + head, step, step - head)


def inflate(body: Body, codec: str | None, max_bytes: int) -> Body:
    """`body` without its compression.

    Raises: ClientError bad_frame or too_large.
    """
    if codec is None:
        return _within(body, len(body), max_bytes)
    if codec != CODEC_ZSTD:
        reason = f"codec {codec[:32]!r} is not spoken here; {CODEC_ZSTD!r} is"
        raise ClientError("bad_field", reason)
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:
            raise ClientError("bad_frame", "the compressed body does not announce its size")
        _within(body, size, max_bytes)
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ClientError("bad_frame", f"the body is not one zstd frame: {error}") from None


def _within(body: Body, size: int, max_bytes: int) -> Body:
    if size > max_bytes:
        raise ClientError("too_large", f"the body has {size} bytes, {max_bytes} are allowed")
    return body


def announced(plain: Body) -> int:
    """How many items the msgpack array at the start of `plain` says it has.

    Raises: ClientError bad_frame, if it is not an array.
    """
    first = plain[0] if len(plain) else 0
    if first & 0xF0 == _FIXARRAY:
        return first & 0x0F
    if first == _ARRAY16:
        return int.from_bytes(plain[1:3], "big")
    if first == _ARRAY32:
        return int.from_bytes(plain[1:5], "big")
    raise ClientError("bad_frame", "the body is not a msgpack array")


# -- columns ----------------------------------------------------------------------------------


def indexes(data: bytes) -> array[int]:
    """The index column: for each message of the body, which of the batch's topics it has."""
    return _from_little("H", data)


def topic_indexes(columns: Columns | None, count: int) -> Sequence[int]:
    """For each of `count` messages, which of the batch's topics it has; all the first one without a
    column."""
    column = columns.index if columns is not None else None
    return indexes(column) if column is not None else bytes(count)


def times(data: bytes) -> array[int]:
    """The time column: the log time of each message of the body, ns."""
    return _from_little("q", data)


def offsets(data: bytes) -> array[int]:
    """The offset column: what to add to `seq` and `position` for each message of the body."""
    return _from_little("I", data)


def to_little(items: array[int]) -> bytes:
    """The bytes of a column."""
    if sys.byteorder == "big":
        items = items[:]
        items.byteswap()
    return items.tobytes()


def _from_little(typecode: str, data: bytes) -> array[int]:
    items = array(typecode)
    items.frombytes(data)
    if sys.byteorder == "big":
        items.byteswap()
    return items


def keys(data: bytes, count: int) -> list[bytes | None]:
    """The key column: of each message its key. Raises: ClientError bad_field."""
    return _items(_KEYS, data, count, "`columns.keys` must be an array of binaries or nil")


def headers(data: bytes, count: int) -> list[Headers | None]:
    """The header column: of each message its headers. Raises: ClientError bad_field."""
    found = _built(data, count)
    if not are_scalars(chain.from_iterable(map(dict.values, filter(None, found)))):
        raise ClientError("bad_field", f"key `columns.headers`: {NO_SCALARS}")
    return found


def _built(data: bytes, count: int) -> list[Headers | None]:
    """The maps of a header column; values that are not scalars are not built if that is slow.

    A map with more than 15 entries has one of two bytes. Keys of such a map within a value may be
    made to fall on one another, so what kind of value it is has to be known before.
    """
    if b"\xde" in data or b"\xdf" in data:
        for row in filter(None, _items(_RAW_HEADERS, data, count, _NO_HEADERS)):
            if not all(map(is_scalar, row.values())):
                raise ClientError("bad_field", f"key `columns.headers`: {NO_SCALARS}")
    return _items(_HEADERS, data, count, _NO_HEADERS)


class _LazyColumn(Generic[T]):
    """A checked column of a batch, decoded when the value of one message is asked for."""

    __slots__ = ("_count", "_data", "_found")
    _name: str
    _decode: Callable[[bytes, int], list[T]]

    def __init__(self, columns: Columns | None, count: int) -> None:
        self._data: bytes | None = None if columns is None else getattr(columns, self._name)
        self._count = count
        self._found: list[T] | None = None

    def of(self, i: int) -> T | None:
        """That of message `i`, if it has one. Raises: ClientError bad_field."""
        if self._data is None:
            return None
        if self._found is None:
            self._found = self._decode(self._data, self._count)
        return self._found[i]


class HeaderColumn(_LazyColumn[Headers | None]):
    """Headers of a batch's messages."""

    __slots__ = ()
    _name = "headers"
    _decode = staticmethod(_built)

    def value(self, i: int, name: str) -> Scalar:
        """One header of message `i`; None without it. Raises: ClientError bad_field."""
        headers = self.of(i)
        return None if headers is None else headers.get(name)


class KeyColumn(_LazyColumn[bytes | None]):
    """Keys of a batch's messages."""

    __slots__ = ()
    _name = "keys"
    _decode = staticmethod(keys)


def expiry(data: bytes, count: int) -> array[int]:
    """The expiry column: of each message when it expires, ns; 0: never.

    Raises: ClientError bad_field.
    """
    if len(data) != 8 * count:
        raise _not_one_each("expiry", 8, count)
    found = times(data)
    if min(found, default=0) < 0:
        raise ClientError("bad_field", "key `columns.expiry` has a negative time")
    return found


NO_SCALARS: Final = "a header is text, a number, a bool, binary or nil"


def are_scalars(values: Iterable[object]) -> bool:
    """True if all of them may be values of headers."""
    return _SCALARS.issuperset(map(type, values))


def is_scalar(value: Raw) -> bool:
    """True if an encoded value may be one of headers. Nothing is built of it."""
    return memoryview(value)[0] in _SCALAR_HEADS


def checked_scalars(given: Mapping[str, Raw], key: str) -> dict[str, Scalar]:
    """The values of a map that a client sent under `key`. Raises: ClientError bad_field."""
    if not all(map(is_scalar, given.values())):
        raise ClientError("bad_field", f"key `{key}`: {NO_SCALARS}")
    return {name: scalar(raw) for name, raw in given.items()}


def scalar(value: Raw) -> Scalar:
    """The value of one of a single message's headers, which was checked."""
    return _ANY.decode(value)  # type: ignore[no-any-return]


def _items(
    decoder: msgspec.msgpack.Decoder[list[T]], data: bytes, count: int, what: str
) -> list[T]:
    """An array of `count` items. Its announced length is compared before anything is decoded."""
    try:
        if announced(data) == count:
            return decoder.decode(data)
        why = f"it has {announced(data)} items"
    except (ClientError, *_NO_MSGPACK) as error:
        why = str(error)
    raise ClientError("bad_field", f"key {what}, one for each of {count}: {why}") from None


class Extras:
    """Keys, headers and expiry of a batch's messages, so that those of some can be picked."""

    __slots__ = ("_expiry", "_headers", "_keys")

    def __init__(self, columns: Columns, count: int) -> None:
        """Raises: ClientError bad_field."""
        self._keys = _raw(columns.keys, count, "`columns.keys`")
        self._headers = _raw(columns.headers, count, "`columns.headers`")
        self._expiry = None if columns.expiry is None else expiry(columns.expiry, count)

    def put(self, columns: Columns, picks: Sequence[int]) -> None:
        """Sets in `columns` what messages `picks` have."""
        columns.keys = _picked(self._keys, picks)
        columns.headers = _picked(self._headers, picks)
        columns.expiry = None
        if self._expiry is not None and any(some := [self._expiry[i] for i in picks]):
            columns.expiry = to_little(array("q", some))


def extras(columns: Columns | None, count: int) -> Extras | None:
    """What picks keys, headers and expiry; None if no message has any of them.

    Raises: ClientError bad_field.
    """
    if columns is None or (columns.keys is columns.headers is columns.expiry is None):
        return None
    return Extras(columns, count)


def _raw(data: bytes | None, count: int, name: str) -> list[Raw] | None:
    return None if data is None else _items(_ITEMS, data, count, f"{name} must be an array")


def _picked(items: list[Raw] | None, picks: Sequence[int]) -> bytes | None:
    if items is None:
        return None
    some = [items[i] for i in picks]
    return None if some.count(_NIL) == len(some) else _ENCODER.encode(some)


def credit_bytes(body: Body, columns: Columns | None) -> int:
    """What messages take of their subscriber's credit: body, keys and headers."""
    if columns is None:
        return len(body)
    return len(body) + len(columns.keys or b"") + len(columns.headers or b"")


def check_columns(columns: Columns, count: int, topics: int) -> None:
    """Raises: ClientError bad_field, unless the columns fit `count` messages, `topics` topics;
    too_large, if a message has more than EXTRA_MAX_BYTES of key and headers.
    """
    if columns.offset is not None:
        raise ClientError("bad_field", "key `columns.offset` is for the broker's messages only")
    if columns.time is not None and len(columns.time) != 8 * count:
        raise _not_one_each("time", 8, count)
    _check_extras(columns, count)
    if columns.index is None:
        if topics > 1:
            raise ClientError("bad_field", "key `columns.index` is needed for several topics")
        return
    if len(columns.index) != 2 * count:
        raise _not_one_each("index", 2, count)
    if count and max(indexes(columns.index)) >= topics:
        reason = f"key `columns.index` names a topic beyond the {topics} given"
        raise ClientError("bad_field", reason)


def _not_one_each(column: str, size: int, count: int) -> ClientError:
    reason = f"key `columns.{column}` must have {size} bytes for each of {count}"
    return ClientError("bad_field", reason)


def _check_extras(columns: Columns, count: int) -> None:
    if columns.expiry is not None:
        expiry(columns.expiry, count)
    if columns.keys is not None:
        keys(columns.keys, count)
    if columns.headers is not None:
        headers(columns.headers, count)
    size = len(columns.keys or b"") + len(columns.headers or b"")
    if size > EXTRA_MAX_BYTES and columns.keys is not None and columns.headers is not None:
        size = max(map(sum, zip(_sizes(columns.keys), _sizes(columns.headers), strict=True)))
    elif size > EXTRA_MAX_BYTES:
        size = max(_sizes(columns.keys or columns.headers or b"\x90"))
    check_extra_size(size)


def _sizes(data: bytes) -> list[int]:
    return [len(memoryview(item)) for item in _ITEMS.decode(data)]


def check_extra_size(size: int) -> None:
    """`size` is that of a key and headers, encoded. Raises: ClientError too_large."""
    if size > EXTRA_MAX_BYTES:
        limit = f"at most {EXTRA_MAX_BYTES} bytes, these {size}"
        raise ClientError("too_large", f"key and headers of a message have {limit}")
