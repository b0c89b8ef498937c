"""The measurements, by clients in threads of this process."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import zbroker
from zbroker.cli.bench.plan import STAMP_BYTES, BenchPlan, latency, rate
from zbroker.cli.options import Broker
from zbroker.cli.progress import Step
from zbroker.control.target import admin_at
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client import Client
    from zbroker.client.subscriber.subscription import Subscription

CHUNK: Final = 1_000  # messages of one call, and between two looks at the clock of the bar
PATIENCE_S: Final = 60.0  # for one message, and for what is left at the end of publishing
LOOK_S: Final = 0.1
UNKNOWN: Final = "unknown"


class BenchRun:
    """One run; `results` has what was measured so far, by name."""

    def __init__(self, broker: Broker, plan: BenchPlan, step: Step) -> None:
        self.results: dict[str, dict[str, float]] = {}
        self.notes: list[str] = []
        self._broker, self._plan, self._step = broker, plan, step
        self._payload = bytes(plan.size)
        self._begin = ""  # the bookmark before everything that is replayed
        self._open = ExitStack()
        self._publishers: list[Client] = []
        self._ended = threading.Event()

    def connect(self) -> None:
        """Logs the publishers on. Raises: ZBrokerError."""
        self._publishers = [self._connect() for _ in range(self._plan.publishers)]

    def all(self) -> None:
        """Every measurement. Raises: ZBrokerError."""
        first = self._publishers[0]
        self._begin = first.publish(self._plan.topic, self._payload).wait(PATIENCE_S)
        self._publish()
        self._sync(first)
        if self._begin:
            self._replay()
        else:
            self.notes.append(f"{self._plan.topic} is not recorded there: nothing can be replayed")
        self._live(first)

    def close(self) -> None:
        """Closes every client, without waiting for the broker."""
        self._ended.set()
        self._open.close()

    def _connect(self) -> Client:
        client = zbroker.connect(self._broker.url, None, **self._broker.options)
        self._open.callback(client.close, flush=False)
        return client

    # -- publishing ---------------------------------------------------------------------------

    def _publish(self) -> None:
        done = [0] * len(self._publishers)
        seconds = self._together("publish", partial(self._feed, done), done, self._plan.messages)
        self.results["publish"] = rate(self._plan.messages, self._plan.size, seconds)

    def _feed(self, done: list[int], at: int) -> None:
        client, share = self._publishers[at], self._plan.shares()[at]
        topic, payload = self._plan.topic, self._payload
        chunk = [payload] * CHUNK
        while done[at] < share and not self._ended.is_set():
            count = min(CHUNK, share - done[at])
            if self._plan.batch:
                client.publish_many(topic, chunk[:count], timeout=PATIENCE_S)
            else:
                for _ in range(count):
                    client.publish(topic, payload, timeout=PATIENCE_S)
            done[at] += count
        if not self._ended.is_set():
            client.flush(PATIENCE_S)

    def _sync(self, client: Client) -> None:
        """From publish to the acknowledgement, one message at a time."""
        took: list[float] = []
        for number in range(self._plan.sync):
            began = time.perf_counter()
            client.publish(self._plan.topic, self._payload).wait(PATIENCE_S)
            took.append(time.perf_counter() - began)
            self._step("one at a time", number + 1, self._plan.sync)
        self.results["persisted_ack"] = latency(took)

    # -- reading ------------------------------------------------------------------------------

    def _replay(self) -> None:
        readers = [self._connect() for _ in range(self._plan.subscribers)]
        done = [0] * len(readers)
        total = self._plan.messages * len(readers)
        seconds = self._together(
            "replay", lambda at: self._read(readers[at], done, at), done, total
        )
        self.results["replay"] = rate(total, self._plan.size, seconds)

    def _read(self, client: Client, done: list[int], at: int) -> None:
        """Reads everything of `_publish`; messages of `_sync` come after it."""
        plan = self._plan
        with client.subscribe(plan.topic, since=self._begin, limit=plan.messages) as found:
            for batch in found.batches():
                done[at] += len(batch)
                if self._ended.is_set():
                    return

    def _live(self, client: Client) -> None:
        """From publish to a subscriber that has caught up, one message at a time."""
        took: list[list[float]] = []
        arrived = threading.Semaphore(0)
        subscriptions = [self._listen(took, arrived) for _ in range(self._plan.subscribers)]
        filler = bytes(max(0, self._plan.size - STAMP_BYTES))
        for number in range(self._plan.sync):
            stamp = time.perf_counter_ns().to_bytes(STAMP_BYTES, "big")
            client.publish(self._plan.topic, stamp + filler)
            for _ in subscriptions:
                if not arrived.acquire(timeout=PATIENCE_S):
                    raise ZBrokerError("timeout", f"a live message did not come in {PATIENCE_S} s")
            self._step("live", number + 1, self._plan.sync)
        self.results["live"] = latency([one for each in took for one in each])

    def _listen(self, took: list[list[float]], arrived: threading.Semaphore) -> Subscription:
        """A subscription whose handler notes how old each message is."""
        mine: list[float] = []
        took.append(mine)

        def heard(message: Any) -> None:  # noqa: ANN401 - a message of the client library
            sent_ns = int.from_bytes(message.data[:STAMP_BYTES], "big")
            mine.append((time.perf_counter_ns() - sent_ns) / 1e9)
            arrived.release()

        subscription = self._connect().subscribe(self._plan.topic, handler=heard)
        self._open.callback(subscription.close)
        return subscription

    # -- threads ------------------------------------------------------------------------------

    def _together(
        self, what: str, work: Callable[[int], None], done: list[int], total: int
    ) -> float:
        """Runs `work` with each index of `done` at the same time; the seconds that took.

        Raises: the first error of `work`.
        """
        errors: list[BaseException] = []
        ends: list[float] = []

        def guarded(at: int) -> None:
            try:
                work(at)
            except BaseException as error:  # raised again, where it is waited for
                errors.append(error)
            ends.append(time.perf_counter())

        threads = [
            threading.Thread(target=guarded, args=(at,), daemon=True) for at in range(len(done))
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        while not errors and (running := [thread for thread in threads if thread.is_alive()]):
            running[0].join(LOOK_S)
            self._step(what, sum(done), total)
        if errors:
            raise errors[0]
        return max(ends) - began


def surroundings(broker: Broker) -> dict[str, Any]:
    """What figures depend on: this machine, and how durable the broker is; with stable keys.

    What the admin does not tell us is unknown: it is for its own host.
    """
    journal, version = {}, UNKNOWN
    with suppress(ZBrokerError):
        status = admin_at(broker.url, broker.credentials).ask("/status")
        journal, version = status.get("journal", {}), status.get("version", UNKNOWN)
    return {
        "url": broker.url,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "client_version": zbroker.__version__,
        "broker_version": version,
        "durability": journal.get("durability", UNKNOWN),
        "encrypted": broker.credentials is not None,
    }
