"""The programs that are traced; executed by `python -m tools.trace` with the hook in PYTHONPATH.

    python workloads.py publish|ack|spark DIRECTORY WINDOWS

It writes `processes.json` into DIRECTORY: what each process is called.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import zbroker

WARM_UP: Final = 20
REST_S: Final = 0.1  # until nothing of one repetition is left that the next would show
TAIL_S: Final = REST_S / 10  # what follows, such as the confirmation of a receipt
WAIT_S: Final = 60
TOPIC: Final = "orders"
PAYLOAD: Final = b'{"id": 1, "px": 100.5}'
ROWS: Final = 10_000


class Windows:
    """Opens one window after the other."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count = count
        self._folder = folder
        with (folder / "window").open("r+b") as file:
            self._window = mmap.mmap(file.fileno(), 1)

    def repeat(self, once: Callable[[], object]) -> None:
        """Calls it until all is warm, then once in each window."""
        for _ in range(WARM_UP):
            once()
        for number in range(1, self.count + 1):
            time.sleep(REST_S)
            self._window[0] = number
            once()
            time.sleep(TAIL_S)
            self._window[0] = 0

    def name(self, processes: dict[str, int]) -> None:
        """Says which process is which."""
        named = {str(pid): name for name, pid in processes.items()}
        (self._folder / "processes.json").write_text(json.dumps(named))


def publish(windows: Windows) -> None:
    """One message, from `publish()` to its subscriber, and its acknowledgement."""
    with _broker(windows) as broker, zbroker.connect(broker.url, name="trace") as client:
        messages = iter(client.subscribe(TOPIC))

        def once() -> None:
            receipt = client.publish(TOPIC, PAYLOAD)
            next(messages)
            receipt.wait(timeout=WAIT_S)

        windows.repeat(once)


def ack(windows: Windows) -> None:
    """One acknowledgement of a queue's consumer, until it is durable."""
    queue = {"name": "work", "topic": TOPIC}
    with (
        _broker(windows, queue=[queue]) as broker,
        zbroker.connect(broker.url, name="trace") as client,
        client.consume("work") as held,
    ):
        count = WARM_UP + windows.count
        client.publish_many(TOPIC, [PAYLOAD] * count)
        client.flush(timeout=WAIT_S)
        messages = iter(list(islice(held, count)))

        def once() -> None:
            next(messages).ack()
            held.flush(timeout=WAIT_S)

        windows.repeat(once)


def spark(windows: Windows) -> None:
    """The rows of one partition, as an executor reads them from a directory."""
    from zbroker.spark import plan_ranges, replay_arrow

    with _broker(windows) as broker:
        with zbroker.connect(broker.url, name="trace") as client:
            client.publish_many(TOPIC, [PAYLOAD] * ROWS)
            client.flush(timeout=WAIT_S)
        (part,) = plan_ranges(broker.data_dir / "journal", min_partitions=1)

        def once() -> None:
            assert sum(batch.num_rows for batch in replay_arrow(part)) == ROWS

        windows.repeat(once)


@contextmanager
def _broker(windows: Windows, **settings: list[dict[str, str]]) -> Iterator[zbroker.LocalBroker]:
    with zbroker.LocalBroker(settings=settings) as broker:
        windows.name({**broker.pids, "client": os.getpid()})
        yield broker


WORKLOADS: Final = {"publish": publish, "ack": ack, "spark": spark}

if __name__ == "__main__":
    assert Path(zbroker.__file__).is_relative_to(os.environ["ZB_TRACE_TREE"]), zbroker.__file__
    WORKLOADS[sys.argv[1]](Windows(Path(sys.argv[2]), int(sys.argv[3])))
