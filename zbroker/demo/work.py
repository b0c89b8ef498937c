"""The flights as work: shared among processes, one of which is killed, each done once.

Workers keep what they did in files of their own; the killed one's file counts, too. Together these
must be the table, and malformed messages must be in the dead letter topic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zbroker.demo import deliveries
from zbroker.demo.aggregate import merged
from zbroker.demo.check import CarrierTally, FlightTable
from zbroker.demo.worker import QUEUE
from zbroker.demo.worker_processes import WorkerProcesses
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client import Client
    from zbroker.demo.story import Story

WORKERS: Final = 3
DEAD: Final = "dead-flights"
BROKEN_TOPIC: Final = "flights.broken"
BROKEN: Final = [
    b'{"carrier": 7, "arr_delay": "late"}', b"not even JSON", b'{"carrier": "UA"', b"", b"[]",
]  # fmt: skip
DRAIN_S: Final = 300.0
LOOK_S: Final = 0.1

#: the queue, as a [[queue]] table
TABLE: Final[dict[str, str | bool | int]] = {
    "name": QUEUE, "topic": r"flights\..*", "regex": True, "lease": "5s",
    "max_per_subscription": 1_000, "dead_letter": DEAD,
}  # fmt: skip

Ask = Callable[[], dict[str, Any]]  # the admin's report of the queue


def run(
    story: Story, client: Client, url: str, ask: Ask, directory: Path, table: FlightTable
) -> None:
    """Does all of it; each difference is in `story.failures`."""
    story.chapter(
        "Share them as work",
        f"A queue over the same topics: {WORKERS} processes, each flight done by one of them.",
    )
    time_ns = table.departure_ns[-1]
    last = [client.publish(BROKEN_TOPIC, data, time=time_ns) for data in BROKEN][-1]
    last.wait(timeout=30)
    with closing(WorkerProcesses("zbroker-demo", directory)) as workers:
        workers.start(url, WORKERS)
        begun = time.perf_counter()
        total = len(table) + len(BROKEN)
        killed = False
        with story.bar("done", total) as advance:
            for row in _until_empty(ask):
                done = total - int(row["depth"])
                advance(done)
                if not killed and done >= total // 2:
                    workers.kill(1)
                    killed = True
        taken = time.perf_counter() - begun
    if killed:
        story.say("Worker 1 was killed in the middle; what it held went to the others.")
    row = ask()
    story.say(
        f"{total:,} messages in {taken:.1f} s, {int(row['redelivered']):,} of them given twice, "
        f"flagged; {row['depth']} are left."
    )
    _judge(story, directory, table)
    _buried(story, client)


def _until_empty(ask: Ask) -> Iterator[dict[str, Any]]:
    """The admin's reports of the queue, until it is empty. Raises: ZBrokerError timeout."""
    deadline = time.monotonic() + DRAIN_S
    while True:
        row = ask()
        yield row
        if not row["depth"]:
            return
        if time.monotonic() > deadline:
            raise ZBrokerError("timeout", f"{row['depth']} messages are left in the queue")
        time.sleep(LOOK_S)


def _judge(story: Story, directory: Path, table: FlightTable) -> None:
    found = tallies(directory)
    expected = table.tallies()
    wrong = sorted(c for c in found | expected if found.get(c) != expected.get(c))
    difference = f"carriers {', '.join(wrong)} differ from the table" if wrong else ""
    flights = sum(tally.flights for tally in found.values())
    story.verdict(f"{flights:,} flights done, each counted once, as in the table", difference)


def tallies(directory: Path) -> dict[str, CarrierTally]:
    """The work of all workers: a flight that two of them did counts once."""
    done = deliveries.each_once(deliveries.read(directory)).values()
    return merged({one.carrier: CarrierTally(1, one.delay)} for one in done)


def _buried(story: Story, client: Client) -> None:
    """Compares the dead letters with the malformed messages."""
    letters = list(client.subscribe(DEAD, since="epoch", until="now"))
    for letter in letters[:1]:
        reason = (letter.headers or {}).get("zb-text")
        story.say(f"A dead letter: {letter.data!r}, because {reason!r}")
    same = Counter(letter.data for letter in letters) == Counter(BROKEN)
    difference = "" if same else f"{len(letters)} dead letters, not the {len(BROKEN)} malformed"
    story.verdict(f"{len(letters)} malformed ones are in {DEAD}, nothing else is", difference)
