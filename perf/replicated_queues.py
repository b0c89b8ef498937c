"""Queues on two instances: consumers beside the owner, consumers elsewhere, and none of either.

Each rate runs from the first delivery to the last durable acknowledgement, of messages that are on
both instances before. Both share the processors of this machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import zbroker
from perf.consumers import Consumers, check, consume_each, consumers, folded, publish, rate
from perf.harness import Cpu, Result, Setup, checksum, payloads
from perf.replication import Peer, instances

QUEUE: Final = "work"
CONSUMERS: Final = 4
BACKLOG: Final = 1_000
SHARE: Final = 5  # a fifth of the messages of the other workloads
TABLE: Final = {"name": QUEUE, "topic": QUEUE, "scope": "distributed"}


def everything(setup: Setup) -> list[Result]:
    """The rate with all consumers elsewhere, and what a peer costs the owner's queues process."""
    bodies = payloads(setup.messages // SHARE)
    local: list[float] = []
    alone: list[float] = []
    elsewhere: list[float] = []
    costs: list[float] = []
    costs_alone: list[float] = []
    notes: dict[str, Any] = {"messages": len(bodies), "consumers": CONSUMERS}
    with consumers(CONSUMERS) as pool:
        for _ in setup.each_round("queues on two instances"):
            with instances(setup, 1, queue=[TABLE]) as [only]:
                del only.settings["listen"]["replication"]  # else it has to send to others
                only.start()
                found, used = _round([only], only, pool, bodies)
                alone.append(found)
                costs_alone.append(used["queues"])
            with instances(setup, 2, queue=[TABLE]) as peers:
                with ThreadPoolExecutor() as threads:
                    list(threads.map(Peer.start, peers))
                owner, other = peers
                found, used = _round(peers, owner, pool, bodies)
                local.append(found)
                costs.append(used["queues"])
                found, _ = _round(peers, other, pool, bodies)
                elsewhere.append(found)
    return [
        Result(
            f"queue, {CONSUMERS} x backlog {BACKLOG}, all consumers at the other instance",
            "messages/s", elsewhere, local, "consumers at the owner", ">= 50 %", notes=notes,
        ),
        Result(
            f"queue, {CONSUMERS} x backlog {BACKLOG}, beside an instance that has it, too",
            "messages/s", local, alone, "without a second instance", "", notes=notes,
        ),
        Result(
            "processor time of the owner's queues process, beside a second instance",
            "us/message", costs, costs_alone, "without one", "<= 110 %",
        ),
    ]  # fmt: skip


def _round(
    peers: list[Peer], at: Peer, pool: Consumers, bodies: list[bytes]
) -> tuple[float, dict[str, float]]:
    """Publishes at the first instance, waits until all have it, consumes at `at`."""
    owner = peers[0]
    with zbroker.connect(owner.running.url, name="perf-owners") as client:
        first = publish(client, QUEUE, bodies)
    for peer in peers:
        folded(peer.running, QUEUE, len(bodies))
    cpu = Cpu(owner.running)
    pool.begin(consume_each, CONSUMERS, len(bodies), at.running.url, QUEUE, BACKLOG)
    taken = pool.end(CONSUMERS)
    check(taken, checksum(bodies, first), len(bodies))
    for peer in peers:
        folded(peer.running, QUEUE, 0)
    return rate(taken), cpu.per_message_us(len(bodies))
