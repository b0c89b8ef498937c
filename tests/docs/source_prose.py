"""The sentences of a source file: its docstrings, comments and texts. Pure."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple

WORDS_MIN: Final = 3  # a shorter text is a name or a key, not a sentence

_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Sentence(NamedTuple):
    """A paragraph of a docstring, a block of comments, or a text, on one line."""

    line: int
    text: str


def sentences_of(source: str) -> Iterator[Sentence]:
    """Everything in `source` that is written for a reader."""
    tree = ast.parse(source)
    yield from _comments(source)
    documented = [_docstring(node) for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    docstrings = [constant for constant in documented if constant is not None]
    for constant in docstrings:
        for paragraph in re.split(r"\n\s*\n", str(constant.value)):
            yield Sentence(constant.lineno, " ".join(paragraph.split()))
    skipped = {id(constant) for constant in docstrings}
    for node in ast.walk(tree):  # a formatted text comes before its parts
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = [_text(part) or "{}" for part in node.values]
            yield Sentence(node.lineno, " ".join("".join(parts).split()))
        elif id(node) not in skipped and len(_text(node).split()) >= WORDS_MIN:
            yield Sentence(getattr(node, "lineno", 0), " ".join(_text(node).split()))


def _text(node: ast.AST) -> str:
    """The value of a constant text; "" for everything else."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _docstring(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", [])
    first = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return first if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _comments(source: str) -> Iterator[Sentence]:
    """Comments; those on lines of their own, one below the other, are one."""
    block: list[str] = []
    start = column = last = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = re.sub(r"^#:?\s?", "", token.string)
        alone = token.line.lstrip().startswith("#")
        if alone and block and token.start == (last + 1, column):
            block.append(words)
        else:
            if block:
                yield Sentence(start, " ".join(block))
            block, start, column = [words], token.start[0], token.start[1] if alone else -1
        last = token.start[0]
    if block:
        yield Sentence(start, " ".join(block))
