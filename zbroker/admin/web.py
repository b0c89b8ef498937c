"""The ASGI application that answers HTTP requests, and its server with bounds for peers.

There is one way in, which asks `core.refuse` first, instead of a table of routes: no path can be
forgotten. What blocks (files, other processes) runs in threads, a bounded number at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import h11
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from zbroker.admin import core, requests
from zbroker.admin.answers import JSON, Reply
from zbroker.admin.audit import DONE, AuditedRequest
from zbroker.admin.http import Site
from zbroker.errors import ClientError, StorageError
from zbroker.limits import KIB

if TYPE_CHECKING:
    from uvicorn.server import ServerState


THREADS_MAX: Final = 16  # requests that are worked on at once; others wait for a thread
#: No file of another origin, no inline script, no frame around it: what a page of the console shows
#: was chosen by clients, and must not become part of the program.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

T = TypeVar("T")


class App:
    """The application; all of it runs in one event loop."""

    def __init__(self, site: Site, log: logging.Logger) -> None:
        self._site = site
        self._log = log
        self._threads = Threads()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        with suppress(ClientDisconnect):  # the client is gone
            reply = await self._reply(request)
            headers = HEADERS | ({"WWW-Authenticate": "Bearer"} if reply.status == 401 else {})
            response = Response(reply.body, reply.status, headers, reply.content_type)
            await response(scope, receive, send)

    async def _reply(self, request: Request) -> Reply:
        asked = _asked(request)
        try:
            return await self._served(request, asked)
        except ClientError as error:
            return refused(core.refusal(error))
        except StorageError as error:
            what = f"{asked.method} {asked.path}"
            self._log.error("%s: %s; nothing was changed", what, error)
            return refused(core.Refusal(500, "internal", str(error)))
        except ClientDisconnect:
            raise
        except Exception:
            self._log.exception("a bug in the answer to %s %s", asked.method, asked.path)
            return refused(core.Refusal(500, "internal", "see the log of the admin"))

    async def _served(self, request: Request, asked: core.AdminRequest) -> Reply:
        site, headers = self._site, request.headers
        shown = core.bearer(headers.get("authorization", ""), headers.get(core.TOKEN_HEADER, ""))
        who = site.doorkeeper.who(shown)
        refusal = core.refuse(asked, who, secured=site.doorkeeper.secured)
        if refusal is not None:
            if refusal.code in core.REFUSED:
                line = AuditedRequest(who.name, _origin(request), core.audit_text(asked, []))
                await self._threads.run(lambda: site.audit.refuse(line, refusal.code))
            return refused(refusal)
        if core.kind_of(asked.path, asked.method) == "write":
            return await self._write(request, asked, who)
        if asked.path == "/" or asked.path.startswith(core.CONSOLE):
            file = await self._threads.run(lambda: site.console.get(asked.path))
            return Reply(file.body, content_type=file.content_type)
        return await self._threads.run(lambda: site.answers.reply(asked.path, asked.query))

    async def _write(self, request: Request, asked: core.AdminRequest, who: core.Caller) -> Reply:
        body = await _body(request)
        line = AuditedRequest(
            who.name, _origin(request), core.audit_text(asked, requests.keys_of(body))
        )

        def work() -> Reply:
            outcome = "internal"
            try:
                reply = Reply.of(self._site.answers.post(asked.path, body))
                outcome = DONE
            except ClientError as error:
                outcome = error.code
                raise
            finally:
                self._site.audit.write(line, outcome)
            return reply

        return await self._threads.run(work)


class Threads:
    """A thread for each piece of work, a bounded number at once; none keeps the process."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(THREADS_MAX)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises."""
        async with self._free:
            future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            threading.Thread(target=_run, args=(work, future), name="answer", daemon=True).start()
            return await future


def _run(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
    value: Any = None
    failed: BaseException | None = None
    try:
        value = work()
    except BaseException as error:
        failed = error
    with suppress(RuntimeError):  # the loop has ended
        future.get_loop().call_soon_threadsafe(_settle, future, value, failed)


def _settle(future: asyncio.Future[Any], value: object, failed: BaseException | None) -> None:
    if future.done():
        return
    if failed is not None:
        future.set_exception(failed)
    else:
        future.set_result(value)


def refused(refusal: core.Refusal) -> Reply:
    """As JSON."""
    return Reply(json.dumps(refusal.body()).encode() + b"\n", refusal.status, JSON)


def _asked(request: Request) -> core.AdminRequest:
    """The path as it was sent: a path that is quoted in another way is another path."""
    path = request.scope.get("raw_path", b"").decode("ascii", "replace")
    query = request.scope.get("query_string", b"").decode("ascii", "replace")
    peer = request.client.host if request.client else ""
    return core.AdminRequest(request.method, path, request.headers.get("host", ""), peer, query)


def _origin(request: Request) -> str:
    return f"{request.client.host}:{request.client.port}" if request.client else ""


async def _body(request: Request) -> bytes:
    """Raises: ClientError bad_field, too_large; ClientDisconnect."""
    headers = request.headers
    core.body_length(headers.get("content-length", ""), headers.get("transfer-encoding", ""))
    return b"".join([chunk async for chunk in request.stream()])


CONNECTIONS_MAX: Final = 64  # browsers, scrapers and command lines of one host
REQUEST_MAX_S: Final = 5.0  # a peer that sends more slowly than that is cut off
CONNECTION_MAX_S: Final = 20.0  # an answer takes seven seconds at most; then it has to be read
HEADERS_MAX_BYTES: Final = 16 * KIB  # or what one read of the socket holds: 256 KiB
STOP_MAX_S: Final = 1  # for answers that are under way; uvicorn wants whole seconds
_UNDER_WAY: Final = (h11.IDLE, h11.SEND_BODY)


class HttpConnection(H11Protocol):
    """One peer."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timers: list[asyncio.TimerHandle] = []
        self.born_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.born_s = self.loop.time()
        self._timers = [
            self.loop.call_later(REQUEST_MAX_S, self._late),
            self.loop.call_later(CONNECTION_MAX_S, transport.abort),
        ]
        self._make_space()

    @property
    def under_way(self) -> bool:
        """True while its request is not whole."""
        return self.conn.their_state in _UNDER_WAY

    def _make_space(self) -> None:
        mine = [one for one in self.connections if isinstance(one, HttpConnection)]
        there = [one for one in mine if not one.transport.is_closing()]
        if len(there) <= CONNECTIONS_MAX:
            return
        idle = [one for one in there if one.under_way and one is not self]
        min(idle, key=lambda one: one.born_s, default=self).transport.abort()

    def _late(self) -> None:
        if self.under_way:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """A peer that has sent everything may close its side; True: it gets its answer."""
        if not self.under_way:
            return True
        begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if begun:
            self.send_400_response("the request ends before its end")
        return False

    def send_400_response(self, msg: str) -> None:
        """Bytes that are not HTTP get an answer of the same form as every other error."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        if self.cycle is not None:  # it waits for the rest of the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        hint = "see docs/reference/admin.md"
        body = json.dumps({"code": "bad_frame", "reason": msg, "hint": hint}).encode() + b"\n"
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        events = (
            h11.Response(status_code=400, headers=headers),
            h11.Data(body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def server(app: Callable[..., Awaitable[None]]) -> uvicorn.Server:
    """It logs nothing of its own, believes no header about who a peer is, and takes no signal."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=HttpConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        limit_concurrency=CONNECTIONS_MAX + 1,
        timeout_graceful_shutdown=STOP_MAX_S,
        h11_max_incomplete_event_size=HEADERS_MAX_BYTES,
    )
    return uvicorn.Server(config)


def serve(made: uvicorn.Server, listening: socket.socket) -> None:
    """Until `made.should_exit`; closes the socket."""
    asyncio.run(made.serve(sockets=[listening]))
