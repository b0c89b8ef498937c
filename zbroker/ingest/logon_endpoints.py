"""Which doors a logon is told: of several delivery workers one. Pure.

A connection is told the same worker as long as it lives. The workers get as many connections each;
among those with the fewest the client's name decides, so that connections that come by turns, a
publisher, a subscriber, a publisher, do not put all subscribers in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from zbroker.config import Config, doors


class Spread:
    """How many connections were told of each delivery worker; workers count from 0."""

    def __init__(self, workers: int) -> None:
        self.told = [0] * workers

    def join(self, name: str) -> int:
        """The worker for a new connection of the client `name`."""
        fewest = min(self.told)
        free = [worker for worker, told in enumerate(self.told) if told == fewest]
        worker = free[crc32(name.encode()) % len(free)]
        self.told[worker] += 1
        return worker

    def leave(self, worker: int) -> None:
        """A connection is over."""
        self.told[worker] -= 1


def endpoints_for(worker: int, rooms: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """What a logon is told of the `known` endpoints; `rooms` are the delivery workers.

    While its worker is not known, because it has not started yet, another one stands for it.
    """
    told = {door: at for door, at in known.items() if door != "ingest" and door not in rooms}
    found = [known[room] for room in (rooms[worker], *rooms) if room in known]
    return {"delivery": found[0], **told} if found else told


def missing(config: Config, known: Mapping[str, str]) -> list[str]:
    """The other listeners of an instance that are not `known` yet."""
    return [room for room in doors(config) if room != "ingest" and room not in known]
