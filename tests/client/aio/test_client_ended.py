"""A client of an event loop that ends takes its subscriptions and consumers along."""

from __future__ import annotations

import asyncio
import gc

import pytest

from tests.client.aio.looped import in_loop, pricer, until
from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import WAIT_S as T
from zbroker.aio import connect
from zbroker.errors import ZBrokerError

READERS = {
    "next": lambda one: one.next(),
    "iteration": lambda one: anext(aiter(one)),
    "batches": lambda one: anext(one.batches()),
}


async def ended(broker, waiting):
    """What a task that waits raises when another client takes over."""
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    await asyncio.to_thread(broker.end_sessions)
    with pytest.raises(ZBrokerError) as raised:
        await asyncio.wait_for(task, T)
    return raised.value.code


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_reader_that_waits_learns_what_ended_its_client(broker, read):
    @in_loop
    async def run():
        async with pricer(broker) as client:
            subscription = await client.subscribe("a")
            assert await ended(broker, read(subscription)) == "session_ended"
            assert subscription.error.code == "session_ended"

    run()


@in_loop
async def test_a_handler_ends_with_the_error(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a", handler=lambda _message: None)
        assert await ended(broker, subscription.join(T)) == "session_ended"


@in_loop
async def test_those_read_together_end_with_the_error(broker):
    async with pricer(broker) as client:
        many = [await client.subscribe(topic, since="epoch", paused=True) for topic in "ab"]
        together = await client.resume(many)
        assert await ended(broker, together.next()) == "session_ended"


@in_loop
async def test_nothing_new_is_asked_of_a_client_that_ended(broker):
    async with pricer(broker) as client:
        await asyncio.to_thread(broker.end_sessions)
        await until(lambda: client._track.error is not None)
        with pytest.raises(ZBrokerError, match="session_ended"):
            client.subscribe("a")
        with pytest.raises(ZBrokerError, match="session_ended"):
            await client.ranges()


@in_loop
async def test_a_subscription_keeps_its_client(broker):
    subscription = (await pricer(broker)).subscribe("a")
    await subscription
    gc.collect()
    await asyncio.to_thread(broker.append, "a", b"1")
    assert (await subscription.next(T)).data == b"1"
    await subscription.close()
    await subscription._owner.close()


@in_loop
async def test_a_consumer_that_waits_learns_what_ended_its_client():
    with QueueBroker() as broker:
        async with connect(broker.url, "worker", timeout=T) as client:
            consumer = await client.consume("work")
            assert await ended(broker, consumer.fetch(1)) == "session_ended"
            assert consumer.error.code == "session_ended"


@in_loop
async def test_a_worker_ends_with_the_error():
    with QueueBroker() as broker:
        async with connect(broker.url, "worker", timeout=T) as client:
            worker = client.worker("work", lambda _message: None)
            task = asyncio.ensure_future(worker.run())
            await until(lambda: worker.consumer is not None and worker.consumer.backlog)
            assert await ended(broker, task) == "session_ended"
