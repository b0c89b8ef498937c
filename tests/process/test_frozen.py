"""Frozen processes and dead links: with heartbeats both sides notice, and all goes on by itself.

A wait of NOTICED_S is what tells a heartbeat of INTERVAL_S from none: without one it takes the
defaults of zbroker/sockets.py up to eight seconds.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.process.load import until
from tests.process.proxy import SETTINGS, Proxy, Way
from zbroker.client import Client, connect
from zbroker.client.message import Message
from zbroker.control.target import get
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

INTERVAL_S = 1.0
NOTICED_S = 6.0  # two intervals, and what a busy machine adds
WAIT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def listeners(broker: LocalBroker) -> Iterator[dict[str, Proxy]]:
    """A proxy before each listener, while a test lasts."""
    reported = {
        listener: at.replace("127.0.0.2", "127.0.0.1")
        for listener, at in reported_by(broker).items()
    }
    with Proxy(reported["ingest"]) as ingest, Proxy(reported["delivery"]) as delivery:
        yield {"ingest": ingest, "delivery": delivery}


def reported_by(broker: LocalBroker) -> dict[str, str]:
    endpoints: dict[str, str] = broker.status()["endpoints"]
    return endpoints


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing, and goes on after this, whatever happens."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Traffic:
    """Numbers that one client publishes and another one reads: each once, in order."""

    def __init__(self, listeners: dict[str, Proxy], topic: str) -> None:
        url = listeners["ingest"].url
        self.topic = topic
        self.sent = 0
        self.seen: list[int] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self.writer = connect(url, f"writer of {topic}", heartbeat=INTERVAL_S)
        self.reader = connect(url, f"reader of {topic}", heartbeat=INTERVAL_S)
        self.subscription = self.reader.subscribe(topic, since="epoch", handler=self.read)
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()
        until(lambda: len(self.seen) > 10, "it flows", WAIT_S)

    def _publish(self) -> None:
        try:
            while not self._stop.wait(0.002):
                self.writer.publish(self.topic, b"%d" % self.sent, timeout=WAIT_S)
                self.sent += 1
        except BaseException as error:
            self.errors.append(error)

    def read(self, message: Message) -> None:
        self.seen.append(int(message.data))

    def finish(self) -> None:
        """All that was published is in the log once and arrived once, in order."""
        self._stop.set()
        self._thread.join(WAIT_S)
        self.writer.flush(WAIT_S)
        assert not self.errors, self.errors
        until(lambda: len(self.seen) >= self.sent, f"{self.sent} arrive", WAIT_S)
        wanted = list(range(self.sent))
        assert self.seen == wanted
        found = self.reader.subscribe(self.topic, since="epoch", until="now")
        assert [int(message.data) for message in found] == wanted

    def close(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        self.subscription.close()
        self.reader.close(flush=False)
        self.writer.close(flush=False)


@pytest.fixture
def traffic(listeners: dict[str, Proxy]) -> Iterator[Traffic]:
    made = Traffic(listeners, f"t{secrets.token_hex(4)}")
    try:
        yield made
    finally:
        for proxy in listeners.values():
            proxy.go_on()
        made.close()


def accepted(listeners: dict[str, Proxy]) -> int:
    return sum(proxy.accepted for proxy in listeners.values())


# -- frozen brokers -------------------------------------------------------------------------------


@pytest.mark.seed("002-38")
@pytest.mark.parametrize("name", ["ingest", "delivery"])
def test_a_frozen_listener_is_left_and_all_goes_on_when_it_thaws(
    broker: LocalBroker, listeners: dict[str, Proxy], traffic: Traffic, name: str
) -> None:
    before = listeners[name].accepted
    with stopped(broker.pids[name]):
        until(lambda: listeners[name].accepted > before, "the client notices", NOTICED_S)
    traffic.finish()


def test_a_frozen_journal_is_waited_for(
    broker: LocalBroker, listeners: dict[str, Proxy], traffic: Traffic
) -> None:
    """The listeners live: no connection is given up for it."""
    before = accepted(listeners)
    with stopped(broker.pids["journal"]):
        time.sleep(3 * INTERVAL_S)
        assert accepted(listeners) == before
    traffic.finish()


# -- dead links -----------------------------------------------------------------------------------


@pytest.mark.seed("002-38")
@pytest.mark.seed("002-40")
@pytest.mark.parametrize("way", ["to broker", "to client"])
@pytest.mark.parametrize("listener", ["ingest", pytest.param("delivery", marks=pytest.mark.long)])
def test_a_link_that_is_dead_in_one_direction_is_noticed_and_left(
    listeners: dict[str, Proxy], traffic: Traffic, listener: str, way: Way
) -> None:
    before = listeners[listener].accepted
    listeners[listener].stop(way)
    until(lambda: listeners[listener].accepted > before, "the client notices", NOTICED_S)
    listeners[listener].go_on()
    traffic.finish()


def test_a_link_that_is_cut_is_made_again(listeners: dict[str, Proxy], traffic: Traffic) -> None:
    before = accepted(listeners)
    for proxy in listeners.values():
        proxy.cut()
    until(lambda: accepted(listeners) >= before + 3, "three connections are made again", NOTICED_S)
    traffic.finish()


def test_a_slow_link_is_no_dead_one(listeners: dict[str, Proxy], traffic: Traffic) -> None:
    before = accepted(listeners)
    for proxy in listeners.values():
        proxy.delay_s = INTERVAL_S / 4
    time.sleep(3 * INTERVAL_S)
    assert accepted(listeners) == before
    for proxy in listeners.values():
        proxy.delay_s = 0.0
    traffic.finish()


# -- frozen clients -------------------------------------------------------------------------------

PUBLISHER = """
import sys, zbroker
from zbroker.errors import ZBrokerError
client = zbroker.connect(sys.argv[1], "frozen", heartbeat=float(sys.argv[2]))
client.publish("frozen", b"1").wait(30)
print("ready", flush=True)
sys.stdin.readline()
try:
    client.publish("frozen", b"2").wait(30)
    print("published", flush=True)
except ZBrokerError as error:
    print(error.code, flush=True)
client.close(flush=False)
"""

SUBSCRIBER = """
import sys, zbroker
client = zbroker.connect(sys.argv[1], "cold reader", heartbeat=float(sys.argv[2]))
numbers = client.subscribe("cold", since="epoch")
print("ready", flush=True)
for number in range(200):
    assert int(numbers.next(30).data) == number, number
    if number == 99:
        print("half", flush=True)
print("all", flush=True)
client.close(flush=False)
"""

#: in a C function that keeps the interpreter's lock: no thread of this process runs Python
COMPUTING = """
import ctypes, sys, zbroker
client = zbroker.connect(sys.argv[1], "busy", heartbeat=float(sys.argv[2]))
numbers = client.subscribe("busy")
print("ready", flush=True)
ctypes.PyDLL(None).usleep(int(4_000_000 * float(sys.argv[2])))
print("computed", flush=True)
client.publish("busy", b"done").wait(30)
assert bytes(numbers.next(30).data) == b"done"
print("went on", flush=True)
sys.stdin.readline()
client.close(flush=False)
"""


class Program:
    """A client in a process of its own."""

    def __init__(self, text: str, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", text, url, str(INTERVAL_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.said += (line.strip() for line in iter(self._process.stdout.readline, ""))

    def until_said(self, word: str) -> None:
        until(lambda: word in self.said, f"{word!r} is said, not only {self.said}", WAIT_S)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()  # also ends one that is stopped
        self._process.wait()
        self._reader.join(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()


def subscribers(broker: LocalBroker) -> list[str]:
    """Names of the clients that have a subscription."""
    rows: list[dict[str, Any]] = get(reported_by(broker)["admin"], "/subscriptions")[
        "subscriptions"
    ]
    return [row["client"] for row in rows]


def takes_over(url: str, name: str) -> Client | None:
    """A client with that name, if it is free."""
    try:
        return connect(url, name, heartbeat=INTERVAL_S)
    except ZBrokerError as error:
        if error.code != "name_in_use":
            raise
        return None


@pytest.mark.seed("002-42")
def test_the_name_of_a_frozen_client_is_free_for_another(
    broker: LocalBroker, listeners: dict[str, Proxy]
) -> None:
    url, taken = listeners["ingest"].url, []
    with Program(PUBLISHER, url) as program:
        program.until_said("ready")
        assert takes_over(url, "frozen") is None, "it lives"
        with stopped(program.pid):
            until(lambda: taken.append(takes_over(url, "frozen")) or taken[-1], "free", NOTICED_S)
            taken[-1].publish("frozen", b"of the other").wait(WAIT_S)
        program.go()
        until(lambda: len(program.said) == 2, "it is reported", WAIT_S)
        assert program.said[1] in {"session_ended", "name_in_use"}
        with taken[-1]:
            found = taken[-1].subscribe("frozen", since="epoch", until="now")
            assert [bytes(message.data) for message in found] == [b"1", b"of the other"]


def test_a_client_that_thaws_publishes_again(
    broker: LocalBroker, listeners: dict[str, Proxy]
) -> None:
    url = listeners["ingest"].url
    with Program(PUBLISHER, url) as program, connect(url) as other:
        program.until_said("ready")
        with stopped(program.pid):
            until(lambda: free_for_a_moment(url, "frozen"), "free", NOTICED_S)
        program.go()
        program.until_said("published")
        found = other.subscribe("frozen", since="epoch", until="now")
        assert [bytes(message.data) for message in found][-2:] == [b"1", b"2"]


def free_for_a_moment(url: str, name: str) -> bool:
    client = takes_over(url, name)
    if client is not None:
        client.close()
    return client is not None


@pytest.mark.seed("002-42")
def test_a_frozen_subscriber_is_let_go_and_misses_nothing(
    broker: LocalBroker, listeners: dict[str, Proxy]
) -> None:
    url = listeners["ingest"].url
    with Program(SUBSCRIBER, url) as program, connect(url, "cold writer") as writer:
        program.until_said("ready")
        for number in range(100):
            writer.publish("cold", b"%d" % number)
        program.until_said("half")
        assert "cold reader" in subscribers(broker)
        with stopped(program.pid):
            until(lambda: "cold reader" not in subscribers(broker), "let go", NOTICED_S)
            for number in range(100, 200):
                writer.publish("cold", b"%d" % number)
            writer.flush(WAIT_S)
        program.until_said("all")


# -- no false alarms ------------------------------------------------------------------------------


def stay_connected(listeners: dict[str, Proxy]) -> None:
    """Returns after five intervals in which no client connected again.

    A busy machine may keep a process from its heartbeat once in a while; what this looks for comes
    in every five intervals.
    """
    for _ in range(6):
        before = accepted(listeners)
        time.sleep(5 * INTERVAL_S)
        if accepted(listeners) == before:
            return
    pytest.fail("clients connect again all the time")


def test_a_handler_may_take_five_intervals(listeners: dict[str, Proxy], traffic: Traffic) -> None:
    began, end = threading.Event(), threading.Event()

    def slow(_: Message) -> None:
        began.set()
        end.wait(WAIT_S)

    with traffic.reader.subscribe(traffic.topic, since="epoch", handler=slow):
        assert began.wait(WAIT_S)
        stay_connected(listeners)
        end.set()
        traffic.finish()


@pytest.mark.long
def test_messages_may_stay_unread_for_five_intervals(
    listeners: dict[str, Proxy], traffic: Traffic
) -> None:
    with traffic.reader.subscribe(traffic.topic, since="epoch") as unread:
        assert int(unread.next(WAIT_S).data) == 0
        stay_connected(listeners)
        assert [int(unread.next(WAIT_S).data) for _ in range(500)] == list(range(1, 501))


def test_a_program_that_computes_without_a_pause_keeps_its_name_and_its_subscription(
    broker: LocalBroker, listeners: dict[str, Proxy]
) -> None:
    url = listeners["ingest"].url
    with Program(COMPUTING, url) as program:
        program.until_said("ready")
        before = accepted(listeners)
        tries = 0
        while "computed" not in program.said:
            assert takes_over(url, "busy") is None
            assert subscribers(broker) == ["busy"]
            tries += 1
        assert tries > 3
        program.until_said("went on")
        # a busy machine may keep a process from its heartbeat once; computing took many of them
        assert accepted(listeners) - before - tries <= 1
