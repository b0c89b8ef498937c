"""kill -9 of a subscriber at random points: nothing is missing, little or nothing comes twice.

Each child is killed when it has noted some more messages; the last one reads to the end. However
late the kill comes, a child does not get beyond its part of the log.
"""

from __future__ import annotations

import random
import signal
from collections import Counter

import pytest

from tests.client.fakes import wait_until
from tests.client.killed_readers import (
    BY_ITERATION,
    IN_ONE_TRANSACTION,
    OUT_OF_ORDER,
    lines,
    rows,
    start,
)
from zbroker.client import connect
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KILLS = 4
T = 60.0


def run(program, directory, count):
    """Kills KILLS children; one more reads to the end."""
    rng, part = random.Random(count), count // (KILLS + 1)
    with LocalBroker() as broker:
        with connect(broker.url, "writer") as writer:
            writer.publish_many("t", [b"%d" % n for n in range(count)])
            writer.flush(T)
        for _ in range(KILLS):
            goal = len(lines(directory)) + rng.randint(1, part)
            with start(program, broker.url, directory, "now", most=part) as child:
                try:
                    wait_until(lambda: len(lines(directory)) >= goal or ended(child), T)  # noqa: B023
                finally:
                    child.kill()
                assert child.wait(T) == -signal.SIGKILL, child.stderr.read().decode()
        with start(program, broker.url, directory, "now") as child:
            try:
                assert child.wait(T) == 0, child.stderr.read().decode()
            finally:
                child.kill()


def ended(child):
    return child.poll() is not None


@pytest.mark.seed("002-26")
def test_every_message_is_processed_at_least_once(tmp_path):
    run(BY_ITERATION, tmp_path, 20_000)
    assert set(lines(tmp_path)) == set(range(20_000))


@pytest.mark.seed("002-29")
def test_with_sync_only_the_message_in_hand_comes_again(tmp_path):
    run(OUT_OF_ORDER, tmp_path, 300)
    got = lines(tmp_path)
    assert set(got) == set(range(300))
    again = [number for number, times in Counter(got).items() if times > 1]
    assert len(got) - 300 <= KILLS, again


def test_in_one_transaction_with_the_results_each_counts_once(tmp_path):
    run(IN_ONE_TRANSACTION, tmp_path, 300)
    assert rows(tmp_path) == list(range(300))
