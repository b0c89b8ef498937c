"""Queues that hold much, and a consumer that dies: memory, start, rate, time until others have it.

A backlog of ten times the messages of the other workloads is in one plain queue. Bytes per
message of the other kinds are the growth of the process, with JSON payloads of about 100 bytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

import zbroker
from perf.consumers import (
    STUCK_S,
    Consumers,
    consume_each,
    consumers,
    folded,
    hold,
    publish,
    rate,
)
from perf.harness import PAYLOAD_BYTES, Result, Setup, payloads
from zbroker.local import Settings, Table

TIMES: Final = 10
SMALL: Final = 200_000  # messages that are taken, and a small backlog
CHUNK: Final = 250_000  # messages published at a time
MEMBERS: Final = 4
BACKLOG: Final = 1_000
WARM: Final = 300_000  # messages that fill caches before memory is measured
LEASE_S: Final = 2
HELD: Final = 64
MEMORY_TARGET: Final = "runs of positions: next to nothing"

KINDS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "filter, half match": {"filter": "/n % 2 = 0"},
    "priority, 10 levels": {"priority": "/p"},
    "group key, 1,000 keys": {"group_key": "/g"},
}


class Payload(msgspec.Struct):
    """About PAYLOAD_BYTES of JSON. n: which; p: its priority; g: its group."""

    n: int
    p: int
    g: int
    text: str


def held(setup: Setup) -> list[Result]:
    """Memory, start and rate with a large backlog, beside those with a small one."""
    table: Table = {"name": "big", "topic": "big", "max_per_subscription": BACKLOG}
    settings: Settings = {"journal": {"segment_size": "256MiB"}, "queue": [table]}
    directory = Path(tempfile.mkdtemp(prefix="backlog-", dir=setup.directory))
    count = setup.messages * TIMES
    try:
        with consumers(MEMBERS) as pool:
            notes = _fill(setup, directory, settings, pool, count)
            setup.tell("restarting with the backlog")
            with _started(directory, settings) as (broker, with_ms):
                folded(broker, "big", count)
                notes["rss_mb_after_restart"] = _mb(rss(broker))
                rates = [_taken(broker, pool) for _ in range(setup.rounds)]
                left = folded(broker, "big")["depth"]
        without = {name: table for name, table in settings.items() if name != "queue"}
        with _started(directory, without) as (_, without_ms):
            pass
        if left != count - sum(number for _, number in rates):
            raise AssertionError(f"{left} messages are left of {count}, taken were {rates}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return _held(count, [one for one, _ in rates], (with_ms, without_ms), notes)


def _held(
    count: int, rates: list[float], start_ms: tuple[float, float], notes: dict[str, Any]
) -> list[Result]:
    small: list[float] = notes.pop("small")
    name = f"queue that holds {count:,} messages"
    grown: float = notes["rss_mb"] - notes["rss_mb_empty"]
    return [
        Result(
            f"{name}, memory of the process", "MB", [notes["rss_mb"]], [notes["rss_mb_empty"]],
            "when it was empty", MEMORY_TARGET, lower_is_better=True,
            notes={**notes, "bytes_per_message": round(grown * 1e6 / count, 3)},
        ),
        Result(
            f"{name}, restart of the instance", "ms", [start_ms[0]], [start_ms[1]],
            "same log, the queue is not run", "no longer", lower_is_better=True,
        ),
        Result(
            f"{name}, {MEMBERS} consumers", "messages/s", rates, small,
            f"with a backlog of {SMALL:,}", ">= 80 %", notes={"backlog": BACKLOG},
        ),
    ]  # fmt: skip


def _fill(
    setup: Setup, directory: Path, settings: Settings, pool: Consumers, count: int
) -> dict[str, Any]:
    """Measures small backlogs, then makes the large one."""
    with (
        zbroker.LocalBroker(directory, settings=settings) as broker,
        zbroker.connect(broker.url, name="perf-backlog") as client,
    ):
        notes: dict[str, Any] = {"small": []}
        bodies = payloads(CHUNK)
        for _ in setup.each_round("small backlog"):
            publish(client, "big", bodies[:SMALL])
            folded(broker, "big", SMALL)
            notes["small"].append(_drained(broker, pool))
        notes["rss_mb_empty"] = _mb(rss(broker))
        setup.tell(f"publishing {count:,} messages")
        for start in range(0, count, CHUNK):
            publish(client, "big", bodies[: count - start])
        row = folded(broker, "big", count)
        notes |= {"rss_mb": _mb(rss(broker)), "own_account_bytes": row["memory_bytes"]}
        return notes


@contextmanager
def _started(directory: Path, settings: Settings) -> Iterator[tuple[zbroker.LocalBroker, float]]:
    """An instance, and the ms that its start took."""
    begun = time.perf_counter()
    with zbroker.LocalBroker(directory, settings=settings, timeout=STUCK_S) as broker:
        yield broker, (time.perf_counter() - begun) * 1e3


def _drained(broker: zbroker.LocalBroker, pool: Consumers) -> float:
    found, count = _taken(broker, pool)
    if count != SMALL:
        raise AssertionError(f"{count} messages were taken of {SMALL}")
    return found


def _taken(broker: zbroker.LocalBroker, pool: Consumers) -> tuple[float, int]:
    """Has SMALL messages taken, or a few more. Returns: messages per second, how many."""
    pool.begin(consume_each, MEMBERS, SMALL, broker.url, "big", BACKLOG)
    taken = pool.end(MEMBERS)
    return rate(taken), sum(each.messages for each in taken)


def rss(broker: zbroker.LocalBroker) -> int:
    """Memory of the queues process."""
    return int(psutil.Process(broker.pids["queues"]).memory_info().rss)


def _mb(size: int) -> float:
    return round(size / 1e6, 1)


# -- kinds ------------------------------------------------------------------------------------


def kinds(setup: Setup) -> list[Result]:
    """Bytes of memory per message in a queue of each kind, beside a plain one."""
    found = {name: _bytes_per_message(setup, keys) for name, keys in KINDS.items()}
    plain = found["plain"][0]
    return [
        Result(
            f"memory of a message in a queue: {name}", "bytes", [measured], [plain], "plain", "",
            lower_is_better=True, notes=notes,
        )
        for name, (measured, notes) in found.items()
    ]  # fmt: skip


def _bytes_per_message(setup: Setup, keys: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """What `setup.messages` more of them cost a queue that holds some."""
    table: Table = {"name": "kind", "topic": "kind", **keys}
    of = 2 if "filter" in keys else 1
    with (
        setup.broker({"queue": [table]}) as broker,
        zbroker.connect(broker.url, name="perf-kinds") as client,
    ):
        setup.tell(f"memory per message: {keys or 'plain'}")
        for bodies in _chunks(0, WARM):
            publish(client, "kind", bodies)
        warm = folded(broker, "kind", WARM // of)["memory_bytes"]
        before = rss(broker)
        for bodies in _chunks(WARM, WARM + setup.messages):
            publish(client, "kind", bodies)
        own = folded(broker, "kind", (WARM + setup.messages) // of)["memory_bytes"] - warm
        grown = max(rss(broker) - before, 1)
    count = setup.messages // of
    return grown / count, {"messages": count, "own_account": round(own / count, 3)}


def _chunks(first: int, end: int) -> Iterator[list[bytes]]:
    encode = msgspec.json.Encoder().encode
    for start in range(first, end, CHUNK):
        numbers = range(start, min(start + CHUNK, end))
        yield [encode(payload(number)) for number in numbers]


def payload(number: int) -> Payload:
    """They differ from each other."""
    text = f"{number * 2_654_435_761 % 2**64:020d}"
    return Payload(number, number % 10, number % 1_000, text.ljust(PAYLOAD_BYTES - 35, "."))


# -- one that dies ----------------------------------------------------------------------------


def dead_worker(setup: Setup) -> list[Result]:
    """Seconds from a kill until another consumer has what the dead one held."""
    table: Table = {"name": "fragile", "topic": "fragile", "lease": f"{LEASE_S}s"}
    ours = []
    with (
        setup.broker({"queue": [table]}) as broker,
        zbroker.connect(broker.url, name="perf-dead") as client,
    ):
        for _ in setup.each_round("a worker dies"):
            publish(client, "fragile", payloads(HELD))
            ours.append(_until_others_have_it(broker, client))
            folded(broker, "fragile", 0)
    return [
        Result(
            f"{HELD} messages of a killed consumer, until another has all", "ms", ours,
            [LEASE_S * 1e3] * len(ours), "the lease of the queue", "about a lease",
            lower_is_better=True, notes={"lease_s": LEASE_S},
        )
    ]  # fmt: skip


def _until_others_have_it(broker: zbroker.LocalBroker, client: zbroker.client.Client) -> float:
    """Milliseconds."""
    with consumers(1) as victims:
        victims.begin(hold, 1, HELD, broker.url, "fragile", HELD)
        with client.consume("fragile", backlog=HELD) as survivor:
            killed = time.perf_counter()
            os.kill(victims.pids[0], signal.SIGKILL)
            count = 0
            for batch in survivor.batches(timeout=STUCK_S):
                count += len(batch)
                survivor.ack(batch)
                if count == HELD:
                    return (time.perf_counter() - killed) * 1e3
    raise AssertionError("the survivor was ended")
