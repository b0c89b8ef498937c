"""Rounds of a queue: three hosts share one, while they are cut off, killed, and taken over by hand.

Publishers go on at any instance. Workers take messages at any instance, die with what they hold,
and acknowledge at one what they took at another. In the end everything heals, and workers do what
is left, at each instance or at one that has to ask the others for theirs. Then:

- each message that was acknowledged to a publisher was delivered, and no instance has any left;
- no message came unflagged twice, except once from each instance that had accepted it from a
  publisher that failed over. A takeover of an owner that is there is no exception: what it takes is
  flagged, and the owner delivers each message unflagged once;
- no instance delivered what it had answered as done (queue_judge.py says what counts as later).

    ZB_ROUNDS=9 ZB_FIRST_SEED=7 scripts/test-all -s tests/torture/test_queue_rounds.py

A seed is a round: it draws the scope, the mode, the faults and all pauses. ZB_MESSAGES: how many
are published in one, ZB_STRIKES: how often something happens meanwhile. ZB_KEEP: where the data of
a round that failed is kept. Needs root, for network namespaces; they are removed at the end.

ZB_PLACE: a directory in which one queue lives from seed to seed, for a long run in parts. Each one
goes on with the instances, the tables and the log of the one before (and the scope of the first),
and the verdict is on all of them:

    export ZB_PLACE=/var/tmp/life ZB_MESSAGES=50000 ZB_STRIKES=60 ZB_ROUNDS=1
    for part in 1 2 3 4; do
        ZB_FIRST_SEED=$part scripts/test-all -s tests/torture/test_queue_rounds.py || break
    done
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.process.load import batches_of, until
from tests.torture.kept_rounds import kept_rounds
from tests.torture.network import Network, why_not
from tests.torture.queue_crowd import Crowd, QueuePublisher, Takeovers
from tests.torture.queue_judge import QueueVerdict, judge, read
from tests.torture.queue_life import QueueLife, load, moves_of
from tests.torture.replicated_host import HostedPeer
from tests.torture.rounds_faults import (
    CUTS,
    FAULTS,
    Fault,
    Scene,
    draw,
    kill_instance,
    kill_process,
    reboot_instance,
    strike,
)
from zbroker.control.log_comparison import compare_logs
from zbroker.errors import ZBrokerError

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
SEEDS: Final = range(FIRST_SEED, FIRST_SEED + ROUNDS)
MESSAGES: Final = int(os.environ.get("ZB_MESSAGES", "5000"))
QUEUE: Final = "work"
LEASE: Final = "2s"
WORKERS: Final = 4
PUBLISHERS: Final = 2
STRIKES: Final = int(os.environ.get("ZB_STRIKES", "6"))
PLACE: Final = Path(os.environ["ZB_PLACE"]) if "ZB_PLACE" in os.environ else None
HEAL_S: Final = 120.0  # of a quiet machine
#: what happens here: nothing that loses a disk, since a queue is no more than the log
HARMS: Final[dict[str, Fault]] = {
    **{name: FAULTS[name] for name in sorted(CUTS)},
    "kill_process": partial(kill_process, processes=("queues", "replication", "journal")),
    "kill_instance": kill_instance,
    "reboot_instance": reboot_instance,
}


class QueueRound:
    """The hosts, the load and the verdict of one seed, which may be a part of a longer life."""

    def __init__(self, place: Path, hosts: Network, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.place, self.network = place, hosts
        owner = rng.choice(NAMES) if rng.random() < 0.25 else ""
        drawn = QueueLife("group-local" if owner else "distributed", owner)
        self.life = life = load(place) or drawn
        life.begin_part(place)
        part = f"part-{life.begun}"
        self._logs, lines = place / "logs" / part, place / "lines" / part
        self._logs.mkdir(parents=True)
        lines.mkdir(parents=True)
        self._story = (place / "logs" / "story").open("a", buffering=1)
        self.log(f"-- {part}, seed {seed}")
        self.peers = [HostedPeer(hosts.hosts[name], place / name, self._logs) for name in NAMES]
        queue = {"name": QUEUE, "topic": "load", "scope": life.scope, "lease": LEASE}
        if life.owner:
            queue["initial_owner"] = life.owner
        self.mode = rng.choice(("sync", "async"))
        more: dict[str, Any] = {"security": {"allow_unauthenticated": True}, "queue": [queue]}
        if self.mode == "sync":
            more["replication"] = {"sync_needed": 1}
        for peer in self.peers:
            others = [one for one in self.peers if one is not peer]
            peer.configure(others, self.mode, more)
        self.harms: Counter[str] = Counter()
        urls = {peer.name: peer.url for peer in self.peers}
        self.crowd = Crowd(QUEUE, urls, lines, self._logs, rng.random())
        self.takeovers = Takeovers(self.peers, QUEUE, random.Random(rng.random()), self.log)
        self._publishers: list[QueuePublisher] = []
        self._seen_rows: dict[str, Any] = {}
        self.ties = 0

    def log(self, text: str) -> None:
        """A line of the story of this round."""
        with suppress(ValueError):  # it is closed
            self._story.write(f"{time.monotonic():.3f} {text}\n")

    def start(self) -> None:
        """All at once: none is ready before it knows that the others are new, too."""
        with ThreadPoolExecutor() as threads:
            list(threads.map(HostedPeer.start, self.peers))
        urls = [peer.url for peer in self.peers]
        for n in range(PUBLISHERS):
            turned, name = [*urls[n:], *urls[:n]], f"p{self.life.begun}-{n}"
            publisher = QueuePublisher(name, turned, self.log, MESSAGES // PUBLISHERS)
            self._publishers.append(publisher)
            publisher.start()
        self.crowd.start(WORKERS, "loose")

    def close(self) -> None:
        self.takeovers.stop()
        self.network.heal()
        self.crowd.close()
        for publisher in self._publishers:
            publisher.stop()
            publisher.client.close(flush=False)
            publisher.join(30)
        for peer in self.peers:
            with suppress(Exception):  # the others have to go all the same
                peer.close()
        self._story.close()

    # -- what happens -----------------------------------------------------------------------------

    def harm(self) -> None:
        """One fault or two at once, again and again, and takeovers all the time."""
        self.takeovers.start()
        scene = Scene(self.network, self.peers, self.rng, self.log, 1.0)
        for _ in range(STRIKES):
            scene.pause(0.2, 1.5)
            faults = draw(self.rng, NAMES, tuple(HARMS))
            self.harms.update(fault.name for fault in faults)
            strike(scene, faults, HARMS)
            if self.rng.random() < 0.7:  # else the next strike comes on top
                self.network.heal()
                self.log("healed")
        self.takeovers.stop()
        self.network.heal()
        self.log("all is healed")

    def drain(self) -> None:
        """Everything is published, all have all of it, and workers do what is left."""
        for publisher in self._publishers:
            until(lambda: publisher.is_over, f"{publisher.name} to end", HEAL_S)  # noqa: B023
            assert not publisher.errors, publisher.errors
            publisher.client.flush(HEAL_S)
        self.log("all is acknowledged")
        until(self._equal, "all instances to have the same log", HEAL_S)
        self.log("all are equal")
        self.crowd.end()
        names = list(NAMES)
        self.rng.shuffle(names)
        where = names[: self.rng.choice((1, 3))]
        self.log(f"the rest is done at {', '.join(where)}")
        for name in where:
            self.crowd.start(1, "diligent", name)
        until(self._drained, "the queue to be empty on all instances", HEAL_S)
        self.log("the queue is empty")
        self.crowd.end()

    def _equal(self) -> bool:
        with suppress(ZBrokerError):
            return compare_logs([peer.compared() for peer in self.peers]).state == "equal"
        return False

    def _rows(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for peer in self.peers:
            try:
                [row] = peer.ask("/queues")["queues"]
            except ZBrokerError as error:
                found[peer.name] = str(error)
            else:
                found[peer.name] = {key: row[key] for key in ("depth", "behind", "elsewhere")}
        return found

    def _drained(self) -> bool:
        time.sleep(0.2)
        self.crowd.check()
        nothing, rows = {"depth": 0, "behind": 0, "elsewhere": 0}, self._rows()
        if rows != self._seen_rows:
            self._seen_rows = rows
            self.log(f"left: {rows}")
        return all(row == nothing for row in rows.values())

    # -- the verdict ------------------------------------------------------------------------------

    def judge(self) -> QueueVerdict:
        """On everything that this queue has been through. Another part may follow a clean one."""
        accepted = self._accepted()
        self.ties = sum(len(names) > 1 for names in accepted.values())
        if self.life.owner:  # only one instance offers at first, whoever accepted it
            accepted = {message: [self.life.owner] for message in accepted}
        counts = self.harms | {
            "takeovers": self.takeovers.count, "taken over": self.takeovers.moved,
            "workers died": self.crowd.deaths,
        }  # fmt: skip
        self.life.add({one.name: one.sent for one in self._publishers}, counts)
        verdict = judge(self.life.named(), accepted, read((self.place / "lines").glob("*/*")))
        if not verdict.wrong:
            self.life.end_part(self.place)
        return verdict

    def grown(self) -> str:
        """How much its life has left: what must not grow without a bound, and what may."""
        parts = []
        for peer in self.peers:
            journal = peer.ask("/journal")
            [row] = peer.ask("/queues")["queues"]
            parts.append(
                f"{peer.name} has {len(journal['generations'])} generations, "
                f"log to {journal['persisted']}, queue of {row['memory_bytes']} bytes"
            )
        moves = [one.number for one in moves_of(peer.data / "journal", journal["persisted"])]
        return f"{'; '.join(parts)}; {len(moves)} moves, the highest number {max(moves, default=0)}"

    def _accepted(self) -> dict[str, list[str]]:
        """Of each message, the instances that accepted it from a publisher."""
        found: dict[str, list[str]] = {}
        for peer in self.peers:
            journal = peer.ask("/journal")
            own = int(journal["instance"], 16)
            for batch in batches_of(peer.data / "journal", journal["persisted"]):
                if batch.origin_instance == own:
                    data = msgspec.msgpack.decode(batch.body, type=list[bytes])
                    for one in data[batch.skip : batch.count - batch.cut]:
                        found.setdefault(one.decode(), []).append(peer.name)
        return found


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_of_a_queue_is_done_whatever_happens_to_its_instances(seed: int) -> None:
    begun = time.monotonic()
    with kept_rounds(NAMES, seed, QueueRound, PLACE) as one:
        one.start()
        one.harm()
        one.drain()
        verdict = one.judge()
        life = one.life
        counts = ", ".join(f"{count} {name}" for name, count in sorted(life.counts.items()))
        sys.stderr.write(
            f"seed {seed} ({life.scope}, {one.mode}) in {time.monotonic() - begun:.0f} s, "
            f"part {life.begun}, {life.messages} messages by now: {counts}; "
            f"{verdict.carried} acknowledged elsewhere, {verdict.again} deliveries again, "
            f"{verdict.by_two} unflagged by several of {one.ties} that several accepted, "
            f"{len(verdict.wrong)} violations; {one.grown()}\n"
        )
        for text in verdict.wrong:
            one.log(f"wrong: {text}")
        assert not verdict.wrong, f"{len(verdict.wrong)} violations: {verdict.wrong[:10]}"
