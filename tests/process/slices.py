"""What a replay is asked for and what it must bring: a slice of the log as it is in the files.

The log is read without any broker, and what follows from the options is worked out by the model of
tests/delivery. What came is kept as positions and hashes, so that long runs fit in memory.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tests.delivery import model
from tests.delivery.world import Seen
from tests.process.load import batches_of
from zbroker.cli.journal.rows import unpack
from zbroker.client import Client
from zbroker.ids import parse_vector

WAIT_S: Final = 60.0
PAUSE_S: Final = 0.03
FILTER: Final = "/n % 3 = 0 AND /k > 1"
KEYS: Final = 5
INTERVAL_S: Final = 0.05


class Edge(NamedTuple):
    """One end of a replay: as it is written, what that means, and whether it is part of it."""

    text: str
    position: int | None = None
    time_ns: int | None = None
    included: bool = False


class Payload(msgspec.Struct):
    """What the messages hold. k: key of conflation."""

    n: int
    k: int
    fill: str


def mark(publisher: int, sequence: int, time_ns: int, topic: str, data: bytes) -> int:
    """A hash of all of a message but its position."""
    return hash((publisher, sequence, time_ns, topic, data))


@dataclass
class Replay:
    """A subscription that is read to its end, or until it was live for a while.

    since, until: None for EPOCH, and for a replay that goes on live. as_range: both ends in one
    text. live: messages to read after it has caught up. pause_behind: it is paused there and
    resumed. at_least: a position that was in the log before it began. options: of `subscribe`.
    """

    since: Edge | None
    until: Edge | None
    topic: str
    regex: bool = False
    as_range: bool = False
    live: int = 0
    pause_behind: int = 0
    at_least: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    positions: array[int] = field(default_factory=lambda: array("q"))
    marks: array[int] = field(default_factory=lambda: array("q"))
    accepted_behind: int = 0  # from NOW: where that was

    def run(self, client: Client, heard: Callable[[Any], None] | None = None) -> None:
        """Reads. Raises: ZBrokerError, also "timeout" if nothing comes for WAIT_S."""
        with client.subscribe(
            self.topic, regex=self.regex, **self._ends(), **self.options, timeout=WAIT_S
        ) as subscription:
            if self.since is not None and self.since.text == "now":
                self.accepted_behind = max(parse_vector(subscription.vector or "").values())
            live, paused = 0, self.pause_behind == 0
            for batch in subscription.batches(timeout=WAIT_S):
                self.take(batch)
                if heard is not None:
                    heard(batch)
                live += len(batch) if subscription.caught_up else 0
                if self.until is None and live >= self.live:
                    return
                if not paused and len(self.positions) >= self.pause_behind:
                    paused = True
                    subscription.pause(WAIT_S)
                    threading.Event().wait(PAUSE_S)
                    subscription.resume(WAIT_S)
        limit = self.options.get("limit")
        assert self.until is not None or len(self.positions) == limit, f"{self} ended by itself"

    def _ends(self) -> dict[str, str]:
        since = "epoch" if self.since is None else self.since.text
        if not self.as_range:
            return {"since": since} | ({"until": self.until.text} if self.until else {})
        assert self.since is not None
        assert self.until is not None
        first, last = "(["[self.since.included], ")]"[self.until.included]
        return {"since": f"{first}{since}:{self.until.text}{last}"}

    def take(self, batch: Iterable[Any]) -> None:
        """Messages that came."""
        for each in batch:
            self.positions.append(each.position)
            self.marks.append(
                mark(each.publisher, each.sequence, each.time_ns, each.topic, each.data)
            )

    def wants(self, seen: Seen) -> bool:
        """Topic and filter, in plain Python."""
        if not (seen.topic.startswith("load.") if self.regex else seen.topic == self.topic):
            return False
        if "filter" not in self.options:
            return True
        payload = payload_of(seen)
        return payload is not None and payload.n % 3 == 0 and payload.k > 1

    def __str__(self) -> str:
        return f"{self.topic} from {self.since} to {self.until}, {self.options}, {self.as_range}"


def payload_of(seen: Seen) -> Payload | None:
    """None: it is not one of ours."""
    try:
        return msgspec.json.decode(seen.data, type=Payload)
    except msgspec.DecodeError:
        return None


def key_of(seen: Seen) -> int | None:
    """The key of conflation."""
    payload = payload_of(seen)
    return None if payload is None else payload.k


class Book:
    """What a log holds, in its order, and what a replay of it must be."""

    def __init__(self, messages: Iterable[Any]) -> None:
        self.log = [
            Seen(each.publisher, each.sequence, each.position, each.topic, each.time_ns, each.data)
            for each in messages
        ]
        self._positions = array("q", [seen.position for seen in self.log])
        self._times = array("q", [seen.time_ns for seen in self.log])

    def expected(self, replay: Replay) -> list[Seen]:
        """What a replay must have brought."""
        options = replay.options
        return model.replay(
            self.log[self._first(replay) : self._last(replay)],
            wants=replay.wants,
            interval_ns=round(INTERVAL_S * 1e9) if "conflation" in options else None,
            key=key_of,
            limit=options.get("limit"),
        )

    def _first(self, replay: Replay) -> int:
        edge = replay.since
        if edge is None:
            return 0
        if edge.text == "now":
            return bisect_right(self._positions, replay.accepted_behind)
        return self._cut(edge, bisect_left if edge.included else bisect_right)

    def _last(self, replay: Replay) -> int:
        edge = replay.until
        if edge is not None and edge.text != "now":
            return self._cut(edge, bisect_right if edge.included else bisect_left)
        if edge is None and len(replay.positions) == replay.options.get("limit"):
            return len(self.log)
        seen = replay.positions[-1] if replay.positions else 0
        return bisect_right(self._positions, max(seen, replay.at_least))

    def _cut(self, edge: Edge, bisect: Callable[[array[int], int], int]) -> int:
        if edge.position is not None:
            return bisect(self._positions, edge.position)
        assert edge.time_ns is not None, edge
        return bisect(self._times, edge.time_ns)

    def compare(self, replay: Replay) -> int:
        """Raises: AssertionError where a replay is not the log; else the number of messages."""
        wanted = self.expected(replay)
        positions = array("q", [seen.position for seen in wanted])
        if replay.positions != positions:
            raise AssertionError(f"{replay}: {_difference(replay.positions, positions)}")
        marks = [mark(s.publisher, s.seq, s.time_ns, s.topic, s.data) for s in wanted]
        pairs = zip(positions, replay.marks, marks, strict=True)
        differing = [position for position, got, want in pairs if got != want]
        assert not differing, f"{replay}: other content at {differing[:3]}"
        return len(wanted)


def messages_of(journal: Path, end: int) -> Iterator[Any]:
    """All messages in the files of a log, below position `end`. Every byte is checked."""
    for batch in batches_of(journal, end):
        yield from unpack(batch)


def _difference(got: array[int], wanted: array[int]) -> str:
    at = next(
        (at for at, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]),
        min(len(got), len(wanted)),
    )
    return (
        f"{len(got)} messages, not {len(wanted)}; from number {at} on positions "
        f"{got[at : at + 3].tolist()}, not {wanted[at : at + 3].tolist()}"
    )
