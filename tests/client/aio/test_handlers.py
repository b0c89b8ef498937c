"""Subscriptions that a handler reads, in a task of its own."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.client.aio.looped import in_loop, numbered, pricer, until
from tests.client.fakes import WAIT_S as T
from zbroker.errors import ZBrokerError


@in_loop
async def test_a_function_gets_every_message(broker):
    async with pricer(broker) as client:
        data, out = await numbered(client), []
        subscription = await client.subscribe("a", since="epoch", until="now", handler=out.append)
        await subscription.join(T)
        assert [message.data for message in out] == data
        await subscription.close()


@in_loop
async def test_a_coroutine_function_is_awaited_message_by_message(broker):
    out = []

    async def handle(message):
        await asyncio.sleep(0)
        out.append(message.data)

    async with pricer(broker) as client:
        data = await numbered(client)
        async with client.subscribe("a", since="epoch", until="now", handler=handle) as one:
            await one.join(T)
        assert out == data


@in_loop
async def test_an_exception_in_a_handler_ends_the_subscription(broker, caplog):
    async def fail(message):
        if message.data == b"3":
            raise ValueError("three")

    async with pricer(broker) as client:
        await numbered(client)
        with caplog.at_level(logging.ERROR, "zbroker.client"):
            subscription = await client.subscribe("a", since="epoch", handler=fail)
            with pytest.raises(ValueError, match="three"):
                await subscription.join(T)
        assert "client.handler_failed" in caplog.text
        assert isinstance(subscription.error, ValueError)
        await subscription.close()
        await until(lambda: not broker._subscriptions)


@in_loop
async def test_closing_raises_what_was_not_reported(broker):
    def fail(_message):
        raise ValueError("now")

    async with pricer(broker) as client:
        await numbered(client)
        subscription = await client.subscribe("a", since="epoch", handler=fail)
        await until(lambda: subscription.error is not None)
        with pytest.raises(ValueError, match="now"):
            await subscription.close()
        await subscription.close()


@in_loop
async def test_a_handler_closes_its_own_subscription(broker):
    out = []

    async def some(message):
        out.append(message.data)
        if len(out) == 5:
            await subscription.close()

    async with pricer(broker) as client:
        data = await numbered(client)
        subscription = await client.subscribe("a", since="epoch", handler=some)
        await subscription.join(T)
        assert out == data[:5]


@in_loop
async def test_what_a_handler_reads_no_one_else_reads(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a", handler=print)
        with pytest.raises(RuntimeError, match="its own task"):
            await subscription.next(T)
        with pytest.raises(ZBrokerError, match="timeout"):
            await subscription.join(0.05)
        with pytest.raises(ZBrokerError, match="bad_field"):
            await (await client.subscribe("a")).join(T)
        await subscription.close()
