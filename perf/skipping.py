"""A few messages among many: by topic, whose bodies alone are read, and by content.

One log for all: JSON payloads of one topic, ten messages of another one among them. Measured is how
fast a subscriber that wants some of them gets through the whole log, until it gets `completed`;
the limit is one that gets everything. The reader touches data and sequence of what it gets, and the
sum is checked.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

import zbroker
from perf.harness import PAYLOAD_BYTES, Cpu, Result, Setup

COMMON: Final = "perf.common"
RARE: Final = "perf.rare"
RARE_COUNT: Final = 10
NEEDLE_EVERY: Final = 100_000
CHUNK: Final = 50_000  # messages made at a time
STUCK_S: Final = 120.0
FILTER_TARGET: Final = ">= 1 M/s scanned at 0.001 %"
TOPIC_TARGET: Final = ">= 4 M/s scanned"


class Payload(msgspec.Struct):
    """About PAYLOAD_BYTES of JSON."""

    id: int
    percent: int
    kind: str
    text: str


@dataclass
class Case:
    """One subscriber. expects: whether it gets the message of the common topic with this id."""

    name: str
    topic: str
    expects: Callable[[int], bool]
    filter: str | None = None
    target: str = ""
    ours: list[float] = field(default_factory=list)
    last_ms: list[float] = field(default_factory=list)
    count: int = 0
    sum: int = 0
    notes: dict[str, Any] = field(default_factory=dict)

    def takes(self, data: bytes, sequence: int) -> None:
        """One more message that it has to get."""
        self.count += 1
        self.sum += data[-3] + sequence


def scans(setup: Setup) -> list[Result]:
    """By topic and by filters of three selectivities, and everything as the limit, in turn."""
    everything = Case("everything", COMMON, lambda _: True)
    rare = Case(f"replay, {RARE_COUNT} messages of a rare topic", RARE, lambda _: False)
    rare.target = TOPIC_TARGET
    cases = [
        rare,
        Case("replay, filter matches 100 %", COMMON, lambda _: True, "/id >= 0"),
        Case("replay, filter matches 1 %", COMMON, lambda i: i % 100 == 42, "/percent = 42"),
        Case("replay, filter matches 0.001 %", COMMON, is_needle, "/kind = 'needle'"),
    ]
    cases[-1].target = FILTER_TARGET
    limit: list[float] = []
    with setup.broker() as broker, zbroker.connect(broker.url, name="perf-skipping") as client:
        published = publish(client, setup.messages, [everything, *cases], rare)
        for _ in setup.each_round("skipping"):
            run(broker, client, everything, published)
            limit.append(everything.ours[-1])
            for case in cases:
                run(broker, client, case, published)
    return [result(case, limit) for case in cases]


def is_needle(number: int) -> bool:
    """Few messages are."""
    return number % NEEDLE_EVERY == NEEDLE_EVERY // 2


def publish(client: zbroker.client.Client, messages: int, cases: list[Case], rare: Case) -> int:
    """Publishes everything, a rare one before each tenth; how many messages that is."""
    sequence = 0
    for number in range(RARE_COUNT):
        data = b"rare %012d.." % number
        sequence = client.publish(RARE, data).sequence
        rare.takes(data, sequence)
        first, end = (messages * part // RARE_COUNT for part in (number, number + 1))
        for bodies in chunks(first, end):
            client.publish_many(COMMON, [data for _, data in bodies])
            for at, data in bodies:
                sequence += 1
                for case in cases:
                    if case.expects(at):
                        case.takes(data, sequence)
        client.flush(timeout=STUCK_S)
    return messages + RARE_COUNT


def chunks(first: int, end: int) -> Iterator[list[tuple[int, bytes]]]:
    """Numbers and payloads, some at a time."""
    encode = msgspec.json.Encoder().encode
    for start in range(first, end, CHUNK):
        yield [
            (number, encode(payload(number))) for number in range(start, min(start + CHUNK, end))
        ]


def payload(number: int) -> Payload:
    """They differ from each other."""
    kind = "needle" if is_needle(number) else "straw"
    text = f"{number * 2_654_435_761 % 2**64:020d}"
    return Payload(number, number % 100, kind, text.ljust(PAYLOAD_BYTES - 52, "."))


def run(
    broker: zbroker.LocalBroker, client: zbroker.client.Client, case: Case, published: int
) -> None:
    """Replays the log for one subscriber."""
    cpu, begun = Cpu(broker), time.perf_counter()
    last, count, total = begun, 0, 0
    with client.subscribe(
        case.topic, since="epoch", until="now", filter=case.filter
    ) as subscription:
        for batch in subscription.batches(timeout=STUCK_S):
            last = time.perf_counter()
            count += len(batch)
            for message in batch:
                total += message.data[-3] + message.sequence
    seconds = time.perf_counter() - begun
    if (count, total) != (case.count, case.sum):
        raise AssertionError(
            f"{case.name}: {count} messages of sum {total}, not {case.count} of {case.sum}"
        )
    case.ours.append(published / seconds)
    case.last_ms.append((last - begun) * 1e3)
    case.notes = {"matches": count, "cpu_us_per_scanned": cpu.per_message_us(published)}


def result(case: Case, limit: list[float]) -> Result:
    """Its line of the table."""
    notes = {**case.notes, "last_match_ms": round(statistics.median(case.last_ms), 1)}
    values = (case.ours, limit, "everything, in the same run", case.target)
    return Result(case.name, "messages/s scanned", *values, notes=notes)
