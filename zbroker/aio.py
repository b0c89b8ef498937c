"""The client in an event loop.

    async with zbroker.aio.connect(broker.url, name="pricer") as client:
        bookmark = await client.publish("orders", b"...")
        async for message in client.subscribe("orders", since="epoch", until=bookmark): ...

The same as in `zbroker.client`; what waits there is awaited here, and `publish` never waits.
"""

from __future__ import annotations

from zbroker.client.aio.client import AsyncClient, Connecting, connect
from zbroker.client.aio.consumer import AsyncConsumer, AsyncWorker
from zbroker.client.aio.publisher import AsyncReceipt
from zbroker.client.aio.session import AsyncSession
from zbroker.client.aio.subscription import AsyncCombined, AsyncSubscription

# the names that they had first, which those with threads have, too
Client = AsyncClient
Combined = AsyncCombined
Consumer = AsyncConsumer
Receipt = AsyncReceipt
Subscription = AsyncSubscription
Worker = AsyncWorker

__all__ = [
    "AsyncClient",
    "AsyncCombined",
    "AsyncConsumer",
    "AsyncReceipt",
    "AsyncSession",
    "AsyncSubscription",
    "AsyncWorker",
    "Connecting",
    "connect",
]
