"""Subscriptions in an event loop: reading, changing, ends, cancels, listeners that come and go."""

from __future__ import annotations

import asyncio
import gc

import pytest

import zbroker
from tests.client.aio.looped import in_loop, numbered, pricer, until
from tests.client.fakes import WAIT_S as T
from zbroker.errors import ZBrokerError


async def texts(messages):
    return [message.data async for message in messages]


# -- reading ----------------------------------------------------------------------------------


@in_loop
async def test_a_range_is_read_to_its_end(broker):
    async with pricer(broker) as client:
        data = await numbered(client)
        assert await texts(client.subscribe("a", since="epoch", until="now")) == data
        async with client.subscribe("a", since="epoch", until="now") as subscription:
            assert [m.data async for batch in subscription.batches(T) for m in batch] == data
            assert subscription.caught_up
        subscription = await client.subscribe("a", since="epoch", until="now")
        assert await subscription is subscription
        assert [(await subscription.next(T)).data for _ in data] == data
        assert await subscription.next(T) is None


@in_loop
async def test_an_accepted_subscription_gets_what_comes_from_then_on(broker):
    async with pricer(broker) as client:
        await numbered(client)
        subscription = await client.subscribe("a")
        client.publish("a", b"new")
        assert (await subscription.next(T)).data == b"new"


@in_loop
async def test_a_subscription_that_is_never_used_asks_for_nothing(broker):
    async with pricer(broker) as client:
        client.subscribe("a", since="epoch")
        await client.publish("a", b"1").wait(T)
    assert broker.subscribes == []


@in_loop
async def test_an_iteration_that_was_left_goes_on_with_the_next_message(broker):
    async with pricer(broker) as client:
        data = await numbered(client)
        subscription, out = client.subscribe("a", since="epoch", until="now"), []
        async for message in subscription:
            out.append(message.data)
            if len(out) == 5:
                break
        out.append((await subscription.next(T)).data)
        async for batch in subscription.batches(T):
            out += [message.data for message in batch]
            break
        assert out + await texts(subscription) == data


@in_loop
async def test_its_place_is_that_of_the_message_in_hand(broker):
    async with pricer(broker) as client:
        await numbered(client)
        subscription = client.subscribe("a", since="epoch")
        for _ in range(150):
            message = await subscription.next(T)
        assert (subscription.position, subscription.bookmark) == (150, message.bookmark)
        rest = await texts(client.subscribe("a", since=subscription.vector, until="now"))
        assert rest[0] == b"150"


@in_loop
async def test_waiting_for_nothing_times_out_and_goes_on(broker):
    async with pricer(broker) as client, client.subscribe("a") as subscription:
        with pytest.raises(ZBrokerError, match="timeout"):
            await subscription.next(0.05)
        with pytest.raises(ZBrokerError, match="timeout"):
            async for _ in subscription.batches(0.05):
                pass
        broker.append("a", b"1")
        assert (await subscription.next(T)).data == b"1"


@in_loop
async def test_one_task_at_a_time_reads(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a")
        task = asyncio.create_task(subscription.next(T))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await subscription.next(T)
        broker.append("a", b"1")
        assert (await task).data == b"1"


@in_loop
async def test_who_reads_without_waiting_lets_others_run(broker):
    count = 0

    async def other():
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    async with pricer(broker) as client:
        await numbered(client, 20_000)
        subscription = await client.subscribe("a", since="epoch", until="now")
        await until(lambda: len(subscription._feed.inbox) > 200)
        task = asyncio.create_task(other())
        got = 0
        async for _ in subscription:
            got += 1
        assert got == 20_000
        assert count >= 3
        task.cancel()


@in_loop
async def test_credit_is_given_back(broker):
    async with pricer(broker) as client:
        data = await numbered(client, 1_000)
        subscription = client.subscribe("a", since="epoch", until="now", credit=500)
        assert await texts(subscription) == data
        await until(lambda: broker.flows)


# -- refusals ---------------------------------------------------------------------------------


@in_loop
async def test_a_refusal_is_raised_where_it_is_first_used(broker):
    async with pricer(broker) as client:
        with pytest.raises(ZBrokerError, match="bookmark_not_found"):
            await client.subscribe("forbidden")
        with pytest.raises(ZBrokerError, match="bookmark_not_found"):
            async for _ in client.subscribe("forbidden"):
                pass
        with pytest.raises(ZBrokerError, match="bad_field"):
            client.subscribe("a", limit=0)


@in_loop
async def test_a_damaged_batch_is_an_error(broker):
    broker.corrupt = True
    async with pricer(broker) as client:
        await numbered(client)
        with pytest.raises(ZBrokerError, match="bad_checksum"):
            await texts(client.subscribe("a", since="epoch"))


# -- changing it ------------------------------------------------------------------------------


@in_loop
async def test_it_is_paused_resumed_and_replaced(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a", since="epoch")
        await subscription.pause()
        assert subscription.paused
        broker.append("a", b"1")
        broker.append("b", b"2")
        with pytest.raises(ZBrokerError, match="timeout"):
            await subscription.next(0.05)
        await subscription.resume()
        assert (await subscription.next(T)).data == b"1"
        assert await subscription.replace("b") == 3
        broker.append("a", b"3")
        broker.append("b", b"4")
        assert (await subscription.next(T)).data == b"4"
        with pytest.raises(ZBrokerError, match="bad_filter"):
            await subscription.replace(filter="bad")
        with pytest.raises(ZBrokerError, match="bad_field"):
            await subscription.replace()
        await subscription.close()
        with pytest.raises(ZBrokerError, match="closed"):
            await subscription.pause()


@in_loop
async def test_live_delivery_is_not_paused(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a", delivery="live")
        with pytest.raises(ZBrokerError, match="bad_field"):
            await subscription.pause()


@in_loop
async def test_an_answer_that_does_not_come_times_out(broker):
    broker.mute = True
    async with pricer(broker) as client:
        subscription = await client.subscribe("a")
        with pytest.raises(ZBrokerError, match="timeout"):
            await subscription.pause(0.05)
        with pytest.raises(ZBrokerError, match=r"did not accept.*in 0\.05 s"):
            await client.subscribe("silent", timeout=0.05)


# -- cancellation -----------------------------------------------------------------------------


@in_loop
async def test_a_cancelled_reader_loses_no_message(broker):
    async with pricer(broker) as client:
        subscription, out = await client.subscribe("a"), []
        for i in range(30):
            task = asyncio.create_task(subscription.next(T))
            for _ in range(i % 4):
                await asyncio.sleep(0.001)
            if i % 3 == 0:
                broker.append("a", b"%d" % (i // 3))
            task.cancel()
            got = (await asyncio.gather(task, return_exceptions=True))[0]
            if not isinstance(got, asyncio.CancelledError):
                out.append(got.data)
        while len(out) < 10:
            out.append((await subscription.next(T)).data)
        assert out == [b"%d" % i for i in range(10)]


@in_loop
async def test_a_subscription_whose_acceptance_was_cancelled_is_accepted_later(broker):
    async with pricer(broker) as client:
        await numbered(client, 3)
        subscription = client.subscribe("a", since="epoch", until="now")
        task = asyncio.create_task(subscription.next(T))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await texts(subscription) == [b"0", b"1", b"2"]
    assert len(broker.subscribes) == 1


# -- a broker that comes and goes -------------------------------------------------------------


@in_loop
async def test_a_restarted_broker_neither_repeats_nor_skips(broker):
    async with pricer(broker) as client:
        data = await numbered(client, 1_000)
        out = []
        async for message in client.subscribe("a", since="epoch", until="now", credit=500):
            out.append(message.data)
            if len(out) in (150, 700):
                broker.restart()
        assert out == data


@in_loop
async def test_that_it_is_there_again_is_reported(broker):
    reported = []
    async with pricer(broker, on_state=lambda state: reported.append(state.name)) as client:
        await client.subscribe("a")
        subscription = await client.subscribe("a", since="epoch")
        assert "resubscribed" not in reported
        broker.restart()
        broker.append("a", b"1")
        assert (await subscription.next(T)).data == b"1"
        await until(lambda: "resubscribed" in reported)


@in_loop
async def test_a_token_that_has_aged_is_renewed(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a", since="epoch")
        broker.token = "t2"
        broker.append("a", b"1")
        assert (await subscription.next(T)).data == b"1"
        broker.do(broker._forget)
        broker.append("a", b"2")
        broker.restart()
        assert (await subscription.next(T)).data == b"2"


# -- its life ---------------------------------------------------------------------------------


@in_loop
async def test_closing_ends_the_iteration_of_another_task(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a")
        task = asyncio.create_task(texts(subscription))
        await asyncio.sleep(0.01)
        await subscription.close()
        assert await asyncio.wait_for(task, T) == []
        await until(lambda: not broker._subscriptions)
        with pytest.raises(ZBrokerError, match="closed"):
            await subscription


@in_loop
async def test_a_forgotten_subscription_is_given_up(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a")
        await until(lambda: broker._subscriptions)
        del subscription
        gc.collect()
        await until(lambda: not broker._subscriptions)


@in_loop
async def test_ranges_of_the_log(broker):
    async with pricer(broker) as client:
        await numbered(client)
        assert (await client.ranges("a")).ranges == [(1, 301, 10)]


# -- bookmark stores --------------------------------------------------------------------------


@in_loop
async def test_a_named_subscription_goes_on_where_it_was(broker):
    store = zbroker.MemoryBookmarkStore()
    async with pricer(broker, bookmark_store=store) as client:
        data = await numbered(client)
        async with client.subscribe("a", since="recent", name="s") as subscription:
            async for message in subscription:
                if message.data == b"100":
                    break
        async with client.subscribe("a", since="recent", name="s", discard="manual") as hand:
            messages = [await hand.next(T) for _ in range(3)]
            assert [message.data for message in messages] == data[100:103]
            hand.discard(messages[1])
            with pytest.raises(ZBrokerError, match="name_in_use"):
                client.subscribe("a", since="recent", name="s")
        rest = await texts(client.subscribe("a", since="recent", name="s", until="now"))
        assert rest == [data[100], *data[102:]]
        with pytest.raises(ZBrokerError, match="no name"):
            (await client.subscribe("a")).discard(messages[0])


@in_loop
async def test_a_forgotten_subscription_gives_its_name_back(broker):
    async with pricer(broker, bookmark_store="memory") as client:
        client.subscribe("a", since="recent", name="s")
        gc.collect()
        await client.subscribe("a", since="recent", name="s")
