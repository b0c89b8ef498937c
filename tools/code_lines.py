"""Counts files and lines of code of the package; beside a commit if one is named.

    python -m tools.code_lines [COMMIT]

A line of code is none that is blank, a comment, or part of a docstring or an import. Cython counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "zbroker"
_NO_CODE: Final = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENCODING, tokenize.ENDMARKER}
)


class Count(NamedTuple):
    """Of some files."""

    files: int = 0
    lines: int = 0
    code: int = 0


def code_lines(text: str) -> int:
    """How many lines of this source have code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found.difference(*map(_span, _left_out(ast.parse(text)))))


def cython_lines(text: str) -> int:
    """The same of Cython, which `ast` does not read. C in a string is code."""
    found: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    is_c = False  # what a string is that comes next
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            statement.append(token)
        elif token.type == tokenize.NEWLINE:
            words = [one.string for one in statement]
            is_doc = statement[0].type == tokenize.STRING and not is_c
            if not is_doc and words[0] not in ("import", "from", "cimport"):
                found.update(range(statement[0].start[0], token.end[0] + 1))
            is_c, statement = words[:2] == ["cdef", "extern"], []
    return len(found)


def _left_out(tree: ast.Module) -> Iterator[ast.stmt]:
    """Imports and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from node.body[: ast.get_docstring(node, clean=False) is not None]


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count(sources: Iterable[tuple[str, str]]) -> dict[str, Count]:
    """Per folder of the package, of (path in the package, text)."""
    found: dict[str, Count] = defaultdict(Count)
    for path, text in sources:
        folder, slash, _ = path.partition("/")
        lines_of = cython_lines if path.endswith(".pyx") else code_lines
        before = found[folder if slash else "."]
        found[folder if slash else "."] = Count(
            before.files + 1, before.lines + text.count("\n"), before.code + lines_of(text)
        )
    return dict(sorted(found.items()))


def here() -> Iterator[tuple[str, str]]:
    """The sources of this checkout."""
    package = ROOT / PACKAGE
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyx")]):
        yield path.relative_to(package).as_posix(), path.read_text(encoding="utf-8")


def at(commit: str) -> Iterator[tuple[str, str]]:
    """The sources at a commit."""
    command = ["git", "-C", str(ROOT), "archive", commit, PACKAGE]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith((".py", ".pyx")) else None
            if file is not None:
                yield member.name.removeprefix(f"{PACKAGE}/"), file.read().decode()


def table(now: dict[str, Count], then: dict[str, Count]) -> str:
    """Both as Markdown, with the sum; figures of `then` in brackets, if there are any."""
    rows = [(f"{name}/", now.get(name, Count()), then.get(name, Count())) for name in now | then]
    rows.append(("all", _sum(now), _sum(then)))
    lines = ["| " + " | ".join(["folder", *Count._fields]) + " |", "|---|---|---|---|"]
    for name, new, old in rows:
        pairs = zip(new, old, strict=True)
        cells = [f"{one:,} ({other:,})" if then else f"{one:,}" for one, other in pairs]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def _sum(counts: dict[str, Count]) -> Count:
    return Count(*map(sum, zip(*counts.values(), strict=True)))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.code_lines")
    parser.add_argument("commit", nargs="?", help="to compare with")
    commit = parser.parse_args().commit
    print(table(count(here()), count(at(commit)) if commit else {}))


if __name__ == "__main__":
    main()
