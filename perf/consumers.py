"""Processes that consume: made once, then given what to take from where, round after round.

What a process does is a function of this package, so that peers are measured in the same way. It
connects, says that it is ready, and begins when all others are. Each touches data and sequence of
every message and acknowledges it; counts and sums are checked by who has them work.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import zbroker
from zbroker.errors import ZBrokerError

STUCK_S: Final = 120.0
LOOK_S: Final = 0.01  # how often one that gets nothing looks whether the others have all

_SPAWN: Final = multiprocessing.get_context("spawn")


class Taken(NamedTuple):
    """What one consumer did. total: sum of a byte and the sequence of each message. first, last:
    when its first message came and when all of its acks were durable; first 0: none came.
    """

    messages: int
    total: int
    first: float
    last: float
    cpu_s: float


class Round:
    """One round as a consumer's process sees it: how many all of them are to take."""

    def __init__(self, pipe: Any, counter: Any, wanted: int) -> None:
        self._pipe = pipe
        self._counter = counter
        self._wanted = wanted
        self.count = self.total = 0
        self.first = self._cpu_s = 0.0

    def begin(self) -> None:
        """Says that it is ready, and waits for the others."""
        self._pipe.send("ready")
        self._pipe.recv()
        self._cpu_s = time.process_time()

    def took(self, count: int, total: int) -> None:
        """Some messages, with their sum."""
        self.count += count
        self.total += total
        with self._counter.get_lock():
            self._counter.value += count

    @property
    def over(self) -> bool:
        """All of them have what they are to take."""
        return bool(self._counter.value >= self._wanted)

    def ended(self) -> Taken:
        """All its acks are durable."""
        used_s = time.process_time() - self._cpu_s
        return Taken(self.count, self.total, self.first, time.perf_counter(), used_s)


Work = Callable[..., Taken]  # of a Round, and whatever it was given


class Consumers:
    """The processes. They wait while they have nothing to do."""

    def __init__(self, most: int) -> None:
        self._counter = _SPAWN.Value("q", 0)
        self._members = [self._member() for _ in range(most)]

    def _member(self) -> tuple[Any, Any]:
        pipe, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_obey, args=(theirs, self._counter), daemon=True)
        process.start()
        return pipe, process

    def begin(self, work: Work, count: int, wanted: int, *args: object) -> None:
        """Has `count` of them take `wanted` messages together; returns when they have begun."""
        self._counter.value = 0
        pipes = [pipe for pipe, _ in self._members[:count]]
        for number, pipe in enumerate(pipes):
            pipe.send((work, wanted, number, args))
        for pipe in pipes:
            _receive(pipe)
        for pipe in pipes:
            pipe.send("go")

    def end(self, count: int) -> list[Taken]:
        """What each of them did, when all is done."""
        return [_receive(pipe) for pipe, _ in self._members[:count]]

    @property
    def pids(self) -> list[int]:
        """Of the processes."""
        return [int(process.pid) for _, process in self._members]

    def close(self) -> None:
        """Ends the processes."""
        for pipe, process in self._members:
            with suppress(OSError):  # one that was killed
                pipe.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


@contextmanager
def consumers(most: int) -> Iterator[Consumers]:
    """Processes that end with the block."""
    made = Consumers(most)
    try:
        yield made
    finally:
        made.close()


def rate(taken: list[Taken]) -> float:
    """Messages per second, from the first delivery until the last ack was durable."""
    first = min(each.first for each in taken if each.first)
    return sum(each.messages for each in taken) / (max(each.last for each in taken) - first)


def check(taken: list[Taken], expected: int, count: int) -> None:
    """Raises: AssertionError, unless each message came once."""
    found = sum(each.messages for each in taken), sum(each.total for each in taken)
    if found != (count, expected):
        raise AssertionError(f"{found[0]} messages of sum {found[1]}, not {count} of {expected}")


def _receive(pipe: Any) -> Any:
    if not pipe.poll(STUCK_S):
        raise TimeoutError("a consumer does not answer")
    found = pipe.recv()
    if isinstance(found, Exception):
        raise found
    return found


def _obey(pipe: Any, counter: Any) -> None:
    """In the other process."""
    while (order := pipe.recv()) is not None:
        work, wanted, number, args = order
        try:
            pipe.send(work(Round(pipe, counter, wanted), number, *args))
        except Exception as error:
            pipe.send(RuntimeError(f"a consumer failed: {error!r}"))


# -- of zbroker -------------------------------------------------------------------------------


def consume(this: Round, number: int, url: str, queue: str, backlog: int, *, one: bool) -> Taken:
    """Takes from a queue. one: acknowledges each message by itself, else all that came together."""
    with zbroker.connect(url, name=f"perf-consumer-{number}") as client:
        this.begin()
        with client.consume(queue, backlog=backlog or None) as consumer:
            while not this.over:
                try:
                    _batches(this, consumer, one=one)
                except ZBrokerError as error:
                    if error.code != "timeout":
                        raise
            consumer.flush(STUCK_S)
            return this.ended()


def consume_each(this: Round, number: int, url: str, queue: str, backlog: int) -> Taken:
    """With `message.ack()` of each."""
    return consume(this, number, url, queue, backlog, one=True)


def consume_lists(this: Round, number: int, url: str, queue: str, backlog: int) -> Taken:
    """With `consumer.ack(messages)`."""
    return consume(this, number, url, queue, backlog, one=False)


def _batches(this: Round, consumer: Any, *, one: bool) -> None:
    for batch in consumer.batches(timeout=LOOK_S):
        this.first = this.first or time.perf_counter()
        total = 0
        for message in batch:
            total += message.data[11] + message.sequence
            if one:
                message.ack()
        if not one:
            consumer.ack(batch)
        this.took(len(batch), total)
        if this.over:
            return


def hold(this: Round, _number: int, url: str, queue: str, count: int) -> Taken:
    """Takes `count` messages, is ready then, and never acknowledges: it is to be killed."""
    with zbroker.connect(url, name="perf-victim") as client:
        consumer = client.consume(queue, backlog=count)
        while consumer.held < count:
            time.sleep(LOOK_S)
        this.begin()
        time.sleep(STUCK_S)
        raise RuntimeError("it was not killed")


# -- the queue --------------------------------------------------------------------------------


def publish(client: zbroker.client.Client, topic: str, bodies: list[bytes]) -> int:
    """Publishes, until all is durable. Returns: the sequence of the first."""
    last = client.publish_many(topic, bodies)
    client.flush(timeout=STUCK_S)
    return last.sequence - len(bodies) + 1


def folded(broker: zbroker.LocalBroker, queue: str, depth: int | None = None) -> dict[str, Any]:
    """What the admin says of a queue, once it has read the log and holds `depth` messages."""
    deadline = time.monotonic() + STUCK_S
    while True:
        found = broker.ask(f"/queues/{queue}")
        if not found["behind"] and not found["going"] and depth in (None, found["depth"]):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{queue} does not come to hold {depth} messages: {found}")
        time.sleep(0.02)
