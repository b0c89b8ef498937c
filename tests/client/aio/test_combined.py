"""Subscriptions that are resumed together in an event loop, and read in the order of the log."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.aio.looped import in_loop, pricer
from tests.client.fakes import WAIT_S as T
from zbroker.errors import ZBrokerError


async def mixed(client):
    """300 messages of topics a, b and c, by turns of different lengths."""
    rows = [("abcaabbc"[i % 8], b"%d" % i) for i in range(300)]
    for topic, data in rows:
        client.publish(topic, data)
    await client.flush(T)
    return rows


def begin(client, topics="abc", **options):
    wishes = {"since": "epoch", "until": "now", "paused": True, **options}
    return [client.subscribe(topic, **wishes) for topic in topics]


@in_loop
async def test_messages_come_in_the_order_of_the_log(broker):
    async with pricer(broker) as client:
        rows = await mixed(client)
        many = begin(client)
        together = await client.resume(many, timeout=T)
        assert together.combined == many
        assert [(one.topic, message.data) async for one, message in together] == rows
        assert await together.next(T) is None
        assert together.combined == []


@in_loop
async def test_the_order_holds_over_restarts(broker):
    async with pricer(broker) as client:
        rows = await mixed(client)
        together = await client.resume(begin(client, credit=60), timeout=T)
        got = []
        async for one, message in together:
            got.append((one.topic, message.data))
            if len(got) in (40, 200):
                broker.restart()
        assert got == rows


@in_loop
async def test_what_runs_is_paused_first(broker):
    async with pricer(broker) as client:
        await mixed(client)
        many = begin(client, "ab", paused=False, until=None)
        together = await client.resume(many, timeout=T)
        assert [type(command).__name__ for command in broker.asked] == ["Pause", "Pause", "Resume"]
        one, message = await together.next(T)
        assert one.bookmark == message.bookmark
        await client.pause(many, timeout=T)
        assert all(one.paused for one in many)
        await together.close()
        with pytest.raises(ZBrokerError, match="closed"):
            await client.resume(many, timeout=T)


@in_loop
async def test_a_cancelled_wait_loses_nothing(broker):
    async with pricer(broker) as client:
        together = await client.resume(begin(client, "ab", until=None), timeout=T)
        task = asyncio.create_task(together.next(T))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(ZBrokerError, match="timeout"):
            await together.next(0.05)
        broker.append("b", b"1")
        one, message = await together.next(T)
        assert (one.topic, message.data) == ("b", b"1")


@in_loop
async def test_only_subscriptions_of_one_client_are_resumed_together(broker):
    async with pricer(broker) as client, pricer(broker) as other:
        many = [client.subscribe("a", paused=True, since="epoch")]
        many.append(other.subscribe("a", paused=True, since="epoch"))
        with pytest.raises(ZBrokerError, match="one client"):
            await client.resume(many, timeout=T)
        with pytest.raises(ZBrokerError, match="no subscription"):
            await client.resume([], timeout=T)
