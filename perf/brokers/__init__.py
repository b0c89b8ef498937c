"""zbroker and its peers: how each is started, and what its best Python client does.

Each kind of broker is a module with the same functions; what a broker cannot do is not there:

    missing(cache)                    why it cannot be measured here, or None
    versions(cache)                   of its server and of its client
    serve(place, cache, sync)         a `Server` in a directory of its own, for a `with` block
    make(server, topic)               creates a topic, where that is needed
    publish(server, topic, bodies)    an open window: when the first was published, the last acked
    publish_many(...)                 the same with one call for many messages
    one(server, topic, bodies)        seconds of each message that waits for its ack
    read(server, topic, Reading)      what a subscriber does until it has all; when it had the last
    paced(server, topic, due)         publishes the lists of `due`, a generator that waits
    fill(server, bodies), consume     a work queue; `consume` is work of `perf.consumers`

Settings are those that a program would choose for throughput, and for latency where that is asked.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple


class Kind(NamedTuple):
    """A broker with one setting. share: of the messages of a plan, so that it takes seconds."""

    module: str
    sync: bool
    acknowledged: str
    share: float = 1.0
    queue_share: float = 0.2

    def load(self) -> Any:
        """Its module. Raises: ImportError, where its client is not installed."""
        return import_module(f"perf.brokers.{self.module}")


KINDS: Final[dict[str, Kind]] = {
    "zbroker": Kind("zbroker_client", True, "fsync"),
    "kafka": Kind("kafka", False, "page cache", 1.0, 0.004),
    "kafka-fsync": Kind("kafka", True, "fsync", 1.0, 0.004),
    "nats": Kind("nats_jetstream", False, "page cache", 0.1, 0.02),
    "nats-fsync": Kind("nats_jetstream", True, "fsync", 0.008, 0.002),
    "redis": Kind("redis_streams", False, "page cache, fsync each second", 0.2, 0.04),
    "redis-fsync": Kind("redis_streams", True, "fsync", 0.2, 0.04),
    "rabbitmq-stream": Kind("rabbitmq_stream", False, "page cache", 0.2),
    "rabbitmq-quorum": Kind("rabbitmq_quorum", True, "fsync", 0.015, 0.015),
}
OURS: Final = "zbroker"
PEER_KINDS: Final = tuple(kind for kind in KINDS if kind != OURS)


def missing(kind: str, cache: Path) -> str | None:
    """Why this kind cannot be measured here, or None."""
    try:
        module = KINDS[kind].load()
    except ImportError as error:
        return f"its client is not installed ({error.name})"
    reason: str | None = module.missing(cache)
    return reason
