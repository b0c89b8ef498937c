"""Publishing in an event loop, against a broker that does what it is asked."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading

import pytest

from tests.client.aio.looped import data_of, in_loop, numbered, pricer, until
from tests.client.fakes import WAIT_S as T
from zbroker.aio import connect
from zbroker.client.publisher import publisher
from zbroker.errors import StorageError, ZBrokerError
from zbroker.ids import publisher_id

# -- connect ----------------------------------------------------------------------------------


@in_loop
async def test_a_connection_can_be_awaited(broker):
    client = await pricer(broker)
    assert (client.name, client.publisher) == ("pricer", publisher_id("pricer"))
    assert client.url == broker.url
    assert client.endpoints == {"delivery": broker._endpoints["delivery"]}
    await client.close()
    await until(lambda: broker.logoffs == 1)


@in_loop
async def test_a_connection_can_be_entered(broker):
    async with pricer(broker) as client:
        client.publish("a", b"1")
    assert data_of(broker) == [b"1"]


@in_loop
async def test_connecting_to_no_one_times_out():
    with pytest.raises(ZBrokerError, match="no answer from") as raised:
        await connect("tcp://127.0.0.1:1", timeout=0.1)
    assert raised.value.code == "timeout"


@in_loop
async def test_a_name_in_use_is_reported(broker):
    broker.logon_code = "name_in_use"
    with pytest.raises(ZBrokerError, match="name_in_use"):
        await pricer(broker)


@in_loop
async def test_wrong_options_are_reported_when_it_is_awaited(broker):
    connecting = connect(broker.url, store_bytes=0)
    with pytest.raises(ZBrokerError, match="store_bytes"):
        await connecting


@in_loop
async def test_connecting_can_be_cancelled(broker):
    broker.deaf = True
    task = asyncio.create_task(_connect(broker))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    broker.deaf = False
    async with pricer(broker) as client:
        await client.publish("a", b"1").wait(T)


async def _connect(broker):
    return await pricer(broker)


# -- publish ----------------------------------------------------------------------------------


@in_loop
async def test_what_is_staged_leaves_as_one_batch_or_after_a_while(broker):
    async with pricer(broker) as client:
        client._publisher.stage("token")
        for n in range(10):
            client.publish("a", b"%d" % n)
            await asyncio.sleep(0)
        await client.flush(T)
        assert data_of(broker) == [b"%d" % n for n in range(10)]
        receipt = client.publish("a", b"10")
        await until(lambda: receipt.done)


@in_loop
async def test_what_is_staged_and_waited_for_leaves_at_once(broker, monkeypatch):
    monkeypatch.setattr(publisher, "HOLD_MS", 60_000)
    async with pricer(broker) as client:
        client._publisher.stage("token")
        await client.publish("a", b"1").wait(T)
        client._publisher.stage(None)
        receipt = client.publish("a", b"2")
        await until(lambda: receipt.done)


@in_loop
async def test_a_receipt_gives_the_bookmark_once_persisted(broker):
    async with pricer(broker) as client:
        receipt = client.publish("orders", b"1")
        assert not receipt.done
        bookmark = await receipt
        assert bookmark == receipt.bookmark == f"{client.publisher}|{receipt.sequence}|"
        assert (receipt.persisted, receipt.done) == (True, True)
        assert await receipt.wait(0) == bookmark
        assert client.unpersisted == 0
    assert data_of(broker) == [b"1"]


@in_loop
async def test_a_receipt_waits_no_longer_than_asked(broker):
    broker.hold = True
    async with pricer(broker) as client:
        receipt = client.publish("orders", b"1")
        with pytest.raises(ZBrokerError, match="timeout"):
            await receipt.wait(0.05)
        assert client.unpersisted == 1
        broker.release()
        assert await receipt.wait(T)


@in_loop
async def test_a_sequence_is_known_at_once(broker):
    broker.hold = True
    async with pricer(broker) as client:
        first, second = client.publish("a", b"1"), client.publish("a", b"2")
        assert second.sequence == first.sequence + 1
        broker.release()


@in_loop
async def test_tasks_publish_side_by_side(broker):
    async def work(client, number):
        for i in range(200):
            receipt = client.publish(f"t{number}", b"%d" % i)
            if i % 50 == 49:
                await receipt.wait(T)

    async with pricer(broker) as client:
        await asyncio.gather(*(work(client, number) for number in range(5)))
    for number in range(5):
        mine = [row[3] for row in broker.log if row[2] == f"t{number}"]
        assert mine == [b"%d" % i for i in range(200)]


@in_loop
async def test_a_loop_that_never_awaits_is_sent_meanwhile(broker):
    broker.window_bytes = 1 << 30
    async with pricer(broker) as client:
        for i in range(30_000):
            client.publish("a", b"%d" % i)
        assert len(client._inbox) < 10_000
    assert data_of(broker) == [b"%d" % i for i in range(30_000)]


@in_loop
async def test_publish_many_gives_the_receipt_of_the_last(broker):
    payloads = [b"%d" % i for i in range(10_000)]
    async with pricer(broker) as client:
        receipt = client.publish_many("a", payloads)
        await receipt.wait(T)
        assert receipt.sequence == broker.log[-1][1]
        large = [b"x" * 5_000, b"y" * 300_000]
        await client.publish_many("a", large, times=[1, 2]).wait(T)
    assert data_of(broker) == payloads + large
    assert [row[4] for row in broker.log[-2:]] == [1, 2]


@in_loop
async def test_what_cannot_be_published_is_refused_before_it_is_queued(broker):
    async with pricer(broker) as client:
        with pytest.raises(TypeError, match=r"\.encode\(\)"):
            client.publish("a", "text")
        with pytest.raises(ZBrokerError, match="bad_topic"):
            client.publish("", b"")
        with pytest.raises(TypeError, match="topic is a str"):
            client.publish(7, b"")
        with pytest.raises(ValueError, match="at least one"):
            client.publish_many("a", [])
        with pytest.raises(ValueError, match="have 1 times"):
            client.publish_many("a", [b"1", b"2"], times=[1])
        with pytest.raises(ZBrokerError, match="too_large"):
            client.publish("a", b"x" * (2 << 20))
        assert client.unpersisted == 0


@in_loop
async def test_a_refusal_is_reported_to_the_receipt_the_listener_and_the_flush(broker):
    reported = []
    async with pricer(broker, on_refused=reported.append) as client:
        broker.refusals.append("bad_topic")
        refused = client.publish("a", b"1")
        with pytest.raises(ZBrokerError, match="bad_topic"):
            await refused
        await client.publish("a", b"2").wait(T)
        with pytest.raises(ZBrokerError, match="bad_topic"):
            await client.flush(T)
        await client.flush(T)
        assert [error.code for error in reported] == ["bad_topic"]
    assert data_of(broker) == [b"2"]


@in_loop
async def test_what_is_not_recorded_has_no_bookmark(broker):
    broker.unrecorded = {"live"}
    async with pricer(broker) as client:
        receipt = client.publish("live", b"1")
        assert await receipt == receipt.bookmark == ""
        assert (receipt.recorded, receipt.persisted) == (False, False)


# -- the publish store ------------------------------------------------------------------------


def fill(client, size):
    for _ in range(1_000_000):
        client.publish("a", b"x" * size)


@pytest.mark.parametrize("size", [0, 100, 5_000])
@in_loop
async def test_a_full_store_refuses_until_there_is_space(broker, size):
    broker.hold = True
    async with pricer(broker, store_bytes=100_000) as client:
        with pytest.raises(ZBrokerError, match="store_full") as raised:
            fill(client, size)
        assert "ready()" in raised.value.hint
        assert client.unpersisted * size <= 100_000
        with pytest.raises(ZBrokerError, match="timeout"):
            await client.ready(0.05)
        count = client.unpersisted
        waiting = asyncio.create_task(client.ready(T))
        await asyncio.sleep(0)
        broker.release()
        await waiting
        await client.publish("a", b"x" * size).wait(T)
        assert len(broker.log) == count + 1


@in_loop
async def test_ready_waits_for_the_message_that_was_refused(broker):
    broker.hold = True
    async with pricer(broker, store_bytes=100_000) as client:
        client.publish("a", b"x" * 30_000)
        client.publish("a", b"x" * 30_000)
        with pytest.raises(ZBrokerError, match="store_full"):
            client.publish("a", b"x" * 60_000)
        with pytest.raises(ZBrokerError, match="timeout"):
            await client.ready(0.05)
        client.publish("a", b"small")
        with pytest.raises(ZBrokerError, match="never fit"):
            client.publish("a", b"x" * 100_001)
        broker.release()
        await client.ready(T)
        await client.publish("a", b"x" * 60_000).wait(T)


@in_loop
async def test_many_messages_are_queued_together_or_not_at_all(broker):
    broker.hold = True
    broker.max_message_bytes = 50_000
    async with pricer(broker, store_bytes=100_000, store_messages=500) as client:
        for payloads in ([b"x"] * 501, [b"x" * 1_000] * 101, [b"", b"x" * 100_001]):
            with pytest.raises(ZBrokerError, match="never fit"):
                client.publish_many("a", payloads)
        with pytest.raises(ZBrokerError, match="too_large"):
            client.publish_many("b", [b"x" * 2_000, b"x" * 60_000])
        assert client.unpersisted == 0
        client.publish_many("a", [b"x"] * 300)
        for payloads in ([b"x"] * 201, [b"x" * 33_200] * 3):
            with pytest.raises(ZBrokerError, match="store_full"):
                client.publish_many("a", payloads)
        assert client.unpersisted == 300
        with pytest.raises(ZBrokerError, match="timeout"):
            await client.ready(0.05)
        broker.release()
        await client.ready(T)
        client.publish_many("a", [b"x" * 33_200] * 3)
    assert len(broker.log) == 303


def accepted(client, topic, data):
    try:
        client.publish(topic, data)
    except ZBrokerError:
        return False
    return True


@in_loop
async def test_many_tasks_that_wait_for_process_lose_nothing(broker):
    async def work(client, number):
        for i in range(300):
            while not accepted(client, f"t{number}", b"%d" % i):
                await client.ready(T)

    async with pricer(broker, store_bytes=50_000, store_messages=100) as client:
        await asyncio.gather(*(work(client, number) for number in range(5)))
    assert len(broker.log) == 1_500
    for number in range(5):
        mine = [row[3] for row in broker.log if row[2] == f"t{number}"]
        assert mine == [b"%d" % i for i in range(300)]


@in_loop
async def test_a_task_that_asks_for_process_lets_others_run(broker):
    count = 0

    async def other():
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    async with pricer(broker) as client:
        task = asyncio.create_task(other())
        for _ in range(30_000):
            await client.ready(T)
            client.publish("a", b"x")
        assert count >= 3
        task.cancel()


@in_loop
async def test_a_store_in_a_directory_keeps_what_was_not_sent(broker, tmp_path):
    broker.hold = True
    client = await pricer(broker, publish_store=tmp_path)
    client.publish("a", b"1")
    client.publish_many("a", [b"2", b"3"])
    await client.close(flush=False)
    broker.release()
    broker.restart()
    async with pricer(broker, publish_store=tmp_path) as client:
        await client.publish("a", b"4").wait(T)
    assert data_of(broker) == [b"1", b"2", b"3", b"4"]


@in_loop
async def test_a_full_disk_is_a_full_store(broker, tmp_path):
    def fail(*_):
        raise StorageError(codes.pop(), "no")

    codes = ["disk_error", "disk_full", "disk_full"]
    async with pricer(broker, publish_store=tmp_path) as client:
        put, client._staging.put, client._staging.put_many = client._staging.put, fail, fail
        with pytest.raises(ZBrokerError, match="store_full"):
            client.publish("a", b"1")
        with pytest.raises(ZBrokerError, match="store_full"):
            client.publish_many("a", [b"1"])
        await client.ready(T)
        with pytest.raises(StorageError, match="disk_error"):
            client.publish("a", b"1")
        client._staging.put = put
        await client.ready(T)
        await client.publish("a", b"2").wait(T)
    assert data_of(broker) == [b"2"]


@in_loop
async def test_a_store_that_fails_ends_the_client(broker, tmp_path, caplog):
    async with pricer(broker, publish_store=tmp_path) as client:

        def fail(batch):
            raise ZBrokerError("disk_error", "no")

        client._publisher.store.append = fail
        receipt = client.publish("a", b"1")
        with caplog.at_level(logging.ERROR), pytest.raises(ZBrokerError, match="disk_error"):
            await receipt.wait(T)
        with pytest.raises(ZBrokerError, match="disk_error"):
            client.publish("a", b"2")
        with pytest.raises(ZBrokerError, match="disk_error"):
            await client.ready(T)
        assert "client.store_failed" in caplog.text
        await client.close(flush=False)


# -- a broker that comes and goes -------------------------------------------------------------


@in_loop
async def test_what_is_published_while_the_broker_is_away_arrives_later(broker):
    async with pricer(broker) as client:
        await client.publish("a", b"0").wait(T)
        broker.stop()
        for i in range(1, 100):
            client.publish("a", b"%d" % i)
        broker.start()
        await client.flush(T)
    assert data_of(broker) == [b"%d" % i for i in range(100)]


@in_loop
async def test_what_was_not_acknowledged_is_sent_again(broker):
    broker.hold = True
    async with pricer(broker) as client:
        receipt = client.publish("a", b"1")
        await until(lambda: broker.log)
        broker.hold = False
        broker.restart()
        await receipt.wait(T)
    assert data_of(broker) == [b"1"]


@in_loop
async def test_what_becomes_of_the_connection_is_reported_in_the_loop(broker):
    reported, threads = [], set()

    def listen(state):
        reported.append(state.name)
        threads.add(threading.current_thread())

    async with pricer(broker, on_state=listen) as client:
        later = []
        client.on_state(lambda state: later.append(state.name))
        broker.restart()
        await until(lambda: reported.count("logged_on") == 2)
    assert reported == [
        "connecting",
        "logged_on",
        "disconnected",
        "connecting",
        "logged_on",
        "closed",
    ]
    assert later == reported[2:]
    assert threads == {threading.current_thread()}


@in_loop
async def test_a_callback_that_fails_is_logged(broker, caplog):
    def fail(_):
        raise RuntimeError("mine")

    async with pricer(broker, on_state=fail) as client:
        done = asyncio.Event()
        receipt = client.publish("a", b"1")
        receipt.add_done_callback(lambda _: done.set())
        await asyncio.wait_for(done.wait(), T)
    assert "client.callback_failed" in caplog.text


@in_loop
async def test_a_broker_that_lost_acknowledged_messages_is_reported(broker):
    async with pricer(broker) as client:
        await client.publish("a", b"1").wait(T)
        broker.stop()
        broker.high.clear()
        broker.start()
        with pytest.raises(ZBrokerError, match="broker_behind"):
            await client.publish("a", b"2").wait(T)
        with pytest.raises(ZBrokerError, match="broker_behind"):
            client.publish("a", b"3")
        with pytest.raises(ZBrokerError, match="broker_behind"):
            await client.flush(T)
        await client.close(flush=False)


# -- cancellation -----------------------------------------------------------------------------


@in_loop
async def test_a_cancelled_wait_leaves_the_message_on_its_way(broker):
    broker.hold = True
    async with pricer(broker) as client:
        receipt = client.publish("a", b"1")
        waits = (receipt.wait(T), client.flush(T))
        tasks = [asyncio.create_task(wait) for wait in waits]
        await until(lambda: broker.log)
        for task in tasks:
            task.cancel()
        assert [type(r) for r in await asyncio.gather(*tasks, return_exceptions=True)] == [
            asyncio.CancelledError,
            asyncio.CancelledError,
        ]
        broker.release()
        assert await receipt.wait(T)
    assert data_of(broker) == [b"1"]


@in_loop
async def test_a_cancelled_close_closes(broker):
    broker.hold = True
    client = await pricer(broker)
    client.publish("a", b"1")
    task = asyncio.create_task(client.close(timeout=None))
    await until(lambda: broker.log)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ZBrokerError, match="closed"):
        client.publish("a", b"2")


# -- whose it is ------------------------------------------------------------------------------


@in_loop
async def test_another_thread_gets_a_clear_error(broker):
    reported = []

    def work(client):
        for use in (lambda: client.publish("a", b""), lambda: client.subscribe("a")):
            try:
                use()
            except RuntimeError as error:
                reported.append("event loop" in str(error))

    async with pricer(broker) as client:
        await asyncio.to_thread(work, client)
        assert client.unpersisted == 0
    assert reported == [True, True]


@in_loop
async def test_a_forked_process_learns_that_the_client_is_not_its_own(broker):
    async with pricer(broker) as client:
        subscription = await client.subscribe("a")
        pid = os.fork()
        if not pid:
            os._exit(_use_in_child(client, subscription))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        await client.publish("a", b"1").wait(T)
        assert (await subscription.next(T)).data == b"1"


def _use_in_child(client, subscription):
    codes = []
    for use in (lambda: client.publish("a", b"child"), lambda: asyncio.run(subscription.next())):
        try:
            use()
        except ZBrokerError as error:
            codes.append(error.code)
    return 0 if codes == ["forked", "forked"] else 1


# -- the end ----------------------------------------------------------------------------------


@in_loop
async def test_closing_waits_for_the_broker(broker):
    async with pricer(broker) as client:
        client.publish_many("a", [b"x"] * 20_000)
    assert len(broker.log) == 20_000
    await until(lambda: broker.logoffs == 1)
    await client.close()
    with pytest.raises(ZBrokerError, match="closed"):
        await client.flush(1)
    with pytest.raises(ZBrokerError, match="closed"):
        client.subscribe("a")


@in_loop
async def test_closing_after_an_exception_does_not_wait(broker):
    async def fail():
        async with pricer(broker) as client:
            client.publish("a", b"1")
            raise KeyError

    broker.hold = True
    with pytest.raises(KeyError):
        await fail()


@in_loop
async def test_closing_without_the_broker_says_what_is_missing(broker):
    broker.hold = True
    client = await pricer(broker)
    client.publish("a", b"1")
    with pytest.raises(ZBrokerError, match="timeout"):
        await client.close(timeout=0.05)


@in_loop
async def test_closing_ends_its_subscriptions(broker):
    client = await pricer(broker)
    await numbered(client, 10)
    out = []

    async def read():
        async for message in client.subscribe("a", since="epoch"):
            out.append(message)  # noqa: PERF401 - it is looked at meanwhile

    task = asyncio.create_task(read())
    await until(lambda: len(out) == 10)
    await client.close()
    await asyncio.wait_for(task, T)


@in_loop
async def test_a_forgotten_client_logs_off_with_a_warning(broker, caplog):
    broker.hold = True
    client = await pricer(broker)
    client.publish("a", b"1")
    del client
    gc.collect()
    await until(lambda: broker.logoffs == 1)
    assert "1 messages of 'pricer' are not known to be persisted" in caplog.text
