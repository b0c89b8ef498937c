"""kill -9 of a subscriber at random points: nothing is missing, little or nothing comes twice.

Each child notes what it has processed, a line per message, and is killed when there are some more
of them; the last one reads to the end.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest

from tests.client.fakes import wait_until
from zbroker.client import connect
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KILLS = 4
T = 60.0

_BEGIN = """
import os, random, sys, zbroker
url, directory = sys.argv[1:]
out = os.open(f"{directory}/out", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
def note(message):
    os.write(out, message.data + b"\\n")
"""

BY_ITERATION = (
    _BEGIN
    + """
with zbroker.FileBookmarkStore(f"{directory}/marks", commit="5ms") as store:
    with zbroker.connect(url, "reader", bookmark_store=store) as client:
        for message in client.subscribe("t", since="recent", name="s", until="now"):
            note(message)
"""
)

OUT_OF_ORDER = (
    _BEGIN
    + """
with zbroker.FileBookmarkStore(f"{directory}/marks", sync=True) as store:
    with zbroker.connect(url, "reader", bookmark_store=store) as client:
        subscription = client.subscribe(
            "t", since="recent", name="s", until="now", discard="manual")
        while True:
            window = [m for m in (subscription.next() for _ in range(20)) if m is not None]
            random.shuffle(window)
            for message in window:
                note(message)
                subscription.discard(message)
            if not window:
                break
"""
)

IN_ONE_TRANSACTION = (
    _BEGIN
    + """
import sqlite3
base = sqlite3.connect(f"{directory}/base")
base.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER)")
base.execute("CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY, vector TEXT)")
found = base.execute("SELECT vector FROM place").fetchone()
with zbroker.connect(url, "reader") as client:
    subscription = client.subscribe("t", since=found[0] if found else "epoch", until="now")
    for message in subscription:
        with base:
            base.execute("INSERT INTO results VALUES (?)", [int(message.data)])
            base.execute("REPLACE INTO place VALUES (1, ?)", [subscription.vector])
        note(message)
"""
)


def lines(directory):
    path = directory / "out"
    return [int(line) for line in path.read_bytes().split()] if path.exists() else []


def rows(directory):
    with closing(sqlite3.connect(directory / "base")) as base:
        return [number for (number,) in base.execute("SELECT number FROM results")]


def start(program, url, directory):
    command = [sys.executable, "-c", program, url, str(directory)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def run(program, directory, count):
    """How many children were killed before one came to the end."""
    rng, killed = random.Random(count), 0
    with LocalBroker() as broker:
        with connect(broker.url, "writer") as writer:
            writer.publish_many("t", [b"%d" % n for n in range(count)])
            writer.flush(T)
        for number in range(KILLS + 1):
            with start(program, broker.url, directory) as child:
                if number < KILLS:
                    goal = len(lines(directory)) + rng.randint(1, count // (KILLS + 2))
                    wait_until(lambda: len(lines(directory)) >= goal or ended(child), T)  # noqa: B023
                    child.kill()
                said = child.communicate(timeout=T)[1].decode()
                assert child.returncode in (0, -signal.SIGKILL), said
                killed += child.returncode != 0
    return killed


def ended(child):
    return child.poll() is not None


def test_every_message_is_processed_at_least_once(tmp_path):
    assert run(BY_ITERATION, tmp_path, 20_000), "a child was killed before the end"
    assert set(lines(tmp_path)) == set(range(20_000))


def test_with_sync_only_the_message_in_hand_comes_again(tmp_path):
    assert run(OUT_OF_ORDER, tmp_path, 300) == KILLS
    got = lines(tmp_path)
    assert set(got) == set(range(300))
    again = [number for number, times in Counter(got).items() if times > 1]
    assert len(got) - 300 <= KILLS, again


def test_in_one_transaction_with_the_results_each_counts_once(tmp_path):
    assert run(IN_ONE_TRANSACTION, tmp_path, 300) == KILLS
    assert rows(tmp_path) == list(range(300))
