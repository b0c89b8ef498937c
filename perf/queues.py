"""Queues: consumers that share work and acknowledge each message, next to peers and to a replay.

The clock runs from the first delivery to the last ack that is durable. Everything is counted, and
the sum over all consumers is checked: each message is taken once. Consumers are processes; before
the clock starts they are connected, and the messages published, unless it says `while publishing`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

import zbroker
from perf import backlog, queue_peers
from perf.consumers import (
    STUCK_S,
    Consumers,
    Work,
    check,
    consume_each,
    consume_lists,
    consumers,
    folded,
    publish,
    rate,
)
from perf.harness import Cpu, Result, Setup, checksum, payloads
from perf.reading import read
from zbroker.local import Settings

QUEUE: Final = "work"
ROUNDS_MAX: Final = 3  # of so many cases that more would take too long
SHARE: Final = 5  # a fifth of the messages of the other workloads
CONSUMERS: Final = (1, 4, 16)
BACKLOGS: Final = (1_000, 0)  # 0: none is chosen, so it adapts
MIDDLE: Final = 4  # consumers, where only one number of them is measured
SETTINGS: Final[Settings] = {"queue": [{"name": QUEUE, "topic": QUEUE}]}
TARGET: Final = ">= 200 k/s with 4 on a quiet machine"
PEER_TARGET: Final = ">= 5x"


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
        size = f"backlog {self.backlog}" if self.backlog else "default backlog"
        return f"queue, {how}, {self.consumers} x {size}{live}"


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
        consumers(max(CONSUMERS)) as pool,
        queue_peers.installed(setup, pool) as peers,
    ):
        for _ in setup.each_round("queues"):
            limit.append(_replayed(client, bodies))
            for case in cases:
                run(broker, client, pool, case, bodies)
            for peer in peers:
                peer.run()
    results = [_result(case, limit) for case in cases]
    by_count = {case.consumers: case for case in reversed(cases[: len(CONSUMERS)])}
    return results + [
        Result(
            f"queue, ack each, {peer.consumers} x backlog {BACKLOGS[0]}, beside a peer",
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
    topic = "perf.replayed"
    mark = client.publish(topic, b"from here on").wait(STUCK_S)
    first = publish(client, topic, bodies)
    begun = time.perf_counter()
    total, _ = read(client.subscribe(topic, since=mark, until="now"), len(bodies))
    if total != checksum(bodies, first):
        raise AssertionError(f"the replay's sum is {total}")
    return len(bodies) / (time.perf_counter() - begun)


# -- one case ---------------------------------------------------------------------------------


def run(
    broker: zbroker.LocalBroker, client: zbroker.client.Client, pool: Consumers, case: Case,
    bodies: list[bytes],
) -> None:  # fmt: skip
    """One round of a case, from an empty queue to an empty queue."""
    asked = (case.work, case.consumers, len(bodies), broker.url, QUEUE, case.backlog)
    first = 0
    if not case.live:
        first = publish(client, QUEUE, bodies)
        folded(broker, QUEUE, len(bodies))
    cpu = Cpu(broker)
    pool.begin(*asked)
    if case.live:
        first = publish(client, QUEUE, bodies)
    taken = pool.end(case.consumers)
    used = cpu.per_message_us(len(bodies))
    used["consumers"] = round(sum(each.cpu_s for each in taken) / len(bodies) * 1e6, 2)
    check(taken, checksum(bodies, first), len(bodies))
    folded(broker, QUEUE, 0)
    case.ours.append(rate(taken))
    case.notes = {
        "messages": len(bodies),
        "most_by_one": max(each.messages for each in taken),
        "least_by_one": min(each.messages for each in taken),
        "cpu_us_per_message": used,
    }
