"""The client in an event loop.

    async with zbroker.aio.connect(broker.url, name="pricer") as client:
        bookmark = await client.publish("orders", b"...")
        async for message in client.subscribe("orders", since="epoch", until=bookmark): ...

The same names as in `zbroker.client`; what waits there is awaited here, and `publish` never waits.
"""

from __future__ import annotations

from zbroker.client.aio.client import Client
from zbroker.client.aio.combined import Combined
from zbroker.client.aio.connector import Connecting, connect
from zbroker.client.aio.consumer import Consumer
from zbroker.client.aio.receipt import Receipt
from zbroker.client.aio.subscription import Subscription
from zbroker.client.aio.worker import Worker

__all__ = [
    "Client",
    "Combined",
    "Connecting",
    "Consumer",
    "Receipt",
    "Subscription",
    "Worker",
    "connect",
]
