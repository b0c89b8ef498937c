"""Text of a filter to its tree. Everything that can be refused is refused here, with the column.

lark is imported, and its parser made, for the first filter: a process without filters starts
sooner.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from zbroker.errors import ClientError
from zbroker.filters import tree_builder
from zbroker.filters.limits import FILTER_MAX_CHARS, PATTERNS_MAX
from zbroker.filters.nodes import Node
from zbroker.filters.tree_builder import VOCABULARY, ParsedNode, Unusable
from zbroker.filters.vocabulary import BUILT_IN, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lark


from zbroker.filters.paths import NAME

_SHOWN_MAX: Final = 32  # characters of what is not understood


def parse(text: str, vocabulary: Vocabulary = BUILT_IN) -> Node:
    """The tree of a filter. vocabulary: what it may call.

    Raises: ClientError bad_filter; the reason names the column, from 1, and what was expected.
    """
    if len(text) > FILTER_MAX_CHARS:
        raise _refusal(FILTER_MAX_CHARS, f"a filter has at most {FILTER_MAX_CHARS} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _refusal(error.start, "this is not a character of Unicode") from None
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


GRAMMAR: Final = rf"""
?start: either
?either: both | both (_OR both)+                   -> either
?both: negated | negated (_AND negated)+           -> both
?negated: NOT negated                              -> negation
    | test
?test: sum
    | sum COMPARISON sum                           -> comparison
    | sum [NOT] _BETWEEN sum _AND sum              -> between
    | sum [NOT] _IN _OPEN either (_COMMA either)* _CLOSE -> one_of
    | sum _IS [NOT] (NULL | NAN)                   -> is_null_or_nan
    | sum [NOT] LIKE constant                      -> like
    | sum [NOT] (BEGINS | ENDS) _WITH (constant | _OPEN constant (_COMMA constant)* _CLOSE) -> affix
?sum: product
    | sum (PLUS | MINUS) product                   -> arithmetic
?product: signed
    | product (TIMES | OVER | REST) signed         -> arithmetic
?signed: atom
    | (PLUS | MINUS) signed                        -> signed
?atom: constant | _OPEN either _CLOSE
    | FIELD                                        -> path
    | NAME _OPEN [either (_COMMA either)*] _CLOSE  -> call
constant: INTEGER | DOUBLE | TEXT | RAW | TRUE | FALSE | NULL

COMPARISON: "==" | "=" | "!=" | "<>" | "<=" | "<" | ">=" | ">"
PLUS: "+"
MINUS: "-"
TIMES: "*"
OVER: "/"
REST: "%" | /MOD\b/i
_OPEN: "("
_CLOSE: ")"
_COMMA: ","

_OR.2: /OR\b/i
_AND.2: /AND\b/i
NOT.2: /NOT\b/i
_BETWEEN.2: /BETWEEN\b/i
_IN.2: /IN\b/i
_IS.2: /IS\b/i
NULL.2: /NULL\b/i
NAN.2: /NAN\b/i
LIKE.2: /LIKE\b/i
BEGINS.2: /BEGINS\b/i
ENDS.2: /ENDS\b/i
_WITH.2: /WITH\b/i
TRUE.2: /TRUE\b/i
FALSE.2: /FALSE\b/i

NAME: /[A-Za-z_][A-Za-z_0-9]*(?=\s*\()/
FIELD: /(?:\/{NAME}(?:\[[0-9]+\])*)+/ | /\[\/(?:[^\[\]]|\[[0-9]+\])*\]/
RAW.2: /[rR](?:'[^']*'|"[^"]*")/
TEXT: /'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/s
DOUBLE.2: /[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?/
INTEGER: /[0-9]+/

%ignore /\s+/
"""

#: The expected things at a place, for the reason of a refusal: a token of the grammar -> words
EXPECTED: Final[dict[str, str]] = {
    "FIELD": "a field, a value or a function",
    "TEXT": "a constant",
    "COMPARISON": "an operator",
    "_AND": "`AND`",
    "_CLOSE": "`)`",
    "_OPEN": "`(`",
    "_WITH": "`WITH`",
    "NULL": "`NULL`",
    "NAN": "`NAN`",
    "_IN": "`IN`",
    "$END": "the end",
}
