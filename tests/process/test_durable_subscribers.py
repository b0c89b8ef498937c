"""Subscribers that are killed again and again while messages come and processes are killed: nothing
is missing. Where results and place are one transaction, nothing comes twice either.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.client.killed_readers import (
    BY_ITERATION,
    IN_ONE_TRANSACTION,
    LINE_BYTES,
    lines,
    rows,
    start,
)
from tests.process.load import until
from tests.process.storm_instance import Instance
from zbroker.client import connect

pytestmark = [pytest.mark.process, pytest.mark.timeout(1_800)]

WAIT_S: Final = 120.0
PART: Final = 10  # messages that are published at a time
LIFE_S: Final = 0.6  # of a subscriber, in what is published meanwhile; at the most
LINGER_S: Final = 0.3  # and after that
TARGETS: Final = ("delivery", "journal", "instance", "ingest", "delivery")


class Feed:
    """Publishes 0, 1, 2, ... at a pace, from a thread, until it is asked to stop."""

    def __init__(self, url: str, per_second: float) -> None:
        self.count = 0
        self._client = connect(url, "feed")
        self._pause_s = PART / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            numbers = range(self.count, self.count + PART)
            self._client.publish_many("t", [b"%d" % number for number in numbers])
            self.count += PART

    def finish(self) -> int:
        """Returns: how many messages there are, all of them persisted."""
        self._stop.set()
        self._thread.join(WAIT_S)
        self._client.flush(WAIT_S)
        return self.count

    def close(self) -> None:
        self._stop.set()
        self._client.close(flush=False)


class Trial:
    """An instance, a feed, and one subscriber after the other."""

    def __init__(self, program: str, directory: Path, per_second: float) -> None:
        self._program, self._directory = program, directory
        self._life_lines = int(LIFE_S * per_second)
        self._rng = random.Random(per_second)
        self._instance = Instance(directory / "data")
        self._feed = Feed(self._instance.url, per_second)
        self._over = threading.Event()
        self._killing = threading.Thread(target=self._kill_processes, daemon=True)
        self._errors: list[BaseException] = []
        self.processes = 0

    def run(self, kills: int) -> int:
        """Kills so many subscribers, and a process at the start of some of their lives.

        Returns: how many messages there are. The last subscriber has come to the newest one.
        """
        self._killing.start()
        for _ in range(kills):
            self._live(self._size() + self._rng.randint(1, self._life_lines) * LINE_BYTES)
        self._stop_killing()
        assert not self._errors, self._errors
        count = self._feed.finish()
        self._live(0, last=count - 1)
        return count

    def close(self) -> None:
        self._stop_killing()
        self._feed.close()
        self._instance.close()

    def _stop_killing(self) -> None:
        """After that the instance runs, and no one starts another one."""
        self._over.set()
        if self._killing.is_alive():
            self._killing.join(WAIT_S)

    def _live(self, size: int, last: int | None = None) -> None:
        """One life: until it has noted so many bytes, or this message."""
        child = start(self._program, self._instance.url, self._directory)
        try:
            until(
                lambda: self._is_far(size, last) or child.poll() is not None, "it goes on", WAIT_S
            )
            threading.Event().wait(self._rng.uniform(0, LINGER_S))
            assert child.poll() is None, child.communicate()[1].decode()
        finally:
            _killed(child)

    def _is_far(self, size: int, last: int | None) -> bool:
        if last is None:
            return self._size() >= size
        return lines(self._directory)[-1:] == [last]

    def _size(self) -> int:
        path = self._directory / "out"
        return path.stat().st_size if path.exists() else 0

    def _kill_processes(self) -> None:
        rng = random.Random(1)
        try:
            # later on less often, so that there is something to come between
            while not self._over.wait(rng.uniform(0.2, 1.5) * (1 + self.processes // len(TARGETS))):
                target = TARGETS[self.processes % len(TARGETS)]
                if target == "instance":
                    self._instance.restart()
                else:
                    self._instance.kill_process(target)
                self.processes += 1
        except BaseException as error:
            self._errors.append(error)


def _killed(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


@pytest.fixture
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    program, per_second = request.param
    made = Trial(program, tmp_path, per_second)
    yield made
    made.close()


def judge_at_least_once(noted: list[int], count: int, lives: int) -> None:
    """No life leaves anything out; one goes on after what another one noted, or before."""
    assert noted[0] == 0
    assert set(noted) == set(range(count))
    high, turns = 0, 0
    for one, following in pairwise(noted):
        high = max(high, one)
        turns += following != one + 1
        assert following <= high + 1, f"{following} follows {one}, {high + 1} was left out"
    assert turns < lives, f"{turns} times something came again, in {lives} lives"


@pytest.mark.seed("002-26")
@pytest.mark.seed("002-28")
@pytest.mark.parametrize("trial", [(BY_ITERATION, 500)], indirect=True)
def test_a_subscriber_that_is_killed_misses_nothing(trial: Trial, tmp_path: Path) -> None:
    count = trial.run(kills=5)
    judge_at_least_once(lines(tmp_path), count, lives=6)
    assert trial.processes


@pytest.mark.long
@pytest.mark.seed("002-29")
@pytest.mark.parametrize("trial", [(IN_ONE_TRANSACTION, 100)], indirect=True)
def test_what_is_one_transaction_with_its_place_counts_once(trial: Trial, tmp_path: Path) -> None:
    count = trial.run(kills=5)
    assert rows(tmp_path) == list(range(count))
    assert trial.processes


@pytest.mark.long
@pytest.mark.parametrize("trial", [(BY_ITERATION, 500)], indirect=True)
def test_a_subscriber_that_is_killed_fifty_times_misses_nothing(
    trial: Trial, tmp_path: Path
) -> None:
    count = trial.run(kills=50)
    judge_at_least_once(lines(tmp_path), count, lives=51)
    assert trial.processes


@pytest.mark.long
@pytest.mark.parametrize("trial", [(IN_ONE_TRANSACTION, 100)], indirect=True)
def test_what_is_one_transaction_with_its_place_counts_once_in_fifty_lives(
    trial: Trial, tmp_path: Path
) -> None:
    count = trial.run(kills=50)
    assert rows(tmp_path) == list(range(count))
    assert trial.processes


# -- the test of the test -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noted",
    [
        [0, 1, 3],
        [0, 1, 2],
        [1, 2, 3],
        [0, 1, 3, 1, 2, 3],
        [0, 2, 1, 3],
        [0, 0, 1, 1, 2, 2, 3, 3],
    ],
    ids=["missing", "end", "beginning", "left out at first", "swapped", "too often"],
)
def test_what_is_not_at_least_once_is_noticed(noted: list[int]) -> None:
    judge_at_least_once([0, 1, 2, 2, 3], 4, lives=2)
    with pytest.raises(AssertionError):
        judge_at_least_once(noted, 4, lives=2)
