"""Queues: consumers that share work and acknowledge each message, next to peers and to a replay.

The clock runs from the first delivery to the last ack that is durable. Everything is counted, and
the sum over all consumers is checked: each message is taken once. Consumers are processes; before
the clock starts they are connected, and the messages published, unless it says `while publishing`.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import zbroker
from perf import backlog, queue_peers
from perf.consumers import STUCK_S, Consumers, Work, check, consume_each, consume_lists, rate
from perf.consumers import consumers as processes
from perf.harness import Cpu, Result, Setup, checksum, payloads
from perf.reading import read

QUEUE: Final = "work"
ROUNDS_MAX: Final = 3  # of so many cases that more would take too long
SHARE: Final = 5  # a fifth of the messages of the other workloads, a tenth for small backlogs
CONSUMERS: Final = (1, 4, 16)
BACKLOGS: Final = (1_000, 64)
MIDDLE: Final = 4  # consumers, where only one number of them is measured
SETTINGS: Final = {"queue": [{"name": QUEUE, "topic": QUEUE, "max_per_subscription": 1_000}]}
TARGET: Final = ">= 200 k/s with 4 on a quiet machine"
PEER_TARGET: Final = ">= 5x"
FOLD_S: Final = 120.0


@dataclass
class Case:
    """So many consumers of this backlog. live: published while they consume. work: how they ack."""

    consumers: int
    backlog: int
    live: bool = False
    work: Work = consume_each
    ours: list[float] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its line of the table."""
        how = "ack each" if self.work is consume_each else "ack of lists"
        live = ", while publishing" if self.live else ""
        return f"queue, {how}, {self.consumers} x backlog {self.backlog}{live}"


def everything(setup: Setup) -> list[Result]:
    """All that is measured of queues."""
    setup = replace(setup, rounds=min(setup.rounds, ROUNDS_MAX))
    return [
        *shared(setup), *backlog.held(setup), *backlog.kinds(setup), *backlog.dead_worker(setup)
    ]  # fmt: skip


def shared(setup: Setup) -> list[Result]:
    """Rates by number of consumers and backlog, alternating with the peers."""
    cases = [Case(count, size) for size in BACKLOGS for count in CONSUMERS]
    cases += [Case(MIDDLE, size, live=True) for size in BACKLOGS]
    cases += [Case(MIDDLE, size, work=consume_lists) for size in BACKLOGS]
    bodies = payloads(setup.messages // SHARE)
    limit: list[float] = []
    with (
        setup.broker(SETTINGS) as broker,
        zbroker.connect(broker.url, name="perf-queues") as client,
        processes(max(CONSUMERS)) as pool,
        queue_peers.installed(setup, pool) as peers,
    ):
        for _ in setup.each_round("queues"):
            limit.append(_replayed(client, bodies))
            for case in cases:
                mine = bodies if case.backlog == max(BACKLOGS) else bodies[: len(bodies) // 2]
                run(broker, client, pool, case, mine)
            for peer in peers:
                peer.run()
    results = [_result(case, limit) for case in cases]
    by_count = {case.consumers: case for case in reversed(cases[: len(CONSUMERS)])}
    return results + [
        Result(
            f"queue, ack each, {peer.consumers} x backlog {peer.backlog}, beside {peer.name}",
            "messages/s", by_count[peer.consumers].ours, peer.rates, peer.name, PEER_TARGET,
            notes=peer.notes,
        )
        for peer in peers
    ]  # fmt: skip


def _result(case: Case, limit: list[float]) -> Result:
    target = TARGET if case.consumers == MIDDLE and case.backlog == max(BACKLOGS) else ""
    return Result(
        case.name, "messages/s", case.ours, limit, "replay by one subscriber", target,
        notes=case.notes,
    )  # fmt: skip


def _replayed(client: zbroker.client.Client, bodies: list[bytes]) -> float:
    """Messages per second that one subscriber gets of as many messages."""
    first = publish(client, "perf.replayed", bodies)
    begun = time.perf_counter()
    since = _before(client, first)
    total, _ = read(client.subscribe("perf.replayed", since=since, until="now"), len(bodies))
    if total != checksum(bodies, first):
        raise AssertionError(f"the replay's sum is {total}")
    return len(bodies) / (time.perf_counter() - begun)
