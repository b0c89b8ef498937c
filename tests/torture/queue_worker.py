"""A worker of the rounds of a queue: takes messages at any instance, and writes down what happens.

    python -m tests.torture.queue_worker NAME SEED FILE QUEUE MODE INSTANCE=URL...

MODE: `loose` dies at any moment, with what it holds, and goes from instance to instance; what it
took at one it forgets, or acknowledges by bookmark at the next. `diligent` stays at the first one
and acknowledges everything. It ends when it is killed. Lines: see queue_judge.py.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.torture.bookmark_acks import BookmarkAcks
from zbroker.client import Client, Consumer, connect
from zbroker.errors import ZBrokerError

HEARTBEAT: Final = "1s"
LOGON_S: Final = 4.0
FLUSH_S: Final = 4.0
IDLE_S: Final = 0.2
AGAIN_S: Final = 0.2
TRIES: Final = 3  # of an acknowledgement by bookmark: the instance may not have the message yet
DIES: Final = 0.03  # share of the batches
MOVES: Final = 0.06
RELEASES: Final = 0.03
CARRIES: Final = 0.5  # else what it held is forgotten, and has to come again
WORKS_S: Final = (0.0, 0.0, 0.05, 0.1, 0.4)  # with a batch: most faults have to hit held messages


class Place(NamedTuple):
    """An instance, and where its clients come in."""

    instance: str
    url: str


class Carried(NamedTuple):
    """A message that was taken elsewhere, and is done. tries: that are left."""

    message: str
    bookmark: str
    tries: int


class LoggedWorker:
    """One program over its whole life."""

    def __init__(self, name: str, rng: random.Random, log: int, queue: str) -> None:
        self.name, self.rng, self.queue = name, rng, queue
        self._log = log
        self._lives = 0
        self._carried: list[Carried] = []

    def write(self, lines: Sequence[str]) -> None:
        """One write: a kill leaves all of it or none."""
        os.write(self._log, "".join(f"{line}\n" for line in lines).encode())

    def die(self, share: float = DIES) -> None:
        """Perhaps: with everything that it holds."""
        if self.rng.random() < share:
            os.kill(os.getpid(), signal.SIGKILL)

    # -- at one instance --------------------------------------------------------------------------

    def work(self, place: Place, *, diligent: bool) -> None:
        """Until it goes elsewhere. Raises: ZBrokerError, also if the instance is not there."""
        self._lives += 1
        name = f"{self.name}-{self._lives}"
        client = connect(place.url, name, heartbeat=HEARTBEAT, timeout=LOGON_S)
        try:
            self._acknowledge_here(place, f"{name}-hand")
            self._consume(client, place, diligent=diligent)
        finally:
            client.close(flush=False)

    def _acknowledge_here(self, place: Place, name: str) -> None:
        """What it brought along. The last try is the end: then the lease brings it to another."""
        carried = self._carried
        if not carried:
            return
        with BookmarkAcks(place.url, name, self.queue) as acks:
            taken = acks.settle([one.bookmark for one in carried])
            now_ns = time.monotonic_ns()
        self.write(
            [f"done {one.message} {place.instance} {now_ns} 1"
             for one in carried if one.bookmark in taken]
        )  # fmt: skip
        self._carried = [
            one._replace(tries=one.tries - 1)
            for one in carried if one.bookmark not in taken and one.tries > 1
        ]  # fmt: skip

    def _consume(self, client: Client, place: Place, *, diligent: bool) -> None:
        session = _Session(place.instance)
        backlog = 100 if diligent else self.rng.choice((1, 5, 20))
        consumer = client.consume(self.queue, backlog=backlog, timeout=LOGON_S)
        batch: list[Any] = []
        try:
            while True:
                batch = consumer.fetch(backlog, timeout=IDLE_S)
                if not batch:
                    if not diligent and self.rng.random() < MOVES:
                        break
                    continue
                self.write(session.given(batch))
                if not diligent and self._is_enough(consumer, batch):
                    break
                consumer.ack(batch)
                if not diligent:
                    self.die(DIES / 2)
                self._wait(session, consumer, batch)
                batch = []
        finally:
            if self.rng.random() < CARRIES:
                self._carried += [Carried(_named(one), one.bookmark, TRIES) for one in batch]
            # as a program that fails over: what it holds is neither done nor given back there
            consumer.close(flush=False, timeout=0)

    def _is_enough(self, consumer: Consumer, batch: list[Any]) -> bool:
        """Whether it goes elsewhere with what it holds. It may die, or give back one."""
        time.sleep(self.rng.choice(WORKS_S))
        self.die()
        if self.rng.random() < RELEASES:
            batch.pop().release(delay=self.rng.choice((0, 0.1)))
        return self.rng.random() < MOVES

    def _wait(self, session: _Session, consumer: Consumer, batch: list[Any]) -> None:
        """For the answer to what was acknowledged."""
        asked_ns = time.monotonic_ns()
        consumer.flush(FLUSH_S)
        now_ns = time.monotonic_ns()
        self.write([f"done {_named(one)} {session.instance} {now_ns} 0" for one in batch])
        session.answered(asked_ns, consumer.held)


class _Session:
    """A consumer at an instance: since when what comes was sent there.

    What was not handed out yet when an answer came may have been sent before it; messages come in
    the order in which they were sent.
    """

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self._handed_out = 0
        self._since_ns = time.monotonic_ns()
        self._marks: deque[tuple[int, int]] = deque()

    def given(self, batch: Sequence[Any]) -> list[str]:
        """The lines of what was handed out."""
        lines = []
        for one in batch:
            self._handed_out += 1
            while self._marks and self._handed_out > self._marks[0][0]:
                self._since_ns = self._marks.popleft()[1]
            lines.append(f"given {_named(one)} {self.instance} {self._since_ns} {one.deliveries}")
        return lines

    def answered(self, asked_ns: int, waiting: int) -> None:
        """A question of this moment has its answer, and so many messages wait."""
        self._marks.append((self._handed_out + waiting, asked_ns))


def _named(message: Any) -> str:
    return bytes(message.data).decode()


def main(name: str, seed: str, file: str, queue: str, mode: str, *instances: str) -> None:
    """Works until it is killed."""
    places = [Place(*each.split("=", 1)) for each in instances]
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    worker = LoggedWorker(name, random.Random(seed), log, queue)
    place = worker.rng.choice(places)
    diligent = mode == "diligent"
    while True:
        if not diligent:
            place = worker.rng.choice(places)
        try:
            worker.work(place, diligent=diligent)
        except ZBrokerError as error:
            sys.stderr.write(f"{time.monotonic():.3f} {name} at {place.instance}: {error}\n")
            time.sleep(AGAIN_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
