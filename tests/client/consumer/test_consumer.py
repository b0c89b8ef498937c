"""Consumers over sockets: taking, settling, reconnecting, ends."""

from __future__ import annotations

import gc
import os
import threading

import pytest

import zbroker
from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.client.consumer import consumer as consumers
from zbroker.errors import ZBrokerError
from zbroker.wire import consumer_credit as v
from zbroker.wire import queue_messages as q


def places(messages):
    return [message.position for message in messages]


# -- taking ---------------------------------------------------------------------------------------


def test_messages_are_taken_and_acked_one_by_one(broker, client):
    broker.publish(100)
    out = []
    with client.consume("work") as consumer:
        for message in consumer:
            with message:
                out.append(message.position)
            if len(out) == 100:
                break
    assert out == broker.acked == list(range(1, 101))


def test_a_list_is_acked_at_once(broker, client):
    broker.publish(60)
    with client.consume("work") as consumer:
        got = 0
        for batch in consumer.batches(T):
            got += len(batch)
            consumer.ack(batch)
            if got == 60:
                break
        consumer.flush(T)
        assert (len(broker.acked), consumer.held, consumer.unsettled) == (60, 0, 0)


def test_it_says_what_was_granted(broker, client):
    consumer = client.consume("work", backlog=5)
    assert (consumer.queue, consumer.backlog, consumer.lease) == ("work", 5, 30.0)
    broker.publish(9)
    wait_until(lambda: consumer.held == 5)
    assert "held=5" in repr(consumer)
    assert consumer.vector is None


def test_fetching_gives_what_is_there(broker, client):
    consumer = client.consume("work")
    assert consumer.fetch(5, 0.02) == []
    broker.publish(8)
    wait_until(lambda: consumer.held == 8)
    assert places(consumer.fetch(6, T)) == [1, 2, 3, 4, 5, 6]
    assert places(consumer.fetch(6, T)) == [7, 8]
    with pytest.raises(ZBrokerError, match="bad_field"):
        consumer.fetch(0)


def test_waiting_for_nothing_times_out_and_goes_on(broker, client):
    consumer = client.consume("work")
    with pytest.raises(ZBrokerError, match="timeout"):
        next(consumer.batches(0.02))
    broker.publish()
    assert places(next(consumer.batches(T))) == [1]


def test_several_threads_share_a_consumer(broker, client):
    consumer, out = client.consume("work", backlog=8), []

    def work():
        for message in consumer:
            out.append(message.position)
            message.ack()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    broker.publish(300)
    wait_until(lambda: len(out) == 300)
    consumer.close()
    for thread in threads:
        thread.join(T)
        assert not thread.is_alive()
    assert sorted(out) == broker.acked == list(range(1, 301))


def test_a_message_knows_what_it_is(broker, client):
    broker.publish()
    (message,) = client.consume("work").fetch(1, T)
    assert (message.topic, message.data, message.position) == ("t", b"1", 1)
    assert (message.bookmark, message.sequence, message.publisher) == ("7|1|", 1, 7)
    assert (message.deliveries, message.redelivered, message.barrier) == (1, False, False)
    assert (message.key, message.headers, message.acked, message.time_ns) == (
        None,
        {},
        False,
        10**9,
    )
    assert repr(message) == "QueueMessage('t', '7|1|', b'1')"


def test_a_block_may_reject_its_message(broker, client):
    broker.publish(2)
    consumer = client.consume("work")
    for message in consumer.fetch(2, T):
        with message:
            raise zbroker.Reject("not for me")
    consumer.flush(T)
    assert broker.commands(q.RejectMessages)[0].reason == "not for me"
    assert broker.listener.gone == {1: "rejected", 2: "rejected"}


# -- settling and leases --------------------------------------------------------------------------


def test_flushing_waits_until_acks_are_durable(broker, client):
    broker.publish()
    broker.keep = True
    consumer = client.consume("work")
    consumer.fetch(1, T)[0].ack()
    with pytest.raises(ZBrokerError, match="1 messages are not settled"):
        consumer.flush(0.05)
    broker.keep = False
    consumer.flush(T)
    assert broker.acked == [1]


def test_flushing_tells_of_a_refusal_once(broker, client):
    broker.publish()
    consumer = client.consume("work")
    (message,) = consumer.fetch(1, T)
    broker.listener.code = "not_entitled"
    message.ack()
    with pytest.raises(ZBrokerError, match="not_entitled"):
        consumer.flush(T)
    consumer.flush(T)


def test_leases_are_extended_while_the_program_works():
    with QueueBroker(lease_ms=300) as broker, connect(broker.url, "worker") as client:
        broker.publish(3)
        consumer = client.consume("work")
        (message,) = consumer.fetch(1, T)
        wait_until(lambda: len(broker.commands(q.Extend)) >= 5)
        message.ack()
        consumer.flush(T)
        assert broker.acked == [1]
        assert all(lease.why in ("", "acked") for lease in broker.listener.sent.values())


def test_messages_of_another_consumer_cannot_be_acked_here(broker, client):
    broker.publish(2)
    one = client.consume("work", backlog=1)
    (message,) = one.fetch(1, T)
    other = client.consume("work", backlog=1)
    with pytest.raises(ZBrokerError, match="another consumer"):
        other.ack([message])
    one.ack([])


def test_a_length_that_is_none_is_a_bad_field(broker, client):
    broker.publish()
    (message,) = client.consume("work").fetch(1, T)
    for bad in ("soon", -1, "900d"):
        with pytest.raises(ZBrokerError, match="bad_field"):
            message.release(bad)
    with pytest.raises(ZBrokerError, match="bad_field"):
        message.extend(0)


# -- reconnecting ---------------------------------------------------------------------------------


def test_what_is_acked_while_the_broker_is_away_is_acked_when_it_is_back(broker, client):
    broker.publish(4)
    consumer = client.consume("work")
    messages = consumer.fetch(2, T)
    broker.stop()
    consumer.ack(messages)
    broker.start()
    consumer.flush(T)
    assert broker.acked == [1, 2]
    assert places(consumer.fetch(2, T)) == [3, 4]
    assert len(broker.listener.sent) == 4, "nothing was delivered again"


def test_a_listener_that_forgot_it_is_informed_again(broker, client):
    consumer = client.consume("work")
    broker.forget()
    broker.publish()
    consumer.close()
    again = client.consume("work")
    assert places(again.fetch(1, T)) == [1]


def test_an_old_token_is_replaced(broker, client):
    broker.publish()
    broker.token = "t2"
    assert places(client.consume("work", timeout=T).fetch(1, T)) == [1]


# -- refusals and ends ----------------------------------------------------------------------------


def test_a_refusal_is_raised_at_once(broker, client):
    broker.listener.code = "not_entitled"
    with pytest.raises(ZBrokerError, match="not_entitled"):
        client.consume("work", timeout=T)


def test_a_broker_without_queues_is_reported_as_such(broker):
    broker.named = False
    with (
        connect(broker.url, "worker") as client,
        pytest.raises(ZBrokerError, match="not_ready: the broker named no queues listener"),
    ):
        client.consume("work", timeout=0.1)


def test_a_listener_that_does_not_answer_times_out(broker, client):
    client.url  # noqa: B018 - it is logged on
    broker.deaf = True
    with pytest.raises(ZBrokerError, match="timeout"):
        client.consume("work", timeout=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": ""}, {"queue": "x" * 256}, {"backlog": 0}, {"backlog": True}, {"backlog": 10**7},
        {"since": "nowhere"}, {"until": "[epoch:now)"}, {"until": "point:"}, {"selector": ""},
        {"filter": 5}, {"bookmark_not_found": "x"},
    ],
)  # fmt: skip
def test_a_wrong_option_is_an_error_before_anything_is_sent(broker, client, wrong):
    with pytest.raises(ZBrokerError, match=r"bad_(field|bookmark)"):
        client.consume(**{"queue": "work", **wrong})
    assert broker.listener.commands == []
    with pytest.raises(TypeError):
        client.consume(5)


def test_what_ends_it_is_raised_by_whoever_waits(broker, client):
    consumer = client.consume("work")
    (key,) = broker.listener.takers
    error = zbroker.client.effects.Error("not_found", "deleted", sid=key[1])
    broker.do(lambda: broker._answer("queues", key[0], error))
    with pytest.raises(ZBrokerError, match="not_found"):
        next(iter(consumer))
    with pytest.raises(ZBrokerError, match="not_found"):
        consumer.fetch(1, T)
    assert consumer.error.code == "not_found"
    consumer.close()


def test_a_closed_consumer_is_sent_nothing_that_is_published_afterwards(broker, client):
    consumer = client.consume("work")
    consumer.close()
    assert not broker.listener.takers
    broker.publish(1)
    assert client.consume("work").fetch(1, T)[0].deliveries == 1


def test_closing_gives_back_what_is_held_and_ends_iterations(broker, client):
    broker.publish(3)
    consumer, out = client.consume("work"), []
    (message,) = consumer.fetch(1, T)
    thread = threading.Thread(target=lambda: [out.append(each.position) for each in consumer])
    thread.start()
    wait_until(lambda: out == [2, 3])
    consumer.close()
    thread.join(T)
    assert not thread.is_alive()
    wait_until(lambda: not broker.listener.takers)
    assert {lease.why for lease in broker.listener.sent.values()} == {"cancelled"}
    with pytest.raises(ZBrokerError, match="closed"):
        message.ack()
    assert (list(consumer), consumer.fetch(1, T)) == ([], [])
    consumer.close()


def test_a_consumer_that_is_forgotten_gives_back_what_it_holds(broker, client):
    broker.publish(2)
    for message in client.consume("work"):
        message.ack()
        break
    gc.collect()
    wait_until(lambda: not broker.listener.takers)
    wait_until(lambda: broker.acked == [1])


def test_closing_the_client_closes_its_consumers(broker):
    client = connect(broker.url, "worker")
    broker.publish(2)
    consumer = client.consume("work")
    consumer.fetch(1, T)[0].ack()
    client.close()
    assert broker.acked == [1]
    wait_until(lambda: not broker.listener.takers)
    with pytest.raises(ZBrokerError, match="closed"):
        client.consume("work")


def test_in_a_forked_process_it_is_an_error(broker, client):
    broker.publish(2)
    consumer = client.consume("work")
    (message,) = consumer.fetch(1, T)
    child = os.fork()
    if not child:
        codes = [_code_of(message.ack), _code_of(lambda: consumer.fetch(1, 0))]
        os._exit(0 if codes == ["forked", "forked"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    message.ack()
    consumer.flush(T)
    assert broker.acked == [1]


def _code_of(function):
    try:
        function()
    except ZBrokerError as error:
        return error.code
    return ""


def test_a_bug_of_ours_is_raised_by_whoever_waits(broker, client, caplog):
    consumer = client.consume("work")
    consumer._port.core._arrived = None
    broker.publish()
    with pytest.raises(ZBrokerError, match="internal"):
        consumer.fetch(1, T)
    assert "client.thread_failed" in caplog.text
    wait_until(lambda: not consumer._port._thread.is_alive())


def test_what_ends_the_client_ends_a_consumer_that_needs_a_session(broker):
    client = connect(broker.url, "worker")
    consumer = client.consume("work")
    client._publisher.stop()
    broker.token = "t2"
    broker.restart()
    with pytest.raises(ZBrokerError, match="closed"):
        consumer.fetch(1, T)
    client.close(flush=False)


def test_closing_the_client_tells_of_acks_that_are_not_durable(broker):
    client = connect(broker.url, "worker")
    broker.publish()
    broker.keep = True
    consumer = client.consume("work")
    consumer.fetch(1, T)[0].ack()
    with pytest.raises(ZBrokerError, match="not settled"):
        client.close(timeout=0.05)
    wait_until(lambda: not broker.listener.takers)


# -- replayable queues ----------------------------------------------------------------------------


def test_a_replayable_queue_is_read_from_where_one_likes():
    with QueueBroker(kind="replayable") as broker, connect(broker.url, "worker") as client:
        broker.publish(6)
        with client.consume("audit", since="epoch", selector="/a = 1") as consumer:
            messages = consumer.fetch(4, T)
            messages[0].ack()
            broker.restart()
            assert places([*messages, *consumer.fetch(1, T), *consumer.fetch(1, T)]) == [
                1, 2, 3, 4, 5, 6,
            ]  # fmt: skip
            assert consumer.vector == "00000000000000ab.1.6"
            assert consumer.lease is None
            consumer.flush(T)
            # what was offered before may have been all, and needs no connection
            wait_until(lambda: len(broker.commands(q.Consume)) > 1)
        first, again = broker.commands(q.Consume)[:2]
        assert (first.since, first.selector) == ("0", "/a = 1")
        assert (again.selector, again.holding) == (None, [])
        assert broker.listener.noted == {1}


def test_points_have_names():
    with QueueBroker(kind="replayable") as broker, connect(broker.url, "worker") as client:
        broker.listener._place = lambda _command: 1
        broker.publish()
        with client.consume("audit", since="point:noon", until="now") as consumer:
            assert places(consumer.fetch(1, T)) == [1]
        (asked,) = broker.commands(q.Consume)
        assert (asked.since, asked.until) == ("point:noon", "0|1|")


# -- credit ---------------------------------------------------------------------------------------


def test_in_credit_mode_it_gets_as_many_as_it_asks_for(broker, client):
    broker.publish(9)
    with client.consume("work", flow="credit") as consumer:
        consumer.flow(3)
        out = consumer.fetch(9, T)
        while len(out) < 3:
            out += consumer.fetch(9, T)
        assert places(out) == [1, 2, 3]
        assert consumer.fetch(9, 0.05) == []
        consumer.flow(messages=1)
        assert places(consumer.fetch(9, T)) == [4]


def test_a_stopped_consumer_goes_on_with_flow(broker, client):
    consumer = client.consume("work")
    consumer.stop()
    broker.publish(2)
    assert consumer.fetch(9, 0.05) == []
    consumer.flow()
    assert places(consumer.fetch(9, T)) == [1, 2]


def test_a_drain_brings_what_there_is_and_stops(broker, client):
    broker.publish(3)
    with client.consume("work", flow="credit") as consumer:
        consumer.flow(9)
        assert consumer.drain() + 0 <= 3
        broker.publish(1)
        out = consumer.fetch(9, T)
        while more := consumer.fetch(9, 0.05):
            out += more
        assert places(out) == [1, 2, 3]


def test_messages_are_acquired_by_their_positions(broker, client):
    broker.publish(5)
    with client.consume("work", flow="credit") as consumer:
        wait_until(lambda: broker.listener.count == 5)
        assert consumer.acquire([4, 2, 77]) == [2, 4]
        got = consumer.fetch(1, T) + consumer.fetch(1, T)
        assert places(got) == [2, 4]
        consumer.ack(got)
        consumer.flush(T)
        assert broker.acked == [2, 4]


def test_many_messages_are_acquired_by_several_commands(broker, client, monkeypatch):
    monkeypatch.setattr(consumers, "PICKED_MAX", 2)
    broker.publish(5)
    consumer = client.consume("work", flow="credit")
    wait_until(lambda: broker.listener.count == 5)
    assert consumer.acquire(range(1, 6)) == [1, 2, 3, 4, 5]
    assert len(broker.commands(v.AcquireMessages)) == 3


def test_a_number_of_messages_goes_with_credit_mode(broker, client):
    for options, number in (({"flow": "credit"}, None), ({}, 3), ({"flow": "credit"}, 0)):
        with pytest.raises(ZBrokerError, match="bad_field"):
            client.consume("work", **options).flow(number)
    with pytest.raises(ZBrokerError, match="flow='none'"):
        client.consume("work", flow="none")


def test_a_refusal_of_a_stop_or_an_acquire_is_raised_there(broker, client):
    consumer = client.consume("work")
    for call in (consumer.stop, consumer.drain, lambda: consumer.acquire([1])):
        broker.do(lambda: setattr(broker.listener, "code", "bad_command"))
        with pytest.raises(ZBrokerError, match="bad_command"):
            call()
    broker.publish()
    assert places(consumer.fetch(1, T)) == [1]


def test_without_an_answer_there_is_a_time_out(broker, client):
    consumer = client.consume("work")
    broker.deaf = True
    for call in (consumer.stop, lambda timeout: consumer.acquire([1], timeout)):
        with pytest.raises(ZBrokerError, match="timeout"):
            call(timeout=0.05)
    broker.deaf = False


def test_a_consumer_that_is_over_takes_no_credit(broker, client):
    consumer = client.consume("work")
    consumer.close()
    for call in (consumer.stop, consumer.flow, lambda: consumer.acquire([1])):
        with pytest.raises(ZBrokerError, match="closed"):
            call()


def test_who_waits_for_a_stop_hears_of_the_end(broker, client):
    consumer = client.consume("work")
    broker.deaf = True
    thread = threading.Timer(0.05, consumer.close, kwargs={"flush": False})
    thread.start()
    with pytest.raises(ZBrokerError, match="closed"):
        consumer.stop(T)
    broker.deaf = False
    thread.join(T)
