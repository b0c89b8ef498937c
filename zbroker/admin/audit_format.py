"""A line of the audit log, and whether a chain of them is whole. Pure.

    {"time": T, "who": W, "from": F, "what": X, "outcome": O, "prev": H, "hash": H}

`hash` is BLAKE2b-256 of the line without `,"hash":"..."` and without its end, in hex; `prev` is the
`hash` of the line before, 64 zeros in the very first. So a line cannot be changed, removed or
inserted without changing all that follow. To notice that the end was cut off, keep a newer `hash`
somewhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

FIRST: Final = "0" * 64
LINE_MAX_BYTES: Final = 4_096  # the text of a request is cut long before
_MARK: Final = b',"hash":"'
_TAIL_BYTES: Final = len(_MARK) + len(FIRST) + len(b'"}')
_ENCODER: Final = msgspec.json.Encoder()


class AuditLine(Struct, frozen=True, rename={"origin": "from"}):
    """What a line says. time: text form. origin: the address that asked, as `from`."""

    time: str
    who: str
    origin: str
    what: str
    outcome: str
    prev: str


class AuditEntry(AuditLine, frozen=True, rename={"origin": "from"}):
    """A line as it is read."""

    hash: str = ""


class Broken(NamedTuple):
    """The first line, from 1, that is not what was written, and why."""

    line: int
    why: str


_DECODER: Final = msgspec.json.Decoder(AuditEntry)


def encode(line: AuditLine) -> tuple[bytes, str]:
    """A line with its end, and its hash."""
    body = _ENCODER.encode(line)
    found = _hash(body)
    return body[:-1] + _MARK + found.encode() + b'"}\n', found


def decode(data: bytes) -> AuditEntry | None:
    """What a line says; None if it is none."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def check(data: bytes, prev: str | None) -> tuple[str, str]:
    """The hash of a line that follows `prev` (None: any), and its fault or ""."""
    body, entry = data[:-_TAIL_BYTES] + b"}", decode(data)
    if entry is None or data[-_TAIL_BYTES : -len(FIRST) - 2] != _MARK:
        return "", "it is not a line of the audit log"
    if _hash(body) != entry.hash:
        return "", "it was changed: its hash is another one"
    if prev is not None and entry.prev != prev:
        return "", "the line before it was changed, removed or inserted"
    return entry.hash, ""


def verify(lines: Iterable[bytes], prev: str | None) -> tuple[str | None, Broken | None]:
    """The hash of the last line, and the first one that is broken.

    prev: what the first line follows; None: the lines before it are gone.
    """
    for number, line in enumerate(lines, 1):
        prev, why = check(line, prev)
        if why:
            return None, Broken(number, why)
    return prev, None


def _hash(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()
