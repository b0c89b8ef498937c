"""The admin's process: HTTP on loopback, for zbroker-admin and for whoever watches an instance.

Sockets: HTTP on listen.admin; ipc DEALER to the supervisor (beats), another for status requests.
Files: none of its own; reads run/instance.json.
Settings: listen.admin.
Exit codes: as every room (zbroker.supervisor.child).
Known weakness: the numbers of a room are as old as its last beat, up to half a second.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import zmq

from zbroker import endpoints, sockets
from zbroker.admin import core
from zbroker.clock import Clock
from zbroker.errors import ConfigError
from zbroker.process import Process
from zbroker.wire import codec
from zbroker.wire import internal as m

THREADS_MAX: Final = 16  # requests served at once; what is over is refused
REQUEST_MAX_S: Final = 5.0  # a peer that sends or reads more slowly than that is cut off
STATUS_MAX_MS: Final = 2_000  # the supervisor answers in one turn
STOP_POLL_S: Final = 0.05  # how long the thread may take to see that it is to end


def run(process: Process) -> int:
    """Serves until told to stop."""
    supervisor = Supervisor(process.context, process.paths.ipc("supervisor"), process.clock)
    server = _listen(process, supervisor)
    thread = threading.Thread(target=server.serve_forever, args=(STOP_POLL_S,), daemon=True)
    thread.start()
    host, port = server.server_address[0], server.server_address[1]
    process.ready(f"http://{host!s}:{port}")
    try:
        while not process.stopping:
            process.link.poll(process.wait_ms())
            process.turn()
    finally:
        server.shutdown()
        server.server_close()
        supervisor.close()
    return 0


def _listen(process: Process, supervisor: Supervisor) -> Server:
    at = endpoints.split(process.listen)
    try:
        return Server((at.host.strip("[]"), at.port), process, supervisor)
    except OSError as error:
        reason = f"cannot listen on {process.listen}: {error.strerror}"
        raise ConfigError("bad_config", reason, "change listen.admin; port 0 picks one") from None


class Supervisor:
    """Asks the supervisor, one request at a time, from any thread."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, clock: Clock
    ) -> None:
        self._lock = threading.Lock()
        self._dealer = sockets.dealer(context, endpoint)
        self._clock = clock
        self._cid = 0

    def status(self) -> m.Status | None:
        """What it knows, or None when it does not answer in time."""
        with self._lock:
            if self._dealer.closed:
                return None
            self._cid += 1
            self._dealer.send(codec.encode(m.AskStatus(self._cid)))
            deadline_ms = self._clock.mono_ms() + STATUS_MAX_MS
            while (left_ms := deadline_ms - self._clock.mono_ms()) > 0:
                if not self._dealer.poll(left_ms):
                    return None
                frames = sockets.receive(self._dealer)
                answer = codec.FROM_SUPERVISOR.decode(frames[0].buffer) if frames else None
                if isinstance(answer, m.Status) and answer.cid == self._cid:
                    return answer
            return None

    def close(self) -> None:
        """Waits for a request that is under way."""
        with self._lock:
            self._dealer.close(linger=0)


class Server(ThreadingHTTPServer):
    """A bounded number of threads, each for one connection of bounded time."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, at: tuple[str, int], process: Process, supervisor: Supervisor) -> None:
        self.process = process
        self.supervisor = supervisor
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
        self.process.log.debug("a peer of the admin went away: %s", client_address, exc_info=True)

    def document(self) -> dict[str, Any] | None:
        """The status document, or None when the supervisor does not answer."""
        status = self.supervisor.status()
        if status is None:
            return None
        try:
            running = json.loads(self.process.paths.running.read_text())
        except (OSError, ValueError):
            running = {}  # not written yet: the status says `starting`
        return core.document(status, running)


class Handler(BaseHTTPRequestHandler):
    """One request, one JSON answer, connection closed."""

    server: Server
    timeout = REQUEST_MAX_S
    server_version = "zbroker"
    sys_version = ""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET  # noqa: N815 - refused, with a reason

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        host = self.headers.get("Host", "")
        request = core.Request(self.command, path, host, self.client_address[0])
        refusal = core.refuse(request)
        if refusal is not None:
            self._send(refusal.status, refusal.body())
            return
        found = self.server.document()
        if found is None:
            late = core.Refusal(503, "not_ready", "the supervisor does not answer")
            self._send(late.status, late.body())
        else:
            self._send(200, found)

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
        self.server.process.log.debug(format, *args)
