"""Who acts in the rounds of a queue: publishers, worker processes, and a person that takes over."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.torture.replicated_host import HostedPeer
from tests.torture.rounds_load import PUT_S, TOPIC, NumberPublisher
from zbroker.errors import ZBrokerError

BURST: Final = 4  # messages between two pauses
LOOK_S: Final = 0.2
END_S: Final = 10.0
UNTIL_BACK: Final = 0.4  # share of the takeovers that go on


class QueuePublisher(NumberPublisher):
    """Publishes so many messages, and then nothing any more."""

    def __init__(
        self, name: str, urls: Sequence[str], log: Callable[[str], None], count: int
    ) -> None:
        super().__init__(name, urls, log)
        self._count = count

    @property
    def is_over(self) -> bool:
        return bool(self.errors) or self.sent >= self._count

    def step(self) -> None:
        for _ in range(min(BURST, self._count - self.sent)):
            self.client.publish(TOPIC, b"%s:%d" % (self.name.encode(), self.sent), timeout=PUT_S)
            self.sent += 1


class Crowd:
    """Worker processes; one that died has a successor. Each writes lines into a file of its own."""

    def __init__(
        self, queue: str, urls: Mapping[str, str], lines: Path, logs: Path, seed: float
    ) -> None:
        self._queue, self._urls, self._lines = queue, urls, lines
        self._rng = random.Random(seed)
        self._errors = (logs / "workers").open("ab")
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._codes: set[int | None] = set()
        self.deaths = 0
        self._wanted = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._replace, daemon=True)
        self._thread.start()

    def start(self, count: int, mode: str, first: str = "") -> None:
        """So many more. first: the only instance of diligent ones."""
        self._mode = mode
        with self._lock:
            for _ in range(count):
                self._start(first)
        if mode == "loose":
            self._wanted.set()

    def _start(self, first: str) -> None:
        self._started += 1
        name = f"w{self._started}"
        places = [f"{each}={url}" for each, url in self._urls.items() if first in ("", each)]
        command = [
            sys.executable, "-m", "tests.torture.queue_worker", name,
            str(self._rng.randrange(1 << 32)), str(self._lines / name), self._queue, self._mode,
            *places,
        ]  # fmt: skip
        self._running.append(subprocess.Popen(command, stderr=self._errors))

    def _replace(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                if not self._wanted.is_set():
                    continue
                for one in [one for one in self._running if one.poll() is not None]:
                    self._running.remove(one)
                    self._codes.add(one.returncode)
                    self.deaths += 1
                    self._start("")

    def check(self) -> None:
        """Asserts that loose workers end by kills only, and diligent ones not at all."""
        with self._lock:
            codes = {one.poll() for one in self._running} | self._codes
        expected = {None, -signal.SIGKILL} if self._wanted.is_set() else {None}
        assert codes <= expected, f"workers ended by themselves: {codes}"

    def end(self) -> None:
        """Kills all of them, with what they hold."""
        self.check()
        self._kill()

    def _kill(self) -> None:
        self._wanted.clear()
        with self._lock:
            running, self._running = self._running, []
        for one in running:
            one.kill()
        for one in running:
            one.wait(END_S)
        self._codes.clear()

    def close(self) -> None:
        self._over.set()
        self._thread.join(END_S)
        self._kill()
        self._errors.close()


class Takeovers:
    """A person that takes over at any moment, whether the owner is away or not."""

    def __init__(
        self, peers: Sequence[HostedPeer], queue: str, rng: random.Random,
        log: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._peers, self._queue, self._rng, self._log = peers, queue, rng, log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0
        self.moved = 0

    def start(self) -> None:
        self._ids = {peer.name: str(peer.ask("/journal")["instance"]) for peer in self._peers}
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(END_S)

    def _run(self) -> None:
        while not self._over.wait(self._rng.uniform(0.5, 3)):
            here, away = self._rng.sample(list(self._peers), 2)
            body: dict[str, Any] = {"instance": self._ids[away.name], "called": away.name}
            if self._rng.random() < UNTIL_BACK:
                body["until_back"] = True  # refused while that instance is there
            try:
                done = here.tell(f"/queues/{self._queue}/takeover", body)
            except ZBrokerError as error:
                self._log(f"{here.name} takes over from {away.name}: {error}")
                continue
            until_back = "until_back" in body
            more = ", and what comes" if until_back else ""
            self._log(f"{here.name} takes over {done['count']} from {away.name}{more}")
            self.count += until_back or done["count"] > 0
            self.moved += done["count"]
