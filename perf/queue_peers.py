"""Other work queues beside ours: NATS JetStream and Redis Streams, by consumers and setting.

Each runs with a sync before what it acknowledges, and a second time with its defaults. A consumer
fetches as many messages at a time as ours has backlog and acknowledges each. Favours to them: acks
of NATS are not waited for one by one, those of a Redis batch go as one command and leave the
messages in the stream. Kafka and RabbitMQ are measured by `scripts/perf --sides` only: one broker
at a time, since a JVM beside the others would slow them down.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from perf import brokers
from perf.brokers.server import Server
from perf.consumers import Consumers, Work, check, rate
from perf.harness import Setup, checksum, payloads

NATS: Final = "NATS JetStream"
REDIS: Final = "Redis Streams"
BACKLOG: Final = 1_000
MESSAGES: Final = 20_000  # they are that much slower
MESSAGES_SYNCED: Final = 2_000  # of NATS, with a sync for each ack
COUNTS: Final = (1, 4, 16)
MIDDLE: Final = 4


@dataclass
class Peer:
    """One server with one setting and so many consumers. fill: publishes; work: of a consumer."""

    name: str
    server: Server
    consumers: int
    fill: Callable[[Server, list[bytes]], None]
    work: Work
    pool: Consumers
    messages: int = MESSAGES
    notes: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)

    @property
    def backlog(self) -> int:
        """How many messages a consumer fetches at a time, so that all get some."""
        return min(BACKLOG, self.messages // self.consumers)

    def run(self) -> None:
        """One round."""
        bodies = payloads(self.messages)
        self.fill(self.server, bodies)
        self.pool.begin(self.work, self.consumers, len(bodies), self.server.address, self.backlog)
        taken = self.pool.end(self.consumers)
        check(taken, checksum(bodies, 1), len(bodies))
        self.rates.append(rate(taken))


class Setting(NamedTuple):
    """One kind of `perf.brokers`, and what is measured of it."""

    kind: str
    name: str
    counts: tuple[int, ...]
    messages: int = MESSAGES


SETTINGS: Final = {
    NATS: (
        Setting("nats-fsync", "sync_interval always", COUNTS, MESSAGES_SYNCED),
        Setting("nats", "defaults (no fsync)", (MIDDLE,)),
    ),
    REDIS: (
        Setting("redis-fsync", "AOF always", COUNTS),
        Setting("redis", "AOF everysec", (MIDDLE,)),
    ),
}


@contextmanager
def installed(setup: Setup, pool: Consumers) -> Iterator[list[Peer]]:
    """The peers that are there, running; they stop with the block."""
    with ExitStack() as stack:
        peers = []
        for name, settings in SETTINGS.items():
            if brokers.missing(settings[0].kind, setup.directory) is None:
                setup.measured.add(name)
                for setting in settings:
                    peers += _peers(stack, setup, pool, name, setting)
        yield peers


def _peers(
    stack: ExitStack, setup: Setup, pool: Consumers, name: str, setting: Setting
) -> list[Peer]:
    """One server, and a peer for each number of consumers."""
    place = Path(tempfile.mkdtemp(prefix="peer-", dir=setup.directory))
    stack.callback(shutil.rmtree, place, ignore_errors=True)
    kind = brokers.KINDS[setting.kind]
    module = kind.load()
    server = stack.enter_context(module.serve(place, setup.directory, kind.sync))
    calls = (module.fill, module.consume, pool, setting.messages)
    peers = [Peer(f"{name}, {setting.name}", server, count, *calls) for count in setting.counts]
    for peer in peers:
        versions = module.versions(setup.directory)
        peer.notes = {**versions, "messages": peer.messages, "fetched_at_once": peer.backlog}
    return peers
