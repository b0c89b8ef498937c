"""The HTTP listener of the admin: a socket on loopback, served by a thread of its own."""

from __future__ import annotations

import logging
import select
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.admin.answers import Answers
from zbroker.admin.audit import Audit
from zbroker.admin.authentication import Doorkeeper
from zbroker.errors import Bug

if TYPE_CHECKING:
    import uvicorn


from pathlib import Path

from zbroker.admin.core import CONSOLE
from zbroker.errors import ClientError

BACKLOG: Final = 128
STOP_WAIT_S: Final = 1.9  # then the process ends all the same


class Site(NamedTuple):
    """Everything that an answer needs."""

    answers: Answers
    doorkeeper: Doorkeeper
    audit: Audit
    console: Console


class Server:
    """Listens at once; connections wait until the thread is ready."""

    def __init__(self, at: tuple[str, int], log: logging.Logger) -> None:
        """at: host and port, 0 for a free one. Raises: OSError."""
        family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        self._listening = socket.create_server(at, family=family, backlog=BACKLOG)
        self._log = log
        self._thread: threading.Thread | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._stopping = threading.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def start(self, site: Site) -> None:
        """Begins to answer."""
        self._thread = threading.Thread(target=self._run, args=(site,), name="http", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises: Bug, if the thread has ended by itself."""
        if self._thread is not None and not self._thread.is_alive():
            raise Bug("the thread that answers HTTP has ended")

    def _run(self, site: Site) -> None:
        first = select.poll()
        first.register(self._listening, select.POLLIN)
        first.poll()
        if self._stopping.is_set():
            return
        # not before a request: it takes 0.1 s beside the start, and 11 MB of memory
        from zbroker.admin import web
        from zbroker.admin.web import App

        try:
            self._uvicorn = web.server(App(site, self._log))
            if not self._stopping.is_set():
                web.serve(self._uvicorn, self._listening)
        except Exception:
            self._log.exception("the thread that answers HTTP has ended; this process starts again")

    def stop(self) -> None:
        """Finishes the answers under way; returns within two seconds."""
        self._stopping.set()
        if self._uvicorn is None:
            with suppress(OSError):  # it was stopped before
                self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        else:
            self._uvicorn.should_exit = True
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
        self._listening.close()


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
    """A file of the console."""

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
