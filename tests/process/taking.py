"""A consumer that takes messages of a queue and acknowledges them."""

from __future__ import annotations

import time

from zbroker.client import Client


def take(client: Client, queue: str, count: int, timeout: float) -> list[bytes]:
    """So many messages, acknowledged; fewer if they do not come within the timeout, in seconds."""
    with client.consume(queue, timeout=timeout) as consumer:
        found: list[bytes] = []
        end = time.monotonic() + timeout
        while len(found) < count and time.monotonic() < end:
            many = consumer.fetch(count - len(found), timeout=1)
            consumer.ack(many)
            found += [one.data for one in many]
        consumer.flush(timeout=timeout)
    return found
