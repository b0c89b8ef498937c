"""Subscriptions that are paused, resumed, replaced and closed, by their reader and by others."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import wait_until
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Pause


def in_thread(job):
    """Starts `job`; gives a function that waits for what it returns or raises."""
    out = []

    def run():
        try:
            out.append((job(), None))
        except BaseException as error:
            out.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(T)
        assert out, "it hangs"
        if out[0][1] is not None:
            raise out[0][1]
        return out[0][0]

    return result


def code_of(job):
    with pytest.raises(ZBrokerError) as raised:
        job()
    return raised.value.code


# -- pause and resume -----------------------------------------------------------------------------


def test_one_that_begins_paused_waits_until_it_is_resumed(client, numbered):
    with client.subscribe("a", since="epoch", until="now", paused=True) as subscription:
        assert subscription.paused
        assert code_of(lambda: subscription.next(0.05)) == "timeout"
        subscription.resume()
        assert not subscription.paused
        assert [message.data for message in subscription] == numbered


def test_its_reader_pauses_it_in_its_own_loop(client, numbered):
    out = []
    with client.subscribe("a", since="epoch", until="now") as subscription:
        for message in subscription:
            out.append(message.data)
            if len(out) in (50, 51, 250):
                subscription.pause(T)
                subscription.resume(T)
    assert out == numbered


def test_another_thread_pauses_what_its_reader_waits_for(broker, client, numbered):
    with client.subscribe("a") as subscription:
        first = in_thread(lambda: subscription.next(T).data)
        subscription.pause(T)
        broker.append("a", b"1")
        assert subscription.paused
        subscription.resume(T)
        assert first() == b"1"


def test_one_that_no_one_reads_is_paused(broker, client, numbered):
    with client.subscribe("a", since="epoch", credit=100) as subscription:
        subscription.pause(T)
        taken = next(iter(broker._subscriptions.values()))
        assert taken.paused
        subscription.resume(T)
        assert [subscription.next(T).data for _ in numbered] == numbered


def test_many_threads_change_one_subscription_while_it_is_read(client, numbered):
    with client.subscribe("a", since="epoch", until="now", credit=100) as subscription:

        def change():
            for _ in range(20):
                subscription.pause(T)
                subscription.resume(T)

        results = [in_thread(change) for _ in range(3)]
        out = [message.data for message in subscription]
        for result in results:
            with suppress(ZBrokerError):  # "closed": the range came to its end
                result()
    assert out == numbered


def test_a_pause_without_an_answer_times_out_and_may_still_come(broker, client, numbered):
    with client.subscribe("a", since="epoch") as subscription:
        broker.mute = True
        assert code_of(lambda: subscription.pause(0.05)) == "timeout"
        assert not subscription.paused
        broker.mute = False
        broker.restart()
        assert code_of(lambda: [subscription.next(0.5) for _ in range(1_000)]) == "timeout"
        assert subscription.paused
        assert [type(command) for command in broker.asked] == [Pause, Pause]


def test_a_paused_one_is_paused_after_a_restart(broker, client, numbered):
    with client.subscribe("a", since="epoch") as subscription:
        out = [subscription.next(T).data for _ in range(10)]
        subscription.pause(T)
        broker.restart()
        subscription.resume(T)
        out += [subscription.next(T).data for _ in range(290)]
    assert broker.subscribes[-1].options.paused
    assert out == numbered


def test_live_delivery_is_not_paused(client):
    with client.subscribe("a", delivery="live") as subscription:
        assert code_of(subscription.pause) == "bad_field"
        assert code_of(subscription.resume) == "bad_field"
        assert code_of(lambda: client.pause([subscription])) == "bad_field"


# -- replace --------------------------------------------------------------------------------------


def test_a_replaced_filter_holds_from_the_position_that_is_reported(broker, client, numbered):
    with client.subscribe("a", filter="7") as subscription:
        assert subscription.replace(filter="9", timeout=T) == 301
        for data in (b"71", b"91", b"97"):
            broker.append("a", data)
        assert [subscription.next(T).data for _ in range(2)] == [b"91", b"97"]
        assert subscription.replace(filter="", timeout=T) == 304
        broker.append("a", b"x")
        assert subscription.next(T).data == b"x"


def test_a_replaced_topic_is_kept_over_a_restart(broker, client, numbered):
    with client.subscribe("a") as subscription:
        subscription.replace("b", timeout=T)
        assert subscription.topic == "b"
        broker.restart()
        broker.append("a", b"1")
        broker.append("b", b"2")
        assert subscription.next(T).data == b"2"


def test_a_refused_filter_leaves_the_old_one(broker, client, numbered):
    with client.subscribe("a", filter="7") as subscription:
        assert code_of(lambda: subscription.replace(filter="bad", timeout=T)) == "bad_filter"
        broker.append("a", b"9")
        broker.append("a", b"7")
        assert subscription.next(T).data == b"7"


def test_an_acceptance_that_does_not_come_times_out(broker, client):
    with pytest.raises(ZBrokerError, match=r"did not accept.*in 0\.05 s"):
        client.subscribe("silent", timeout=0.05)
    wait_until(lambda: broker.subscribes)


def test_a_filter_that_is_refused_at_once_is_an_error(client):
    assert code_of(lambda: client.subscribe("a", filter="bad")) == "bad_filter"


@pytest.mark.parametrize("wishes", [{}, {"regex": True}, {"regex": True, "filter": "x"}])
def test_a_replace_of_nothing_is_refused(client, wishes):
    with client.subscribe("a") as subscription:
        assert code_of(lambda: subscription.replace(**wishes)) == "bad_field"


# -- its end --------------------------------------------------------------------------------------


def test_another_thread_closes_what_its_reader_waits_for(client):
    subscription = client.subscribe("a")
    reading = in_thread(lambda: list(subscription))
    subscription.close()
    assert reading() == []
    assert code_of(subscription.pause) == "closed"
    assert code_of(lambda: client.resume([subscription])) == "closed"


def test_closing_inside_the_loop_ends_the_loop(client, numbered):
    out = []
    subscription = client.subscribe("a", since="epoch")
    for message in subscription:
        out.append(message.data)
        if len(out) == 3:
            subscription.close()
    assert out == numbered[:3]


def test_a_limit_ends_an_iteration(client, numbered):
    with client.subscribe("a", since="epoch", limit=7) as subscription:
        assert [message.data for message in subscription] == numbered[:7]
    with client.subscribe("a", since="epoch", until="now", limit=1_000) as subscription:
        assert [message.data for message in subscription] == numbered


def test_a_limit_counts_over_a_restart(broker, client, numbered):
    with client.subscribe("a", since="epoch", limit=120) as subscription:
        out = [subscription.next(T).data for _ in range(10)]
        broker.restart()
        out += [message.data for message in subscription]
    assert out == numbered[:120]


def test_a_subscription_is_forgotten_with_its_last_name(broker, client):
    subscription = client.subscribe("a")
    assert broker._subscriptions
    del subscription
    wait_until(lambda: not broker._subscriptions)


# -- where it is ----------------------------------------------------------------------------------


def test_it_can_be_looked_at(client, numbered):
    with client.subscribe("a", since="epoch") as subscription:
        subscription.next(T)
        shown = repr(subscription)
        assert (subscription.topic, subscription.dropped, subscription.error) == ("a", 0, None)
    assert shown.startswith("Subscription('a', live, 00000000000000ab.1.1")


def test_what_is_durable_is_reported_though_nothing_matches(broker, client, numbered):
    with client.subscribe("nothing", since="epoch") as subscription:
        assert subscription.durable.endswith(".0")
        assert code_of(lambda: subscription.next(0.2)) == "timeout"
        assert subscription.durable.endswith(".300")
        assert (subscription.caught_up, subscription.bookmark) == (True, None)
        assert subscription.vector == subscription.durable


def test_a_start_at_a_time_is_durable_from_the_first_message_on(
    broker, client, numbered, monkeypatch
):
    monkeypatch.setattr(type(broker), "_position", lambda *_: 0)
    with client.subscribe("a", since=datetime(2020, 1, 1, tzinfo=UTC)) as subscription:
        assert (subscription.durable, subscription.vector) == (None, None)
        assert [subscription.next(T).data for _ in numbered] == numbered
        assert code_of(lambda: subscription.next(0.1)) == "timeout"
        assert subscription.durable.endswith(".300")


# -- options --------------------------------------------------------------------------------------


def test_every_option_goes_to_the_broker(broker, client):
    with client.subscribe(
        "a", since="epoch", filter="7", rate="2X", rate_max_gap="5s", conflation="250ms",
        conflation_key=["/a", "/b"], select="-/,+/a", limit=9, paused=True,
        bookmark_not_found="epoch", bookmark_wait=3, credit=77,
    ):  # fmt: skip
        asked = broker.subscribes[-1]
    assert (asked.filter, asked.bookmark_not_found, asked.credit) == ("7", "epoch", 77)
    options = asked.options
    assert (options.rate, options.rate_max_gap_s, options.wait_s) == ("2X", 5.0, 3.0)
    assert (options.conflation_s, options.conflation_key) == (0.25, ["/a", "/b"])
    assert (options.select, options.limit, options.paused) == ("-/,+/a", 9, True)


def test_a_wrong_option_is_refused_before_anything_is_sent(broker, client):
    assert code_of(lambda: client.subscribe("a", rate="fast")) == "bad_field"
    assert broker.subscribes == []
