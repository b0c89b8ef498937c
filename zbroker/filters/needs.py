"""What must occur in a packed body if one of its messages is to match: bytes that are searched for.

A text that a field must equal, begin with, end with or contain is in the payload as it is, and so
is the name of a field that must not be NULL. In JSON either may be spelled with escapes, so a body
with a backslash is never ruled out. A number can be spelled in many ways: nothing is asked for it
but the name of its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal

from msgspec import Struct

from zbroker.filters import nodes
from zbroker.filters.limits import NEEDS_MAX
from zbroker.filters.nodes import Node
from zbroker.filters.paths import Path, as_number
from zbroker.filters.patterns import Where
from zbroker.filters.values import number_in
from zbroker.formats import name_of

Search = Callable[[bytes], bool]

_JSON: Final = ("json", "auto")
_PAIRS: Final = ("nvfix", "fix")
_SEARCHED: Final = (*_JSON, *_PAIRS, "msgpack")  # others spell text in more than one way
_BACKSLASH: Final = b"\\"
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')  # what JSON cannot have as it is
_OF_NUMBERS: Final = re.compile(r"[0-9.e+\-]+")
_NUMBER_WORDS: Final = ("true", "false", "-inf", "nan")


class Several(Struct, frozen=True):
    """Needs of which all have to occur, or any."""

    of: Literal["all", "any"]
    items: tuple[Need, ...]


Need = bytes | Several | None  # None: nothing is known


def search_for(tree: Node, type: str) -> Search | None:  # noqa: A002
    """False for bodies in which no message matches; None if nothing can be said of any body."""
    if name_of(type) not in _SEARCHED:
        return None
    need = _Needs(type).true(tree)
    if need is None or _count(need) > NEEDS_MAX:
        return None
    search = _search(need)
    if type not in _JSON:
        return search
    return lambda body: search(body) or _BACKSLASH in body


def _search(need: Need) -> Search:
    if isinstance(need, bytes):
        return lambda body: need in body
    assert need is not None
    searches, test = [_search(item) for item in need.items], all if need.of == "all" else any
    return lambda body: test(search(body) for search in searches)


def _count(need: Need) -> int:
    return sum(map(_count, need.items)) if isinstance(need, Several) else 1


def _all(items: Iterable[Need]) -> Need:
    found = tuple(dict.fromkeys(item for item in items if item is not None))
    return Several("all", found) if len(found) > 1 else found[0] if found else None


def _any(items: Iterable[Need]) -> Need:
    found = tuple(dict.fromkeys(items))
    if None in found or not found:
        return None
    return Several("any", found) if len(found) > 1 else found[0]


class _Needs:
    """Needs of nodes, for payloads of one type."""

    def __init__(self, type: str) -> None:  # noqa: A002
        self._type = type

    def true(self, node: Node) -> Need:
        """What a node needs to be True."""
        match node:
            case nodes.Not(item):
                return self.false(item)
            case nodes.And(items):
                return _all(map(self.true, items))
            case nodes.Or(items):
                return _any(map(self.true, items))
            case nodes.Compare():
                return self._compared(node)
            case nodes.Call("INSTR"):
                return self._instr(node)
            case nodes.In(nodes.Field(path), choices):
                return self._one_of(path, choices)
            case nodes.Like(nodes.Field(path), pattern) if pattern.plain:
                return self._text(path, *pattern.plain)
            case nodes.Affix(nodes.Field(path), texts, at):
                return _any(self._text(path, text, at) for text in texts)
        return self._known(node)

    def false(self, node: Node) -> Need:
        """What a node needs to be False."""
        match node:
            case nodes.Not(item):
                return self.true(item)
            case nodes.And(items):
                return _any(map(self.false, items))
            case nodes.Or(items):
                return _all(map(self.false, items))
            case nodes.Compare("!=", left, right):
                return self.true(nodes.Compare("=", left, right))  # of arrays, with every element
            case nodes.IsNull(nodes.Field(path)):
                return self._present(path)
        return None if isinstance(node, nodes.IsNull) else self._known(node)

    def _compared(self, node: nodes.Compare) -> Need:
        match node:
            case nodes.Compare("=", nodes.Field(path), nodes.Literal(str() as text)):
                return self._equal(path, text)
            case nodes.Compare("=", nodes.Literal(str() as text), nodes.Field(path)):
                return self._equal(path, text)
            case nodes.Compare(op, nodes.Call("INSTR") as call, nodes.Literal(value)):
                return self._instr(call) if _finds(op, value) else None
        return self._known(node)

    def _known(self, node: Node) -> Need:
        """What a node needs to be True or False: fields that are there."""
        match node:
            case nodes.Field(path):
                return self._present(path)
            case nodes.Compare(_, left, right):
                return _all(map(self._operand, (left, right)))
            case nodes.Between(item) | nodes.In(item) | nodes.IsNan(item):
                return self._operand(item)
            case nodes.Like(item) | nodes.Affix(item):
                return self._operand(item)
        return None

    def _operand(self, node: Node) -> Need:
        return self._present(node.path) if isinstance(node, nodes.Field) else None

    # -- how a type spells it -----------------------------------------------------------------

    def _present(self, path: Path) -> Need:
        """The names of a path."""
        if self._type in _PAIRS:
            return self._before(path)
        names = [step for step in path.steps if isinstance(step, str)]
        if self._type == "msgpack":  # a key may be a number
            names = [name for name in names if as_number(name) is None]
        return _all(self._spelled(name, '"', '"') for name in names)

    def _before(self, path: Path) -> bytes | None:
        """`name=`; no value of these types is in another."""
        name = str(path.steps[0])
        if self._type == "fix" and as_number(name) is None:
            return None
        return f"{name}=".encode()

    def _equal(self, path: Path, text: str) -> Need:
        if not text:
            return None
        if self._type not in _PAIRS and number_in(text) is not None:
            return self._present(path)
        return self._value(path, text, "whole")

    def _one_of(self, path: Path, choices: tuple[Node, ...]) -> Need:
        literals = [each.value for each in choices if isinstance(each, nodes.Literal)]
        if len(literals) < len(choices):
            return self._present(path)
        given = [each for each in literals if each is not None and each != ""]
        if not all(isinstance(each, str) for each in given) or len(given) > NEEDS_MAX:
            return self._present(path)
        return _any(self._equal(path, str(each)) for each in given)

    def _instr(self, call: nodes.Call) -> Need:
        match call.items:
            case (nodes.Field(path), nodes.Literal(str() as text)) if text:
                return self._text(path, text, "anywhere")
        return None

    def _text(self, path: Path, text: str, where: Where) -> Need:
        if self._type not in _PAIRS and _may_be_of_number(text):
            return self._present(path)
        return self._value(path, text, where)

    def _value(self, path: Path, text: str, where: Where) -> Need:
        begins = where in ("begin", "whole")
        if self._type in _PAIRS:
            before = self._before(path)
            return before + text.encode() if begins and before else text.encode()
        # a quote at the end as well would make the search slower: it is in every message
        return self._spelled(text, '"' if begins else "", '"' if where == "end" else "")

    def _spelled(self, text: str, before: str, after: str) -> bytes:
        if self._type not in _JSON:
            return text.encode()
        return _BACKSLASH if _ESCAPED.search(text) else f"{before}{text}{after}".encode()


def _finds(op: str, value: object) -> bool:
    """True if `INSTR(...) op value` says that something was found."""
    if type(value) is not int:
        return False
    if op == "!=":
        return value == 0
    return (op in (">=", "=") and value >= 1) or (op == ">" and value >= 0)


def _may_be_of_number(text: str) -> bool:
    """True if a number, as text, may contain this."""
    return bool(_OF_NUMBERS.fullmatch(text)) or any(text in word for word in _NUMBER_WORDS)
