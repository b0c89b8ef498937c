"""Subscriptions that are resumed together and read in the order of the log."""

from __future__ import annotations

import pytest

from tests.client.fakes import WAIT_S as T
from zbroker.client import connect
from zbroker.errors import ZBrokerError


@pytest.fixture
def mixed(client):
    """The log holds 300 messages of topics a, b and c, by turns of different lengths."""
    rows = [("abcaabbc"[i % 8], b"%d" % i) for i in range(300)]
    for topic, data in rows:
        client.publish(topic, data)
    client.flush(T)
    return rows


def begin(client, topics="abc", **options):
    wishes = {"since": "epoch", "until": "now", "paused": True, **options}
    return [client.subscribe(topic, **wishes) for topic in topics]


def test_messages_come_in_the_order_of_the_log(client, mixed):
    many = begin(client)
    together = client.resume(many, timeout=T)
    assert together.combined == many
    got = [(one.topic, message.data) for one, message in together]
    assert got == mixed
    assert together.next(T) is None
    assert together.combined == []


def test_they_share_one_connection_and_one_command(broker, client, mixed):
    together = client.resume(begin(client, until=None), timeout=T)  # without an end they stay
    (command,) = broker.asked
    assert len(command.sids) == len(set(command.sids)) == len(together.subscriptions) == 3
    assert len({rid for rid, _ in broker._subscriptions}) == 1


def test_next_gives_pairs(client, mixed):
    many = begin(client, "ab")
    together = client.resume(many, timeout=T)
    one, message = together.next(T)
    assert (one.topic, message.data) == mixed[0]
    assert one.bookmark == message.bookmark


def test_the_order_holds_over_restarts(broker, client, mixed):
    together = client.resume(begin(client, credit=60), timeout=T)
    got = []
    for one, message in together:
        got.append((one.topic, message.data))
        if len(got) in (40, 41, 200):
            broker.restart()
    assert got == mixed


def test_after_a_restart_they_are_resumed_together_again(broker, client, mixed):
    many = begin(client, until=None)
    together = client.resume(many, timeout=T)
    got = [together.next(T)[1].data for _ in range(300)]
    broker.restart()
    broker.append("b", b"new")
    one, message = together.next(T)
    assert (one.topic, message.data) == ("b", b"new")
    assert together.combined == many
    last = broker.subscribes[-3:]
    assert {command.options.paused for command in last} == {True}
    assert len({command.bookmark for command in last}) == 1
    assert got == [data for _, data in mixed]


def test_one_of_them_can_be_read_alone(client, mixed):
    one, other = begin(client, "ab")
    client.resume([one, other], timeout=T)
    assert [m.data for m in one] == [data for topic, data in mixed if topic == "a"]
    assert [m.data for m in other] == [data for topic, data in mixed if topic == "b"]


def test_what_is_not_read_holds_up_the_others_and_is_bounded(broker, client, mixed):
    one, other = begin(client, "ab", credit=30)
    together = client.resume([one, other], timeout=T)
    out = []  # one message comes at a time
    with pytest.raises(ZBrokerError, match="timeout"):
        out.extend((one.topic, batch[0].data) for batch in one.batches(0.3))
    waiting = sum(item.size for item in other._feed.inbox if hasattr(item, "size"))
    assert 0 < waiting <= 30 + 10
    out += [(which.topic, message.data) for which, message in together]
    assert sorted(out) == sorted(row for row in mixed if row[0] in "ab")
    assert len(set(out)) == len(out)


def test_reading_together_goes_on_where_reading_alone_stopped(client, mixed):
    one, other = begin(client, "ab")
    together = client.resume([one, other], timeout=T)
    got = [together.next(T)[1].data]
    got += [one.next(T).data, other.next(T).data]
    got += [message.data for _, message in together]
    assert sorted(got) == sorted(data for topic, data in mixed if topic in "ab")


def test_those_of_different_places_have_replays_of_their_own(client, mixed):
    one, other = begin(client, "ab", credit=60)
    one.resume(T)
    read = [one.next(T).data]
    one.pause(T)
    together = client.resume([one, other], timeout=T)
    assert together.combined == []
    pairs = [(which.topic, message.data) for which, message in together]
    for topic, before in (("a", read), ("b", [])):
        assert before + [data for name, data in pairs if name == topic] == [
            data for name, data in mixed if name == topic
        ]


def test_what_runs_is_paused_first(client, mixed):
    many = begin(client, "ab", paused=False)
    together = client.resume(many, timeout=T)
    got = sorted(message.data for _, message in together)
    assert got == sorted(data for topic, data in mixed if topic in "ab")


@pytest.mark.seed("004-70")
def test_several_are_paused_at_once(broker, client, mixed):
    many = begin(client, until=None)
    together = client.resume(many, timeout=T)
    got = [together.next(T)[1].data for _ in range(300)]
    del broker.asked[:]
    client.pause(many, timeout=T)
    assert [one.paused for one in many] == [True] * 3
    broker.append("a", b"new")
    with pytest.raises(ZBrokerError, match="timeout"):
        together.next(0.1)
    client.resume(many, timeout=T)
    assert [len(command.sids) for command in broker.asked] == [3, 3]
    assert together.next(T)[1].data == b"new"
    assert len(got) == 300


@pytest.mark.seed("004-69")
def test_one_alone_is_resumed_too(client, mixed):
    (one,) = begin(client, "a")
    together = client.resume([one, one], timeout=T)
    assert together.combined == []
    assert {which for which, _ in together} == {one}


def test_one_that_is_resumed_with_others_leaves_those_before(client, mixed):
    one, other, third = begin(client)
    before = client.resume([one, other], timeout=T)
    client.resume([one, third], timeout=T)
    assert {which for which, _ in before} == {other}


def test_the_others_go_on_when_one_is_closed(client, mixed):
    one, other = begin(client, "ab")
    together = client.resume([one, other], timeout=T)
    one.close()
    assert [message.data for which, message in together if which is other] == [
        data for topic, data in mixed if topic == "b"
    ]
    together.close()
    assert other.next(T) is None


def test_an_error_of_one_of_them_is_raised(broker, client, mixed):
    broker.corrupt = True
    together = client.resume(begin(client, "ab"), timeout=T)
    with pytest.raises(ZBrokerError, match="bad_checksum"):
        list(together)


def test_what_cannot_be_combined_is_refused(broker, client):
    for wrong in ([], [client.subscribe("a", delivery="live")]):
        with pytest.raises(ZBrokerError, match="bad_field"):
            client.resume(wrong)
    with connect(broker.url, "other", timeout=T) as other, other.subscribe("a") as foreign:
        with pytest.raises(ZBrokerError, match="bad_field"):
            client.resume([client.subscribe("a"), foreign])
        with pytest.raises(ZBrokerError, match="too_many"):
            client.pause([client.subscribe("a")] and _distinct(1_001))


def _distinct(count):
    """So many things of which no one looks closer at any."""
    return [object() for _ in range(count)]
