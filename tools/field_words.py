"""Checks tests/field_words.toml: each word of the field leads to a file by a name in it.

A name is that of the file, of a class or of a test. It has the word if it has its letters from the
beginning of one of its parts: `test_deduplication_gives...` and `Deduplicator` have "dedup".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LIST: Final = "tests/field_words.toml"
GLOSSARY: Final = "docs/reference/glossary.md"
WORDS_MIN: Final = 30
_NAMED: Final = re.compile(r"^\s*(?:class |def (?=test_))(\w+)", re.MULTILINE)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def check(root: Path) -> list[str]:
    """Every complaint about the list below `root`, as `path: what`."""
    listed = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    return [f"{LIST}: {what}" for what in (*_found(root, listed), *_not_there(root, listed))]


def _found(root: Path, listed: dict[str, dict[str, str]]) -> Iterator[str]:
    if len(listed["words"]) < WORDS_MIN:
        yield f"has {len(listed['words'])} words, at least {WORDS_MIN}"
    for word, where in listed["words"].items():
        if not (root / where).is_file():
            yield f"{word!r} leads to {where}, which does not exist"
        elif not any(has(name, word) for name in names(root / where)):
            yield f"no name in {where} has {word!r}: the file's, a class's or a test's"


def _not_there(root: Path, listed: dict[str, dict[str, str]]) -> Iterator[str]:
    """A word for what the broker lacks would mislead as a name, and needs its line on the page."""
    rows = (root / GLOSSARY).read_text(encoding="utf-8").lower().splitlines()
    absent = [row for row in rows if row.startswith("| ") and "not there" in row]
    for word in listed["not_there"]:
        if not any(word in row.split("|")[1] for row in absent):
            yield f"{GLOSSARY} has no row that says that {word!r} is not there"
    for folder in ("zbroker", "tests"):
        for path in sorted((root / folder).rglob("*.py")):
            for name in names(path):
                for word in listed["not_there"]:
                    if has(name, word):
                        where = path.relative_to(root).as_posix()
                        yield f"{word!r} is not there, but {where} has the name {name}"


def has(name: str, word: str) -> bool:
    """Whether the name has the word, from the beginning of a part of it."""
    parts = _HUMP.sub("_", name).lower()
    return f"_{word.replace(' ', '_')}" in f"_{parts}"


def names(path: Path) -> Iterator[str]:
    """The names by which a file is found: its own, its classes and its tests."""
    yield path.stem
    yield from _NAMED.findall(path.read_text(encoding="utf-8"))
