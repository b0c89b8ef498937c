"""One HTTP request: who asks, whether that is answered, the answer. An ASGI application.

There is one way in, which asks `core.refuse` first, instead of a table of routes: no path can be
forgotten. What blocks (files, other rooms) runs in threads, a bounded number at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from zbroker.admin import core, requests
from zbroker.admin.answers import JSON, Reply
from zbroker.admin.audit import DONE, AuditedRequest
from zbroker.admin.http import Site
from zbroker.errors import ClientError, StorageError

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
        with suppress(ClientDisconnect):  # nobody is left to be told
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
            told = f"{asked.method} {asked.path}"
            self._log.error("%s: %s; nothing was changed", told, error)
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
                line = AuditedRequest(who.name, _origin(request), core.told(asked, []))
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
        line = AuditedRequest(who.name, _origin(request), core.told(asked, requests.keys_of(body)))

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
    with suppress(RuntimeError):  # the loop has ended: nobody waits for it
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
    """The path as it was sent: what is written in another way is another path."""
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
