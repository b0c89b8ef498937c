"""A consumer process: writes down what it was given, then acks, releases, rejects, at random.

    python -m tests.process.queue_worker URL QUEUE NAME FILE SEED MODE

MODE: `mixed`, or `ack`. A line for each message, before anything is done with it: its payload and
its delivery count. It ends when it is killed, or by SIGTERM.
"""

from __future__ import annotations

import random
import signal
import sys
from pathlib import Path

import zbroker
from zbroker.errors import ZBrokerError

RELEASED: float = 0.02  # share of the batches of which some are released
START_S: float = 60.0  # after many kills the queues process is away for seconds each time
REJECTED: float = 0.0005  # share of the messages that are rejected


def main(url: str, queue: str, name: str, file: str, seed: str, mode: str) -> None:
    """Consumes until it is asked to stop."""
    rng = random.Random(int(seed))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Path(file).open("ab", buffering=0) as log, zbroker.connect(url, name=name) as client:
        consumer = client.consume(queue, backlog=200, timeout=START_S)
        for batch in consumer.batches():
            log.write(b"".join(b"%s %d\n" % (m.data, m.deliveries) for m in batch))
            try:
                _settle(consumer, batch, rng if mode == "mixed" else None)
            except ZBrokerError as error:
                sys.stderr.write(f"{name}: {error}\n")


def _settle(consumer, batch, rng) -> None:  # type: ignore[no-untyped-def]
    if rng is None:
        consumer.ack(list(batch))
        return
    kept = list(batch)
    if rng.random() < RELEASED:
        back = kept[: rng.randint(1, 5)]
        kept = kept[len(back) :]
        for message in back:
            message.release(delay=rng.choice([0, 0, 0.05]))
    for message in list(kept):
        if rng.random() < REJECTED:
            message.reject(reason="by chance")
            kept.remove(message)
    if kept:
        consumer.ack(kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
