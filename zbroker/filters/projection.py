"""`select`: which parts of a payload a subscriber is sent.

    -/,+/a,+/b/c      nothing but /a and /b/c
    -/secret          everything but /secret

The longest entry at or above a value decides. Values are not encoded again: their bytes stay as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from zbroker.errors import ClientError
from zbroker.filters.limits import SELECT_ENTRIES_MAX, SELECT_MAX_CHARS
from zbroker.filters.paths import BadPath, as_number, steps_of
from zbroker.filters.payload_trimmer import TRIMS
from zbroker.filters.payloads import BROKEN, check_type
from zbroker.formats import decode, name_of
from zbroker.formats.pairs import SOH

_ENTRY: Final = re.compile(r"\s*([+-])(\[[^\]]*\]|[^,]*)\s*(,|$)")
_MAPS: Final[dict[str, Any]] = {
    "json": msgspec.json.Decoder(dict[str, msgspec.Raw]),
    "msgpack": msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]),
}
_ENCODE: Final = {
    "json": msgspec.json.Encoder().encode,
    "msgpack": msgspec.msgpack.Encoder().encode,
}


@dataclass(slots=True)
class _KeepRule:
    """What happens to a value and to what is below it; `keeps` None: as above it."""

    keeps: bool | None = None
    below: dict[str, _KeepRule] = field(default_factory=dict)


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
        trim = TRIMS.get(name_of(type))
        if trim is not None:
            return trim(type, data, self._root, self._keeps)
        if type == "binary" or not isinstance(found := decode(type, data), dict):
            return data
        if type in _MAPS:
            kept = self._of_map(type, data, self._root, self._keeps)
            return _ENCODE[type](kept)
        fields = _fix_fields(data, found) if type == "fix" else _nvfix_fields(data)
        ended = data.endswith(SOH)
        kept_fields = [raw for name, raw in fields if self._keeps_field(name)]
        return SOH.join(kept_fields) + (SOH if ended and kept_fields else b"")

    def _of_map(
        self,
        kind: str,
        data: bytes | msgspec.Raw,
        rule: _KeepRule,
        keeps: bool,
    ) -> dict[Any, Any]:
        kept = {}
        for key, raw in _MAPS[kind].decode(data).items():
            below = _below(rule, key)
            if below is None:
                if keeps:
                    kept[key] = raw
                continue
            keeps_it = keeps if below.keeps is None else below.keeps
            value = self._of_value(kind, raw, below, keeps_it)
            if value is not None:
                kept[key] = value
        return kept

    def _of_value(
        self,
        kind: str,
        raw: msgspec.Raw,
        rule: _KeepRule,
        keeps: bool,
    ) -> dict[Any, Any] | msgspec.Raw | None:
        """None: nothing of it is kept."""
        if rule.below:
            try:
                kept = self._of_map(kind, raw, rule, keeps)
            except msgspec.ValidationError:  # no map, so nothing is below it
                return raw if keeps else None
            return kept if kept or keeps else None
        return raw if keeps else None

    def _keeps_field(self, name: str) -> bool:
        rule = self._root.below.get(name)
        return self._keeps if rule is None or rule.keeps is None else rule.keeps


def _below(rule: _KeepRule, key: object) -> _KeepRule | None:
    if isinstance(key, str):
        return rule.below.get(key)
    if type(key) is int and as_number(name := str(key)) is not None:
        return rule.below.get(name)
    return None


def _nvfix_fields(data: bytes) -> Iterator[tuple[str, bytes]]:
    for raw in data.removesuffix(SOH).split(SOH) if data else ():
        yield raw.partition(b"=")[0].decode(), raw


def _fix_fields(data: bytes, found: dict[int, Any]) -> Iterator[tuple[str, bytes]]:
    """The values say where fields end: those of data fields may hold SOH."""
    values = {tag: iter(_listed(value)) for tag, value in found.items()}
    at = 0
    while at < len(data):
        equals = data.index(b"=", at)
        tag = int(data[at:equals])
        value = next(values[tag])
        end = equals + 1 + len(value.encode() if isinstance(value, str) else value)
        yield str(tag), data[at:end]
        at = end + 1


def _listed(value: Any) -> Iterable[str | bytes]:  # noqa: ANN401 - of a FIX payload
    return value if isinstance(value, list) else [value]
