"""Tests that run in an event loop of their own, for a limited time."""

from __future__ import annotations

import asyncio
import functools
import time

from tests.client.fakes import WAIT_S
from zbroker.aio import connect

TEST_S = 60.0


def in_loop(test):
    """Runs an asynchronous test."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        return asyncio.run(asyncio.wait_for(test(*args, **kwargs), TEST_S))

    return run


async def until(done, timeout=WAIT_S):
    """Polls for what another thread or process does; fails loudly."""
    end = time.monotonic() + timeout
    while not done():
        assert time.monotonic() < end, "it did not come about in time"
        await asyncio.sleep(0.002)


def pricer(broker, **options):
    return connect(broker.url, "pricer", timeout=WAIT_S, **options)


def data_of(broker):
    return [row[3] for row in broker.log]


async def numbered(client, count=300):
    """Publishes numbers to topic a; what they are."""
    data = [b"%d" % i for i in range(count)]
    client.publish_many("a", data)
    await client.flush(WAIT_S)
    return data
