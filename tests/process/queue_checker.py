"""What went through a queue, message by message: lost, unexpected, delivered again without a flag.

Eight consumer processes write down what they are given (tests/process/queue_worker.py); they are
killed and frozen at random, and so is the queues process. What they wrote is compared with what was
published and with the dead letters.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.process.load import until, until_running
from zbroker.client import connect
from zbroker.control.target import Admin
from zbroker.local import LocalBroker

BATCH = 500
DRAIN_S = 120.0


@dataclass
class Found:
    """The verdict. again: deliveries beyond the first one of a message, all of them flagged."""

    published: int
    lost: list[int] = field(default_factory=list)
    unexpected: list[int] = field(default_factory=list)
    unflagged: list[int] = field(default_factory=list)
    again: int = 0
    dead: int = 0
    kills: dict[str, int] = field(default_factory=dict)


class Workers:
    """Consumer processes of one queue."""

    def __init__(self, broker: LocalBroker, queue: str, directory: Path, mode: str) -> None:
        self._broker, self._queue, self._directory, self._mode = broker, queue, directory, mode
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self, count: int) -> None:
        """So many more."""
        for _ in range(count):
            self._started += 1
            number = str(self._started)
            command = [
                sys.executable, "-m", "tests.process.queue_worker", self._broker.url, self._queue,
                f"worker-{number}", str(self._directory / f"worker-{number}"), number, self._mode,
            ]  # fmt: skip
            self._running.append(subprocess.Popen(command))

    def kill(self, rng: random.Random) -> None:
        """Ends one at once; another one comes."""
        one = self._running.pop(rng.randrange(len(self._running)))
        one.kill()
        one.wait(10)
        self.start(1)

    def freeze(self, rng: random.Random, seconds: float) -> None:
        """Stops one for a while."""
        one = rng.choice(self._running)
        one.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        one.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends all of them."""
        for one in self._running:
            one.send_signal(signal.SIGCONT)
            one.kill()
        for one in self._running:
            one.wait(10)

    def given(self) -> Counter[tuple[int, bool]]:
        """How often each message was given, with and without a flag."""
        counts: Counter[tuple[int, bool]] = Counter()
        for path in self._directory.glob("worker-*"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                number, deliveries = line.split()
                counts[int(number), int(deliveries) > 1] += 1
        return counts


def queue_row(broker: LocalBroker, queue: str) -> dict[str, Any]:
    """What the admin tells of a queue; `read`: the position that it has read the log to."""
    running = json.loads((broker.data_dir / "run" / "instance.json").read_text())
    reported = Admin(running["endpoints"]["admin"], broker.data_dir).ask("/queues")
    row = next(row for row in reported["queues"] if row["name"] == queue)
    return {**row, "read": reported["persisted"] - row["behind"]}


def depth(broker: LocalBroker, queue: str) -> int:
    """Messages in the queue; many, while the queues process is away."""
    try:
        return int(queue_row(broker, queue)["depth"])
    except Exception:
        return 1 << 30


def is_drained(broker: LocalBroker, queue: str, end: int) -> bool:
    """True if nothing of the log before `end` is left; False while the queues process is away.

    One that has just begun again may not have heard of all of the log yet.
    """
    try:
        row = queue_row(broker, queue)
    except Exception:
        return False
    return row["read"] >= end and row["depth"] == 0


def run(
    directory: Path, *, messages: int, seed: int, mode: str = "mixed", semantics: str = "",
    workers: int = 8, harms: int = 12,
) -> Found:  # fmt: skip
    """Publishes, consumes under kills and freezes, drains, compares."""
    rng = random.Random(seed)
    queue = {"name": "work", "topic": "jobs", "lease": "2s", "dead_letter": "dead"}
    if semantics:
        queue = {"name": "work", "topic": "jobs", "semantics": semantics}
    kills: Counter[str] = Counter()
    with LocalBroker(settings={"queue": [queue]}) as broker:
        crowd = Workers(broker, "work", directory, mode)
        try:
            crowd.start(workers)
            with connect(broker.url, "publisher") as client:
                for first in range(0, messages, BATCH):
                    payloads = [b"%d" % n for n in range(first, min(first + BATCH, messages))]
                    client.publish_many("jobs", payloads)
                    if rng.random() < harms * BATCH / messages:
                        kills[_harm(rng, broker, crowd)] += 1
                client.flush(timeout=60)
            end = broker.ask("/journal")["persisted"]
            until(lambda: is_drained(broker, "work", end), "the queue is drained", DRAIN_S)
            dead = _dead(broker)
        finally:
            crowd.close()
        return _compare(messages, crowd.given(), dead, dict(kills))


def _harm(rng: random.Random, broker: LocalBroker, crowd: Workers) -> str:
    what = rng.choice(["worker", "worker", "frozen", "queues", "queues", "journal", "zygote"])
    if what == "worker":
        crowd.kill(rng)
    elif what == "frozen":
        crowd.freeze(rng, rng.choice([0.2, 2.5]))
    else:
        pid = until_running(broker, what, 0)
        os.kill(pid, signal.SIGKILL)
        until_running(broker, what, pid)
    return what


def _dead(broker: LocalBroker) -> set[int]:
    """What is in the dead letter topic."""
    with connect(broker.url, "undertaker") as client:
        last = client.publish("dead-end", b"-")
        last.wait(timeout=30)
        return {
            int(message.data)
            for message in client.subscribe("dead", since="epoch", until=last.bookmark)
        }


def _compare(
    messages: int, given: Counter[tuple[int, bool]], dead: set[int], kills: dict[str, int]
) -> Found:
    seen = {number for number, _ in given}
    everything = set(range(messages))
    return Found(
        messages,
        lost=sorted(everything - seen - dead),
        unexpected=sorted((seen | dead) - everything),
        unflagged=sorted(n for (n, flagged), count in given.items() if not flagged and count > 1),
        again=sum(given.values()) - len(seen),
        dead=len(dead),
        kills=kills,
    )
