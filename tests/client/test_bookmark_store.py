"""Named subscriptions: where they begin, what they discard, what comes again."""

from __future__ import annotations

import threading

import pytest

import zbroker
from tests.client.fakes import HERE, wait_until
from tests.client.fakes import WAIT_S as T
from zbroker.client import connect
from zbroker.errors import ZBrokerError
from zbroker.ids import EPOCH, format_vector, is_vector, parse_vector
from zbroker.local import LocalBroker


@pytest.fixture
def store():
    return zbroker.MemoryBookmarkStore()


@pytest.fixture
def client(broker, store):
    one = connect(broker.url, "pricer", timeout=T, bookmark_store=store)
    yield one
    one.close(flush=False)


def recent(client, **options):
    return client.subscribe("a", since="recent", name="s", **options)


def vector(position):
    return format_vector({HERE: position})


def read(subscription, count):
    return [subscription.next(T) for _ in range(count)]


def data(messages):
    return [message.data for message in messages]


# -- where it begins ------------------------------------------------------------------------------


@pytest.mark.seed("004-51")
def test_recent_begins_at_epoch_if_nothing_is_stored(broker, client, numbered):
    with recent(client, until="now") as subscription:
        assert data(subscription) == numbered
    assert broker.subscribes[0].bookmark == EPOCH


@pytest.mark.seed("002-29")
@pytest.mark.seed("004-50")
def test_recent_goes_on_after_what_was_processed(broker, client, store, numbered):
    with recent(client) as subscription:
        for message in subscription:
            if message.data == b"149":
                break
    assert store.recent("pricer", "s") == vector(149), "the last one was in hand"
    with recent(client, until="now") as subscription:
        assert data(subscription) == numbered[149:]
    assert store.recent("pricer", "s") == vector(300)


@pytest.mark.seed("004-52")
def test_recent_is_never_sent(broker, client, numbered):
    client.publish_many("a", numbered * 2)
    client.flush(T)
    for _ in range(2):
        with recent(client, credit=60) as subscription:
            read(subscription, 110)
            broker.restart()
            read(subscription, 300)
    sent = [command.bookmark for command in broker.subscribes]
    assert len(set(sent)) >= 3
    assert all(text == EPOCH or is_vector(text) for text in sent)


def test_recent_is_no_point_of_a_range_nor_an_end(client):
    for options in ({"since": "[recent:now]"}, {"since": "epoch", "until": "recent"}):
        with pytest.raises(ZBrokerError, match="bad_bookmark"):
            client.subscribe("a", name="s", **options)
    with pytest.raises(ZBrokerError, match="bad_bookmark"):
        client.ranges(since="recent")


def test_another_begin_replaces_what_was_stored(client, store, numbered):
    with recent(client) as subscription:
        read(subscription, 100)
    with client.subscribe("a", since=vector(9), name="s") as subscription:
        assert data(read(subscription, 3)) == numbered[9:12]
    assert store.recent("pricer", "s") == vector(11)


def test_a_begin_at_now_is_stored_at_once(client, store, numbered):
    client.subscribe("a", since="now", name="s").close()
    assert store.recent("pricer", "s") == vector(300)


def test_a_subscribe_that_is_refused_keeps_what_was_stored(client, store, numbered):
    with recent(client) as subscription:
        read(subscription, 11)
    for options in ({"since": "recent"}, {"since": "epoch"}):
        with pytest.raises(ZBrokerError, match="bookmark_not_found"):
            client.subscribe("forbidden", name="s", **options)
        assert store.recent("pricer", "s") == vector(10)


def test_what_was_passed_without_a_match_is_not_read_again(client, store, numbered):
    with recent(client, until="now", filter="29") as subscription:
        assert data(subscription)[-1] == b"299"
    with client.subscribe("b", since="recent", name="other", until="now") as subscription:
        assert list(subscription) == []
    assert store.recent("pricer", "other") == vector(300)


def test_names_and_clients_are_parted(broker, client, store, numbered):
    with recent(client) as one, client.subscribe("a", since="recent", name="t") as other:
        read(one, 3)
        read(other, 6)
    with connect(broker.url, "trader", timeout=T, bookmark_store=store) as trader:
        with recent(trader) as subscription:
            read(subscription, 9)
        found = [store.recent(*key) for key in (("pricer", "s"), ("pricer", "t"), ("trader", "s"))]
    assert found == [vector(2), vector(5), vector(8)]


def test_a_forgotten_subscription_begins_at_epoch(client, store, numbered):
    with recent(client) as subscription:
        read(subscription, 100)
    store.forget("pricer", "s")
    with recent(client) as subscription:
        assert data(read(subscription, 1)) == numbered[:1]


# -- discarding -----------------------------------------------------------------------------------


def test_a_message_is_discarded_when_the_next_is_asked_for(client, store, numbered):
    with recent(client) as subscription:
        for count, _ in enumerate(subscription):
            assert store.recent("pricer", "s") == vector(count)
            if count == 250:
                break
        subscription.next(T)
        assert store.recent("pricer", "s") == vector(251)


def test_a_batch_is_discarded_when_the_next_is_asked_for(client, store, numbered):
    subscription, out = recent(client, until="now"), 0
    for batch in subscription.batches(T):
        assert store.recent("pricer", "s") == vector(out)
        out += len(batch)
    assert store.recent("pricer", "s") == vector(300)


def test_what_was_not_handed_out_when_it_was_closed_comes_again(client, store, numbered):
    with recent(client) as subscription:
        out = []
        for message in subscription:
            out.append(message)
            if message.data == b"4":
                subscription.close()
    assert data(out) == numbered[:5]
    assert store.recent("pricer", "s") == vector(5), "the loop went on after the fifth"


def test_a_batch_after_which_it_was_closed_is_discarded(client, store, numbered):
    subscription = recent(client)
    (batch,) = closing(subscription)
    assert store.recent("pricer", "s") == vector(len(batch))


def closing(subscription):
    for batch in subscription.batches(T):
        subscription.close()
        yield batch


def test_waiting_for_the_next_discards_the_last(client, store, numbered):
    with recent(client) as subscription:
        read(subscription, 300)
        with pytest.raises(ZBrokerError, match="timeout"):
            subscription.next(0.01)
        assert store.recent("pricer", "s") == vector(300)


def test_a_message_that_a_handler_handled_is_discarded(client, store, numbered):
    def fail(message):
        if message.data == b"77":
            raise ValueError

    failing = recent(client, handler=fail)
    with pytest.raises(ValueError):  # noqa: PT011
        failing.join(T)
    assert store.recent("pricer", "s") == vector(77), "the 78th message was not handled"
    out = []
    with recent(client, handler=out.append):
        wait_until(lambda: store.recent("pricer", "s") == vector(300))
    assert data(out) == numbered[77:]


def test_a_handler_that_closes_its_subscription_has_handled_the_message(client, store, numbered):
    begun = threading.Event()

    def close(message):
        begun.wait(T)
        if message.data == b"4":
            subscription.close()

    subscription = recent(client, handler=close)
    begun.set()
    subscription.join(T)
    assert store.recent("pricer", "s") == vector(5)


def test_by_hand_nothing_is_discarded_by_itself(client, store, numbered):
    with recent(client, until="now", discard="manual") as subscription:
        messages = list(subscription)
    assert store.recent("pricer", "s") == vector(0)
    subscription.discard(messages[0])
    assert store.recent("pricer", "s") == vector(1), "it may come late"


def test_what_was_discarded_out_of_order_does_not_come_again(client, store, numbered):
    with recent(client, discard="manual") as subscription:
        messages = read(subscription, 250)
        for message in [*messages[:10], *messages[11:100], *messages[101:240]]:
            subscription.discard(message)
    assert store.recent("pricer", "s") == vector(10)
    with recent(client, until="now") as subscription:
        assert data(subscription) == [numbered[10], numbered[100], *numbered[240:]]
    assert store.recent("pricer", "s") == vector(300)


def test_a_reconnect_brings_neither_again_nor_less(broker, client, store, numbered):
    with recent(client, discard="manual", credit=60) as subscription:
        messages = read(subscription, 50)
        for message in messages[5:]:
            subscription.discard(message)
        broker.restart()
        messages += read(subscription, 250)
    assert data(messages) == numbered


def test_by_hand_in_auto_mode_too(client, store, numbered):
    with recent(client) as subscription:
        for message in subscription:
            if message.data == b"9":
                subscription.discard(message)
                break
    assert store.recent("pricer", "s") == vector(10)


def test_combined_subscriptions_keep_their_places(client, store, numbered):
    client.publish_many("b", [b"%d" % i for i in range(10)])
    client.flush(T)
    many = [
        client.subscribe(topic, since="recent", name=topic, until="now", paused=True)
        for topic in "ab"
    ]
    assert len(list(client.resume(many, timeout=T))) == 310
    assert [store.recent("pricer", topic) for topic in "ab"] == [vector(310)] * 2


@pytest.mark.parametrize("reading", ["iterating", "next"])
def test_combined_subscriptions_discard_message_by_message(client, store, numbered, reading):
    many = {
        name: client.subscribe("a", since="recent", name=name, until="now", paused=True)
        for name in "st"
    }
    together = client.resume(many.values(), timeout=T)
    handed = iter(together) if reading == "iterating" else iter(lambda: together.next(T), None)
    done = [next(handed) for _ in range(30)][:-1]
    for name, subscription in many.items():
        last = max((message.position for one, message in done if one is subscription), default=0)
        assert store.recent("pricer", name) == vector(last)
    together.close()


def test_live_delivery_stores_durable_points_only(client, store, numbered):
    with recent(client, delivery="live") as subscription:
        read(subscription, 250)
        assert store.recent("pricer", "s") == vector(0)
        read(subscription, 50)
        wait_until(lambda: not _timed_out(subscription) and subscription.caught_up)
        assert store.recent("pricer", "s") == vector(300)


def _timed_out(subscription):
    """Takes what the broker reported; False once it was a while silent."""
    with pytest.raises(ZBrokerError, match="timeout"):
        subscription.next(0.01)
    return False


@pytest.mark.process
@pytest.mark.parametrize("options", [{}, {"delivery": "live"}, {"conflation": "1ms"}])
def test_the_place_moves_on_with_what_is_durable_also_where_nothing_matches(store, options):
    with (
        LocalBroker() as broker,
        connect(broker.url, "pricer", bookmark_store=store) as client,
        recent(client, **options) as subscription,
    ):
        client.publish("a", b"wanted").wait(T)
        wanted = subscription.next(T)
        client.publish_many("b", [b"other"] * 10)
        client.flush(T)
        last = format_vector({wanted.origin: wanted.position + 10})
        wait_until(lambda: not _timed_out(subscription) and reached(store, last))


def reached(store, last):
    """The place is there or after it."""
    found, wanted = parse_vector(store.recent("pricer", "s")), parse_vector(last)
    return all(found[origin] >= position for origin, position in wanted.items())


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"since": "recent"},
        {"discard": "manual"},
        {"name": "s", "discard": "later"},
        {"name": ""},
        {"name": "a\nb"},
        {"name": 7},
    ],
)
def test_what_does_not_fit_is_refused(client, options):
    with pytest.raises(ZBrokerError, match="bad_field"):
        client.subscribe("a", **options)


def test_a_name_needs_a_store(broker):
    with (
        connect(broker.url, "other", timeout=T) as other,
        pytest.raises(ZBrokerError, match="bookmark_store"),
    ):
        other.subscribe("a", since="recent", name="s")


def test_a_store_needs_a_client_with_a_name(broker, store):
    with pytest.raises(ZBrokerError, match="bad_field"):
        connect(broker.url, bookmark_store=store)
    with pytest.raises(TypeError):
        connect(broker.url, "pricer", bookmark_store=7)


def test_a_name_is_open_once(client):
    with recent(client), pytest.raises(ZBrokerError, match="name_in_use"):
        recent(client)
    recent(client).close()


def test_discarding_needs_a_name(client, numbered):
    with client.subscribe("a", since="epoch") as subscription:
        message = subscription.next(T)
        with pytest.raises(ZBrokerError, match="bad_field"):
            subscription.discard(message)


def test_discarding_into_a_closed_store_is_reported(client, store, numbered):
    with recent(client) as subscription:
        message = subscription.next(T)
        store.close()
        with pytest.raises(ZBrokerError, match="closed"):
            subscription.discard(message)
