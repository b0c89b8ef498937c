"""Text of a filter to its tree. Everything that can be refused is refused here, with the column.

lark is imported, and its parser made, for the first filter: a process without filters starts
sooner.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from zbroker.errors import ClientError
from zbroker.filters import tree_builder
from zbroker.filters.grammar import EXPECTED, GRAMMAR
from zbroker.filters.limits import FILTER_MAX_CHARS, PATTERNS_MAX
from zbroker.filters.nodes import Node
from zbroker.filters.tree_builder import VOCABULARY, ParsedNode, Unusable
from zbroker.filters.vocabulary import BUILT_IN, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lark

_SHOWN_MAX: Final = 32  # characters of what is not understood


def parse(text: str, vocabulary: Vocabulary = BUILT_IN) -> Node:
    """The tree of a filter. vocabulary: what it may call.

    Raises: ClientError bad_filter; the reason names the column, from 1, and what was expected.
    """
    if len(text) > FILTER_MAX_CHARS:
        raise _refusal(FILTER_MAX_CHARS, f"a filter has at most {FILTER_MAX_CHARS} characters")
    if (surrogate := _surrogate(text)) >= 0:
        raise _refusal(surrogate, "this is not a character of Unicode")
    import lark

    before = VOCABULARY.set(vocabulary)
    try:
        part: ParsedNode = _parser().parse(text)  # type: ignore[assignment]
    except Unusable as error:
        raise _refusal(error.at, str(error)) from None
    except lark.UnexpectedInput as error:
        raise _unexpected(text, error) from None
    finally:
        VOCABULARY.reset(before)
    if part.patterns > PATTERNS_MAX:
        raise _refusal(0, f"a filter has at most {PATTERNS_MAX} regular expressions")
    return part.node


@cache
def _parser() -> lark.Lark:
    import lark

    builder: Any = tree_builder.Builder()
    return lark.Lark(GRAMMAR, parser="lalr", lexer="contextual", transformer=builder)


def _surrogate(text: str) -> int:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def _unexpected(text: str, error: lark.UnexpectedInput) -> ClientError:
    token = getattr(error, "token", None)
    expected = getattr(error, "allowed" if token is None else "expected")
    if token is not None and token.type == "$END":
        return _refusal(len(text), f"{_expected(expected)} is expected, the filter ends")
    at = error.pos_in_stream or 0
    if text[at] in "'\"" and "TEXT" in expected:
        return _refusal(at, "this text has no end")
    found = text[at : at + _SHOWN_MAX].split(maxsplit=1)[0]
    return _refusal(at, f"{_expected(expected)} is expected, not `{found}`")


def _expected(tokens: Iterable[str] | None) -> str:
    """The expected things at a place, in words; the first match is enough."""
    known = set(tokens or ())
    return next((words for token, words in EXPECTED.items() if token in known), "something else")


def _refusal(at: int, reason: Any) -> ClientError:  # noqa: ANN401 - text, or what has one
    return ClientError("bad_filter", f"column {at + 1}: {reason}")
