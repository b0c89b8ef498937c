"""Rounds: three hosts under load, of which each round some are cut off, killed or set back.

After each round the network is healed, and nothing more may be wrong than for a while: everything
that is published is acknowledged, all instances hold the same (by `replication compare`'s digests),
nothing that was acknowledged is missing, each batch of the staged writer is there once and whole,
and each subscriber has seen each message once. What an instance of mode async had acknowledged may
go with its disk, if its publisher heard broker_behind about these messages where it went on.

    ZB_ROUNDS=10 ZB_FIRST_SEED=7 .venv/bin/python -m pytest --long -s tests/torture/test_rounds.py

A seed is a part of a run: it draws the mode, the faults and all pauses. ZB_SEEDS: how many parts.
ZB_FAULTS: names, only these are drawn. ZB_KEEP: where the data of a part that failed is kept.
ZB_STAGED=no: without the writer of staged batches.
ZB_TWICE=count: messages that came twice to a subscriber are counted, and are no failure.
Needs root, for network namespaces; they are removed at the end.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.process.load import batches_of, until
from tests.torture.kept_rounds import kept_rounds
from tests.torture.network import Network, why_not
from tests.torture.replicated_host import HostedPeer
from tests.torture.rounds_faults import FAULTS, LOSES_A_DISK, Scene, draw, strike
from tests.torture.rounds_load import (
    STAGED_COUNT,
    TOPICS,
    Marks,
    NumberPublisher,
    NumberSubscriber,
    StageWriter,
    Worker,
)
from zbroker.cli.journal.rows import unpack
from zbroker.control.log_comparison import LogComparison, compare_logs
from zbroker.errors import ZBrokerError
from zbroker.topics import matcher

_WHY_NOT: Final = why_not()

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "needs root"),
    pytest.mark.timeout(0),
]

NAMES: Final = ("a", "b", "c")
ROUNDS: Final = int(os.environ.get("ZB_ROUNDS", "3"))
FIRST_SEED: Final = int(os.environ.get("ZB_FIRST_SEED", "0"))
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("ZB_SEEDS", "1")))
ALLOWED: Final = tuple(os.environ.get("ZB_FAULTS", " ".join(FAULTS)).split())
STAGED: Final = os.environ.get("ZB_STAGED", "yes") != "no"
TWICE: Final = os.environ.get("ZB_TWICE", "fail")
HEAL_S: Final = 120.0  # of a quiet machine


class Rounds:
    """The hosts and their load, and one round after the other."""

    def __init__(self, place: Path, hosts: Network, seed: int) -> None:
        self.rng = random.Random(seed)
        self.mode = "async" if seed % 3 == 2 else "sync"
        self.place, self.network = place, hosts
        logs = place / "logs"
        logs.mkdir()
        self._begun = time.monotonic()
        self._story = (logs / "story").open("w", buffering=1)
        self._lock = threading.Lock()
        self.peers = [HostedPeer(hosts.hosts[name], place / name, logs) for name in NAMES]
        more: dict[str, Any] = {"security": {"allow_unauthenticated": True}}
        if self.mode == "sync":
            more["replication"] = {"sync_needed": 1}
        for peer in self.peers:
            others = [one for one in self.peers if one is not peer]
            peer.configure(others, self.mode, more)
        self.lost_disks = 0
        self.burnt: set[bytes] = set()  # acknowledged by an instance alone, lost with its disk
        self.comparisons = 0
        self._workers: list[Worker] = []
        self._publishers: list[NumberPublisher] = []
        self._writers: list[StageWriter] = []
        self._subscribers: list[NumberSubscriber] = []
        self._marks = Marks()

    def log(self, text: str) -> None:
        """A line of the story of this run."""
        with self._lock, suppress(ValueError):  # it is closed
            self._story.write(f"{time.monotonic() - self._begun:9.3f} {text}\n")

    def start(self) -> None:
        for peer in self.peers:
            peer.start()
        urls = [peer.url for peer in self.peers]
        for n in range(3):
            turned = [*urls[n:], *urls[:n]]
            self._publishers.append(NumberPublisher(f"p{n}", turned, self.log))
            self._subscribers.append(NumberSubscriber(f"s{n}", [*turned[1:], turned[0]], self.log))
        if STAGED:
            self._writers.append(StageWriter("app", urls, self.log))
        self._workers = [*self._publishers, *self._writers]
        for worker in self._workers:
            worker.start()

    def close(self) -> None:
        self.network.heal()
        for worker in self._workers:
            worker.stop()
        for subscriber in self._subscribers:
            subscriber.close()
        for publisher in self._publishers:
            publisher.client.close(flush=False)
        for worker in self._workers:
            worker.join(30)
        for peer in self.peers:
            with suppress(Exception):  # the others have to go all the same
                peer.close()
        self._story.close()

    # -- one round --------------------------------------------------------------------------------

    def round(self, number: int) -> str:
        """Does it and judges. Returns: its figures."""
        faults = draw(self.rng, NAMES, ALLOWED)
        text = ", ".join(f"{fault.name} {fault.peer}" for fault in faults)
        self.log(f"-- round {number}: {text}")
        before = [publisher.sent for publisher in self._publishers]
        for publisher in self._publishers:
            publisher.given_up.clear()
        for worker in self._workers:
            worker.resume()
        scene = Scene(self.network, self.peers, self.rng, self.log, 1.0)
        scene.pause(0.3, 1.5)
        disks = sum(fault.name in LOSES_A_DISK for fault in faults)
        self.lost_disks += disks
        strike(scene, faults, FAULTS)
        scene.pause(0.3, 1.5)
        for worker in self._workers:
            worker.pause()
        begun = time.monotonic()
        self.network.heal()
        self.log("healed")
        self._settle(may_lose=bool(disks) and self.mode == "async")
        healed_s = time.monotonic() - begun
        self._judge()
        sent = sum(publisher.sent for publisher in self._publishers) - sum(before)
        return (
            f"{text}: {sent} messages, equal {healed_s:.1f} s after healing, "
            f"{sum(one.ended for one in self._subscribers)} subscriptions ended, "
            f"{sum(len(one.twice) for one in self._subscribers)} came twice, "
            f"{sum(one.batch for one in self._writers)} batches in "
            f"{sum(one.tries for one in self._writers)} tries, {len(self.burnt)} lost with a disk"
        )

    def _settle(self, *, may_lose: bool) -> None:
        """Everything is acknowledged, every instance holds it, every subscriber has it."""
        until(self._idle, "publishers and writers to end their step", HEAL_S)
        self.log("idle")
        for publisher in self._publishers:
            try:
                publisher.client.flush(HEAL_S)
            except ZBrokerError as error:
                raise AssertionError(f"{publisher.name}: {error}") from error
        self.log("all is acknowledged")
        if may_lose:
            for publisher in self._publishers:
                self.burnt |= {numbered(publisher, n) for n in publisher.given_up}
        for peer in self.peers:
            self._marks.publish(peer.name, peer.url)
        found: list[LogComparison | str] = []
        until(
            lambda: self._equal(found),
            "all instances to be equal",
            HEAL_S,
        )
        self.log("all are equal")
        until(self._all_seen, f"subscribers to see all: {self._unseen()}", HEAL_S)
        self.log("all is seen")

    def _idle(self) -> bool:
        self._check_workers()
        return all(worker.is_idle for worker in self._workers)

    def _check_workers(self) -> None:
        errors = [error for one in (*self._workers, *self._subscribers) for error in one.errors]
        assert not errors, errors

    def _equal(self, found: list[LogComparison | str]) -> bool:
        self.comparisons += 1
        time.sleep(0.2)
        try:
            compared = compare_logs([peer.compared() for peer in self.peers])
        except ZBrokerError as error:
            found[:] = [str(error)]
            return False
        found[:] = [compared]
        if compared.state != "equal":
            lines = [
                f"{one.origin} {one.state} {[(h.name, h.last, h.missing) for h in one.held]}"
                f" {one.difference or ''}"
                for one in compared.origins if one.state != "equal"
            ]  # fmt: skip
            self.log("not equal yet: " + "; ".join(lines))
        return compared.state == "equal"

    def _expected(self) -> set[bytes]:
        found = {
            numbered(publisher, n)
            for publisher in self._publishers for n in range(publisher.sent)
        }  # fmt: skip
        found |= set(self._marks.published)
        for writer in self._writers:
            found |= {
                b"%s:%d" % (writer.name.encode(), n)
                for n in range(len(writer.committed) * STAGED_COUNT)
            }
        return found - self.burnt

    def _all_seen(self) -> bool:
        self._check_workers()
        expected = self._expected()
        time.sleep(0.2)
        return all(expected <= one.seen.keys() for one in self._subscribers)

    def _unseen(self) -> dict[str, list[bytes]]:
        expected = self._expected()
        return {one.name: sorted(expected - one.seen.keys())[:5] for one in self._subscribers}

    # -- the verdict ------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Nothing is lost, and nothing is there twice: in a log, and at a subscriber."""
        for peer in self.peers:
            self._judge_log(peer)
        again = [text for one in self._subscribers for text in one.twice]
        if TWICE != "count":
            assert not again, f"{len(again)} messages came twice to a subscriber: {again[:5]}"

    def _judge_log(self, peer: HostedPeer) -> None:
        held, name = self._held(peer), peer.name
        missing = sorted(self._expected() - held.keys())
        assert not missing, f"{name} lacks {len(missing)} acknowledged messages: {missing[:5]}"
        twice = [data for data, count in held.items() if count > 1]
        assert not twice, f"{name} holds {len(twice)} messages twice: {twice[:5]}"
        for writer in self._writers:
            parts = Counter(
                int(data.split(b":")[1]) // STAGED_COUNT
                for data in held if data.startswith(writer.name.encode() + b":")
            )  # fmt: skip
            torn = {batch: n for batch, n in parts.items() if n != STAGED_COUNT}
            assert not torn, f"{name} holds batches that are not whole: {torn}"

    def _held(self, peer: HostedPeer) -> Counter[bytes]:
        """What a log holds of this load."""
        end, wants, found = (
            peer.ask("/journal")["persisted"],
            matcher(TOPICS, regex=True),
            Counter[bytes](),
        )
        for batch in batches_of(peer.data / "journal", end):
            found.update(bytes(row.data) for row in unpack(batch) if wants(row.topic))
        return found


def numbered(publisher: NumberPublisher, number: int) -> bytes:
    """A message of a publisher."""
    return b"%s:%d" % (publisher.name.encode(), number)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_happens_to_hosts_costs_nothing_that_was_acknowledged(seed: int) -> None:
    begun = time.monotonic()
    with kept_rounds(NAMES, seed, Rounds) as run:
        run.start()
        for number in range(1, ROUNDS + 1):
            figures = run.round(number)
            took_s = time.monotonic() - begun
            begin = f"seed {seed} ({run.mode}) round {number} at {took_s:.0f} s"
            sys.stderr.write(f"{begin}: {figures}\n")
        messages = sum(publisher.sent for publisher in run._publishers)
        sys.stderr.write(
            f"seed {seed}: {ROUNDS} rounds, {run.lost_disks} lost disks, {messages} messages, "
            f"{run.comparisons} comparisons\n"
        )
