"""A gigabyte staged and committed at once, while somebody else publishes message by message.

The commit is one small record, so nothing waits for the gigabyte: p99 of a publisher that waits for
each ack is measured alone, while four tasks stage, and while it is committed and read again.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import zbroker
from perf.harness import Result, Setup
from perf.life import during, latencies, steady_publisher
from zbroker.client.stage_commits import commit
from zbroker.spark.sink import STORE_BYTES

BYTES: Final = 1_000_000_000
TASKS: Final = 4
PAYLOAD: Final = b"x" * 1_000
LIST: Final = 1_000  # messages that are given at a time
QUIET_S: Final = 10.0
AFTER_S: Final = 2.0  # after the commit, where what it did would show
STUCK_S: Final = 600.0
PHASES: Final = {
    "staging": "1 GB is staged by four tasks",
    "committing": "1 GB is committed",
    "reading it": "it is read",
}


def beside(setup: Setup) -> list[Result]:
    """p99 of the other publisher; how long the commit took, and the first reader after it."""
    each = BYTES // len(PAYLOAD) // TASKS
    with setup.broker() as broker, steady_publisher(broker.url) as ask:
        phases = {"alone": during(lambda: time.sleep(QUIET_S))}
        setup.tell("staging 1 GB")
        with ThreadPoolExecutor(TASKS) as pool:
            work = [(broker.url, f"task-{n}", each) for n in range(TASKS)]
            phases["staging"] = during(lambda: list(pool.map(lambda one: _stage(*one), work)))
        named = [(f"task-{n}", each) for n in range(TASKS)]
        setup.tell("committing it")
        begun = time.perf_counter()
        commit(broker.url, "perf", 1, named)
        took = time.perf_counter() - begun
        time.sleep(AFTER_S)
        phases["committing"] = (begun, time.perf_counter())
        phases["reading it"] = during(lambda: _read(broker.url, each * TASKS))
        samples = ask()
    return latencies(phases, samples, {"commit_s": round(took, 3), "bytes": BYTES}, PHASES)


def _stage(url: str, token: str, count: int) -> None:
    with zbroker.connect(url, token, stage=token, store_bytes=STORE_BYTES) as client:
        for _ in range(count // LIST):
            client.publish_many("staged", [PAYLOAD] * LIST, timeout=STUCK_S)
        client.flush(STUCK_S)


def _read(url: str, count: int) -> None:
    """All of it, by a subscriber. Raises: AssertionError, if that is not as much."""
    with (
        zbroker.connect(url) as client,
        client.subscribe("staged", since="epoch", until="now") as subscription,
    ):
        found = sum(map(len, subscription.batches(STUCK_S)))
    assert found == count, f"{found} of {count} messages were read"
