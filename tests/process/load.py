"""Publishers under load, a subscriber that follows, and the log compared with what was sent."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from tests import waiting
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.ids import publisher_id
from zbroker.local import LocalBroker
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log

WAIT_S = 60.0


class Load:
    """Publishers that go on for ever; payloads are b"<publisher>:<number>", numbers from 0."""

    def __init__(self, url: str, publishers: int = 4, size: int = 100) -> None:
        self.clients = [connect(url, f"load-{n}") for n in range(publishers)]
        self.sent = [0] * publishers
        self.errors: list[BaseException] = []
        self._fill = b"." * size
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(publishers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        client = self.clients[number]
        try:
            while not self._stop.is_set():
                begin = self.sent[number]
                for n in range(begin, begin + 50):
                    topic = f"load.{n % 3}"
                    client.publish(topic, b"%d:%d:%s" % (number, n, self._fill), timeout=WAIT_S)
                self.sent[number] = begin + 50
                if client.unpersisted > 20_000:
                    time.sleep(0.005)  # backlog enough; leave the cores to the broker
        except BaseException as error:
            self.errors.append(error)

    def acked(self) -> int:
        """Messages known to be persisted."""
        return sum(self.sent) - sum(client.unpersisted for client in self.clients)

    def wait_acked(self, wanted: int) -> None:
        """Until `wanted` messages are persisted; fails after WAIT_S."""
        until(
            lambda: self.acked() >= wanted or bool(self.errors),
            f"{wanted} acked, {self.acked()} are",
        )
        assert not self.errors, self.errors

    def finish(self) -> None:
        """Stops publishing; everything sent is persisted afterwards."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        assert not self.errors, self.errors
        for client in self.clients:
            client.flush(WAIT_S)

    def close(self) -> None:
        self._stop.set()
        for client in self.clients:
            client.close(flush=False)


class Follower:
    """A subscriber from the beginning on: it must see each number once and in order."""

    def __init__(self, client: Client, topic: str = "load.*") -> None:
        self.seen: dict[int, int] = defaultdict(int)
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._subscription = client.subscribe(topic, since="epoch", regex=True)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = 0
        try:
            while not self._stop.is_set():
                last = self._read(last)
        except BaseException as error:
            self.errors.append(error)

    def _read(self, last: int) -> int:
        try:
            for batch in self._subscription.batches(timeout=0.5):
                for message in batch:
                    number, n, _ = message.data.split(b":", 2)
                    assert int(n) == self.seen[int(number)], (
                        f"publisher {number!r}: {n!r}, not {self.seen[int(number)]}"
                    )
                    self.seen[int(number)] += 1
                assert batch[0].position > last
                last = batch[-1].position
                if self._stop.is_set():
                    break
        except ZBrokerError as error:
            if error.code != "timeout":
                raise
        return last

    def wait_for(self, sent: list[int]) -> None:
        """Until everything sent was seen."""
        until(
            lambda: bool(self.errors) or all(self.seen[n] >= count for n, count in enumerate(sent)),
            "all seen",
        )
        assert not self.errors, self.errors

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)
        self._subscription.close()


def compare(broker: LocalBroker, sent: list[int], prefix: str = "load-") -> int:
    """The whole journal against what was sent: all of it, once, in order, position after position.

    Returns: the number of messages.
    """
    with connect(broker.url) as client:
        end = client.ranges().persisted
    numbers = read_all(broker.data_dir / "journal", end)
    for n, count in enumerate(sent):
        found = numbers.pop(publisher_id(f"{prefix}{n}"), [])
        assert found == list(range(count)), (
            f"publisher {n}: {len(found)} of {count}, first difference at {_differ(found)}"
        )
    assert not numbers, "messages of unknown publishers"
    return sum(sent)


def read_all(journal: Path, end: int) -> dict[int, list[int]]:
    """Per publisher id, the numbers in its payloads in log order. Every byte is checked."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for batch in batches_of(journal, end):
        messages = msgspec.msgpack.decode(batch.body, type=list[bytes])[batch.skip :]
        numbers[batch.publisher] += [int(data.split(b":", 2)[1]) for data in messages]
    return numbers


def batches_of(journal: Path, end: int) -> Iterator[Batch]:
    """What was published, in the files of a log, below position `end`."""
    log = Log(journal)
    cursor = log.seek(1)
    while cursor.position < end:
        batches, after = log.read(cursor, end, 4 << 20)
        assert after.position > cursor.position, f"nothing to read at {cursor}, the end is {end}"
        cursor = after
        for batch in batches:
            assert not isinstance(batch, Gap), batch
            if batch.kind == KIND_PUBLISH:
                yield batch
    log.close()


def _differ(found: list[int]) -> int:
    return next((at for at, n in enumerate(found) if n != at), len(found))


def until(done: object, what: str, seconds: float = WAIT_S) -> None:
    """Polls `done()`; fails when it is not true in time."""
    assert callable(done)
    waiting.until(done, what, seconds)


def processes(broker: LocalBroker) -> dict[str, int]:
    """All of an instance: processes, supervisor and zygote. The admin may be too busy at first."""
    answers: list[dict[str, Any]] = []

    def answered() -> bool:
        with suppress(ZBrokerError):
            answers.append(broker.status())
        return bool(answers)

    until(answered, "the status")
    named = {one["room"]: one["pid"] for one in answers[0]["processes"] if one["pid"]}
    return {**named, "zygote": answers[0]["supervisor"]["zygote"]}


def until_running(broker: LocalBroker, process: str, other_than: int) -> int:
    """A process, or the zygote, once there is one that is not `other_than`."""
    found = [0]

    def runs() -> bool:
        # while the admin, which tells, starts again, nothing is known
        with suppress(OSError, ValueError, ZBrokerError):
            found[0] = processes(broker).get(process, 0)
        return found[0] not in (0, other_than)

    until(runs, f"{process} runs")
    return found[0]
