"""`zbroker.aio.connect()`: a client in an event loop, logged on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from types import TracebackType
from typing import Literal

from zbroker.client import options
from zbroker.client.aio.client import AsyncClient
from zbroker.client.connector import TIMEOUT_S
from zbroker.client.credentials import Credentials
from zbroker.client.options import (
    BookmarkStore,
    ConnectOptions,
    Listener,
    PublishStore,
    PublishSync,
    URLs,
)
from zbroker.client.subscriber.options import Duration
from zbroker.errors import ZBrokerError


class Connecting:
    """`client = await connecting`, or `async with connecting as client`."""

    def __init__(self, wanted: Callable[[], ConnectOptions], timeout: float) -> None:
        self._wanted = wanted
        self._timeout = timeout
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[object, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    async def _connect(self) -> AsyncClient:
        client = AsyncClient(self._wanted())
        try:
            await client._start(self._timeout)
        except BaseException:
            await client.close(flush=False)
            raise
        return client


def connect(  # noqa: PLR0913 - every option by its name
    url: URLs,
    name: str | None = None,
    *,
    publish_store: PublishStore = "memory",
    publish_sync: PublishSync = None,
    store_bytes: int | None = None,
    store_messages: int | None = None,
    bookmark_store: BookmarkStore | None = None,
    heartbeat: Duration | None = None,
    ack_interval: Duration | None = None,
    timeout: float = TIMEOUT_S,
    give_up: Duration | None = None,
    broker_behind: Literal["fail", "go_on"] = "fail",
    on_state: Listener | Iterable[Listener] | None = None,
    on_refused: Callable[[ZBrokerError], object] | None = None,
    credentials: Credentials | None = None,
    stage: str | None = None,
) -> Connecting:
    """A client that is logged on at an ingest door: await it, or use it by `async with`.

    The options are those of `zbroker.connect`. on_state and on_refused are called by the event
    loop. A server chooser is called by it, too: it must not wait.
    Raises, when it is awaited: as `zbroker.connect`.
    """
    return Connecting(
        partial(
            options.wanted, url, name, publish_store=publish_store, publish_sync=publish_sync,
            store_bytes=store_bytes, store_messages=store_messages, bookmark_store=bookmark_store,
            heartbeat=heartbeat, ack_interval=ack_interval,
            give_up=give_up, broker_behind=broker_behind, on_state=on_state,
            on_refused=on_refused, credentials=credentials, stage=stage,
        ),
        timeout,
    )  # fmt: skip
