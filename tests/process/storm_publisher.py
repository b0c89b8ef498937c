"""A publisher that is killed again and again: run as a program, with a store and ledgers in files.

    python -m tests.process.storm_publisher URL NAME DIRECTORY THREADS PER_SECOND SEED

Publishes until there is a file `stop` in its directory; exit code 0: all of it is persisted.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tests.process.storm_ledger import Call, Content, Ledger, calls, contents
from zbroker.client import Client, connect

MANY_MAX: Final = 60
FLUSH_S: Final = 120.0
BURST_S: Final = 0.01  # mean of the pauses


class Line:
    """One thread that publishes numbers from where its ledger ends."""

    def __init__(self, client: Client, number: int, directory: Path, rng: random.Random) -> None:
        self.errors: list[BaseException] = []
        self._client, self._number, self._rng = client, number, rng
        self._ledger = Ledger(ledger_of(directory, number))
        self._stop = directory / "stop"

    def run(self, per_second: float) -> None:
        due = time.monotonic()
        try:
            while not self._stop.exists():
                due += self._call() / per_second
                # in bursts: several messages make a batch, and some are staged after it
                if due - time.monotonic() > self._rng.expovariate(1 / BURST_S):
                    time.sleep(max(0.0, due - time.monotonic()))
        except BaseException as error:
            self.errors.append(error)
        self._ledger.close()

    def _call(self) -> int:
        count = self._rng.choice((1, 1, 1, 1, 1, self._rng.randint(2, MANY_MAX)))
        messages = contents(self._number, self._ledger.end, count)
        self._ledger.begins(count)
        if count == 1:
            self._publish(messages[0])
        else:
            self._client.publish_many(messages[0].topic, [each.data for each in messages])
        self._ledger.returned(count)
        return count

    def _publish(self, message: Content) -> None:
        if message.plain:
            self._client.publish(message.topic, message.data)
        else:
            self._client.publish(
                message.topic, message.data, key=message.key, headers=message.headers,
                expires=message.expires_ns,
            )  # fmt: skip


def ledger_of(directory: Path, line: int) -> Path:
    return directory / f"{line}.ledger"


def main(url: str, name: str, directory: Path, threads: int, per_second: float, seed: int) -> int:
    with connect(url, name, publish_store=directory / "store", timeout=FLUSH_S) as client:
        rng = random.Random(seed)
        lines = [Line(client, n, directory, random.Random(rng.random())) for n in range(threads)]
        running = [
            threading.Thread(target=line.run, args=(per_second / threads,)) for line in lines
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        client.flush(FLUSH_S)
    errors = [repr(error) for line in lines for error in line.errors]
    sys.stderr.write("\n".join(errors))
    return 1 if errors else 0


# -- for who starts it ----------------------------------------------------------------------------


class Child:
    """Such a program: its life so far, and the next ones."""

    def __init__(self, url: str, name: str, directory: Path, threads: int, seed: int) -> None:
        directory.mkdir()
        self.name, self.directory, self.lines = name, directory, range(threads)
        self.kills = 0
        self._url, self._seed = url, seed
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, per_second: float) -> None:
        words = [self._url, self.name, self.directory, len(self.lines), per_second]
        seed = self._seed * 1_000 + self.kills
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.process.storm_publisher", *map(str, words), str(seed)],
            stderr=subprocess.PIPE,
        )

    def calls(self, line: int) -> list[Call]:
        return calls(ledger_of(self.directory, line))

    def progress(self) -> int:
        """Bytes of notes: grows with each call."""
        paths = [ledger_of(self.directory, line) for line in self.lines]
        return sum(path.stat().st_size for path in paths if path.exists())

    def returned(self) -> int:
        """Messages whose call has returned."""
        found = [call for line in self.lines for call in self.calls(line)]
        return sum(call.size for call in found if call.returned)

    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def kill(self) -> None:
        assert self._process is not None
        if self.has_ended():
            self.end()
            raise AssertionError(f"{self.name} ended before it was asked to")
        self._process.kill()
        self._process.communicate()
        self.kills += 1

    def stop(self) -> None:
        """Asks it to end by itself."""
        (self.directory / "stop").touch()

    def end(self) -> None:
        """Waits until it has; fails with what it said if something was wrong."""
        assert self._process is not None
        said = self._process.communicate(timeout=2 * FLUSH_S)[1].decode()
        assert self._process.returncode == 0, f"{self.name}: {self._process.returncode}: {said}"

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


if __name__ == "__main__":
    url, name, directory, *numbers = sys.argv[1:]
    sys.exit(main(url, name, Path(directory), int(numbers[0]), float(numbers[1]), int(numbers[2])))
