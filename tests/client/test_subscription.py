"""Subscriptions over sockets: reading, ends, and listeners that come and go."""

from __future__ import annotations

import pytest

from tests.client.fakes import HERE, wait_until
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector

T = 10.0


@pytest.fixture
def filled(broker, client):
    """1,000 messages, every tenth of another topic."""
    for i in range(1_000):
        client.publish("rest" if i % 10 == 9 else "a", b"%d" % i)
    client.flush(T)
    return [b"%d" % i for i in range(1_000) if i % 10 != 9]


@pytest.mark.seed("004-04")
def test_a_range_is_read_to_its_end(client, filled):
    with client.subscribe("a", since="epoch", until="now") as subscription:
        assert [message.data for message in subscription] == filled
    assert subscription.caught_up


def test_batches_give_the_same_messages(client, filled):
    batches = list(client.subscribe("a", since="epoch", until="now").batches(timeout=T))
    assert len(batches) >= 10
    assert [message.data for batch in batches for message in batch] == filled


@pytest.mark.seed("004-47")
def test_a_live_subscription_gets_what_comes_after_it(broker, client, filled):
    with client.subscribe("a") as subscription:
        client.publish("a", b"new")
        assert subscription.next(T).data == b"new"


def test_waiting_for_nothing_times_out_and_goes_on(broker, client):
    with client.subscribe("a") as subscription:
        with pytest.raises(ZBrokerError) as raised:
            subscription.next(0.05)
        assert raised.value.code == "timeout"
        broker.append("a", b"1")
        assert subscription.next(T).data == b"1"


def test_an_iteration_that_was_left_goes_on_with_the_next_message(client, filled):
    with client.subscribe("a", since="epoch", until="now") as subscription:
        out = []
        for message in subscription:
            out.append(message.data)
            if len(out) == 5:
                break
        out.append(subscription.next(T).data)
        for batch in subscription.batches(timeout=T):
            out += [message.data for message in batch]
            break
        out += [message.data for message in subscription]
    assert out == filled


@pytest.mark.seed("004-42")
def test_the_vector_is_that_of_the_message_in_hand(client, filled):
    with client.subscribe("a", since="epoch", until="now") as subscription:
        for message in subscription:
            assert subscription.vector == format_vector({HERE: message.position})
            assert (subscription.position, subscription.bookmark) == (
                message.position,
                message.bookmark,
            )
            if message.data == b"500":
                break
        vector = subscription.vector
    with client.subscribe("a", since=vector, until="now") as rest:
        assert next(iter(rest)).data == b"501"


def test_a_message_tells_where_it_is_from(client, filled):
    with client.subscribe("rest", since="epoch", until="now") as subscription:
        messages = list(subscription)
    assert [m.position for m in messages] == list(range(10, 1_001, 10))
    assert {m.topic for m in messages} == {"rest"}
    assert {m.publisher for m in messages} == {client.publisher}


def test_credit_is_given_back(broker, client, filled):
    with client.subscribe("a", since="epoch", until="now", credit=500) as subscription:
        received = sum(1 for _ in subscription)
    assert received == len(filled)
    wait_until(lambda: broker.flows)
    assert min(broker.flows) >= 250


def test_a_refused_subscription_raises_the_brokers_code(client):
    with pytest.raises(ZBrokerError) as raised:
        client.subscribe("forbidden")
    assert raised.value.code == "bookmark_not_found"


def test_a_damaged_batch_is_an_error(broker, client, filled):
    broker.corrupt = True
    with (
        client.subscribe("a", since="epoch", until="now") as subscription,
        pytest.raises(ZBrokerError, match="bad_checksum"),
    ):
        subscription.next(T)


def read(subscription, count):
    return [subscription.next(T).data for _ in range(count)]


@pytest.mark.seed("004-06")
def test_a_restarted_broker_neither_repeats_nor_skips(broker, client, filled):
    with client.subscribe("a", since="epoch") as subscription:
        out = read(subscription, 450)
        broker.restart()
        out += read(subscription, 450)
        broker.restart()
        broker.append("a", b"new")
        out += read(subscription, 1)
    assert out == [*filled, b"new"]


def test_a_live_subscription_misses_nothing_while_its_listener_is_closed(broker, client, filled):
    with client.subscribe("a") as subscription:
        broker.stop()
        broker.log.append((1, 1, "a", b"meanwhile", None))
        broker.start()
        assert subscription.next(T).data == b"meanwhile"


def test_a_listener_that_forgot_the_client_is_informed_again(broker, client, filled):
    with client.subscribe("a", since="epoch", credit=200) as subscription:
        out = read(subscription, 100)
        broker.forget()
        out += read(subscription, 800)
    assert out == filled


def test_an_expired_token_is_replaced(broker, client, filled):
    with client.subscribe("a", since="epoch") as subscription:
        out = read(subscription, 10)
        broker.token = "t2"
        broker.restart()
        out += read(subscription, 890)
    assert out == filled


def test_ranges_are_asked_at_the_listener(client, filled):
    answer = client.ranges(timeout=T)
    assert (answer.instance, answer.ranges) == (HERE.instance, [(1, 1_001, 10)])


def test_ranges_replace_an_expired_token(broker, client, filled):
    broker.token = "t2"
    assert client.ranges(timeout=T).persisted == 1_001


def test_a_closed_subscription_ends(client):
    subscription = client.subscribe("a")
    subscription.close()
    assert list(subscription) == []
    assert subscription.next() is None


# -- topics that are not recorded -------------------------------------------------------------


def test_a_plain_subscription_gets_what_is_not_recorded(broker, client):
    broker.unrecorded = {"a"}
    with client.subscribe("a") as subscription:
        sent = client.publish("a", b"1")
        message = subscription.next(T)
        assert (message.data, message.recorded, message.position) == (b"1", False, 0)
        assert (message.bookmark, message.sequence) == ("", sent.sequence)
        assert (subscription.position, subscription.bookmark) == (None, None)
    assert broker.subscribes[-1].bookmark is None


def test_where_it_is_does_not_move_with_unrecorded_messages(broker, client):
    with client.subscribe("a") as subscription:
        client.publish("a", b"kept")
        kept = subscription.next(T)
        broker.unrecorded = {"a"}
        client.publish("a", b"live")
        assert subscription.next(T).data == b"live"
        assert (subscription.position, subscription.bookmark) == (kept.position, kept.bookmark)
        assert subscription.vector == format_vector({HERE: kept.position})


def test_a_plain_subscription_that_resumes_gets_both_kinds_again(broker, client):
    with client.subscribe("a") as subscription:
        broker.stop()
        broker.log.append((1, 1, "a", b"meanwhile", None))
        broker.start()
        assert subscription.next(T).data == b"meanwhile"
        assert (broker.subscribes[-1].bookmark, broker.subscribes[-1].unrecorded) == (
            format_vector({HERE: 0}),
            True,
        )
        broker.unrecorded = {"a"}
        client.publish("a", b"live")
        assert subscription.next(T).data == b"live"


@pytest.mark.seed("004-35")
@pytest.mark.parametrize("wishes", [{"since": "now"}, {"since": "epoch"}, {"until": "now"}])
def test_with_a_bookmark_only_what_is_recorded_is_asked_for(broker, client, wishes):
    with client.subscribe("a", **wishes):
        assert broker.subscribes[-1].unrecorded is False
