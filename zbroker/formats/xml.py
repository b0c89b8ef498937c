"""XML: elements, attributes and text; no document type, so no entities and nothing from outside.

    <order id="7"><price ccy="EUR">5</price><leg>a</leg><leg>b</leg></order>

    {"order": {"@id": "7", "price": {"@ccy": "EUR", "$": "5"}, "leg": ["a", "b"]}}

An element with nothing but text is that text. One with attributes or elements in it is a map: an
attribute has `@` before its name, its own text has the name `$`. Elements of one name are a list.
Names are taken as they are written, with their prefixes.

The parser is expat, as it comes with Python. What makes XML dangerous begins in a document type
(entities that grow, files and addresses that are fetched), so a payload with one is refused at
its first byte; depth is bounded while it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from xml.parsers import expat  # entities are refused; see above

from zbroker.formats.pairs import Malformed, add

DEPTH_MAX: Final = 64
TEXT: Final = "$"
ATTRIBUTE: Final = "@"

_SPACE: Final = " \t\r\n"
_IN_TEXT: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
_IN_ATTRIBUTE: Final = _IN_TEXT | str.maketrans({'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})


class Element(dict[str, Any]):
    """An element with attributes or elements in it. Compared with anything, it is its own text."""


class XmlNode:
    """An element as it is written: its attributes, and its texts and elements in order."""

    __slots__ = ("attributes", "items", "name")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.items: list[str | XmlNode] = []

    @property
    def text(self) -> str:
        """Its text outside of its elements."""
        return "".join(item for item in self.items if isinstance(item, str))

    def value(self) -> Any:  # noqa: ANN401 - text or an element
        nodes = [item for item in self.items if isinstance(item, XmlNode)]
        if not nodes and not self.attributes:
            return self.text
        found = Element((ATTRIBUTE + name, value) for name, value in self.attributes.items())
        for node in nodes:
            add(found, node.name, node.value())
        text = self.text
        if not nodes or text.strip(_SPACE):
            found[TEXT] = text
        return found

    def written(self) -> Iterator[str]:
        yield f"<{self.name}"
        for name, value in self.attributes.items():
            yield f' {name}="{value.translate(_IN_ATTRIBUTE)}"'
        if not self.items:
            yield "/>"
            return
        yield ">"
        for item in self.items:
            if isinstance(item, str):
                yield item.translate(_IN_TEXT)
            else:
                yield from item.written()
        yield f"</{self.name}>"


def decode(data: bytes) -> dict[str, Any]:
    """A map with the root element. Raises: Malformed."""
    root = parse(data)
    return {root.name: root.value()}


def encode(root: XmlNode) -> bytes:
    """The element in UTF-8, without declaration and comments."""
    return "".join(root.written()).encode()


def parse(data: bytes) -> XmlNode:
    """The root element. Raises: Malformed."""
    top = XmlNode("", {})
    parser = expat.ParserCreate("utf-8")  # whatever the payload declares
    reader = _Reader(top)
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None
    root = top.items[0]
    assert isinstance(root, XmlNode), "expat takes no text outside of the root"
    return root


class _Reader:
    def __init__(self, top: XmlNode) -> None:
        self._open = [top]

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > DEPTH_MAX:
            raise Malformed(f"elements are nested deeper than {DEPTH_MAX}")
        node = XmlNode(name, attributes)
        self._open[-1].items.append(node)
        self._open.append(node)

    def end(self, _name: str) -> None:
        self._open.pop()

    def text(self, text: str) -> None:
        self._open[-1].items.append(text)


def _refuse(name: str, *_others: object) -> None:
    raise Malformed(f"it has a document type ({name[:32]}), which may define entities")
