"""Old segments: archived, compressed and replayed from the middle while publishing goes on.

2 GB of real flights, published with new sequences. A publisher in another process sends one message
at a time and waits for each ack, all along: its p99 while nothing else happens is what its p99
while segments are archived and compressed is compared with.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import zbroker
from perf.harness import Result, Setup, journal_stats
from zbroker.clock import format_time
from zbroker.demo import flights

LOG_BYTES: Final = 2_000_000_000
QUIET_S: Final = 10.0
PAUSE_S: Final = 0.002  # between an ack and the next message: a load, not a flood
STUCK_S: Final = 600.0
REPLAYED: Final = 200_000  # messages of a replay from the middle
P99: Final = 99
PHASES: Final = {
    "archive": "segments are archived",
    "compress": "segments are compressed",
}

_SPAWN: Final = multiprocessing.get_context("spawn")
_Samples = list[tuple[float, float]]  # when a message was sent, and seconds until its ack


def kept(setup: Setup) -> list[Result]:
    """The publisher's p99 beside archiving and compressing; the first message from the middle."""
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-fill") as client:
        setup.tell("publishing 2 GB of flights")
        bookmark, since = _fill(client)
        with steady_publisher(broker.url) as ask:
            phases = {"alone": during(lambda: time.sleep(QUIET_S))}
            raw = _first_messages(client, bookmark, since)
            for action in ("archive", "compress"):
                setup.tell(f"{action} while publishing")
                phases[action] = during(lambda: _admin(broker, action))  # noqa: B023 - called now
            packed = _first_messages(client, bookmark, since)
            samples = ask()
        notes = {"segments": journal_stats(broker)["segments"], "log_bytes": LOG_BYTES}
    return [*latencies(phases, samples, notes, PHASES), *_replays(raw, packed)]


def _fill(client: zbroker.client.Client) -> tuple[str, str]:
    """Publishes the flights again and again; bookmark and time of a message in the middle."""
    table = flights.load()
    passes = LOG_BYTES // sum(len(flight.data) for flight in table) + 1
    middle = None
    for number in range(passes):
        for flight in table:
            receipt = client.publish(flight.topic, flight.data)
        if number == passes // 2:
            middle = receipt
    client.flush(timeout=STUCK_S)
    assert middle is not None
    bookmark = middle.wait(STUCK_S)
    found = next(iter(client.subscribe(flights.TOPICS, regex=True, since=bookmark)))
    return bookmark, format_time(found.time_ns)


def during(work: Any) -> tuple[float, float]:
    """When this work began and ended."""
    begun = time.perf_counter()
    work()
    return begun, time.perf_counter()


def _admin(broker: zbroker.LocalBroker, action: str) -> None:
    """`zbroker-admin journal archive|compress --all-sealed`, until it is done."""
    command = [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(broker.data_dir)]
    subprocess.run(
        [*command, "journal", action, "--all-sealed"],
        check=True, timeout=STUCK_S, capture_output=True,
    )  # fmt: skip


def _first_messages(
    client: zbroker.client.Client, bookmark: str, since: str
) -> dict[str, tuple[float, float]]:
    """By bookmark and by time: ms to the first message, and messages/s of what follows."""
    return {name: _replay(client, at) for name, at in (("bookmark", bookmark), ("time", since))}


def _replay(client: zbroker.client.Client, since: str) -> tuple[float, float]:
    begun = time.perf_counter()
    subscription = client.subscribe(flights.TOPICS, regex=True, since=since)
    count, first = 0, 0.0
    for batch in subscription.batches():
        first = first or time.perf_counter()
        count += len(batch)
        if count >= REPLAYED:
            break
    subscription.close()
    return (first - begun) * 1e3, count / (time.perf_counter() - begun)


@contextmanager
def steady_publisher(url: str) -> Iterator[Any]:
    """Publishes one at a time in another process; asked, it ends and gives its samples."""
    pipe, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_publish, args=(theirs, url), daemon=True)
    process.start()

    def ask() -> _Samples:
        pipe.send("end")
        if not pipe.poll(STUCK_S):
            raise TimeoutError("the publisher does not answer")
        found: _Samples = pipe.recv()
        return found

    try:
        if not pipe.poll(STUCK_S):
            raise TimeoutError("the publisher does not begin")
        pipe.recv()
        yield ask
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()


def _publish(pipe: Any, url: str) -> None:
    """In the other process; `perf_counter` is the same clock in all of them."""
    samples: _Samples = []
    with zbroker.connect(url, name="perf-steady") as client:
        client.publish("steady", b"first").wait(STUCK_S)
        pipe.send("ready")
        while not pipe.poll(PAUSE_S):
            begun = time.perf_counter()
            client.publish("steady", b"one of many").wait(STUCK_S)
            samples.append((begun, time.perf_counter() - begun))
    pipe.send(samples)


def latencies(
    phases: dict[str, tuple[float, float]],
    samples: _Samples,
    notes: dict[str, Any],
    what: dict[str, str],
) -> list[Result]:
    """p99 of the publisher in each phase that `what` has words for, next to that alone."""
    taken = {
        name: sorted(
            seconds * 1e6 for at, seconds in samples if at <= ended and at + seconds >= begun
        )
        for name, (begun, ended) in phases.items()
    }
    p99 = {name: values[len(values) * P99 // 100] for name, values in taken.items()}
    return [
        Result(
            f"p99 of publish() while {what_runs}", "us", [p99[name]], [p99["alone"]],
            "the same, nothing else going on", "no more than twice", lower_is_better=True,
            notes={
                **notes, "p50_us": statistics.median(taken[name]), "messages": len(taken[name]),
                "longest_us": taken[name][-1],
                "seconds": round(phases[name][1] - phases[name][0], 1),
            },
        )
        for name, what_runs in what.items()
    ]  # fmt: skip


def _replays(
    raw: dict[str, tuple[float, float]], packed: dict[str, tuple[float, float]]
) -> list[Result]:
    return [
        Result(
            f"first message from the middle by {point}, compressed", "ms", [packed[point][0]],
            [raw[point][0]], "before it was compressed", "<= 100 ms", lower_is_better=True,
            notes={"messages_per_s": packed[point][1], "messages_per_s_before": raw[point][1]},
        )
        for point in ("bookmark", "time")
    ]  # fmt: skip
