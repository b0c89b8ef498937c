"""Replays from anywhere, by several subscribers at a time, while publishers go on and processes are
killed: each is exactly the log's slice, also where it goes over into what is published meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.process.load import until
from tests.process.replaying import FIRST_KILLS, Trial, kill_process
from tests.process.slices import Book, Edge, Replay
from zbroker.cli.journal.rows import MessageRow
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(1_800)]

READERS = 4
T = 30.0
TRIALS = 10  # of the long test: each with a broker of its own, so that the logs stay short


def replayed(seed: int, replays: int, per_second: int) -> tuple[int, int]:
    """Runs one trial; the messages that were compared, and how many processes were killed."""
    with LocalBroker(settings={"journal": {"segment_size": "1MiB"}}) as broker:
        trial = Trial(broker, seed, per_second)
        try:
            return trial.run(replays, READERS), trial.kills
        finally:
            trial.close()


@pytest.mark.seed("004-04")
@pytest.mark.seed("004-10")
@pytest.mark.seed("004-44")
@pytest.mark.seed("004-45")
@pytest.mark.seed("004-49")
def test_replays_during_load_and_kills_are_the_log() -> None:
    messages, kills = replayed(seed=1, replays=20, per_second=3_000)
    assert messages > 1_000
    assert kills >= len(FIRST_KILLS)


@pytest.mark.seed("004-10")
@pytest.mark.seed("004-45")
@pytest.mark.long
def test_a_thousand_replays_during_load_and_kills_are_the_log() -> None:
    reported = [replayed(seed, 1_000 // TRIALS, per_second=5_000) for seed in range(TRIALS)]
    messages, kills = (sum(column) for column in zip(*reported, strict=True))
    sys.stdout.write(f"compared {messages:,} messages, killed {kills} processes\n")  # for -s
    assert kills >= TRIALS * len(FIRST_KILLS)


# -- live and replayed ----------------------------------------------------------------------------


class Listener:
    """A live subscriber; what it was sent, as (position, bookmark, data)."""

    def __init__(self, client: Client) -> None:
        self.sent: list[tuple[int, str, bytes]] = []
        self._subscription = client.subscribe("t", since="now")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(ZBrokerError):  # closed
            for each in self._subscription:
                self.sent.append((each.position, each.bookmark, each.data))

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.sent) >= count, f"{count} messages, {len(self.sent)} came", T)

    def close(self) -> None:
        self._subscription.close()
        self._thread.join(T)


def replayed_since(url: str, since: str) -> list[tuple[int, str, bytes]]:
    with connect(url, "replay") as client:
        found = client.subscribe("t", since=since, until="now")
        return [(each.position, each.bookmark, each.data) for each in found]


@pytest.mark.seed("004-58")
def test_a_replay_is_what_a_live_subscriber_got() -> None:
    with LocalBroker() as broker, connect(broker.url, "writer") as client:
        before = client.publish("t", b"before").wait(T)
        listener = Listener(client)
        for number in range(2_000):
            client.publish("t" if number % 3 else "other", b"%d" % number)
            if number == 1_000:
                kill_process(broker, "delivery")
        client.flush(T)
        listener.wait_for(1_333)
        listener.close()
        assert replayed_since(broker.url, before) == listener.sent


@pytest.mark.seed("004-82")
def test_what_a_subscriber_was_sent_is_there_after_a_kill(tmp_path: Path) -> None:
    """All processes at once, while messages come and go."""
    with LocalBroker(tmp_path / "data") as broker:
        client = connect(broker.url, "writer")
        try:
            listener = Listener(client)
            for number in range(20_000):
                client.publish("t", b"%d" % number)
            listener.wait_for(1_000)
            for pid in [pid for pid in broker.pids.values() if pid]:
                os.kill(pid, signal.SIGKILL)
            listener.close()
        finally:
            client.close(flush=False)
    with LocalBroker(tmp_path / "data") as broker:
        assert replayed_since(broker.url, "epoch")[: len(listener.sent)] == listener.sent


# -- the test of the test -------------------------------------------------------------------------

LOG = [MessageRow(n, "load.a" if n % 3 else "other", 7, n, n * 10, b"%d" % n) for n in range(1, 30)]


def read(since: Edge | None, until: Edge, messages: list[MessageRow]) -> Replay:
    """A replay that brought these."""
    replay = Replay(since, until, "load.a")
    replay.take(messages)
    return replay


def test_what_lies_between_the_ends_is_expected() -> None:
    wanted = [each for each in LOG if each.topic == "load.a" and 5 <= each.position < 20]
    for since in (Edge("", 4), Edge("", 5, included=True), Edge("", time_ns=41, included=True)):
        for last in (Edge("", 19, included=True), Edge("", 20), Edge("", time_ns=200)):
            assert Book(LOG).compare(read(since, last, wanted)) == len(wanted)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda got: got[:3] + got[4:],
        lambda got: got[:3] + got[2:],
        lambda got: [*got[:2], got[3], got[2], *got[4:]],
        lambda got: got[1:],
        lambda got: got[:-1],
        lambda got: [*got[:5], got[5]._replace(data=b"x"), *got[6:]],
        lambda got: [*got[:5], got[5]._replace(time_ns=1), *got[6:]],
    ],
    ids=["missing", "repeated", "swapped", "first", "last", "content", "time"],
)
def test_what_is_not_the_log_is_noticed(spoil: Callable[[list[Any]], list[Any]]) -> None:
    wanted = [each for each in LOG if each.topic == "load.a" and each.position <= 20]
    with pytest.raises(AssertionError, match=r"messages, not|other content"):
        Book(LOG).compare(read(None, Edge("", 20, included=True), spoil(wanted)))
