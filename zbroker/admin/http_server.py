"""HTTP/1.1 by uvicorn, with bounds on what a peer can hold on to.

    request     whole within REQUEST_MAX_S; of headers HEADERS_MAX_BYTES are waited for
    connection  one request; ends after CONNECTION_MAX_S, whether its answer was read or not
    all         CONNECTIONS_MAX; where there is no room the oldest without a whole request goes

uvicorn has no bound for a peer that sends nothing, or half a request, or does not read.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from zbroker.limits import KIB

if TYPE_CHECKING:
    from uvicorn.server import ServerState

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
        self._make_room()

    @property
    def under_way(self) -> bool:
        """True while its request is not whole."""
        return self.conn.their_state in _UNDER_WAY

    def _make_room(self) -> None:
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
        """What is no HTTP gets an answer of the same form as everything else."""
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
