"""Starting: from the command to the line `ready`, with an empty log and with 1 GB of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zbroker
from perf.harness import Result, Setup, payloads

LOG_BYTES: Final = 1_000_000_000
MESSAGE_BYTES: Final = 1_000
PUBLISHED_AT_ONCE: Final = 10_000
IMPORTS: Final = "import zmq, msgspec, lmdb, zbroker.wire.codec"


def ready(setup: Setup) -> list[Result]:
    """The limit is a Python that imports what every process needs, and ends."""
    directory = Path(tempfile.mkdtemp(prefix="start-", dir=setup.directory))
    try:
        empty = _measure(
            setup, "start, empty log", "<= 0.2 s", lambda number: directory / f"empty-{number}"
        )
        _fill(directory / "full")
        full = _measure(setup, "start, 1 GB log", "<= 1 s", lambda _: directory / "full")
        return [empty, full]
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _measure(setup: Setup, name: str, target: str, place: Callable[[int], Path]) -> Result:
    ours, limit = [], []
    for number in setup.each_round(name):
        begun = time.perf_counter()
        with zbroker.LocalBroker(place(number)):
            ours.append((time.perf_counter() - begun) * 1e3)
        limit.append(_imports())
    limit_name = "one Python with the same imports"
    return Result(name, "ms", ours, limit, limit_name, target, lower_is_better=True)


def _imports() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=60)
    return (time.perf_counter() - begun) * 1e3


def _fill(directory: Path) -> None:
    bodies = payloads(PUBLISHED_AT_ONCE, MESSAGE_BYTES)
    settings = {"journal": {"segment_size": "256MiB"}}
    with (
        zbroker.LocalBroker(directory, settings=settings) as broker,
        zbroker.connect(broker.url, "fill") as client,
    ):
        for _ in range(LOG_BYTES // MESSAGE_BYTES // PUBLISHED_AT_ONCE):
            client.publish_many("fill", bodies)
        client.flush(timeout=300)
