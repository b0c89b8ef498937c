"""A worker of the demo, as a process: `python -m zbroker.demo.worker URL NAME FILE`.

It takes flights from the queue, adds each delivery to its own SQLite file, one transaction for each
batch, and acknowledges them after that. A flight that comes again, since a worker died between its
two steps, is there twice with one bookmark, and counts once. A message that is not a flight is
rejected.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from zbroker.client import connect
from zbroker.demo import deliveries
from zbroker.demo.flights import FlightDelay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zbroker.client.consumer.message import QueueMessage

QUEUE: Final = "flights-work"
BACKLOG: Final = 1_000

_DECODE: Final = msgspec.json.Decoder(FlightDelay).decode


def main(url: str, name: str, file: str) -> None:
    """Works until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    own = sqlite3.connect(Path(file))
    own.execute(deliveries.TABLE)
    with connect(url, name=name) as client:
        consumer = client.consume(QUEUE, backlog=BACKLOG)
        for batch in consumer.batches():
            done = _work(own, batch)
            consumer.ack(done)


def _work(own: sqlite3.Connection, batch: Sequence[QueueMessage]) -> list[QueueMessage]:
    """Those that are flights, counted and stored; the others are rejected."""
    rows, done = [], []
    for message in batch:
        try:
            flight = _DECODE(message.data)
        except msgspec.MsgspecError as error:
            message.reject(reason=f"this is not a flight: {error}")
            continue
        rows.append((message.bookmark, message.redelivered, flight.carrier, flight.arr_delay))
        done.append(message)
    with own:
        own.executemany(deliveries.INSERT, rows)
    return done


if __name__ == "__main__":
    main(*sys.argv[1:])
