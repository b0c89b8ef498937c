"""A bad network between clients and the listeners of a broker: a TCP proxy in a thread of the test.

    broker    127.0.0.1:port     bound by the listeners, which tell clients of 127.0.0.2 instead
    proxy     127.0.0.2:port     forwards, late, in one direction, or not at all

What is stopped is not lost: it goes on when the link is there again, as TCP would have it. The end
of a connection is stopped, too, so one side may find out and the other does not.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal

from zbroker import endpoints

HOST: Final = "127.0.0.2"  # loopback, and no one else's
SETTINGS: Final = {"listen": {"advertise": HOST}}  # of the broker that it leads to
PIECE_BYTES: Final = 65_536
START_S: Final = 10.0

Way = Literal["to broker", "to client"]
WAYS: Final[tuple[Way, Way]] = ("to broker", "to client")


class Proxy:
    """In front of one listener. `accepted` counts the connections that clients made."""

    def __init__(self, endpoint: str) -> None:
        self._listener = endpoints.split(endpoint)
        self.url = f"tcp://{HOST}:{self._listener.port}"
        self.accepted = 0
        self.delay_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._open: dict[Way, asyncio.Event] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._ended: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._started.result(START_S)

    # -- what tests do with it ----------------------------------------------------------------

    def stop(self, *ways: Way) -> None:
        """Nothing goes this way any more, without a word. No `ways`: nothing at all."""
        for way in ways or WAYS:
            self._loop.call_soon_threadsafe(self._open[way].clear)

    def go_on(self) -> None:
        """What was stopped goes its way, and what comes then."""
        for way in WAYS:
            self._loop.call_soon_threadsafe(self._open[way].set)

    def cut(self) -> None:
        """Ends every connection, and both sides are informed."""
        self._loop.call_soon_threadsafe(self._abort)

    def close(self) -> None:
        """Ends all of it."""
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(START_S)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._started.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._ended = asyncio.Event()
        for way in WAYS:
            self._open[way] = asyncio.Event()
            self._open[way].set()
        server = await asyncio.start_server(self._accept, HOST, self._listener.port)
        self._started.set_result(None)
        await self._ended.wait()
        server.close()
        for way in WAYS:
            self._open[way].set()
        while self._writers:  # each connection ends by itself once its sockets are gone
            self._abort()
            await asyncio.sleep(0.01)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            listener_reader, listener_writer = await asyncio.open_connection(
                self._listener.host, self._listener.port
            )
        except OSError:  # no broker: the client shall see it as it is
            writer.transport.abort()
            return
        self._writers |= {writer, listener_writer}
        await asyncio.gather(
            self._forward(reader, listener_writer, "to broker"),
            self._forward(listener_reader, writer, "to client"),
        )
        self._writers -= {writer, listener_writer}

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        with suppress(OSError):
            more = True
            while more:
                piece = await reader.read(PIECE_BYTES)
                more = bool(piece)
                await asyncio.sleep(self.delay_s)
                await self._open[way].wait()
                writer.write(piece)
                await writer.drain()
        writer.close()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
