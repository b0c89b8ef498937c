"""HTTP/1.0 on loopback: one request, one JSON answer, connection closed."""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from zbroker.admin import core
from zbroker.admin.answers import Answers
from zbroker.errors import ClientError, StorageError

THREADS_MAX: Final = 16  # requests served at once; what is over is refused
REQUEST_MAX_S: Final = 5.0  # a peer that sends or reads more slowly than that is cut off


class Server(ThreadingHTTPServer):
    """A bounded number of threads, each for one connection of bounded time."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(
        self, at: tuple[str, int], answers: Answers, secret: str, log: logging.Logger
    ) -> None:
        self.answers = answers
        self.secret = secret
        self.log = log
        self._free = threading.BoundedSemaphore(THREADS_MAX)
        super().__init__(at, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        self.log.debug("a peer of the admin went away: %s", client_address, exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """Reads a request, hands it to Answers, writes what comes of it."""

    server: Server
    timeout = REQUEST_MAX_S
    server_version = "zbroker"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = do_GET  # noqa: N815 - refused

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        request = core.Request(
            self.command,
            path,
            self.headers.get("Host", ""),
            self.client_address[0],
            self.headers.get(core.TOKEN_HEADER, ""),
            self.server.secret,
        )
        refusal = core.refuse(request)
        if refusal is not None:
            self._send(refusal.status, refusal.body())
            return
        try:
            self._send(200, self._served(path, query))
        except ClientError as error:
            refused = core.refusal(error)
            self._send(refused.status, refused.body())
        except StorageError as error:
            self.server.log.error("%s %s: %s; nothing was changed", self.command, path, error)
            self._send(500, core.Refusal(500, "internal", str(error)).body())
        except OSError:
            raise  # the peer went away
        except Exception:
            self.server.log.exception("a bug in the answer to %s %s", self.command, path)
            self._send(500, core.Refusal(500, "internal", "see the log of the admin").body())

    def _served(self, path: str, query: str) -> dict[str, Any]:
        if self.command == "GET":
            return self.server.answers.get(path, query)
        length = core.body_length(
            self.headers.get("Content-Length", ""), self.headers.get("Transfer-Encoding", "")
        )
        body = self.rfile.read(length)
        if len(body) < length:
            raise ClientError("bad_field", "the body ends before its Content-Length")
        return self.server.answers.post(path, body)

    def _send(self, status: int, what: dict[str, Any]) -> None:
        body = json.dumps(what).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        self.server.log.debug(format, *args)
