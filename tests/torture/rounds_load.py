"""The load of the rounds: publishers, subscribers and a writer of staged batches that go on at any
instance, and what each of them knows of its messages.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from zbroker.client import Client, Subscription, connect
from zbroker.client.connect_types import ConnectionState
from zbroker.client.publisher.receipt import Receipt
from zbroker.client.stage_commits import commit
from zbroker.errors import ZBrokerError

TOPIC: Final = "load"
STAGED: Final = "staged"
TOPICS: Final = "load|staged"
HEARTBEAT: Final = "1s"
PUT_S: Final = 600.0  # a publisher waits that long for an instance
PAUSE_S: Final = 0.05
BURST: Final = 8  # messages between two pauses
STAGED_COUNT: Final = 20  # of a batch
QUIET_S: Final = 0.3
WAIT: Final = "120s"  # for an instance that lags


class Worker:
    """A thread that works in steps; paused, it has nothing under way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._go = threading.Event()
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._go.set()
        self._thread.start()

    def pause(self) -> None:
        self._go.clear()

    def resume(self) -> None:
        self._idle.clear()
        self._go.set()

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set() or not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self._go.set()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._go.is_set():
                    self._idle.set()
                    self._go.wait()
                    continue
                self.step()
                time.sleep(PAUSE_S)
        except BaseException as error:
            self.errors.append(f"{self.name}: {error!r}")

    def step(self) -> None:
        raise NotImplementedError


def numbers_behind(reason: str, first: int) -> set[int]:
    """The messages that an error broker_behind is about. first: the sequence of message 0."""
    acknowledged, held = map(int, re.findall(r"(?:up to|only) (\d+)", reason))
    return set(range(held + 1 - first, acknowledged + 1 - first))


class NumberPublisher(Worker):
    """Publishes NAME:0, NAME:1, ... and knows how many of them are acknowledged."""

    def __init__(self, name: str, urls: Sequence[str], log: Callable[[str], None]) -> None:
        super().__init__(name)
        self.sent = 0
        self.given_up: set[int] = set()  # acknowledged, but not there where it went on
        self._log = log
        self._first: Receipt | None = None
        self.client: Client = connect(
            urls, name, heartbeat=HEARTBEAT, broker_behind="go_on", on_state=self._state,
            timeout=PUT_S,
        )  # fmt: skip

    def _state(self, state: ConnectionState) -> None:
        error = f" {state.error.code}: {state.error.reason}" if state.error else ""
        self._log(f"{self.name}: {state.name} {state.url}{error}")
        if state.name == "broker_behind" and state.error and self._first:
            self.given_up |= numbers_behind(state.error.reason, self._first.sequence)

    def step(self) -> None:
        for _ in range(BURST):
            data = b"%s:%d" % (self.name.encode(), self.sent)
            receipt = self.client.publish(TOPIC, data, timeout=PUT_S)
            self._first = self._first or receipt
            self.sent += 1

    @property
    def acked(self) -> int:
        """How many of the first messages are acknowledged."""
        sent = self.sent
        return max(0, sent - self.client.unpersisted)


class Marks:
    """One message for each instance after each round, published there and nowhere else.

    So every origin goes on, and every link has something to do. A subscriber that has seen messages
    that are lost with a disk waits until the next generation of their origin has a message.
    """

    def __init__(self) -> None:
        self.published: list[bytes] = []

    def publish(self, name: str, url: str) -> None:
        """Returns when it is durable, as far as its mode says."""
        data = b"mark-%s:%d" % (name.encode(), len(self.published))
        with connect(url, f"mark-{name}", timeout=PUT_S, broker_behind="go_on") as client:
            client.publish(TOPIC, data, timeout=PUT_S)
            client.flush(timeout=PUT_S)
        self.published.append(data)


class StageWriter(Worker):
    """Batches as Spark writes them: staged by a client of their own, then committed together.

    A batch that was not committed is written again under new tokens, as a task that is tried again.
    """

    def __init__(self, app: str, urls: Sequence[str], log: Callable[[str], None]) -> None:
        super().__init__(app)
        self.committed: list[int] = []  # batches whose commit has returned
        self.batch = 0
        self.tries = 0
        self._urls = urls
        self._log = log

    def step(self) -> None:
        """Tries one batch until it is committed."""
        self.tries += 1
        token = f"{self.name}-{self.batch}-{self.tries}"
        try:
            with connect(
                self._urls, f"{token}-task", stage=token, heartbeat=HEARTBEAT, timeout=10
            ) as client:
                for data in self._messages():
                    client.publish(STAGED, data, timeout=10)
                client.flush(timeout=10)
            done = commit(self._urls, self.name, self.batch, [(token, STAGED_COUNT)], timeout=10)
        except ZBrokerError as error:
            self._log(f"{self.name}: batch {self.batch} not yet: {error}")
            return
        if done.already:
            self._log(f"{self.name}: batch {self.batch} was committed already")
        self.committed.append(self.batch)
        self.batch += 1
        time.sleep(QUIET_S)

    def _messages(self) -> list[bytes]:
        first, name = self.batch * STAGED_COUNT, self.name.encode()
        return [b"%s:%d" % (name, n) for n in range(first, first + STAGED_COUNT)]


class NumberSubscriber:
    """Everything from the beginning on, at whichever instance; counts each message.

    ended: how often its subscription ended, since it went on at an instance that has never heard of
    an origin whose messages it has seen. Then it begins again, with nothing seen.
    """

    def __init__(self, name: str, urls: Sequence[str], log: Callable[[str], None]) -> None:
        self.name = name
        self.seen: Counter[bytes] = Counter()
        self.twice: list[str] = []  # with where it came again
        self.errors: list[str] = []
        self.ended = 0
        self._log = log
        self._stop = threading.Event()
        self._where: dict[bytes, str] = {}
        self._client = connect(urls, name, heartbeat=HEARTBEAT, timeout=PUT_S)
        self._subscription = self._subscribe()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _subscribe(self) -> Subscription:
        return self._client.subscribe(
            TOPICS, regex=True, since="epoch", bookmark_wait=WAIT, timeout=PUT_S
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for batch in self._subscription.batches(timeout=0.5):
                    for message in batch:
                        self._take(message)
                    if self._stop.is_set():
                        return
            except ZBrokerError as error:
                if error.code == "bookmark_not_found":
                    self._log(f"{self.name}: ended: {error}")
                    self.ended += 1
                    self.seen, self._where = Counter(), {}
                    self._subscription = self._subscribe()
                elif error.code != "timeout":
                    self.errors.append(f"{self.name}: {error}")
                    return
            except BaseException as error:
                self.errors.append(f"{self.name}: {error!r}")
                return

    def _take(self, message: Any) -> None:
        data, origin = bytes(message.data), message.origin
        place = f"{origin.instance:016x}.{origin.generation}:{message.position}"
        self.seen[data] += 1
        if self.seen[data] > 1:
            text = f"{data.decode()} of {place}, first of {self._where[data]}"
            self.twice.append(text)
            self._log(f"{self.name}: twice: {text}")
        else:
            self._where[data] = place

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._client.close(flush=False)
