"""What the parser calls for each rule of the grammar: makes nodes, checks limits and constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from zbroker.filters import functions, nodes
from zbroker.filters.functions import Function
from zbroker.filters.limits import DEPTH_MAX, IN_MAX, INTEGER_MAX, INTEGER_MIN, NODES_MAX
from zbroker.filters.nodes import Node
from zbroker.filters.paths import BadPath, Path, steps_of
from zbroker.filters.patterns import BadPattern, TextPattern
from zbroker.filters.values import number, text
from zbroker.filters.vocabulary import BUILT_IN, Unknown, Vocabulary

if TYPE_CHECKING:
    from lark import Token

_COMPARISONS: Final = {"==": "=", "<>": "!="}  # others are written as the node has them
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
_OF_MESSAGE: Final = ("TOPIC_NAME", "BOOKMARK", "LAST_UPDATED", "MESSAGE_SIZE", "KEY")

#: What may be called in the text that is being parsed: lark has no way to hand it to a rule.
VOCABULARY: Final[ContextVar[Vocabulary]] = ContextVar("VOCABULARY", default=BUILT_IN)


class Unusable(Exception):
    """The text at `at`, counted from 0, cannot be used."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


class ParsedNode(Struct, frozen=True):
    """A node and what the limits ask of it; `at` is where its text begins."""

    node: Node
    at: int
    depth: int = 1
    size: int = 1
    patterns: int = 0


def _part(node: Node, items: Sequence[ParsedNode], at: int, patterns: int = 0) -> ParsedNode:
    """A node above others. Raises: Refused, over a limit."""
    depth = 1 + max((item.depth for item in items), default=0)
    size = 1 + sum(item.size for item in items)
    if depth > DEPTH_MAX:
        raise Unusable(at, f"at most {DEPTH_MAX} levels may be nested")
    if size > NODES_MAX:
        raise Unusable(at, f"a filter has at most {NODES_MAX} fields, values and operators")
    return ParsedNode(node, at, depth, size, patterns + sum(item.patterns for item in items))


class Builder:
    """One method per rule, as lark wants it. They get tokens, parts, and None for an absent NOT."""

    def either(self, items: list[ParsedNode]) -> ParsedNode:
        return _part(nodes.Or(tuple(item.node for item in items)), items, items[0].at)

    def both(self, items: list[ParsedNode]) -> ParsedNode:
        return _part(nodes.And(tuple(item.node for item in items)), items, items[0].at)

    def negation(self, items: list[Any]) -> ParsedNode:
        return _part(nodes.Not(items[1].node), items[1:], items[0].start_pos)

    def comparison(self, items: list[Any]) -> ParsedNode:
        left, op, right = items
        node = nodes.Compare(_COMPARISONS.get(op, op), left.node, right.node)
        return _part(node, (left, right), left.at)

    def between(self, items: list[Any]) -> ParsedNode:
        item, inverted, low, high = items
        node = nodes.Between(item.node, low.node, high.node)
        return _inverted(_part(node, (item, low, high), item.at), inverted)

    def one_of(self, items: list[Any]) -> ParsedNode:
        item, inverted, *choices = items
        _check_count(choices)
        node = nodes.In(item.node, tuple(choice.node for choice in choices))
        return _inverted(_part(node, (item, *choices), item.at), inverted)

    def is_null_or_nan(self, items: list[Any]) -> ParsedNode:
        item, inverted, what = items
        node = nodes.IsNull(item.node) if what.type == "NULL" else nodes.IsNan(item.node)
        return _inverted(_part(node, (item,), item.at), inverted)

    def like(self, items: list[Any]) -> ParsedNode:
        item, inverted, _, given = items
        node = nodes.Like(item.node, _pattern(given))
        return _inverted(_part(node, (item,), item.at, patterns=1), inverted)

    def affix(self, items: list[Any]) -> ParsedNode:
        item, inverted, where, *given = items
        _check_count(given)
        texts = tuple(_constant_text(each) for each in given)
        node = nodes.Affix(item.node, texts, "begin" if where.type == "BEGINS" else "end")
        return _inverted(_part(node, (item, *given), item.at), inverted)

    def arithmetic(self, items: list[Any]) -> ParsedNode:
        left, op, right = items
        for item in (left, right):
            _check_number(item)
        sign = "%" if op.type == "REST" else str(op)
        node = nodes.Arithmetic(sign, left.node, right.node)  # type: ignore[arg-type]
        return _part(node, (left, right), left.at)

    def signed(self, items: list[Any]) -> ParsedNode:
        sign, item = items
        _check_number(item)
        value = _value(item)
        if type(value) in (int, float):
            return _number(-value if sign == "-" else value, sign.start_pos)
        node = nodes.Arithmetic("-" if sign == "-" else "+", nodes.Literal(0), item.node)
        return _part(node, (item,), sign.start_pos)

    def path(self, items: list[Token]) -> ParsedNode:
        token, at = items[0], items[0].start_pos or 0
        try:
            return ParsedNode(nodes.Field(Path(str(token), steps_of(token))), at)
        except BadPath as error:
            raise Unusable(at + error.at, str(error)) from None

    def constant(self, items: list[Token]) -> ParsedNode:
        return _constant(items[0], items[0].start_pos or 0)

    def call(self, items: list[Any]) -> ParsedNode:
        token, *given = items
        found = [item for item in given if item is not None]
        name, at = token.upper(), token.start_pos
        if name in SPECIAL:
            allowed, special = SPECIAL[name]
            _check_arguments(name, found, allowed, at)
            return special(name, found, at)
        try:
            called = VOCABULARY.get().function(name)
        except Unknown as error:
            raise Unusable(at, str(error)) from None
        if isinstance(called, str):
            _check_arguments(name, found, (0, 0), at)
            return ParsedNode(nodes.Literal(called), at)
        return _call(name, called, found, at)


def _inverted(part: ParsedNode, inverted: Token | None) -> ParsedNode:
    return part if inverted is None else _part(nodes.Not(part.node), (part,), part.at)


# -- constants --------------------------------------------------------------------------------


def _constant(token: Token, at: int) -> ParsedNode:
    kind = token.type
    if kind == "INTEGER":
        return _number(int(token) if len(token) <= 40 else INTEGER_MAX + 1, at)
    if kind == "DOUBLE":
        return _number(float(token), at)
    if kind == "RAW":
        return ParsedNode(nodes.Literal(str(token[2:-1])), at)
    if kind == "TEXT":
        return ParsedNode(nodes.Literal(_unescaped(token, at)), at)
    return ParsedNode(nodes.Literal({"TRUE": True, "FALSE": False}.get(kind)), at)


def _number(value: float, at: int) -> ParsedNode:
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise Unusable(at, "an integer has 64 bits; a larger number is written as 1e20")
    if value in (float("inf"), float("-inf")):
        raise Unusable(at, "this number is too large")
    return ParsedNode(nodes.Literal(value), at)


def _unescaped(token: str, at: int) -> str:
    def meant(found: re.Match[str]) -> str:
        code = found[1]
        if len(code) > 1:
            made = chr(int(code[1:], 16))
            if not "\ud800" <= made <= "\udfff":
                return made
        elif code in _ESCAPED:
            return _ESCAPED[code]
        where = at + 1 + found.start()
        raise Unusable(where, f"`\\{code}` is not an escape here; r'...' takes a text as it is")

    return _ESCAPE.sub(meant, token[1:-1])


def _constant_text(part: ParsedNode) -> str:
    """A constant that is a text, or has one, and is not empty."""
    found = text(_value(part))
    if found is None:
        raise Unusable(part.at, "a text that is not empty is expected")
    return found


def _given_text(part: ParsedNode, what: str, *, empty: bool = False) -> str:
    """A text that is written as a constant; empty: it may be."""
    value = _value(part)
    if not isinstance(value, str) or not (value or empty):
        raise Unusable(part.at, f"{what} is expected, as a constant text")
    return value


def _pattern(part: ParsedNode) -> TextPattern:
    value = _given_text(part, "a regular expression")
    try:
        return TextPattern(value)
    except BadPattern as error:
        raise Unusable(part.at, f"a bad regular expression: {error}") from None


def _value(part: ParsedNode) -> Any:  # noqa: ANN401 - what a literal may be
    return part.node.value if isinstance(part.node, nodes.Literal) else None


def _check_number(part: ParsedNode) -> None:
    """Raises: Refused for a constant text that spells no number."""
    value = _value(part)
    if isinstance(value, str) and value and number(value) is None:
        raise Unusable(part.at, "a number is expected, this text is none")


def _check_count(given: Sequence[ParsedNode]) -> None:
    if len(given) > IN_MAX:
        raise Unusable(given[IN_MAX].at, f"a list has at most {IN_MAX} values")


# -- functions --------------------------------------------------------------------------------


def _call(name: str, function: Function, given: list[ParsedNode], at: int) -> ParsedNode:
    _check_arguments(name, given, (function.least, function.most), at)
    items: list[Node] = []
    patterns = 0
    pattern: TextPattern | None = None
    for place, item in enumerate(given):
        kind = function.kind(place)
        if kind == "n":
            _check_number(item)
        if kind == "p":
            pattern, patterns = _pattern(item), 1
            items.append(nodes.Literal(pattern))
            continue
        if kind == "r" and pattern is not None:
            _check_replacement(item, pattern)
        if kind == "f":
            _check_format(item)
        items.append(item.node)
    return _part(nodes.Call(name, function.call, tuple(items)), given, at, patterns)


def _check_replacement(part: ParsedNode, pattern: TextPattern) -> None:
    value = _given_text(part, "a replacement", empty=True)
    try:
        pattern.check_replacement(value)
    except BadPattern as error:
        raise Unusable(part.at, str(error)) from None


def _check_format(part: ParsedNode) -> None:
    value = _given_text(part, "a format of a time")
    if bad := functions.bad_directive(value):
        raise Unusable(part.at, f"`{bad}` is not known in a format of a time")


def _check_arguments(name: str, given: list[ParsedNode], allowed: tuple[int, int], at: int) -> None:
    least, most = allowed
    if least <= len(given) <= most:
        return
    wanted = str(least) if least == most else f"{least} to {most}"
    wanted = f"at least {least}" if most > 10 else wanted
    raise Unusable(at, f"{name} takes {wanted} arguments, not {len(given)}")


def _if(_name: str, given: list[ParsedNode], at: int) -> ParsedNode:
    condition, then, otherwise = (item.node for item in given)
    return _part(nodes.If(condition, then, otherwise), given, at)


def _coalesce(_name: str, given: list[ParsedNode], at: int) -> ParsedNode:
    return _part(nodes.Coalesce(tuple(item.node for item in given)), given, at)


def _header(_name: str, given: list[ParsedNode], at: int) -> ParsedNode:
    return ParsedNode(nodes.Header(_given_text(given[0], "the name of a header")), at)


def _of_message(name: str, _given: list[ParsedNode], at: int) -> ParsedNode:
    return ParsedNode(nodes.OfMessage(name), at)  # type: ignore[arg-type]


#: calls that are not of functions of values: least and most arguments, and the node
SPECIAL: Final[
    dict[str, tuple[tuple[int, int], Callable[[str, list[ParsedNode], int], ParsedNode]]]
] = {
    "IF": ((3, 3), _if),
    "COALESCE": ((1, NODES_MAX), _coalesce),
    "HEADER": ((1, 1), _header),
    **dict.fromkeys(_OF_MESSAGE, ((0, 0), _of_message)),
}
