"""The tree of a filter. What each node means: docs/reference/filters.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from typing import Literal as OneOf

import msgspec
from msgspec.structs import astuple

from zbroker.filters.paths import Path
from zbroker.filters.patterns import TextPattern

Comparison = OneOf["=", "!=", "<", "<=", ">", ">="]


class Node(msgspec.Struct, frozen=True):
    """Anything that has a value."""


class Literal(Node, frozen=True):
    """A number, text, true, false or NULL; as an argument of a function also a pattern."""

    value: int | float | str | bool | TextPattern | None


class Loaded(Node, frozen=True):
    """A property of a message that is loaded once however often the tree uses it."""


class Field(Loaded, frozen=True):
    """What a path leads to."""

    path: Path


class Header(Loaded, frozen=True):
    """The header of this name."""

    name: str


class Not(Node, frozen=True):
    item: Node


class And(Node, frozen=True):
    items: tuple[Node, ...]


class Or(Node, frozen=True):
    items: tuple[Node, ...]


class Compare(Node, frozen=True):
    op: Comparison
    left: Node
    right: Node


class Between(Node, frozen=True):
    item: Node
    low: Node
    high: Node


class In(Node, frozen=True):
    item: Node
    choices: tuple[Node, ...]


class IsNull(Node, frozen=True):
    item: Node


class IsNan(Node, frozen=True):
    item: Node


class Like(Node, frozen=True):
    item: Node
    pattern: TextPattern


class Affix(Node, frozen=True):
    """BEGINS WITH or ENDS WITH one of `texts`."""

    item: Node
    texts: tuple[str, ...]
    at: OneOf["begin", "end"]


class Arithmetic(Node, frozen=True):
    op: OneOf["+", "-", "*", "/", "%"]
    left: Node
    right: Node


class If(Node, frozen=True):
    condition: Node
    then: Node
    otherwise: Node


class Coalesce(Node, frozen=True):
    items: tuple[Node, ...]


class Call(Node, frozen=True):
    """A function of its arguments' values; `call` never raises."""

    name: str
    call: Callable[..., Any]
    items: tuple[Node, ...]


class OfMessage(Node, frozen=True):
    """Something about the message itself, not in its payload."""

    what: OneOf["TOPIC_NAME", "BOOKMARK", "LAST_UPDATED", "MESSAGE_SIZE", "KEY"]


def fields_of(tree: Node) -> set[Path]:
    """The paths that a tree asks for."""
    if isinstance(tree, Field):
        return {tree.path}
    return set().union(*map(fields_of, below(tree)))


def asks_message(tree: Node) -> bool:
    """True if the tree asks for something about the message itself."""
    return isinstance(tree, OfMessage | Header) or any(map(asks_message, below(tree)))


def steps_of(tree: Node) -> int:
    """The steps of all regular expressions of a tree."""
    steps = sum(each.steps for each in astuple(tree) if isinstance(each, TextPattern))
    return steps + sum(map(steps_of, below(tree)))


def below(tree: Node) -> list[Node]:
    """The operands of a node."""
    found: list[Node] = []
    for value in astuple(tree):
        items = value if isinstance(value, tuple) else (value,)
        found += [item for item in items if isinstance(item, Node)]
    return found
