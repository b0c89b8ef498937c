"""Checks the names of files and classes of the package: nouns of the field, each for one thing.

- no two classes share a name, so that a name leads to its class
- no file ends in -ing: a file is called what it has, not what is done; commands and a few words of
  the field are nouns although they do
- no name has a word that only this project used for what the field has a word for: files and
  classes none of them, functions, parameters and variables none of those that mean nothing else
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: words of the field that end in -ing
NOUNS: Final = frozenset(
    {"binding", "recording", "routing", "setting", "staging", "string", "testing"}
)
#: a private word, and the one of the field
WORDS: Final = {
    "desk": "admin endpoint", "door": "listener", "floor": "log start", "front": "listener",
    "janitor": "background", "life": "declaration", "marks": "watermarks", "room": "process",
    "told": "reported", "wanted": "query, options, selection", "wiring": "definition",
    "wish": "selection",
}  # fmt: skip
#: of these, words that are not in the name of a function, a parameter or a variable either
GONE: Final = frozenset({"desk", "desks", "door", "doors", "floor", "room", "rooms", "told"})
#: names of keys, which stay: of the file of disconnects
KEYS: Final = {"zbroker/wire/disconnects.py": {"floor"}}
_HUMP: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def check(root: Path) -> list[str]:
    """Every complaint about names below `root`/zbroker, as `path: what`."""
    classes: dict[str, list[str]] = defaultdict(list)
    complaints = []
    for path in sorted((root / "zbroker").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        for name in names:
            classes[name].append(where)
        complaints += [f"{where}: {what}" for what in judge(where, names)]
        complaints += [
            f"{where}:{line}: {name} has the private word {word!r}"
            for line, name in given_names(nodes)
            for word in {part.lower() for part in _HUMP.findall(name)} & GONE
            if word not in KEYS.get(where, ())
        ]
    for name, where_all in sorted(classes.items()):
        if len(where_all) > 1:
            complaints.append(f"{', '.join(where_all)}: classes share the name {name}")
    return complaints


def judge(where: str, classes: list[str]) -> Iterator[str]:
    """Complaints about the name of a file of the package and those of its classes."""
    file = Path(where).stem
    if file.endswith("ing") and file not in NOUNS and not where.startswith("zbroker/cli/"):
        yield f"{file} is not a noun"
    for name in (file, *classes):
        for word in {part.lower() for part in _HUMP.findall(name)} & WORDS.keys():
            yield f"{name} has the private word {word!r}: {WORDS[word]}"


def given_names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every name that these nodes give to a function, a parameter, a variable or an attribute."""
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
