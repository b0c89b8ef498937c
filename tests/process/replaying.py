"""Many replays at a time, from anywhere and with any options, while processes are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from tests.process.load import until, until_running
from tests.process.slices import (
    FILTER,
    INTERVAL_S,
    KEYS,
    WAIT_S,
    Book,
    Edge,
    Payload,
    Replay,
    messages_of,
)
from zbroker.client import Client, connect
from zbroker.clock import format_time, parse_time
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_vector
from zbroker.local import LocalBroker

TOPICS: Final = ("load.a", "load.b", "load.c", "other")
PATTERN: Final = "load[.].*"
PUBLISHERS: Final = 3
BURST: Final = 20  # messages of a publisher at a time
POINT_EVERY: Final = 7  # so many messages from one point to the next
POINTS_MIN: Final = 50
FAR: Final = 30_000  # messages that a replay begins back, at most
LIVE_MAX: Final = 400  # messages that are read after it has caught up
FEW: Final = 60  # where most do not pass
FIRST_KILLS: Final = ("delivery", "journal")  # readers go on until these were killed
KILLS_MAX: Final = 20  # after each the supervisor waits longer before it starts the next one
PROCESSES: Final = ("delivery", "journal", "ingest", "delivery", "zygote", "queues", "admin")


class Point(NamedTuple):
    """A message that is in the log: what a replay may begin or end at."""

    position: int
    bookmark: str
    time_ns: int


class Steady:
    """Publishers that go on at a pace, on all topics, in batches of several topics."""

    def __init__(self, url: str, per_second: int) -> None:
        self._clients = [connect(url, f"steady-{n}") for n in range(PUBLISHERS)]
        self._pause_s = BURST * PUBLISHERS / per_second
        self._rng = random.Random(1)
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.errors: list[BaseException] = []

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due += self._pause_s
                for client in self._clients:
                    self._burst(client)
        except BaseException as error:
            self.errors.append(error)

    def _burst(self, client: Client) -> None:
        topic = self._rng.choice(TOPICS)
        for _ in range(BURST):
            if self._rng.random() < 0.2:
                topic = self._rng.choice(TOPICS)
            self._number += 1
            payload = Payload(
                self._number, self._rng.randrange(KEYS), "." * self._rng.randrange(120)
            )
            client.publish(topic, msgspec.json.encode(payload), timeout=WAIT_S)

    def finish(self) -> None:
        """Stops; everything that was published is persisted then."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self.errors, self.errors
        for client in self._clients:
            client.flush(WAIT_S)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        for client in self._clients:
            client.close(flush=False)


# -- kills ----------------------------------------------------------------------------------------


def kill_process(broker: LocalBroker, name: str) -> None:
    """Ends a process with SIGKILL; returns when another process has its place."""
    pid = until_running(broker, name, 0)
    os.kill(pid, signal.SIGKILL)
    until_running(broker, name, pid)


# -- what a replay is asked for -------------------------------------------------------------------


class Chooser:
    """Begins, ends and options by chance; the newest `points` of a log are what it knows of it."""

    def __init__(self, rng: random.Random) -> None:
        self.points: deque[Point] = deque(maxlen=FAR // POINT_EVERY)
        self.origin = Origin(0, 0)
        self._rng = rng

    def note(self, batch: list[Any]) -> None:
        """Points from what a follower sees."""
        self.origin = batch[0].origin
        for each in batch[::POINT_EVERY]:
            self.points.append(Point(each.position, each.bookmark, each.time_ns))

    def replay(self) -> Replay:
        """Most begin near the end of the log: far more of them, and closer to the cut-over."""
        points, rng = list(self.points), self._rng
        at = len(points) - 1 - int(len(points) ** rng.random())
        as_range = rng.random() < 0.2
        since = self._edge(points, at, at_end=False, any_side=as_range)
        last = None
        if as_range or (rng.random() < 0.5 and since.text != "now"):
            last = self._edge(
                points, rng.randrange(at, len(points)), at_end=True, any_side=as_range
            )
        topic, regex = rng.choice([("load.a", False), ("other", False), (PATTERN, True)])
        options = self._options(last)
        pause_behind = rng.choice([0, 0, 1, 50, 200])
        if "rate" not in options and not pause_behind and rng.random() < 0.5:
            options["delivery"] = "live"
        return Replay(
            None if self._whole(points, as_range) else since, last, topic, regex, as_range,
            live=rng.randrange(1, FEW if "filter" in options else LIVE_MAX),
            pause_behind=pause_behind,
            at_least=points[-1].position if last is not None and last.text == "now" else 0,
            options=options,
        )  # fmt: skip

    def _whole(self, points: list[Point], as_range: bool) -> bool:
        """From EPOCH only while the log is short: the whole of a long one takes long."""
        return not as_range and points[-1].position < 2 * FAR and self._rng.random() < 0.1

    def _edge(self, points: list[Point], at: int, *, at_end: bool, any_side: bool) -> Edge:
        rng, point = self._rng, points[at]
        kinds = ["bookmark", "vector", "time"]
        if not any_side:
            kinds += ["now"] if at_end else ["now", "list"]
        kind = rng.choice(kinds)
        if kind == "now":
            return Edge("now")
        if kind == "time":
            text = format_time(point.time_ns)
            included = rng.random() < 0.5 if any_side else not at_end
            return Edge(text, time_ns=parse_time(text), included=included)
        included = rng.random() < 0.5 if any_side else at_end
        if kind == "bookmark":
            return Edge(point.bookmark, point.position, included=included)
        if kind == "vector":
            text = format_vector({self.origin: point.position})
            return Edge(text, point.position, included=included)
        some = [point, *rng.choices(points[at:], k=2)]
        rng.shuffle(some)
        return Edge(",".join(each.bookmark for each in some), point.position)

    def _options(self, last: Edge | None) -> dict[str, Any]:
        rng = self._rng
        # one batch at a time never catches up with a load
        options: dict[str, Any] = {"credit": rng.choice([1 if last else 9_000, 20_000, 4 << 20])}
        if rng.random() < 0.3:
            options["filter"] = FILTER
        if rng.random() < 0.2:
            options["rate"] = rng.choice([20_000, "4MB", "20X"])
        if rng.random() < 0.2:
            options["limit"] = rng.randrange(1, FEW)
        if last is not None and last.text != "now" and rng.random() < 0.2:
            clock = {"conflation_clock": "log"}  # what comes is the same whatever the load
            options |= {"conflation": INTERVAL_S, "conflation_key": "/k", **clock}
        return options


# -- all of them together -------------------------------------------------------------------------


class Trial:
    """A broker under load whose processes are killed, and subscribers that replay meanwhile."""

    def __init__(self, broker: LocalBroker, seed: int, per_second: int) -> None:
        self.replays: list[Replay] = []
        self.kills = 0
        self._rng = random.Random(seed)
        self._chooser = Chooser(self._rng)
        self._broker = broker
        self._load = Steady(broker.url, per_second)
        self._tail_client = connect(broker.url, "tail")
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []

    def run(self, replays: int, readers: int) -> int:
        """So many replays by so many subscribers, compared with the log; the messages in all."""
        tail = Replay(None, None, PATTERN, True, live=1 << 60)
        self._load.start()
        threads = [self._thread(lambda: tail.run(self._tail_client, self._note))]
        until(self._has_begun, "points", WAIT_S)
        threads.append(self._thread(self._kill))
        share = -(-replays // readers)
        read = [self._thread(lambda n=n: self._read(f"reader-{n}", share)) for n in range(readers)]
        for thread in read:
            thread.join(WAIT_S * share)
            assert not thread.is_alive(), "a replay does not end"
        self._load.finish()
        self._over.set()
        self._tail_client.publish("load.a", b"the last one").wait(WAIT_S)  # for the follower
        for thread in threads:
            thread.join(WAIT_S)
        assert not self._errors, self._errors
        return self._judge(tail)

    def close(self) -> None:
        self._over.set()
        self._load.close()
        self._tail_client.close(flush=False)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except _Enough:
                pass
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _has_begun(self) -> bool:
        return len(self._chooser.points) > POINTS_MIN or bool(self._errors)

    def _note(self, batch: list[Any]) -> None:
        """What the follower sees; it ends with the trial."""
        with self._lock:
            self._chooser.note(batch)
        if self._over.is_set():
            raise _Enough

    def _kill(self) -> None:
        while self.kills < KILLS_MAX and not self._over.wait(self._rng.uniform(0.3, 1.2)):
            first = FIRST_KILLS[self.kills : self.kills + 1]
            kill_process(self._broker, self._rng.choice(first or PROCESSES))
            self.kills += 1

    def _read(self, name: str, count: int) -> None:
        with connect(self._broker.url, name) as client:
            done = 0
            while done < count or self.kills < len(FIRST_KILLS):
                with self._lock:
                    replay = self._chooser.replay()
                try:
                    replay.run(client)
                except ZBrokerError as error:
                    reported = f"{replay}, {len(replay.positions)} came: {error!r}"
                    raise AssertionError(reported) from error
                self.replays.append(replay)
                done += 1

    def _judge(self, tail: Replay) -> int:
        with connect(self._broker.url, "judge") as client:
            end = client.ranges(timeout=WAIT_S).persisted
        book = Book(messages_of(self._broker.data_dir / "journal", end))
        return sum(book.compare(replay) for replay in [tail, *self.replays])


class _Enough(Exception):
    """The follower has seen what there is to see."""
