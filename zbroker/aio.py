"""The client in an event loop.

    async with zbroker.aio.connect(broker.url, name="pricer") as client:
        bookmark = await client.publish("orders", b"...")
        async for message in client.subscribe("orders", since="epoch", until=bookmark): ...

The same as in `zbroker.client`; what waits there is awaited here, and `publish` never waits.
"""

from __future__ import annotations

from zbroker.client.aio.client import AsyncClient
from zbroker.client.aio.combined import AsyncCombined
from zbroker.client.aio.connector import Connecting, connect
from zbroker.client.aio.consumer import AsyncConsumer
from zbroker.client.aio.receipt import AsyncReceipt
from zbroker.client.aio.subscription import AsyncSubscription
from zbroker.client.aio.worker import AsyncWorker

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
    "AsyncSubscription",
    "AsyncWorker",
    "Connecting",
    "connect",
]
