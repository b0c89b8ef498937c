"""Queues on two instances: consumers beside the owner, consumers elsewhere, and none of either.

Also what a message costs in the memory of their queues processes, and idle queues in their time.
Each rate runs from the first delivery to the last durable acknowledgement, of messages that are on
both instances before. Both share the processors of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import psutil

import zbroker
from perf.consumers import (
    STUCK_S,
    Consumers,
    check,
    consume_each,
    consumers,
    folded,
    publish,
    rate,
)
from perf.harness import Cpu, Result, Setup, checksum, payloads
from perf.replication import Peer, instances

QUEUE: Final = "work"
CONSUMERS: Final = 4
BACKLOG: Final = 1_000
SHARE: Final = 5  # a fifth of the messages of the other workloads
TABLE: Final = {"name": QUEUE, "topic": QUEUE, "scope": "distributed"}
PORTION: Final = 100  # that one instance accepts before the other one does
IDLE: Final = 1_000  # queues


def everything(setup: Setup) -> list[Result]:
    """All of it."""
    return [*_consumed(setup), *_kept(setup), *_idle(setup)]


def _consumed(setup: Setup) -> list[Result]:
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


# -- memory -----------------------------------------------------------------------------------


def _kept(setup: Setup) -> list[Result]:
    """What a message that waits costs each queues process: one after the other from one instance,
    and in portions from both in turn. No consumer is there."""
    bodies = payloads(setup.messages)
    found: dict[str, list[float]] = {"one instance": [], "both in turn": []}
    for _ in setup.each_round("memory of a queue on two instances"):
        for name, sources in zip(found, (1, 2), strict=True):
            with _pair(setup, [TABLE]) as peers:
                before = [_own_bytes(peer) for peer in peers]
                _publish_in_turn(peers[:sources], bodies)
                for peer in peers:
                    folded(peer.running, QUEUE, len(bodies))
                grown = (_own_bytes(peer) - old for peer, old in zip(peers, before, strict=True))
                found[name].append(max(grown) / len(bodies))
    return [
        Result(
            f"memory of a queues process, messages from {name}", "bytes/message", values,
            [1.0] * len(values), "a byte", "", lower_is_better=True,
        )
        for name, values in found.items()
    ]  # fmt: skip


def _publish_in_turn(peers: list[Peer], bodies: list[bytes]) -> None:
    with ExitStack() as stack:
        clients = [
            stack.enter_context(zbroker.connect(peer.running.url, name=f"perf-{peer.name}"))
            for peer in peers
        ]
        for number, at in enumerate(range(0, len(bodies), PORTION)):
            clients[number % len(clients)].publish_many(QUEUE, bodies[at : at + PORTION])
        for client in clients:
            client.flush(timeout=STUCK_S)


def _own_bytes(peer: Peer) -> int:
    """Memory of its queues process that no other one shares."""
    return int(psutil.Process(peer.running.pids["queues"]).memory_full_info().uss)


# -- idle queues ------------------------------------------------------------------------------


def _idle(setup: Setup) -> list[Result]:
    """What queues that nothing enters cost the queues process of each instance, while others are
    published to a topic of no queue."""
    bodies = payloads(setup.messages)
    tables = [TABLE | {"name": f"idle{n}", "topic": f"idle.{n}"} for n in range(IDLE)]
    with_many: list[float] = []
    with_one: list[float] = []
    for _ in setup.each_round("idle queues on two instances"):
        for costs, queues in ((with_one, [TABLE]), (with_many, [TABLE, *tables])):
            with _pair(setup, queues) as (a, b):
                cpu = Cpu(b.running)
                with zbroker.connect(a.running.url, name="perf-idle") as client:
                    publish(client, "other", bodies)
                folded(b.running, QUEUE, 0)
                costs.append(cpu.per_message_us(len(bodies)).get("queues", 0.0))
    return [
        Result(
            f"processor time of a queues process, {IDLE:,} idle queues", "us/message", with_many,
            with_one, "one queue", "<= 110 %", lower_is_better=True,
        )
    ]  # fmt: skip


@contextmanager
def _pair(setup: Setup, queues: list[dict[str, Any]]) -> Iterator[list[Peer]]:
    """Two instances with these queues, which have begun."""
    with instances(setup, 2, queue=queues) as peers:
        with ThreadPoolExecutor() as threads:
            list(threads.map(Peer.start, peers))
        for peer in peers:
            for table in queues:
                folded(peer.running, table["name"], 0)
        yield peers
