"""What the tests of access are made of."""

from __future__ import annotations

from collections.abc import Iterable

from zbroker.access.core import Access
from zbroker.access.format import parse
from zbroker.access.grants import AccessPattern, Clause, Grant, Kind

KEYS = [f"key-of-{letter}".ljust(40, "0") for letter in "abcdef"]
#: of "correct horse"
HASH = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$cvKDSIR8vA/24EQVf1tBGSj9VimKoCjA7Ny1Asw1kK8="


def rules(text: str, name: str = "access.toml") -> Access:
    """The rules of a text in which KEYS may be written as $0, $1 ... and HASH as $H."""
    for number, key in enumerate(KEYS):
        text = text.replace(f"${number}", key)
    return parse(text.replace("$H", HASH), name)


def grant(
    kind: Kind, actions: Iterable[str], topics: Iterable[str] = ("*",), text: str = ""
) -> Grant:
    """One grant of the role `role`."""
    patterns = tuple(map(AccessPattern, topics))
    return Grant("role", kind, 1, frozenset(actions), patterns, Clause(text) if text else None)
