"""One instance that is killed and comes back, and two that know nothing of each other: what a
publisher does at the other one, what it tells, and what its store keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tests.process.load import until
from tests.process.storm_instance import Instance
from zbroker.client import Client, connect
from zbroker.client.connect_types import ConnectionState
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

T: Final = 60.0
SOME: Final = 2_000
#: what may follow what; the first one is what comes first
FOLLOWS: Final = {
    "": {"connecting"},
    "connecting": {"connecting", "logged_on", "closed"},
    "logged_on": {"broker_behind", "republished", "disconnected", "closed"},
    "broker_behind": {"republished", "disconnected", "closed"},
    "republished": {"disconnected", "closed"},
    "disconnected": {"connecting", "closed"},
}


class Reported:
    """What a client reported of its connection."""

    def __init__(self) -> None:
        self.states: list[ConnectionState] = []

    def __call__(self, state: ConnectionState) -> None:
        self.states.append(state)

    def check(self) -> None:
        """Nothing follows what it cannot follow."""
        before = ""
        for name in self.names():
            assert name in FOLLOWS[before], f"{before} -> {name} in {self.names()}"
            before = name

    def names(self) -> list[str]:
        return [state.name for state in self.states]

    def at(self, name: str) -> list[str]:
        """The URLs that this was given."""
        return [state.url for state in self.states if state.name == name]

    def wait_for(self, name: str, times: int = 1) -> None:
        until(lambda: self.names().count(name) >= times, f"{name}, {self.names()}", T)


class Numbers:
    """Publishes 0, 1, 2, ..., and knows for which publish() returned."""

    def __init__(self) -> None:
        self.returned = 0

    def publish(self, client: Client, count: int = SOME) -> None:
        for number in range(self.returned, self.returned + count):
            client.publish("t", b"%d" % number, timeout=T)
            self.returned += 1


@pytest.fixture
def a(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "a")
    yield instance
    instance.close()


@pytest.fixture
def b(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance(tmp_path / "b")
    yield instance
    instance.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def numbers_in(instance: Instance) -> list[int]:
    """What a log holds; each once and in order."""
    found = [int(message.data) for message in instance.messages()]
    assert found == sorted(set(found))
    return found


# -- one instance ---------------------------------------------------------------------------------


@pytest.mark.seed("002-05")
@pytest.mark.seed("002-06")
@pytest.mark.seed("002-36")
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_an_instance_that_comes_back_gets_what_it_lacks(
    a: Instance, store: Path, kind: Literal["memory", "directory"]
) -> None:
    reported, numbers = Reported(), Numbers()
    publish_store = "memory" if kind == "memory" else store
    with connect(a.url, "p", publish_store=publish_store, on_state=reported) as client:
        for life in range(1, 3):
            numbers.publish(client)
            a.kill()
            numbers.publish(client)
            reported.wait_for("disconnected", life)
            assert client.unpersisted >= SOME
            a.start()
            reported.wait_for("republished", life)
        client.flush(T)
    reported.check()
    assert numbers_in(a) == list(range(numbers.returned))


@pytest.mark.seed("002-15")
@pytest.mark.seed("002-30")
def test_what_a_killed_instance_did_not_acknowledge_is_published_by_the_next_client(
    a: Instance, store: Path
) -> None:
    """Both are gone: the instance, and the client that had a store in a file."""
    numbers = Numbers()
    client = connect(a.url, "p", publish_store=store)
    numbers.publish(client)
    a.kill()
    numbers.publish(client)
    with pytest.raises(ZBrokerError, match="timeout"):
        client.close(timeout=0.5)
    a.start()
    reported = Reported()
    with connect(a.url, "p", publish_store=store, on_state=reported) as client:
        reported.wait_for("republished")
        assert client.unpersisted == 0
    assert numbers_in(a) == list(range(numbers.returned))


@pytest.mark.seed("002-32")
def test_who_gives_up_says_so_and_the_store_keeps_everything(a: Instance, store: Path) -> None:
    reported, numbers = Reported(), Numbers()
    client = connect(a.url, "p", publish_store=store, give_up="1s", on_state=reported)
    numbers.publish(client)
    client.flush(T)
    a.kill()
    numbers.publish(client)
    last = client.publish("t", b"%d" % numbers.returned)
    with pytest.raises(ZBrokerError, match="gave_up"):
        last.wait(T)
    for refused in (lambda: client.publish("t", b"x"), lambda: client.flush(T)):
        with pytest.raises(ZBrokerError, match="gave_up"):
            refused()
    client.close(flush=False)
    reported.wait_for("closed")
    assert reported.states[-1].error is not None
    assert reported.states[-1].error.code == "gave_up"
    reported.check()
    a.start()
    with connect(a.url, "p", publish_store=store) as again:
        again.flush(T)
    assert numbers_in(a) == list(range(numbers.returned + 1))


# -- two instances that know nothing of each other ------------------------------------------------


@pytest.mark.seed("002-03")
@pytest.mark.seed("002-33")
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_who_goes_on_at_another_instance_loses_nothing(
    a: Instance, b: Instance, store: Path, kind: str
) -> None:
    """What A acknowledged is in A; all else is in B, where that is reported."""
    reported, numbers = Reported(), Numbers()
    options: dict[str, Any] = {} if kind == "memory" else {"publish_store": store}
    client = connect([a.url, b.url], "p", broker_behind="go_on", on_state=reported, **options)
    with client:
        numbers.publish(client)
        client.flush(T)
        numbers.publish(client)
        a.kill()
        numbers.publish(client)
        reported.wait_for("broker_behind")
        numbers.publish(client)
        client.flush(T)
        assert client.url == b.url
    reported.check()
    assert (reported.at("logged_on"), reported.at("broker_behind")) == ([a.url, b.url], [b.url])
    behind = next(state.error for state in reported.states if state.name == "broker_behind")
    assert behind is not None
    assert behind.code == "broker_behind"
    a.start()
    at_a, at_b = numbers_in(a), numbers_in(b)
    assert at_a == list(range(len(at_a)))
    assert at_b == list(range(at_b[0], numbers.returned))
    assert SOME <= at_b[0] <= len(at_a)


@pytest.mark.long
def test_who_goes_to_and_fro_has_each_message_in_one_of_them(a: Instance, b: Instance) -> None:
    """A -> B -> A -> B: the numbers go on above what each of them holds."""
    reported, numbers = Reported(), Numbers()
    client = connect([a.url, b.url], "p", broker_behind="go_on", on_state=reported)
    with client:
        for instance, other in ((a, b), (b, a), (a, b)):
            numbers.publish(client)
            client.flush(T)
            assert client.url == instance.url
            instance.kill()
            numbers.publish(client)
            client.flush(T)
            assert client.url == other.url
            instance.start()
    reported.check()
    assert reported.at("logged_on") == [a.url, b.url, a.url, b.url]
    assert reported.at("broker_behind") == [b.url, a.url, b.url]
    assert set(numbers_in(a)) | set(numbers_in(b)) == set(range(numbers.returned))


def test_who_does_not_want_to_go_on_is_warned_loudly(a: Instance, b: Instance) -> None:
    reported, numbers = Reported(), Numbers()
    client = connect([a.url, b.url], "p", on_state=reported)
    numbers.publish(client)
    client.flush(T)
    a.kill()
    numbers.publish(client)
    with pytest.raises(ZBrokerError, match="broker_behind"):
        client.flush(T)
    client.close(flush=False)
    reported.wait_for("closed")
    assert reported.states[-1].error is not None
    assert (reported.states[-1].error.code, reported.states[-1].url) == ("broker_behind", b.url)
    reported.check()
    assert numbers_in(b) == []


@pytest.mark.long
def test_what_another_instance_was_refused_is_published_by_the_next_client_at_the_first_one(
    a: Instance, b: Instance, store: Path
) -> None:
    numbers = Numbers()
    client = connect([a.url, b.url], "p", publish_store=store)
    numbers.publish(client)
    client.flush(T)
    a.kill()
    numbers.publish(client)
    with pytest.raises(ZBrokerError, match="broker_behind"):
        client.flush(T)
    client.close(flush=False)
    with pytest.raises(ZBrokerError, match="broker_behind"):  # as long as there is B only
        connect([a.url, b.url], "p", publish_store=store)
    a.start()
    with connect([a.url, b.url], "p", publish_store=store) as again:
        numbers.publish(again)
        again.flush(T)
    assert numbers_in(a) == list(range(numbers.returned))
    assert numbers_in(b) == []
