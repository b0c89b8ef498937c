"""When a subscription of an event loop has caught up."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.aio.looped import in_loop, numbered, pricer, until
from tests.client.fakes import WAIT_S as T
from zbroker.errors import ZBrokerError


@in_loop
async def test_an_iteration_ends_where_it_has_caught_up(broker):
    async with pricer(broker) as client:
        data = await numbered(client)
        subscription = client.subscribe("a", since="epoch")
        assert [message.data async for message in subscription.until_caught_up(T)] == data
        await asyncio.to_thread(broker.append, "a", b"new")
        assert (await subscription.next(T)).data == b"new"


@in_loop
async def test_a_coroutine_is_awaited_between_old_and_new_messages(broker):
    async with pricer(broker) as client:
        data, out = await numbered(client), []

        async def note():
            await asyncio.sleep(0)
            out.append("caught up")

        async def handle(message):
            await asyncio.sleep(0)
            out.append(message.data)

        subscription = await client.subscribe("a", since="epoch", handler=handle, on_caught_up=note)
        await subscription.wait_caught_up(T)
        await until(lambda: "caught up" in out)
        await asyncio.to_thread(broker.append, "a", b"new")
        await until(lambda: out[-1] == b"new")
        assert out == [*data, "caught up", b"new"]
        await subscription.close()


@in_loop
async def test_without_a_handler_it_waits_until_all_came_in(broker):
    async with pricer(broker) as client:
        data, found = await numbered(client), []
        subscription = client.subscribe("a", since="epoch")
        await subscription.wait_caught_up(T)
        assert not subscription.caught_up
        async for message in subscription:
            found.append(message.data)
            if subscription.caught_up:
                break
        assert found == data


@in_loop
async def test_it_waits_no_longer_than_it_is_asked(broker):
    async with pricer(broker) as client:
        await numbered(client)
        subscription = client.subscribe("a", since="epoch", credit=10)
        with pytest.raises(ZBrokerError, match="credit"):
            await subscription.wait_caught_up(0.1)


@in_loop
async def test_those_read_together_tell_each(broker):
    async with pricer(broker) as client:
        data, out = await numbered(client), []
        many = [
            await client.subscribe(
                "a", since="epoch", paused=True, on_caught_up=lambda n=n: out.append(n)
            )
            for n in range(2)
        ]
        together = await client.resume(many)
        for _ in range(2 * len(data)):
            assert await together.next(T) is not None
        with pytest.raises(ZBrokerError, match="timeout"):
            await together.next(0.2)
        assert sorted(out) == [0, 1]
