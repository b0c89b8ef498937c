"""The grammar of filters, for lark's LALR parser with a contextual lexer.

After an operand only an operator can follow, so `/` is a division there and `/a` a field elsewhere:
`/a / 2`. What can be a name is taken whole: `/a/2` and `/a-1` are fields. Words are taken in any
case; a word before `(` that is none of the language's is a function.
"""

from __future__ import annotations

from typing import Final

from zbroker.filters.paths import NAME

GRAMMAR: Final = rf"""
start: either
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
