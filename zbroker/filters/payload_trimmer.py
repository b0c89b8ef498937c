"""Leaves out parts of payloads, for the types that are encoded again: bson, protobuf, xml.

A rule says what happens to a value and to what is below it (`projection`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from zbroker.formats import bson, reader, xml
from zbroker.formats.protobuf import ProtobufReader


class TrimRule(Protocol):
    """keeps: None is as above it. below: rules by name."""

    keeps: bool | None

    @property
    def below(self) -> Any: ...  # noqa: ANN401 - a dict of rules


Trim = Callable[[str, bytes, Any, bool], bytes]


def _bson(_type: str, data: bytes, rule: TrimRule, keeps: bool) -> bytes:
    return bson.encode(_of_map(bson.parse(data), rule, keeps))


def _of_map(found: dict[str, Any], rule: TrimRule, keeps: bool) -> dict[str, Any]:
    kept = {}
    for name, value in found.items():
        below = rule.below.get(name)
        if below is None:
            if keeps:
                kept[name] = value
            continue
        keeps_it = keeps if below.keeps is None else below.keeps
        if below.below and isinstance(value, dict):
            inner = _of_map(value, below, keeps_it)
            if inner or keeps_it:
                kept[name] = inner
        elif keeps_it:
            kept[name] = value
    return kept


def _protobuf(type: str, data: bytes, rule: TrimRule, keeps: bool) -> bytes:  # noqa: A002
    read = reader(type)
    assert isinstance(read, ProtobufReader), "it is a type of protobuf"
    message = read.parse(data)
    _of_message(message, rule, keeps)
    made: bytes = message.SerializeToString(deterministic=True)
    return made


def _of_message(message: Any, rule: TrimRule, keeps: bool) -> None:  # noqa: ANN401 - of any type
    if not keeps:
        message.DiscardUnknownFields()
    for field, value in message.ListFields():
        below = rule.below.get(field.name)
        keeps_it = keeps if below is None or below.keeps is None else below.keeps
        if below is not None and below.below and field.message_type and not field.is_repeated:
            _of_message(value, below, keeps_it)
            if not keeps_it and not value.ListFields():
                message.ClearField(field.name)
        elif not keeps_it:
            message.ClearField(field.name)


def _xml(_type: str, data: bytes, rule: TrimRule, keeps: bool) -> bytes:
    root = xml.parse(data)
    below = rule.below.get(root.name)
    kept = root if below is None and keeps else None
    if below is not None:
        kept = _of_element(root, below, keeps if below.keeps is None else below.keeps)
    return xml.encode(kept if kept is not None else xml.XmlNode(root.name, {}))


def _of_element(node: xml.XmlNode, rule: TrimRule, keeps: bool) -> xml.XmlNode | None:
    """The kept part of an element; None: nothing."""
    if not rule.below:
        return node if keeps else None
    kept = xml.XmlNode(node.name, {})
    for name, value in node.attributes.items():
        if _keeps(rule, xml.ATTRIBUTE + name, keeps):
            kept.attributes[name] = value
    for item in node.items:
        found: str | xml.XmlNode | None
        if isinstance(item, str):
            found = item if _keeps(rule, xml.TEXT, keeps) else None
        else:
            below = rule.below.get(item.name)
            keeps_it = keeps if below is None or below.keeps is None else below.keeps
            found = _of_element(item, below, keeps_it) if below else item if keeps_it else None
        if found is not None:
            kept.items.append(found)
    return kept if keeps or kept.items or kept.attributes else None


def _keeps(rule: TrimRule, name: str, keeps: bool) -> bool:
    below = rule.below.get(name)
    return keeps if below is None or below.keeps is None else below.keeps


#: message type -> its payload with what a rule keeps; raises what reading it raises
TRIMS: Final[dict[str, Trim]] = {"bson": _bson, "protobuf": _protobuf, "xml": _xml}
