"""An admin for the tests of the commands that ask one: it answers what it is asked to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

TOKEN = "0123456789abcdef"

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


class FakeAdmin:
    """`answers`: by "GET /path" or "POST /path"; a pair (status, body) refuses.

    reported: what was posted, in order. It is in run/instance.json of `data`, and its token, too.
    readers: tokens without which nothing is answered, if there are any; asked: requests so far.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        self.answers: dict[str, Any] = {"GET /status": {"state": "ready", "data_dir": str(data)}}
        self.reported: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[str] = []
        self.readers: set[str] = set()
        self.url = ""
        self._server = HTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        run = data / "run"
        run.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        running = {"url": "tcp://127.0.0.1:1", "endpoints": {"admin": self.url}}
        (run / "instance.json").write_text(json.dumps(running))
        (run / "admin.token").write_text(TOKEN + "\n")

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers as its `admin` was asked to."""

    admin: FakeAdmin

    def do_GET(self) -> None:
        self.admin.asked.append(self.path)
        if self.admin.readers and self._bearer() not in self.admin.readers:
            self._send(401, {"code": "auth_failed", "reason": "no token", "hint": ""})
        else:
            self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        bearer = self._bearer()
        if bearer and bearer not in self.admin.readers:
            self._send(401, {"code": "auth_failed", "reason": "it ended", "hint": ""})
        elif not bearer and self.headers.get("X-ZBroker-Token") != TOKEN:
            self._send(403, {"code": "forbidden", "reason": "no token", "hint": ""})
        else:
            self.admin.reported.append((self.path, body))
            self._answer(body)

    def _bearer(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _answer(self, body: dict[str, Any]) -> None:
        found = self.admin.answers.get(f"{self.command} {self.path}")
        if callable(found):
            found = found(body)
        if found is None:
            self._send(404, {"code": "not_found", "reason": f"no {self.path}", "hint": ""})
        elif isinstance(found, tuple):
            self._send(*found)
        else:
            self._send(200, found)

    def _send(self, status: int, what: Any) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _handler(admin: FakeAdmin) -> type[Handler]:
    return type("Handler", (Handler,), {"admin": admin})
