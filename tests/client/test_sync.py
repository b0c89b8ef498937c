"""The client with its I/O thread, against a broker that does what it is asked."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime

import pytest

from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.ids import publisher_id

T = 10.0


def data_of(broker):
    return [row[3] for row in broker.log]


# -- connect ----------------------------------------------------------------------------------


def test_connect_tells_who_it_is(broker):
    with connect(broker.url, "pricer", timeout=T) as client:
        assert (client.name, client.publisher) == ("pricer", publisher_id("pricer"))
        assert client.endpoints == {"delivery": broker._endpoints["delivery"]}


def test_clients_without_a_name_have_different_ones(broker):
    with connect(broker.url, timeout=T) as one, connect(broker.url, timeout=T) as other:
        assert one.name != other.name


def test_connect_to_no_one_times_out():
    with pytest.raises(ZBrokerError, match="no answer from") as raised:
        connect("tcp://127.0.0.1:1", timeout=0.1)
    assert raised.value.code == "timeout"


def test_connect_with_a_name_in_use_says_so(broker):
    broker.logon_code = "name_in_use"
    with pytest.raises(ZBrokerError) as raised:
        connect(broker.url, "pricer", timeout=T)
    assert raised.value.code == "name_in_use"


def test_connect_to_a_broker_that_is_not_ready_tells_why_it_timed_out(broker):
    broker.logon_code = "not_ready"
    with pytest.raises(ZBrokerError, match="the broker said not_ready"):
        connect(broker.url, "pricer", timeout=0.5)


@pytest.mark.parametrize("url", ["localhost:9101", "tcp://", "http://1.2.3.4"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(ZBrokerError):
        connect(url, timeout=0.1)


def test_a_reserved_name_is_refused():
    with pytest.raises(ZBrokerError, match="reserved_name"):
        connect("tcp://127.0.0.1:1", "$me", timeout=0.1)


# -- publish ----------------------------------------------------------------------------------


@pytest.mark.seed("002-07")
def test_a_receipt_gives_the_bookmark_once_persisted(broker, client):
    receipt = client.publish("orders", b"1")
    bookmark = receipt.wait(T)
    assert bookmark == receipt.bookmark == f"{client.publisher}|{receipt.sequence}|"
    assert receipt.persisted
    assert data_of(broker) == [b"1"]
    assert client.unpersisted == 0


def test_a_receipt_waits_no_longer_than_asked(broker, client):
    broker.hold = True
    receipt = client.publish("orders", b"1")
    with pytest.raises(ZBrokerError) as raised:
        receipt.wait(0.05)
    assert raised.value.code == "timeout"
    assert not receipt.persisted
    assert client.unpersisted == 1
    broker.release()
    receipt.wait(T)


@pytest.mark.seed("002-11")
def test_a_sequence_is_known_before_the_message_is_persisted(broker, client):
    broker.hold = True
    first, second = client.publish("a", b"1"), client.publish("a", b"2")
    assert second.sequence == first.sequence + 1


def test_messages_of_many_threads_all_arrive_in_the_order_of_each(broker, client):
    def work(number):
        for i in range(2_000):
            client.publish(f"t{number}", b"%d %d" % (number, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(T)
    client.flush(T)
    for number in range(4):
        mine = [row[3] for row in broker.log if row[2] == f"t{number}"]
        assert mine == [b"%d %d" % (number, i) for i in range(2_000)]


def test_times_travel_with_their_messages(broker, client):
    client.publish("a", b"1", time=17)
    client.publish("a", b"2")
    client.publish("a", b"3", time=datetime(2013, 7, 4, tzinfo=UTC))
    client.publish_many("a", [b"4", b"5"], times=[1, 2])
    client.flush(T)
    times = [row[4] for row in broker.log]
    assert times == [17, None, 1372896000 * 10**9, 1, 2]


def test_publish_many_gives_the_receipt_of_the_last(broker, client):
    payloads = [b"%d" % i for i in range(10_000)]
    receipt = client.publish_many("a", payloads)
    receipt.wait(T)
    assert data_of(broker) == payloads
    assert receipt.sequence == broker.log[-1][1]


def test_publish_many_takes_large_messages_too(broker, client):
    payloads = [b"x" * 5_000, b"", b"y" * 300_000]
    client.publish_many("a", payloads).wait(T)
    assert data_of(broker) == payloads


def test_publish_many_of_nothing_is_a_mistake(client):
    with pytest.raises(ValueError, match="at least one"):
        client.publish_many("a", [])


def test_text_is_refused_with_the_remedy(client):
    with pytest.raises(TypeError, match=r"\.encode\(\)"):
        client.publish("a", "text")


def test_a_buffer_is_taken_as_bytes(broker, client):
    client.publish("a", bytearray(b"1")).wait(T)
    assert data_of(broker) == [b"1"]


@pytest.mark.parametrize("topic", ["", "x" * 256, "a\nb"])
def test_a_bad_topic_is_refused_before_it_is_queued(client, topic):
    with pytest.raises(ZBrokerError, match="bad_topic"):
        client.publish(topic, b"")
    assert client.unpersisted == 0


def test_a_message_over_the_brokers_limit_is_refused_before_it_is_queued(broker):
    broker.max_message_bytes = 5_000
    with connect(broker.url, timeout=T) as client:
        with pytest.raises(ZBrokerError, match="at most 5000 bytes"):
            client.publish("a", b"x" * 5_001)
        client.publish("a", b"x" * 5_000).wait(T)


# -- refusals ---------------------------------------------------------------------------------


def test_a_refused_message_fails_its_receipt_with_the_brokers_code(broker):
    seen = []
    with connect(broker.url, timeout=T, on_refused=seen.append) as client:
        client.publish("a", b"1").wait(T)
        broker.refusals.append("bad_topic")
        refused = client.publish("a", b"2")
        with pytest.raises(ZBrokerError) as raised:
            refused.wait(T)
        assert raised.value.code == "bad_topic"
        assert not refused.persisted
        client.publish("a", b"3").wait(T)
        assert [error.code for error in seen] == ["bad_topic"]
        with pytest.raises(ZBrokerError, match="bad_topic"):
            client.flush(T)
        client.flush(T)
    assert data_of(broker) == [b"1", b"3"]


def test_a_temporary_refusal_is_only_a_delay(broker, client):
    broker.refusals.extend(["disk_full", "not_ready"])
    client.publish("a", b"1").wait(T)
    assert data_of(broker) == [b"1"]


def test_a_callback_that_fails_does_not_stop_publishing(broker):
    def fail(_):
        raise RuntimeError("mine")

    with connect(broker.url, timeout=T, on_refused=fail) as client:
        broker.refusals.append("bad_topic")
        refused = client.publish("a", b"1")
        wait_until(lambda: refused.sequence <= client._track.settled)
        client.publish("a", b"2").wait(T)
        with pytest.raises(ZBrokerError):
            client.flush(T)


# -- topics that are not recorded -------------------------------------------------------------


def test_a_receipt_of_what_is_not_recorded_has_no_bookmark(broker, client):
    broker.unrecorded = {"live"}
    receipt = client.publish("live", b"1")
    assert receipt.wait(T) == receipt.bookmark == ""
    assert (receipt.recorded, receipt.persisted) == (False, False)
    assert "not recorded" in repr(receipt)
    assert client.unpersisted == 0
    client.flush(T)
    assert broker.log == []


def test_recorded_and_unrecorded_messages_are_told_apart(broker, client):
    broker.unrecorded = {"live"}
    receipts = [client.publish("live" if i % 3 else "kept", b"%d" % i) for i in range(999)]
    client.flush(T)
    assert [r.recorded for r in receipts] == [i % 3 == 0 for i in range(999)]
    assert [bool(r.bookmark) for r in receipts] == [i % 3 == 0 for i in range(999)]
    assert data_of(broker) == [b"%d" % i for i in range(0, 999, 3)]
    assert client.unpersisted == 0


def test_whether_a_message_is_recorded_is_not_known_before_the_answer(broker, client):
    broker.unrecorded, broker.hold = {"live"}, True
    receipt = client.publish("live", b"1")
    assert receipt.recorded is None
    assert receipt.bookmark == f"{client.publisher}|{receipt.sequence}|"
    with pytest.raises(ZBrokerError, match="timeout"):
        client.flush(timeout=0.05)
    broker.release()
    assert receipt.wait(T) == ""


def test_a_client_of_unrecorded_topics_survives_a_restart_of_the_broker(broker, client):
    broker.unrecorded = {"live"}
    client.publish("kept", b"1").wait(T)
    client.publish("live", b"2").wait(T)
    broker.restart()
    client.publish("live", b"3").wait(T)
    assert client.publish("kept", b"4").wait(T)
    assert data_of(broker) == [b"1", b"4"]


# -- a broker that comes and goes -------------------------------------------------------------


def test_what_is_published_while_the_broker_is_down_arrives_later(broker, client):
    client.publish("a", b"0").wait(T)
    broker.stop()
    receipts = [client.publish("a", b"%d" % i) for i in range(1, 100)]
    broker.start()
    receipts[-1].wait(T)
    assert data_of(broker) == [b"%d" % i for i in range(100)]


@pytest.mark.seed("002-01")
@pytest.mark.seed("004-21")
def test_what_was_not_acknowledged_is_sent_again_to_a_restarted_broker(broker, client):
    broker.hold = True
    receipt = client.publish("a", b"1")
    wait_until(lambda: broker.log)
    broker.hold = False
    broker.restart()
    receipt.wait(T)
    assert data_of(broker) == [b"1"]


def test_an_idle_client_finds_its_way_back_to_a_restarted_broker(broker, client):
    broker.restart()
    wait_until(lambda: len(broker.logons) == 2)
    assert broker.logons[0].instance == broker.logons[1].instance
    client.publish("a", b"1").wait(T)


def test_a_broker_that_forgot_the_client_learns_again_who_it_is(broker, client):
    broker.forget()
    client.publish("a", b"1").wait(T)
    assert data_of(broker) == [b"1"]


def test_a_waiting_client_hears_from_a_broker_that_forgot_it(broker, client):
    broker.hold = True
    receipt = client.publish("a", b"1")
    wait_until(lambda: broker.log)
    broker.hold = False
    broker.forget()
    receipt.wait(T)


def test_a_broker_that_lost_acknowledged_messages_is_reported(broker, client):
    client.publish("a", b"1").wait(T)
    broker.stop()
    broker.high.clear()
    broker.start()
    with pytest.raises(ZBrokerError) as raised:
        client.publish("a", b"2").wait(T)
    assert raised.value.code == "broker_behind"
    with pytest.raises(ZBrokerError, match="broker_behind"):
        client.publish("a", b"3")
    with pytest.raises(ZBrokerError, match="broker_behind"):
        client.flush(T)


# -- the publish store ------------------------------------------------------------------------


def fill(client, size):
    for _ in range(1_000_000):
        client.publish("a", b"x" * size, timeout=0)
        if client.unpersisted % 500 == 0:
            client._publisher.numbers()


@pytest.mark.parametrize("size", [0, 100, 5_000])
def test_a_full_store_refuses_and_goes_on_when_there_is_space(broker, size):
    broker.hold = True
    with connect(broker.url, store_bytes=100_000, timeout=T) as client:
        with pytest.raises(ZBrokerError, match="store_full"):
            fill(client, size)
        assert client.unpersisted * size <= 100_000
        with pytest.raises(ZBrokerError, match=r"after 0\.05 s"):
            client.publish("a", b"x" * size, timeout=0.05)
        count = client.unpersisted
        broker.release()
        client.publish("a", b"x" * size, timeout=T).wait(T)
        assert len(broker.log) == count + 1


def test_while_the_disk_of_the_broker_is_full_publishing_waits_within_its_bound(broker):
    broker.refusals.extend(["disk_full"] * 100_000)
    with connect(broker.url, store_bytes=100_000, timeout=T) as client:
        with pytest.raises(ZBrokerError, match="store_full"):
            fill(client, 1_000)
        wait_until(lambda: client._publisher._core.refusal is not None)
        with pytest.raises(ZBrokerError, match=r"the broker said disk_full"):
            client.publish("a", b"late", timeout=0.05)
        with pytest.raises(ZBrokerError, match=r"the broker said disk_full"):
            client.flush(timeout=0.05)
        waiting = client.unpersisted
        assert waiting * 1_000 <= 100_000
        assert broker.log == []
        broker.do(broker.refusals.clear)
        client.flush(T)
        assert len(broker.log) == waiting


def test_a_message_that_never_fits_the_store_does_not_wait(broker):
    with (
        connect(broker.url, store_bytes=10_000, timeout=T) as client,
        pytest.raises(ZBrokerError, match="never fit"),
    ):
        client.publish("a", b"x" * 10_001)


# -- the end ----------------------------------------------------------------------------------


def test_closing_waits_for_the_broker(broker):
    with connect(broker.url, timeout=T) as client:
        client.publish_many("a", [b"x"] * 50_000)
    assert len(broker.log) == 50_000
    wait_until(lambda: broker.logoffs == 1)


def test_closing_after_an_exception_does_not_wait(broker):
    def fail():
        with connect(broker.url, timeout=T) as client:
            client.publish("a", b"1")
            raise RuntimeError("mine")

    broker.hold = True
    with pytest.raises(RuntimeError, match="mine"):
        fail()


def test_closing_without_the_broker_says_what_is_missing(broker):
    broker.hold = True
    client = connect(broker.url, timeout=T)
    client.publish("a", b"1")
    with pytest.raises(ZBrokerError, match="timeout"):
        client.close(timeout=0.05)
    client.close()


def test_a_closed_client_refuses(broker):
    client = connect(broker.url, timeout=T)
    receipt = client.publish("a", b"1")
    client.close()
    assert receipt.persisted
    with pytest.raises(ZBrokerError, match="closed"):
        client.publish("a", b"2")
    with pytest.raises(ZBrokerError, match="closed"):
        client.flush(1)


def test_a_forgotten_client_logs_off(broker):
    client = connect(broker.url, timeout=T)
    del client
    gc.collect()
    wait_until(lambda: broker.logoffs == 1)


def test_a_program_that_forgets_to_close_ends_by_itself(broker):
    program = f"""
        from zbroker.client import connect
        client = connect({broker.url!r}, timeout={T})
        client.publish("a", b"1").wait({T})
        subscription = client.subscribe("a", since="epoch")
        print(next(iter(subscription)).data)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'1'\n", "")
