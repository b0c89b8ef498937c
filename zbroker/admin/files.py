"""The files of the console, in the directory beside this: those that it has, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from zbroker.admin.core import CONSOLE
from zbroker.errors import ClientError

PLACE: Final = Path(__file__).with_name("console")
INDEX: Final = "index.html"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class File(NamedTuple):
    """What is sent."""

    body: bytes
    content_type: str


class Console:
    """A path is looked up among what was found at the start: it is never made into a file name."""

    def __init__(self, place: Path = PLACE) -> None:
        found = (path for path in place.rglob("*") if path.suffix in TYPES and path.is_file())
        self._files = {CONSOLE + path.relative_to(place).as_posix(): path for path in found}

    def get(self, path: str) -> File:
        """`/` is the page itself. Raises: ClientError not_found."""
        found = self._files.get(CONSOLE + INDEX if path == "/" else path)
        if found is None:
            reason = "there is no such file of the console"
            raise ClientError("not_found", reason, "GET / is the page")
        return File(found.read_bytes(), TYPES[found.suffix])
