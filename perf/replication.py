"""Instances that replicate to each other on one machine: each takes its share of the cores.

The limit of each line is the same work on an instance without destinations, in the same rounds.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import zbroker
from perf.harness import PAYLOAD_BYTES, Result, Setup, journal_stats, payloads
from zbroker.free_ports import free_ports
from zbroker.local import LocalBroker

NAMES: Final = "abc"
LISTENERS: Final = ("ingest", "delivery", "queues", "admin", "replication")
ONE_BY_ONE: Final = 2_000
KILLS: Final = 20
FREEZES: Final = 5
HEARTBEAT_S: Final = 1.0
DOWNGRADE_S: Final = 2
STUCK_S: Final = 600.0
POLL_S: Final = 0.05
ONE_IN: Final = 10
CHUNK: Final = 5_000  # messages on one topic after the other
P95: Final = 95


class Peer:
    """One instance on ports of its own, so that it can be started again."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.data = name, place / name
        self.listen = {
            each: f"{'http' if each == 'admin' else 'tcp'}://127.0.0.1:{free_ports(1)[0]}"
            for each in LISTENERS
        }
        self.settings: dict[str, Any] = {}
        self.broker: LocalBroker | None = None

    def start(self) -> LocalBroker:
        """Starts it on what it has."""
        self.broker = LocalBroker(self.data, settings=self.settings)
        return self.broker

    @property
    def running(self) -> LocalBroker:
        """The broker of a peer that runs."""
        assert self.broker is not None
        return self.broker

    def kill(self) -> float:
        """SIGKILL to its supervisor, which takes its processes along; when that was."""
        pid = self.running.pids["supervisor"]
        killed = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        return killed

    def close(self) -> None:
        """Stops it, if it runs."""
        broker, self.broker = self.broker, None
        if broker is not None:
            broker.close()


@contextmanager
def instances(setup: Setup, count: int, mode: str = "async", **more: Any) -> Iterator[list[Peer]]:
    """So many, each of which sends to all others; none is started. more: tables of their config."""
    place = Path(tempfile.mkdtemp(prefix="instances-", dir=setup.directory))
    peers = [Peer(name, place) for name in NAMES[:count]]
    for peer in peers:
        peer.settings = {
            "instance": {"name": peer.name},
            "listen": peer.listen,
            "journal": {"segment_size": "256MiB"},
            "destination": [
                {"name": other.name, "to": [other.listen["replication"]], "mode": mode}
                for other in peers
                if other is not peer
            ],
            **more,
        }
    try:
        with ExitStack() as stack:
            for peer in peers:
                stack.callback(peer.close)
            yield peers
    finally:
        shutil.rmtree(place, ignore_errors=True)


def everything(setup: Setup) -> list[Result]:
    """Latency and throughput beside a destination, the link alone, a mesh, and failover."""
    return [
        *_beside(setup), *_partly(setup), *_catching_up(setup), *_mesh(setup), *_failover(setup),
        *_frozen(setup), *_downgraded(setup),
    ]  # fmt: skip


def _until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + STUCK_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(POLL_S)


def _linked(peer: Peer) -> bool:
    links = peer.running.ask("/replication")["links"]
    out = [link for link in links if link["direction"] == "out"]
    return all(link["state"] == "sending" and not link["downgraded"] for link in out)


def _lag(peer: Peer) -> int:
    links = peer.running.ask("/replication")["links"]
    return max(int(link["lag"]) for link in links if link["direction"] == "out")


# -- beside a destination ---------------------------------------------------------------------


def _beside(setup: Setup) -> list[Result]:
    """One message at a time, and many, with a destination of each mode and without one."""
    bodies = payloads(setup.messages)
    one: dict[str, list[float]] = {"": [], "sync": [], "async": []}
    many: dict[str, list[float]] = {"": [], "sync": [], "async": []}
    for _ in setup.each_round("beside a destination"):
        for mode in one:
            with _pair(setup, mode) as url, zbroker.connect(url, name="perf-repl") as client:
                one[mode].append(_p50_us(client))
                begun = time.perf_counter()
                client.publish_many("perf", bodies)
                client.flush(timeout=STUCK_S)
                many[mode].append(len(bodies) / (time.perf_counter() - begun))
    return [
        Result(
            "one at a time, sync destination", "us", one["sync"], one[""], "without one",
            ">= 33 %", lower_is_better=True,
        ),
        Result("publish_many(), sync", "messages/s", many["sync"], many[""], "without one", ""),
        Result(
            "publish_many(), async", "messages/s", many["async"], many[""], "without one",
            ">= 45 %",
        ),
    ]  # fmt: skip


def _partly(setup: Setup) -> list[Result]:
    """Many, with an asynchronous destination that gets a part of them, and how long it takes after
    the last acknowledgement until it has that. The one in ten that a filter picks are apart from
    each other: each is a record of its own there."""
    bodies = _numbered(setup.messages)
    kinds: dict[str, dict[str, Any]] = {
        "a filter for one in ten": {"filter": f"/n % {ONE_IN} = 0"},
        "topics for half": {"topics": ["perf"]},
    }
    rates: dict[str, list[float]] = {name: [] for name in ("", *kinds)}
    drained_s: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in setup.each_round("a part for a destination"):
        for name in rates:
            with _pair_of(setup, "async" if name else "", **kinds.get(name, {})) as (url, source):
                rates[name].append(_on_two_topics(url, bodies))
                if source is not None:
                    begun = time.perf_counter()
                    _until(lambda: _lag(source) == 0, "the copy")
                    drained_s[name].append(time.perf_counter() - begun)
    return [
        Result(
            f"publish_many(), async, {name}", "messages/s", rates[name], rates[""], "without one",
            "", notes={"then the copy lacks nothing after, s": statistics.median(drained_s[name])},
        )
        for name in kinds
    ]  # fmt: skip


def _numbered(count: int) -> list[bytes]:
    """As large as other payloads, in JSON."""
    frame = len(b'{"n":%010d,"x":""}' % 0)
    filler = b"x" * (PAYLOAD_BYTES - frame)
    return [b'{"n":1%09d,"x":"%s"}' % (n, filler) for n in range(count)]


def _on_two_topics(url: str, bodies: list[bytes]) -> float:
    """Messages a second, each half of a chunk on a topic."""
    with zbroker.connect(url, name="perf-repl") as client:
        begun = time.perf_counter()
        for first in range(0, len(bodies), 2 * CHUNK):
            client.publish_many("perf", bodies[first : first + CHUNK])
            client.publish_many("other", bodies[first + CHUNK : first + 2 * CHUNK])
        client.flush(timeout=STUCK_S)
        return len(bodies) / (time.perf_counter() - begun)


@contextmanager
def _pair(setup: Setup, mode: str) -> Iterator[str]:
    """Where to publish: with a destination of this mode, or a lone instance."""
    with _pair_of(setup, mode) as (url, _):
        yield url


@contextmanager
def _pair_of(setup: Setup, mode: str, **destination: Any) -> Iterator[tuple[str, Peer | None]]:
    """The same, and the source. destination: more settings of it."""
    if not mode:
        with setup.broker() as broker:
            yield broker.url, None
        return
    with instances(setup, 2, mode) as (a, b):
        a.settings["destination"][0].update(destination)
        b.start()
        a.start()
        _until(lambda: _linked(a), "the link")
        yield a.running.url, a


def _p50_us(client: zbroker.client.Client) -> float:
    found = []
    for body in payloads(ONE_BY_ONE):
        begun = time.perf_counter()
        client.publish("one", body).wait(STUCK_S)
        found.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(found)


# -- the link alone ---------------------------------------------------------------------------


def _catching_up(setup: Setup) -> list[Result]:
    """A destination that was away gets everything; nobody publishes meanwhile."""
    bodies = payloads(setup.messages)
    published, replayed, sent = [], [], []
    for _ in setup.each_round("catching up"):
        with instances(setup, 2) as (a, b):
            b.start()
            a.start()
            _until(lambda: _linked(a), "the link")
            a.running.ask("/replication/b/pause", {"dry_run": False})
            with zbroker.connect(a.running.url, name="perf-repl") as client:
                begun = time.perf_counter()
                client.publish_many("perf", bodies)
                client.flush(timeout=STUCK_S)
                published.append(len(bodies) / (time.perf_counter() - begun))
                begun = time.perf_counter()
                count = 0
                for batch in client.subscribe("perf", since="epoch").batches():
                    count += len(batch)
                    if count >= len(bodies):
                        break
                replayed.append(len(bodies) / (time.perf_counter() - begun))
            begun = time.perf_counter()
            a.running.ask("/replication/b/resume", {"dry_run": False})
            _until(lambda: _lag(a) == 0, "the copy")
            sent.append(len(bodies) / (time.perf_counter() - begun))
    return [
        Result("one link", "messages/s", sent, published, "published", ">= 60 %"),
        Result("one link", "messages/s", sent, replayed, "replayed", ">= 50 %"),
    ]


# -- three of them ----------------------------------------------------------------------------


def _mesh(setup: Setup) -> list[Result]:
    """How often each record is sent to each receiver."""
    bodies = payloads(setup.messages // 10)
    sent, once = [], []
    for _ in setup.each_round("a mesh of three"):
        with instances(setup, 3) as peers:
            for peer in peers:
                peer.start()
            _until(lambda: all(_linked(peer) for peer in peers), "the links")
            for peer in peers:
                with zbroker.connect(peer.running.url, name=f"perf-{peer.name}") as client:
                    client.publish_many("perf", bodies)
                    client.flush(timeout=STUCK_S)
            total = 3 * len(bodies)
            _until(
                lambda: all(
                    journal_stats(peer.running)["messages"] >= total  # noqa: B023
                    for peer in peers
                ),
                "the copies",
            )
            time.sleep(1.1)  # the last report of each process
            again = sum(journal_stats(peer.running)["duplicates"] for peer in peers)
            sent.append((2 * total + again) / (2 * total))
            once.append(1.0)
    return [
        Result(
            "a mesh of three, each record", "times", sent, once, "once to each", "<= 1.2",
            lower_is_better=True,
        )
    ]  # fmt: skip


# -- failover ---------------------------------------------------------------------------------


def _failover(setup: Setup) -> list[Result]:
    """From kill -9 of an instance to the next acknowledged message, by the other one."""
    found: list[float] = []
    setup.tell(f"{KILLS} kills")
    with _quorum(setup, "500ms") as peers:
        for number in range(KILLS):
            with _client(peers, number) as client:
                killed = peers[number % 2].kill()
                found.append(_acked_after_ms(client, killed))
            peers[number % 2].close()
            peers[number % 2].start()
    return [_within_a_second(f"failover, p95 of {KILLS}", found)]


def _frozen(setup: Setup) -> list[Result]:
    """From when the client's heartbeats ran out: its instance is frozen, with all processes."""
    found: list[float] = []
    setup.tell(f"{FREEZES} freezes")
    with _quorum(setup, "500ms") as peers:
        for number in range(FREEZES):
            pids = peers[number % 2].running.pids.values()
            with _client(peers, number, heartbeat=HEARTBEAT_S) as client:
                frozen = time.perf_counter()
                _signal(pids, signal.SIGSTOP)
                try:
                    found.append(_acked_after_ms(client, frozen + 2 * HEARTBEAT_S))
                finally:
                    _signal(pids, signal.SIGCONT)
    return [_within_a_second(f"frozen, p95 of {FREEZES}, after two heartbeats", found)]


def _downgraded(setup: Setup) -> list[Result]:
    """From when the destination that is gone is downgraded, where all of them are waited for."""
    found: list[float] = []
    setup.tell(f"{FREEZES} downgrades")
    with _quorum(setup, f"{DOWNGRADE_S}s") as (here, other):
        for number in range(FREEZES):
            with _client([here, other], 2 * number) as client:
                killed = other.kill()
                found.append(_acked_after_ms(client, killed + DOWNGRADE_S))
            other.close()
            other.start()
    return [_within_a_second(f"all wanted, p95 of {FREEZES}, after the downgrade", found)]


@contextmanager
def _quorum(setup: Setup, downgrade_after: str) -> Iterator[list[Peer]]:
    """Two instances, each of which waits for the other one; started."""
    with instances(setup, 2, "sync") as peers:
        for peer in peers:
            for destination in peer.settings["destination"]:
                destination["downgrade_after"] = downgrade_after
            peer.start()
        yield peers


@contextmanager
def _client(peers: list[Peer], first: int, **options: Any) -> Iterator[zbroker.client.Client]:
    """One that has published at the first of two, when all links are up and nothing is missing."""
    for peer in peers:  # else it is downgraded, and the other one may lack a message
        _until(lambda: _linked(peer) and _lag(peer) == 0, "the link")  # noqa: B023
    urls = [peers[(first + n) % 2].running.url for n in range(2)]
    with zbroker.connect(urls, name=f"perf-{first}", **options) as client:
        client.publish("perf", b"before").wait(STUCK_S)
        yield client


def _acked_after_ms(client: zbroker.client.Client, since: float) -> float:
    client.publish("perf", b"after").wait(STUCK_S)
    return (time.perf_counter() - since) * 1e3


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        os.kill(pid, number)


def _within_a_second(name: str, found: list[float]) -> Result:
    p95 = statistics.quantiles(found, n=100)[P95 - 1]
    return Result(
        name, "ms", [p95], [1_000.0], "a second", "<= 1,000", lower_is_better=True,
        notes={"p50": statistics.median(found), "max": max(found)},
    )  # fmt: skip
