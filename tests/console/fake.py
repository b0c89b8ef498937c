"""A stand-in for the admin: the console's files with its policy, and canned documents."""

from __future__ import annotations

import json
import mimetypes
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import zbroker.admin
from tests.console.documents import documents
from zbroker.admin.web import POLICY

FILES: Final = Path(zbroker.admin.__file__).parent / "console"
STOP_S: Final = 10.0


class Fake:
    """Serves until `stop`; `start` goes on at the same port.

    documents: by path; one that is an int is answered with that status. asked: paths with query.
    token: what has to come as Bearer; "" asks for none.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Any] = documents()
        self.asked: list[str] = []
        self.token = ""
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        fake = self

        class Bound(_Handler):
            owner = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Bound)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            self._thread.join(STOP_S)

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, Any]]:
        """The status and the document for a request."""
        if self.token and authorization != f"Bearer {self.token}":
            return 401, _refusal("auth_failed", "a token is needed")
        found = self.documents.get(path, 404)
        if isinstance(found, int):
            return found, _refusal("not_ready", f"status {found}")
        return 200, found


def _refusal(code: str, reason: str) -> dict[str, Any]:
    return {"code": code, "reason": reason, "hint": ""}


class _Handler(BaseHTTPRequestHandler):
    owner: Fake

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/console/")
        if path == "/" or path.startswith("/console/"):
            self._file(FILES / name)
            return
        self.owner.asked.append(self.path)
        status, document = self.owner.answer(path, self.headers.get("Authorization", ""))
        self._send(status, "application/json", json.dumps(document).encode())

    def _file(self, path: Path) -> None:
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self._send(200, kind, path.read_bytes())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """No one reads it."""
