"""How soon the first message comes, and what a heavy replay costs those who are live.

10 times as many messages as one round of the other workloads has: 10 million by default.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import zbroker
from perf.harness import Result, Setup
from zbroker.client.publisher.receipt import Receipt
from zbroker.clock import format_time
from zbroker.ids import format_vector

TIMES: Final = 10  # the log next to `--messages`
PUBLISHED_AT_ONCE: Final = 100_000
STARTS: Final = 50  # in one round, at messages taken at random from the middle half
STEADY_S: Final = 0.001  # between two messages of the steady publisher
PHASE_MAX_S: Final = 10.0
PHASE_MIN_S: Final = 2.0
FILTER: Final = "/n = -1"  # is true for no message, and has to look at each
STUCK_S: Final = 300.0
P99: Final = 99

_SPAWN: Final = multiprocessing.get_context("spawn")


# -- the first message ------------------------------------------------------------------------


def first_messages(setup: Setup) -> list[Result]:
    """From the middle of the log by bookmark and by time, next to a vector: nothing to look up."""
    taken: dict[str, list[float]] = {"vector": [], "bookmark": [], "time": []}
    worst = dict.fromkeys(taken, 0.0)
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-first") as client:
        setup.tell(f"publishing {setup.messages * TIMES:,} messages")
        marks = _fill(client, setup.messages * TIMES)
        points = {each: _points(client, each) for each in _picked(setup, marks)}
        for _ in setup.each_round("first message from the middle"):
            for kind in taken:
                found = sorted(_first(client, each[kind]) for each in points.values())
                taken[kind].append(statistics.median(found))
                worst[kind] = max(worst[kind], found[-1])
    return [
        Result(
            f"first of {setup.messages * TIMES:,} messages from the middle by {kind}", "ms",
            taken[kind], taken["vector"], "by vector", "<= 100 ms", lower_is_better=True,
            notes={"worst_ms": worst[kind], "starts": len(points), "worst_vector": worst["vector"]},
        )
        for kind in ("bookmark", "time")
    ]  # fmt: skip


def _fill(client: zbroker.client.Client, count: int) -> list[str]:
    """JSON messages; a bookmark now and then."""
    receipts: list[Receipt] = []
    for begin in range(0, count, PUBLISHED_AT_ONCE):
        bodies = [
            b'{"n":%d,"text":"%s"}' % (n, b"." * 80)
            for n in range(begin, min(begin + PUBLISHED_AT_ONCE, count))
        ]
        step = max(1, len(bodies) // 10)
        receipts += [
            client.publish_many("first", bodies[at : at + step])
            for at in range(0, len(bodies), step)
        ]
    client.flush(timeout=STUCK_S)
    return [receipt.wait(STUCK_S) for receipt in receipts]


def _picked(setup: Setup, marks: list[str]) -> list[str]:
    """Bookmarks from the middle half."""
    middle = marks[len(marks) // 4 : len(marks) * 3 // 4]
    return setup.random.sample(middle, min(STARTS, len(middle)))


def _points(client: zbroker.client.Client, bookmark: str) -> dict[str, str]:
    """The same place in three ways."""
    with client.subscribe("first", since=bookmark) as subscription:
        found = subscription.next(STUCK_S)
    assert found is not None
    return {
        "vector": format_vector({found.origin: found.position - 1}),
        "bookmark": bookmark,
        "time": format_time(found.time_ns),
    }


def _first(client: zbroker.client.Client, since: str) -> float:
    """Milliseconds from the call to the first message."""
    begun = time.perf_counter()
    with client.subscribe("first", since=since, credit=1) as subscription:
        found = subscription.next(STUCK_S)
        taken = time.perf_counter() - begun
    if found is None:
        raise AssertionError(f"nothing from {since} on")
    return taken * 1e3


# -- live beside a replay ---------------------------------------------------------------------


def beside_replay(setup: Setup) -> list[Result]:
    """p99 of a steady publisher's messages to a live subscriber, alone and beside a replay.

    The replay reads all of the log again and again, with a filter that is true for nothing, and
    another time without one. A message's time counts from when it was due to be published.
    """
    p99: dict[str, list[float]] = {"alone": [], "filter": [], "everything": []}
    notes: dict[str, dict[str, Any]] = {kind: {} for kind in p99}
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-beside") as client:
        setup.tell(f"publishing {setup.messages * TIMES:,} messages")
        _fill(client, setup.messages * TIMES)
        for _ in setup.each_round("live beside a replay"):
            for kind in p99:
                with _replaying(broker.url, kind) as replayed, _live(broker.url) as samples:
                    time.sleep(min(PHASE_MAX_S, max(PHASE_MIN_S, setup.messages / 1e5)))
                    found = sorted(samples())
                p99[kind].append(found[len(found) * P99 // 100] * 1e3)
                notes[kind] = {
                    "p50_ms": statistics.median(found) * 1e3, "worst_ms": found[-1] * 1e3,
                    "messages": len(found), "replayed_per_s": round(replayed()),
                }  # fmt: skip
    return [
        Result(
            f"live p99 beside a replay of {beside}", "ms", p99[kind], p99["alone"],
            "the same, no replay", "<= 5 ms", lower_is_better=True,
            notes={**notes[kind], "p50_alone_ms": notes["alone"]["p50_ms"]},
        )
        for kind, beside in (("filter", "everything, filtered"), ("everything", "everything"))
    ]  # fmt: skip


@contextmanager
def _replaying(url: str, kind: str) -> Iterator[Any]:
    """Replays in another process meanwhile; afterwards asked, the messages/s that it passed."""
    beside = [0.0]
    if kind == "alone":
        yield lambda: beside[0]
        return
    with ExitStack() as stack:
        pipe = _child(stack, _replay, url, kind == "filter")
        yield lambda: beside[0]
        pipe.send("end")
        beside[0] = _receive(pipe)


def _replay(pipe: Any, url: str, filtered: bool) -> None:
    """In the other process: everything again and again."""
    wanted = FILTER if filtered else None
    passed, begun = 0, time.perf_counter()
    with zbroker.connect(url, name=f"perf-replay-{filtered}") as client:
        pipe.send("ready")
        while not pipe.poll():
            replay = client.subscribe("first", since="epoch", until="now", filter=wanted)
            for batch in replay.batches(timeout=STUCK_S):
                passed += len(batch)
                if pipe.poll():
                    break
            else:
                passed += client.ranges().persisted if filtered else 0
            replay.close()
    pipe.send(passed / (time.perf_counter() - begun))


@contextmanager
def _live(url: str) -> Iterator[Any]:
    """A publisher and a subscriber, a process each; asked, they end: seconds of each message."""
    with ExitStack() as stack:
        reader = _child(stack, _listen, url)
        writer = _child(stack, _publish, url)

        def samples() -> list[float]:
            writer.send("end")
            _receive(writer)
            reader.send("end")
            found: list[float] = _receive(reader)
            return found

        yield samples


def _publish(pipe: Any, url: str) -> None:
    """Each message says when it was due: being late for one makes none of them look fast."""
    with zbroker.connect(url, name="perf-steady") as client:
        pipe.send("ready")
        due = time.perf_counter()
        while not pipe.poll(max(0.0, due - time.perf_counter())):
            client.publish("steady", b"%.7f" % due)
            due += STEADY_S
        client.flush(timeout=STUCK_S)
    pipe.send("published")


def _listen(pipe: Any, url: str) -> None:
    taken = []
    with (
        zbroker.connect(url, name="perf-live") as client,
        client.subscribe("steady", since="now") as subscription,
    ):
        pipe.send("ready")
        while not pipe.poll():
            try:
                batch = next(subscription.batches(timeout=1.0))
            except zbroker.errors.ZBrokerError:
                continue  # nothing was published for a second
            now = time.perf_counter()
            taken += [now - float(message.data) for message in batch]
    pipe.send(taken)


def _child(stack: ExitStack, work: Any, *args: Any) -> Any:
    """The pipe of `work` in a process of its own that is ready; it ends with `stack`."""
    pipe, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=work, args=(theirs, *args), daemon=True)
    process.start()
    stack.callback(_end, process)
    _receive(pipe)
    return pipe


def _end(process: Any) -> None:
    process.join(10)
    if process.is_alive():
        process.kill()


def _receive(pipe: Any) -> Any:
    if not pipe.poll(STUCK_S):
        raise TimeoutError("another process does not answer")
    return pipe.recv()
