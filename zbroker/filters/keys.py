"""Keys of conflation: what of a payload two messages must have in common. `/a`, `UPPER(/a)`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from zbroker.errors import ClientError
from zbroker.filters import compiler
from zbroker.filters.nodes import Node, asks_message
from zbroker.filters.parser import parse
from zbroker.filters.paths import BadPath, Path, steps_of
from zbroker.filters.vocabulary import FIXED

Key = Callable[[Any], Any]  # of a decoded payload; None where it has none


def parse_key(text: str) -> Key:
    """What a text says of each decoded payload: a path, or an expression over paths.

    Raises: ClientError bad_field, with the column.
    """
    try:
        return Path(text, steps_of(text))
    except BadPath as error:
        if "(" not in text:  # a path was meant; an expression that is none has a function
            reason = f"column {error.at + 1} of a path: {error}"
            raise ClientError("bad_field", reason) from None
    try:
        tree = parse(text, FIXED)
    except ClientError as error:
        raise ClientError("bad_field", f"in a key, {error.reason}") from None
    if asks_message(tree):
        raise ClientError("bad_field", "a key is made of the payload only, not of the message")
    return _compiled(tree)


def _compiled(tree: Node) -> Key:
    run = compiler.compile_values(tree, numbers=True)

    def key(value: Any) -> Any:  # noqa: ANN401 - what a payload may hold
        return run((0,), repeat(value), None, ())[0]

    return key
