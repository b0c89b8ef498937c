"""A TOML text that a person wrote, with errors that say file, line and remedy. Pure.

Headers and keys are read by the TOML parser itself, one line at a time, so quoted names come out
right. For a value over several lines it is the first one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from zbroker.errors import ConfigError

Step = str | int  # a key; or which of several tables `[[...]]`, from 0
KeyPath = tuple[Step, ...]
T = TypeVar("T")

_CODE: Final = "bad_config"
_KEY: Final = re.compile(r"""\s*((?:[\w\-.\s]|"(?:[^"\\]|\\.)*"|'[^']*')+?)\s*=""")
_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)")
_AT_PATH: Final = re.compile(r" - at `\$\.?([^`]*)`")
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class TomlSource(NamedTuple):
    """A text, and its name in errors. Every method raises ConfigError."""

    name: str
    text: str

    def tree(self) -> dict[str, Any]:
        """Its tables."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            found = _AT_LINE.search(str(error))
            where = f"{self.name}:{found[1]}" if found else self.name
            reason = f"{where}: {_AT_LINE.sub('', str(error))}"
            raise ConfigError(_CODE, reason, "the file must be TOML") from None

    def fail(self, path: KeyPath, reason: str, hint: str) -> NoReturn:
        """Blames the line of `path`."""
        line = find_line(self.text, path)
        where = f"{self.name}:{line}" if line else self.name
        raise ConfigError(_CODE, f"{where}: {reason}", hint) from None

    def check_known(
        self, path: KeyPath, known: Collection[str], name: str | None = None, what: str = "key"
    ) -> None:
        """Fails unless `name`, by default the last step of `path`, is one of `known`."""
        sought = str(path[-1]) if name is None else name
        if sought not in known:
            shown = dotted(path) if name is None else name[:64]
            self.fail(path, f"unknown {what} `{shown}`", did_you_mean(sought, known))

    def convert(
        self, table: object, kind: type[T], hint: Callable[[KeyPath], str], at: KeyPath = ()
    ) -> T:
        """The table at `at` as a `kind`. hint: the remedy for a wrong value at a path."""
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as error:
            below, reason = split_error(error)
            path = (*at, *below)
            self.fail(path, f"`{dotted(path)}`: {reason}", hint(path))


def split_error(error: msgspec.ValidationError) -> tuple[KeyPath, str]:
    """The path that an error names, and its text without that."""
    text = str(error)
    found = _AT_PATH.search(text)
    steps = _STEP.findall(found[1]) if found else []
    path = tuple(key or int(number) for number, key in steps if key != "...")
    return path, _AT_PATH.sub("", text)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The hint for an unknown name: a similar one, or all that there are."""
    import difflib  # only after a mistake

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known) or 'none'}"


def dotted(path: KeyPath) -> str:
    """The keys of a path as people write them."""
    return ".".join(step for step in path if isinstance(step, str))


def find_line(text: str, path: KeyPath) -> int:
    """The line, from 1, of what `path` names, else of the table around it, else 0."""
    best, best_line = 0, 0
    for number, found in _places(text):
        common = min(len(found), len(path))
        if common > best and found[:common] == path[:common]:
            best, best_line = common, number
    return best_line


def _places(text: str) -> Iterator[tuple[int, KeyPath]]:
    table: KeyPath = ()
    seen: dict[KeyPath, int] = {}
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


def _path_of(line: str) -> KeyPath | None:
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
