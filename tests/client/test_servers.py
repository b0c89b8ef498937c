"""Which broker is tried, by a list and by a chooser of the user."""

from __future__ import annotations

import pytest

from tests.client.fakes import WAIT_S as T
from tests.client.fakes import FakeBroker
from zbroker.client import ListChooser, connect
from zbroker.errors import ZBrokerError

A, B, C = (f"tcp://127.0.0.1:{port}" for port in (1, 2, 3))


def test_a_list_stays_with_what_works_and_goes_on_in_a_circle():
    chooser = ListChooser([A, B, C])
    assert [chooser.choose(), chooser.choose()] == [A, A]
    chooser.connected(A)
    tried = []
    for _ in range(4):
        chooser.failed(chooser.choose(), None)
        tried.append(chooser.choose())
    assert tried == [B, C, A, B]


def test_a_failure_of_another_url_changes_nothing():
    chooser = ListChooser([A, B])
    chooser.failed(B, None)
    assert chooser.choose() == A


@pytest.mark.parametrize("urls", [[], ["nonsense"], [A, "http://x"]])
def test_urls_are_checked_at_once(urls):
    with pytest.raises(ZBrokerError, match="bad_field" if not urls else "bad_url"):
        ListChooser(urls)


def test_what_a_chooser_of_the_users_gives_is_checked_too(caplog):
    class Wrong:
        def choose(self):
            return "http://127.0.0.1:1"

        def connected(self, url):
            pass

        def failed(self, url, error):
            pass

    with pytest.raises(ZBrokerError, match="bad_url"):
        connect(Wrong(), "pricer", timeout=T)
    assert "Traceback" not in caplog.text


@pytest.fixture
def other():
    with FakeBroker() as fake:
        yield fake


@pytest.mark.seed("002-17")
def test_the_next_one_is_tried_when_the_first_is_not_there(broker):
    with connect([A, broker.url], "pricer", timeout=T) as client:
        assert client.url == broker.url
        client.publish("t", b"1").wait(T)


@pytest.mark.seed("002-17")
@pytest.mark.seed("002-33")
def test_what_is_not_acknowledged_goes_to_the_next_one_in_order(broker, other):
    broker.hold = True
    with connect([broker.url, other.url], "pricer", timeout=T) as client:
        receipts = [client.publish("t", b"%d" % number) for number in range(300)]
        broker.stop()
        client.publish("t", b"300").wait(T)
        assert client.url == other.url
        assert [row[3] for row in other.log] == [b"%d" % number for number in range(301)]
        assert all(receipt.persisted for receipt in receipts)
        assert {row[1] for row in other.log} == {
            receipts[0].sequence + number for number in range(301)
        }


def test_a_broker_that_lacks_what_was_acknowledged_ends_the_client(broker, other):
    client = connect([broker.url, other.url], "pricer", timeout=T)
    client.publish("t", b"1").wait(T)
    broker.stop()
    receipt = client.publish("t", b"2")
    with pytest.raises(ZBrokerError, match=r"broker_behind.*go_on"):
        receipt.wait(T)
    with pytest.raises(ZBrokerError, match="broker_behind"):
        client.close()
    assert other.log == []


def test_the_user_may_go_on_without_it(broker, other):
    seen = []
    with connect(
        [broker.url, other.url], "pricer", timeout=T, broker_behind="go_on", on_state=seen.append
    ) as client:
        first = client.publish("t", b"1")
        first.wait(T)
        broker.stop()
        client.publish("t", b"2").wait(T)
        assert [row[3] for row in other.log] == [b"2"]
        broker.start()
        other.stop()
        client.publish("t", b"3").wait(T)
    assert [row[3] for row in broker.log] == [b"1", b"3"]
    behind = [state for state in seen if state.name == "broker_behind"]
    assert [(state.url, state.error.code) for state in behind] == [
        (other.url, "broker_behind"),
        (broker.url, "broker_behind"),
    ]
    assert str(first.sequence) in behind[0].error.reason


class Recording:
    """A chooser of the user."""

    def __init__(self, urls):
        self.urls = list(urls)
        self.calls = []

    def choose(self):
        return self.urls[0]

    def connected(self, url):
        self.calls.append(("connected", url))

    def failed(self, url, error):
        self.calls.append(("failed", url, error.code if error else None))
        self.urls.append(self.urls.pop(0))


def test_a_chooser_of_the_user_learns_what_became_of_each(broker, other):
    broker.logon_code = "too_many"
    chooser = Recording([broker.url, other.url])
    with connect(chooser, "pricer", timeout=T) as client:
        assert client.url == other.url
    assert chooser.calls == [("failed", broker.url, "too_many"), ("connected", other.url)]


def test_a_subscription_follows_its_client(broker, other):
    """What was read at the one is not asked of the other again."""
    with connect([broker.url, other.url], "pricer", timeout=T, broker_behind="go_on") as client:
        client.publish("t", b"1").wait(T)
        other.do(lambda: other.log.extend(broker.log))
        subscription = client.subscribe("t", since="epoch")
        assert subscription.next(T).data == b"1"
        broker.stop()
        client.publish("t", b"2").wait(T)
        assert subscription.next(T).data == b"2"
        assert other.subscribes[0].bookmark is not None
