"""Consumers and workers in an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os

import pytest

import zbroker
from tests.client.aio.looped import in_loop, until
from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import WAIT_S as T
from zbroker.aio import connect
from zbroker.errors import ZBrokerError
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


@pytest.fixture
def broker():
    with QueueBroker() as fake:
        yield fake


def worker(broker, **options):
    return connect(broker.url, "worker", timeout=T, **options)


def places(messages):
    return [message.position for message in messages]


# -- taking ---------------------------------------------------------------------------------------


@in_loop
async def test_messages_are_taken_and_acked_one_by_one(broker):
    broker.publish(100)
    out = []
    async with worker(broker) as client, client.consume("work") as consumer:
        async for message in consumer:
            with message:
                out.append(message.position)
            if len(out) == 100:
                break
    assert out == broker.acked == list(range(1, 101))


@in_loop
async def test_a_list_is_acked_at_once(broker):
    broker.publish(60)
    async with worker(broker) as client, client.consume("work", backlog=9) as consumer:
        assert (consumer.queue, consumer.backlog, consumer.lease) == ("work", 9, 30.0)
        got = 0
        async for batch in consumer.batches(T):
            got += len(batch)
            consumer.ack(batch)
            if got == 60:
                break
        await consumer.flush(T)
        assert (len(broker.acked), consumer.held, consumer.unsettled) == (60, 0, 0)


@in_loop
async def test_a_consumer_that_is_never_used_asks_for_nothing(broker):
    async with worker(broker) as client:
        client.consume("work")
        await asyncio.sleep(0)
    assert broker.listener.commands == []


@in_loop
async def test_fetching_gives_what_is_there(broker):
    async with worker(broker) as client:
        consumer = client.consume("work")
        assert await consumer.fetch(5, 0.05) == []
        broker.publish(8)
        await until(lambda: consumer.held == 8)
        assert places(await consumer.fetch(6, T)) == [1, 2, 3, 4, 5, 6]
        assert places(await consumer.fetch(6, T)) == [7, 8]
        with pytest.raises(ZBrokerError, match="bad_field"):
            await consumer.fetch(0)
        with pytest.raises(ZBrokerError, match="timeout"):
            async for _ in consumer.batches(0.02):
                pass


@in_loop
async def test_several_tasks_share_a_consumer(broker):
    async with worker(broker) as client:
        consumer, out = await client.consume("work", backlog=8), []

        async def work():
            async for message in consumer:
                await asyncio.sleep(0)
                out.append(message.position)
                message.ack()

        tasks = [asyncio.create_task(work()) for _ in range(4)]
        broker.publish(300)
        await until(lambda: len(out) == 300)
        await consumer.close()
        await asyncio.wait_for(asyncio.gather(*tasks), T)
        assert sorted(out) == broker.acked == list(range(1, 301))


@in_loop
async def test_a_reader_that_is_cancelled_loses_no_message(broker):
    async with worker(broker) as client:
        consumer = await client.consume("work")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await consumer.fetch()
        broker.publish()
        assert places(await consumer.fetch(1, T)) == [1]


@in_loop
async def test_who_reads_without_waiting_lets_others_run():
    with QueueBroker(backlog=20_000) as broker:
        broker.most = 1_000
        broker.publish(12_000)
        rounds = 0

        async def other():
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async with worker(broker) as client:
            consumer = await client.consume("work", backlog=20_000)
            await until(lambda: consumer.held == 12_000)
            task, got = asyncio.create_task(other()), 0
            async for _ in consumer:
                got += 1
                if got == 12_000:
                    break
            task.cancel()
            assert rounds >= 2


# -- settling, leases, losses ---------------------------------------------------------------------


@in_loop
async def test_flushing_waits_until_acks_are_durable(broker):
    broker.publish()
    broker.keep = True
    async with worker(broker) as client:
        consumer = client.consume("work")
        (await consumer.fetch(1, T))[0].ack()
        with pytest.raises(ZBrokerError, match="1 messages are not settled"):
            await consumer.flush(0.05)
        broker.keep = False
        await consumer.flush(T)
        assert broker.acked == [1]


@in_loop
async def test_leases_are_extended_while_tasks_work():
    with QueueBroker(lease_ms=300) as broker:
        broker.publish(3)
        async with worker(broker) as client:
            consumer = client.consume("work")
            (message,) = await consumer.fetch(1, T)
            await until(lambda: len(broker.commands(q.Extend)) >= 5)
            message.ack()
            await consumer.flush(T)
            assert broker.acked == [1]
        assert {lease.why for lease in broker.listener.sent.values()} <= {"", "acked", "cancelled"}


@in_loop
async def test_what_is_acked_while_the_broker_is_away_is_acked_when_it_is_back(broker):
    broker.publish(4)
    async with worker(broker) as client:
        consumer = await client.consume("work")
        messages = await consumer.fetch(2, T)
        broker.stop()
        consumer.ack(messages)
        broker.start()
        await consumer.flush(T)
        assert broker.acked == [1, 2]
        assert places(await consumer.fetch(2, T)) == [3, 4]
    assert len(broker.listener.sent) == 4, "nothing was delivered again"


# -- refusals and ends ----------------------------------------------------------------------------


@in_loop
async def test_a_refusal_is_raised_by_its_first_use(broker):
    async with worker(broker) as client:
        for use in (lambda one: one.fetch(), lambda one: one.__aenter__()):
            broker.listener.code = "not_entitled"
            with pytest.raises(ZBrokerError, match="not_entitled"):
                await use(client.consume("work", timeout=T))
        with pytest.raises(ZBrokerError, match="bad_field"):
            client.consume("work", backlog=0)


@in_loop
async def test_a_broker_without_queues_is_reported_as_such(broker):
    broker.named = False
    async with worker(broker) as client:
        with pytest.raises(ZBrokerError, match="not_ready: the broker named no queues listener"):
            await client.consume("work", timeout=0.1)
    broker.named = True
    async with worker(broker) as client:
        broker.deaf = True
        with pytest.raises(ZBrokerError, match="timeout"):
            await client.consume("work", timeout=0.1)


@in_loop
async def test_what_ends_it_is_raised_by_whoever_waits(broker):
    async with worker(broker) as client:
        consumer = await client.consume("work")
        (key,) = broker.listener.takers
        waiting = asyncio.create_task(consumer.fetch())
        await asyncio.sleep(0)
        broker.do(lambda: broker._answer("queues", key[0], m.Error("internal", "?", sid=key[1])))
        with pytest.raises(ZBrokerError, match="internal"):
            await waiting
        assert consumer.error.code == "internal"


@in_loop
async def test_closing_gives_back_what_is_held(broker):
    broker.publish(3)
    async with worker(broker) as client:
        consumer = await client.consume("work")
        (message,) = await consumer.fetch(1, T)
        await consumer.close()
        await until(lambda: not broker.listener.takers)
        with pytest.raises(ZBrokerError, match="closed"):
            message.ack()
        assert await consumer.fetch(1, T) == []
        with pytest.raises(ZBrokerError, match="closed"):
            await consumer
        await consumer.close()


@in_loop
async def test_a_consumer_that_is_forgotten_gives_back_what_it_holds(broker):
    broker.publish(2)
    async with worker(broker) as client:
        async for message in client.consume("work"):
            message.ack()
            break
        del message
        await asyncio.sleep(0)
        gc.collect()
        await until(lambda: not broker.listener.takers)
        await until(lambda: broker.acked == [1])


@in_loop
async def test_closing_the_client_closes_its_consumers(broker):
    broker.publish(2)
    async with worker(broker) as client:
        consumer = client.consume("work")
        (await consumer.fetch(1, T))[0].ack()
    assert broker.acked == [1]
    await until(lambda: not broker.listener.takers)
    with pytest.raises(ZBrokerError, match="closed"):
        client.consume("work")


@in_loop
async def test_it_belongs_to_its_loop(broker):
    async with worker(broker) as client:
        consumer = await client.consume("work")

        async def elsewhere():
            with pytest.raises(RuntimeError, match="another event loop"):
                await consumer.fetch()

        await asyncio.to_thread(asyncio.run, elsewhere())


@in_loop
async def test_a_bug_of_ours_is_raised_by_whoever_waits(broker, caplog):
    async with worker(broker) as client:
        consumer = await client.consume("work")
        consumer._port.core._arrived = None
        broker.publish()
        with pytest.raises(ZBrokerError, match="internal"):
            await consumer.fetch(1, T)
        assert "client.turn_failed" in caplog.text


@in_loop
async def test_in_a_forked_process_it_is_an_error(broker):
    broker.publish()
    async with worker(broker) as client:
        consumer = await client.consume("work")
        (message,) = await consumer.fetch(1, T)
        child = os.fork()
        if not child:
            try:
                message.ack()
            except ZBrokerError as error:
                os._exit(0 if error.code == "forked" else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@in_loop
async def test_closing_the_client_tells_of_acks_that_are_not_durable(broker):
    broker.publish()
    broker.keep = True
    client = await worker(broker)
    consumer = await client.consume("work")
    (await consumer.fetch(1, T))[0].ack()
    with pytest.raises(ZBrokerError, match="not settled"):
        await client.close(timeout=0.05)
    await until(lambda: not broker.listener.takers)


# -- workers --------------------------------------------------------------------------------------


@in_loop
async def test_coroutine_functions_handle_at_the_same_time(broker):
    broker.publish(4)
    together = asyncio.Barrier(4)

    async def handle(_message):
        await together.wait()

    async with worker(broker) as client:
        one = client.worker("work", handle, concurrency=4)
        await one.run(until=lambda: one.handled == 4)
    assert broker.acked == [1, 2, 3, 4]
    assert repr(one) == "AsyncWorker(handled=4, failed=0)"


@in_loop
async def test_a_handler_that_raises_releases_and_one_that_rejects_rejects(broker, caplog):
    broker.publish(3)

    def handle(message):
        if message.position == 2 and not message.redelivered:
            raise ValueError("two")
        if message.position == 3:
            raise zbroker.Reject("three")

    with caplog.at_level(logging.ERROR, "zbroker.client"):
        async with worker(broker) as client:
            one = client.worker("work", handle)
            await one.run(until=lambda: one.handled + one.failed == 4)
    assert broker.listener.gone == {1: "acked", 2: "acked", 3: "rejected"}
    assert "client.handler_failed" in caplog.text


@in_loop
async def test_stopping_lets_handlers_end(broker):
    broker.publish(10)
    inside, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_message):
        inside.release()
        await go_on.wait()

    async with worker(broker) as client, client.worker("work", slow, concurrency=2) as one:
        await inside.acquire()
        await inside.acquire()
        stopping = asyncio.create_task(one.stop(T))
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        assert len(broker.acked) == one.handled == 2


@in_loop
async def test_a_handler_that_does_not_end_is_cancelled_and_its_message_comes_back(broker):
    broker.publish()
    inside = asyncio.Event()

    async def slow(_message):
        inside.set()
        await asyncio.sleep(TOO_LONG_S)

    async with worker(broker) as client:
        one = await client.worker("work", slow).start()
        await inside.wait()
        with pytest.raises(ZBrokerError, match="timeout: 1 handlers"):
            await one.stop(0.05)
        await until(lambda: not broker.listener.takers)
        assert broker.acked == []
        with pytest.raises(ZBrokerError, match="closed"):
            await one.start()


TOO_LONG_S = 600


@in_loop
async def test_a_handler_may_stop_its_worker(broker):
    broker.publish(5)

    async def once(_message):
        await one.stop()

    async with worker(broker) as client:
        one = client.worker("work", once, concurrency=1)
        assert one.consumer is None
        await one.stop()
        one = client.worker("work", once, concurrency=1)
        await one.run()
    assert (one.handled, broker.acked) == (1, [1])


@in_loop
async def test_what_ends_the_consumer_ends_the_worker(broker):
    async with worker(broker) as client:
        one = client.worker("work", print)
        running = asyncio.create_task(one.run())
        await until(lambda: broker.listener.takers)
        (key,) = broker.listener.takers
        broker.do(lambda: broker._answer("queues", key[0], m.Error("internal", "?", sid=key[1])))
        with pytest.raises(ZBrokerError, match="internal"):
            await running


# -- credit ---------------------------------------------------------------------------------------


@in_loop
async def test_it_gets_as_many_as_it_asks_for_or_picks(broker):
    broker.publish(6)
    async with worker(broker) as client, client.consume("work", flow="credit") as consumer:
        await until(lambda: broker.listener.count == 6)
        assert await consumer.acquire([5]) == [5]
        assert places(await consumer.fetch(1, T)) == [5]
        consumer.flow(2)
        assert places(await consumer.fetch(2, T)) == [1, 2]
        await consumer.stop()
        consumer.flow(9)
        await consumer.drain()
        assert places(await consumer.fetch(9, T)) == [3, 4, 6]


@in_loop
async def test_what_is_asked_for_before_it_is_accepted_counts(broker):
    broker.publish(4)
    async with worker(broker) as client:
        consumer = client.consume("work", flow="credit")
        consumer.flow(2)
        await asyncio.sleep(0)
        assert broker.commands(q.Consume) == []
        assert places(await consumer.fetch(2, T)) == [1, 2]
        assert await consumer.fetch(2, 0.05) == []
        await consumer.close()
