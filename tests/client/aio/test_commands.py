"""Commands and heartbeats in an event loop."""

from __future__ import annotations

import pytest

from tests.client.aio.looped import data_of, in_loop, numbered, pricer, until
from tests.client.fakes import WAIT_S as T
from zbroker import Command


@pytest.mark.seed("002-11")
@in_loop
async def test_what_commands_publish_is_numbered_like_all_else(broker):
    async with pricer(broker) as client:
        first = client.publish("a", b"0")
        second = client.command("publish", topic="a", data=b"1")
        await client.command(Command("flush"), timeout=T)
        assert second.sequence == first.sequence + 1
        assert data_of(broker) == [b"0", b"1"]


@in_loop
async def test_a_subscribe_command_gives_a_subscription(broker):
    async with pricer(broker) as client:
        data = await numbered(client)
        found = client.command("subscribe", topic="a", since="epoch", until="now")
        assert [message.data async for message in found] == data


@pytest.mark.seed("002-43")
@in_loop
async def test_a_heartbeat_message_begins_them_in_a_session(broker):
    async with pricer(broker) as client:
        data = await numbered(client)
        subscription = client.subscribe("a", since="epoch")
        assert (await subscription.next(T)).data == data[0]
        client.heartbeat(30)
        assert [(await subscription.next(T)).data for _ in data[1:]] == data[1:]
        await until(lambda: ("ingest", 30.0) in broker.beats)
        await until(lambda: len(broker.listener_logons) == 2)
        assert broker.listener_logons[-1].heartbeat_s == 30.0
        client.heartbeat(None)
        await until(lambda: ("delivery", 0.0) in broker.beats)
