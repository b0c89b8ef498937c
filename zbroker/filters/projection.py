"""`select`: which parts of a payload a subscriber is sent.

    -/,+/a,+/b/c      nothing but /a and /b/c
    -/secret          everything but /secret

The longest entry at or above a value decides. Values are not encoded again: their bytes stay as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.filters.limits import SELECT_ENTRIES_MAX, SELECT_MAX_CHARS
from zbroker.filters.paths import BadPath, as_number, steps_of
from zbroker.filters.payloads import BROKEN, check_type
from zbroker.formats import bson, decode, name_of, reader, xml
from zbroker.formats.pairs import SOH
from zbroker.formats.protobuf import ProtobufReader

_ENTRY: Final = re.compile(r"\s*([+-])(\[[^\]]*\]|[^,]*)\s*(,|$)")
_MAPS: Final[dict[str, Any]] = {
    "json": msgspec.json.Decoder(dict[str, msgspec.Raw]),
    "msgpack": msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]),
}
_ENCODE: Final = {"json": msgspec.json.encode, "msgpack": msgspec.msgpack.encode}


class _KeepRule(Struct):
    """Whether a value and the values below it are kept; `keeps` None: as the value above it."""

    keeps: bool | None = None
    below: dict[str, _KeepRule] = field(default_factory=dict)

    def at(self, key: Any, keeps: bool) -> tuple[_KeepRule, bool]:  # noqa: ANN401 - of any map
        """The rule of a key below, and whether that is kept; `keeps` holds if no entry says it."""
        name = str(key) if type(key) is int and as_number(str(key)) is not None else key
        rule = self.below.get(name, _NO_RULE)
        return rule, keeps if rule.keeps is None else rule.keeps


_NO_RULE: Final = _KeepRule()


def compile_select(text: str) -> Select:
    """The selection that a text describes.

    Raises: ClientError bad_field, with the column.
    """
    if len(text) > SELECT_MAX_CHARS:
        raise _refusal(SELECT_MAX_CHARS, f"a select has at most {SELECT_MAX_CHARS} characters")
    root = _KeepRule()
    at = count = 0
    while at < len(text) or not count:
        entry = _ENTRY.match(text, at)
        if entry is None:
            raise _refusal(at, "`+` or `-` and a path are expected")
        if count == SELECT_ENTRIES_MAX:
            raise _refusal(at, f"a select has at most {SELECT_ENTRIES_MAX} entries")
        _add(root, entry)
        at, count = entry.end(), count + 1
    if text.rstrip().endswith(","):
        raise _refusal(len(text), "an entry is expected")
    return Select(text, root)


def _add(root: _KeepRule, entry: re.Match[str]) -> None:
    rule = root
    path, start = entry[2].rstrip(), entry.start(2)
    try:
        steps = () if path == "/" else steps_of(path)
    except BadPath as error:
        raise _refusal(start + error.at, str(error)) from None
    for step in steps:
        if isinstance(step, int):
            raise _refusal(start, "places in arrays cannot be selected")
        rule = rule.below.setdefault(step, _KeepRule())
    if rule.keeps is not None:
        raise _refusal(start, "this path has an entry already")
    rule.keeps = entry[1] == "+"


def _refusal(at: int, reason: str) -> ClientError:
    return ClientError("bad_field", f"column {at + 1} of select: {reason}")


class Select:
    """Which parts of payloads are kept. `text` is what it was made from."""

    __slots__ = ("_keeps", "_root", "text")

    def __init__(self, text: str, root: _KeepRule) -> None:
        self.text = text
        self._root = root
        self._keeps = root.keeps is not False

    def apply(self, type: str, data: bytes) -> bytes:  # noqa: A002
        """The payload with what is kept.

        Bytes that are not what the type says come back as they are, so do payloads without names.
        BSON, Protocol Buffers and XML are encoded again.
        Raises: ValueError for an unknown type.
        """
        check_type(type)
        try:
            return self._applied("json" if type == "auto" else type, data)
        except BROKEN:
            return data

    def _applied(self, type: str, data: bytes) -> bytes:  # noqa: A002
        trim = _TRIMS.get(name_of(type))
        if trim is not None:
            return trim(type, data, self._root, self._keeps)
        if type == "binary" or not isinstance(found := decode(type, data), dict):
            return data
        if type in _MAPS:
            parts = partial(_raw_parts, type)
            return _ENCODE[type](_of_map(parts(data) or {}, self._root, self._keeps, parts))
        fields = _fix_fields(data, found) if type == "fix" else _nvfix_fields(data)
        ended = data.endswith(SOH)
        kept_fields = [raw for name, raw in fields if self._root.at(name, self._keeps)[1]]
        return SOH.join(kept_fields) + (SOH if ended and kept_fields else b"")


def _nvfix_fields(data: bytes) -> Iterator[tuple[str, bytes]]:
    for raw in data.removesuffix(SOH).split(SOH) if data else ():
        yield raw.partition(b"=")[0].decode(), raw


def _fix_fields(data: bytes, found: dict[int, Any]) -> Iterator[tuple[str, bytes]]:
    """The values say where fields end: those of data fields may hold SOH."""
    values = {
        tag: iter(value if isinstance(value, list) else [value]) for tag, value in found.items()
    }
    at = 0
    while at < len(data):
        equals = data.index(b"=", at)
        tag = int(data[at:equals])
        value = next(values[tag])
        end = equals + 1 + len(value.encode() if isinstance(value, str) else value)
        yield str(tag), data[at:end]
        at = end + 1


# -- maps: JSON and msgpack keep the bytes of values, BSON is encoded again -------------------

Parts = Callable[[Any], dict[Any, Any] | None]  # of a value; None if it is not a map


def _of_map(found: dict[Any, Any], rule: _KeepRule, keeps: bool, parts: Parts) -> dict[Any, Any]:
    kept = {}
    for key, value in found.items():
        below, keeps_it = rule.at(key, keeps)
        inner = parts(value) if below.below else None
        if inner is not None:
            left = _of_map(inner, below, keeps_it, parts)
            if left or keeps_it:
                kept[key] = left
        elif keeps_it:
            kept[key] = value
    return kept


def _raw_parts(kind: str, raw: bytes | msgspec.Raw) -> dict[Any, Any] | None:
    try:
        found: dict[Any, Any] = _MAPS[kind].decode(raw)
    except msgspec.ValidationError:
        return None
    return found


def _bson(_type: str, data: bytes, rule: _KeepRule, keeps: bool) -> bytes:
    found = bson.parse(data)
    return bson.encode(_of_map(found, rule, keeps, lambda v: v if isinstance(v, dict) else None))


# -- Protocol Buffers and XML: encoded again --------------------------------------------------


def _protobuf(type: str, data: bytes, rule: _KeepRule, keeps: bool) -> bytes:  # noqa: A002
    read = reader(type)
    assert isinstance(read, ProtobufReader), "it is a type of protobuf"
    message = read.parse(data)
    _of_message(message, rule, keeps)
    made: bytes = message.SerializeToString(deterministic=True)
    return made


def _of_message(message: Any, rule: _KeepRule, keeps: bool) -> None:  # noqa: ANN401 - of any type
    if not keeps:
        message.DiscardUnknownFields()
    for known, value in message.ListFields():
        below, keeps_it = rule.at(known.name, keeps)
        if below.below and known.message_type and not known.is_repeated:
            _of_message(value, below, keeps_it)
            if not keeps_it and not value.ListFields():
                message.ClearField(known.name)
        elif not keeps_it:
            message.ClearField(known.name)


def _xml(_type: str, data: bytes, rule: _KeepRule, keeps: bool) -> bytes:
    root = xml.parse(data)
    kept = _of_element(root, *rule.at(root.name, keeps))
    return xml.encode(kept if kept is not None else xml.XmlNode(root.name, {}))


def _of_element(node: xml.XmlNode, rule: _KeepRule, keeps: bool) -> xml.XmlNode | None:
    """The kept part of an element; None: nothing."""
    if not rule.below:
        return node if keeps else None
    kept = xml.XmlNode(node.name, {})
    for name, value in node.attributes.items():
        if rule.at(xml.ATTRIBUTE + name, keeps)[1]:
            kept.attributes[name] = value
    for item in node.items:
        found: str | xml.XmlNode | None
        if isinstance(item, str):
            found = item if rule.at(xml.TEXT, keeps)[1] else None
        else:
            found = _of_element(item, *rule.at(item.name, keeps))
        if found is not None:
            kept.items.append(found)
    return kept if keeps or kept.items or kept.attributes else None


#: message type -> its payload with what a rule keeps; raises what reading it raises
_TRIMS: Final = {"bson": _bson, "protobuf": _protobuf, "xml": _xml}
