"""A slow reading of filters: walks the tree for each message. What compiled ones are compared with.

It shares the parser, the functions and paths with the package, and nothing of its logic, order
and arithmetic.
"""

from __future__ import annotations

import math
from datetime import datetime
from fractions import Fraction
from typing import Any

import re2

from zbroker.filters import nodes
from zbroker.filters.nodes import Node
from zbroker.formats.xml import Element

Truth = bool | None


def evaluate(node: Node, payload: Any, message: dict[str, Any]) -> Any:
    """The value of a node; `message` has what functions about the message itself give."""

    def of(item: Node) -> Any:
        return evaluate(item, payload, message)

    match node:
        case nodes.Literal(value):
            return value
        case nodes.Field(path):
            return path(payload)
        case nodes.OfMessage() | nodes.Header():
            return of_message(node, message)
        case nodes.Call(_, call, items):
            return call(*[of(item) for item in items])
        case nodes.If(condition, then, otherwise):
            return of(then) if truth(of(condition)) is True else of(otherwise)
        case nodes.Coalesce(items):
            values = [of(item) for item in items]
            return next((value for value in values if not null(value)), None)
        case nodes.Arithmetic(op, left, right):
            return arithmetic(op, as_number(of(left)), as_number(of(right)))
        case nodes.Like() | nodes.Affix():
            return textual(node, of)
    return logic(node, of)


def of_message(node: nodes.OfMessage | nodes.Header, message: dict[str, Any]) -> Any:
    if isinstance(node, nodes.OfMessage):
        return message[node.what]
    return (message["HEADERS"] or {}).get(node.name)


def logic(node: Node, of: Any) -> Truth:
    match node:
        case nodes.Not(item):
            found = truth(of(item))
            return None if found is None else not found
        case nodes.And(items):
            found = [truth(of(item)) for item in items]
            return min(found, key=[False, None, True].index)
        case nodes.Or(items):
            found = [truth(of(item)) for item in items]
            return max(found, key=[False, None, True].index)
        case nodes.Compare(op, left, right):
            return compared(op, of(left), of(right))
        case nodes.Between(item, low, high):
            low, high = one(of(low)), one(of(high))
            return anyone(of(item), lambda v: both(scalar(">=", v, low), scalar("<=", v, high)))
        case nodes.In(item, choices):
            value = of(item)
            found = [compared("=", value, of(choice)) for choice in choices]
            return max(found, key=[False, None, True].index)
        case nodes.IsNull(item):
            return null(of(item))
        case nodes.IsNan(item):
            value = as_number(of(item))
            return None if value is None else value != value
    raise AssertionError(node)


def textual(node: nodes.Like | nodes.Affix, of: Any) -> Truth:
    value = of(node.item)
    if isinstance(node, nodes.Like):
        return anyone(value, lambda v: in_text(v, lambda t: re2.search(node.pattern.text, t)))
    if node.at == "begin":
        fits = [lambda t, x=x: t[: len(x)] == x for x in node.texts]
    else:
        fits = [lambda t, x=x: t[-len(x) :] == x for x in node.texts]
    return anyone(value, lambda v: in_text(v, lambda t: any(fit(t) for fit in fits)))


def null(value: Any) -> bool:
    return value is None or (isinstance(value, str | list) and len(value) == 0)


def one(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def anyone(value: Any, test: Any) -> Truth:
    if not isinstance(value, list):
        return test(value)
    if not value:
        return None
    found = [None if isinstance(each, list) else test(each) for each in value]
    return True if any(found) else None if None in found else False


def both(left: Truth, right: Truth) -> Truth:
    return min(left, right, key=[False, None, True].index)


def compared(op: str, left: Any, right: Any) -> Truth:
    if isinstance(left, list):
        return anyone(left, lambda each: scalar(op, each, one(right)))
    return anyone(right, lambda each: scalar(op, left, each))


def scalar(op: str, left: Any, right: Any) -> Truth:
    """Two scalars, text ranked above numbers: (0, number) and (1, text)."""
    left, right = plain(left), plain(right)
    if not comparable(left) or not comparable(right):
        return None
    texts = isinstance(left, str) + isinstance(right, str)
    ranked = []
    for value in (left, right):
        spelled = as_number(value) if texts < 2 else None
        ranked.append((1, value) if spelled is None else (0, spelled))
    (left_rank, left), (right_rank, right) = ranked
    if left_rank != right_rank:
        left, right = left_rank, right_rank
    less, same = left < right, left == right
    if op in ("=", "!="):
        return same == (op == "=")
    more = left > right
    return {"<": less, "<=": less or same, ">": more, ">=": more or same}[op]


def plain(value: Any) -> Any:
    """An element of XML is compared as its own text."""
    return value.get("$") if isinstance(value, Element) else value


def comparable(value: Any) -> bool:
    return isinstance(value, str | int | float | datetime) and value != ""


def as_number(value: Any) -> Any:
    value = plain(one(value))
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return spelled(value)
    return value if isinstance(value, int | float) else None


def spelled(text: str) -> int | float | None:
    if len(text) > 64 or set(text) - set("0123456789+-.eE"):
        return None
    try:
        whole = int(text)
        return whole if -(2**63) <= whole < 2**64 else float(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def as_text(value: Any) -> str | None:
    value = plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or None
    value = as_number(value)
    return None if value is None else str(value)


def in_text(value: Any, test: Any) -> Truth:
    text = None if isinstance(value, list) else as_text(value)
    return None if text is None else bool(test(text))


def truth(value: Any) -> Truth:
    if isinstance(value, bool):
        return value
    number = as_number(value)
    return None if number is None or number != number else number != 0


def arithmetic(op: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(left, int) and isinstance(right, int):
        result: Any = exact(op, left, right)
        fits = result is not None and -(2**63) <= result < 2**64
        return result if fits else None
    try:
        left, right = float(left), float(right)
        result = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: left / right,
            "%": lambda: math.fmod(left, right),
        }[op]()
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def exact(op: str, left: int, right: int) -> int | None:
    if op in ("+", "-", "*"):
        return {"+": left + right, "-": left - right, "*": left * right}[op]
    if right == 0:
        return None
    quotient = math.trunc(Fraction(left, right))
    return quotient if op == "/" else left - quotient * right
