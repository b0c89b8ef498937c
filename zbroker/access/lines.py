"""Finds the line of a key in a TOML text, for error messages. Pure.

Headers and keys are read by the TOML parser itself, one line at a time, so quoted names come out
right. For a value over several lines it is the first one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

Step = str | int  # a key; or which of several tables `[[...]]`, from 0
Path = tuple[Step, ...]

_KEY: Final = re.compile(r"""\s*((?:[\w\-.\s]|"(?:[^"\\]|\\.)*"|'[^']*')+?)\s*=""")


def find_line(text: str, path: Path) -> int:
    """The line, from 1, of what `path` names, else of the table around it, else 0."""
    best, best_line = 0, 0
    for number, found in _places(text):
        common = min(len(found), len(path))
        if common > best and found[:common] == path[:common]:
            best, best_line = common, number
    return best_line


def _places(text: str) -> Iterator[tuple[int, Path]]:
    table: Path = ()
    seen: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.lstrip()
        if stripped.startswith("["):
            header = _path_of(line)
            if header is None:
                continue
            if stripped.startswith("[["):
                seen[header] = seen.get(header, -1) + 1
                header = (*header, seen[header])
            table = header
            yield number, table
        elif match := _KEY.match(line):
            key = _path_of(f"{match[1]} = 0")
            if key is not None:
                yield number, table + key


def _path_of(line: str) -> Path | None:
    """The keys that one line names, if it is TOML by itself."""
    try:
        found: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return None
    keys: list[Step] = []
    while isinstance(found, dict | list) and found:
        if isinstance(found, dict):
            keys.append(next(iter(found)))
            found = found[keys[-1]]
        else:
            found = found[0]
    return tuple(keys)
