"""Expressions: the value of a text of the filter language for each message: `/price * /size`.

An expression is written as the operand of a filter; a whole condition is one too, and has the
values True, False and None. A message whose payload is not what its type says has the value None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from zbroker.errors import ClientError
from zbroker.filters import compiler
from zbroker.filters.content_filter import MessageMetadata
from zbroker.filters.nodes import Node, asks_message, fields_of, steps_of
from zbroker.filters.parser import parse
from zbroker.filters.paths import parse_path
from zbroker.filters.payloads import Payloads
from zbroker.filters.vocabulary import BUILT_IN, FIXED, Vocabulary


def compile_expression(text: str, vocabulary: Vocabulary = BUILT_IN) -> Expression:
    """The expression that a text describes. vocabulary: what it may call.

    Raises: ClientError bad_filter; the reason names the column, from 1, and what was expected.
    """
    return Expression(text, parse(text, vocabulary))


class Expression:
    """A value computed for each message. `text` is its source. steps: of its regular expressions,
    as a Filter has them."""

    __slots__ = ("_looks", "_runs", "_tree", "steps", "text")

    def __init__(self, text: str, tree: Node) -> None:
        self.text = text
        self._tree = tree
        self.steps = steps_of(tree)
        self._looks = bool(fields_of(tree))  # into payloads
        self._runs: dict[bool, compiler.Values] = {}  # by whether keys may be numbers

    def values(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[Any]:
        """The value for each of the messages `at`, in this order, as the payload has it."""
        numbers = payloads.type in ("fix", "msgpack")
        run = self._runs.get(numbers)
        if run is None:
            run = self._runs[numbers] = compiler.compile_values(self._tree, numbers=numbers)
        if not self._looks:
            return run(at, repeat(None), about, payloads.data)
        good, rows = payloads.values(at)
        found = run(good, rows, about, payloads.data)
        if len(good) == len(at):
            return found
        known = dict(zip(good, found, strict=True))
        return [known.get(i) for i in at]


Key = Callable[[Any], Any]  # of a decoded payload; None where it has none


def parse_key(text: str) -> Key:
    """What a text says of each decoded payload: a path, or an expression over paths.

    Raises: ClientError bad_field, with the column.
    """
    try:
        return parse_path(text)
    except ClientError:
        if "(" not in text:  # a path was meant: an expression over paths has a function
            raise
    try:
        tree = parse(text, FIXED)
    except ClientError as error:
        raise ClientError("bad_field", f"in a key, {error.reason}") from None
    if asks_message(tree):
        raise ClientError("bad_field", "a key is made of the payload only, not of the message")
    run = compiler.compile_values(tree, numbers=True)
    return lambda value: run((0,), repeat(value), None, ())[0]
