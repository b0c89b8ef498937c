"""GET /topics: what was counted, and who wants it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.admin.rig import Rig
from zbroker.admin import topics
from zbroker.admin.requests import TopicsQuery
from zbroker.admin.tallies import TopicTally
from zbroker.admin.topics import PATTERNS_MAX, REST_MS, Interest, TopicCounter, TopicReports
from zbroker.errors import ClientError
from zbroker.log.reader import Log
from zbroker.recording import Recording
from zbroker.wire import surveys as s

KEYS = {
    "topic", "recorded", "messages", "bytes", "first_time", "last_time", "last_position",
    "subscriptions",
}  # fmt: skip
SECOND_NS = 1_000_000_000


class Rule(NamedTuple):
    topic: str
    regex: bool = False
    type: str = "auto"
    filter: str = ""

    @property
    def payload_type(self) -> str:
        return self.type


class Counting:
    def __init__(self) -> None:
        self.found: list[TopicTally] = []
        self.complete = True

    def rows(self) -> tuple[list[TopicTally], bool]:
        return self.found, self.complete


class FakeLink:
    processes = ("ingest", "delivery", "delivery-2")

    def __init__(self) -> None:
        self.answers: dict[str, s.Topics | None] = {}
        self.error: ClientError | None = None

    def ask(self, answer: type, question: Any, processes: list[str]) -> dict[str, s.Topics | None]:
        assert processes == ["delivery", "delivery-2"]
        if self.error:
            raise self.error
        return self.answers


class Bench:
    def __init__(self, *rules: Rule) -> None:
        self.counting, self.link = Counting(), FakeLink()
        counting: Any = self.counting
        link: Any = self.link
        self.topics = TopicReports(counting, link, Recording(rules))

    def count(self, topic: str, messages: int) -> None:
        row = TopicTally(topic, messages, messages * 10, SECOND_NS, 2 * SECOND_NS, 77)
        self.counting.found.append(row)

    def answer(self, match: str = "", limit: int = 1_000) -> dict[str, Any]:
        found = self.topics.answer(TopicsQuery(match, limit))
        assert json.loads(json.dumps(found)) == found
        return found

    def names(self, match: str = "", limit: int = 1_000) -> list[str]:
        return [row["topic"] for row in self.answer(match, limit)["topics"]]


def reported(*rows: tuple[str, bool, int]) -> s.Topics:
    return s.Topics(1, [s.TopicRow(*row) for row in rows])


def test_a_row_has_the_published_keys() -> None:
    bench = Bench()
    bench.count("a", 3)
    [row] = bench.answer()["topics"]
    assert set(row) == KEYS
    assert row == {
        "topic": "a", "recorded": True, "messages": 3, "bytes": 30,
        "first_time": "19700101T000001Z", "last_time": "19700101T000002Z", "last_position": 77,
        "subscriptions": 0,
    }  # fmt: skip


def test_the_largest_are_reported_first() -> None:
    bench = Bench()
    for topic, count in (("b", 1), ("c", 5), ("a", 1), ("d", 9)):
        bench.count(topic, count)
    assert bench.names() == ["d", "c", "a", "b"]
    assert bench.names(limit=2) == ["d", "c"]
    assert bench.answer(limit=2)["left_out"] == 2


def test_only_those_that_match_are_reported() -> None:
    bench = Bench()
    for topic in ("orders.eu", "orders.us", "trades.eu", "orders*eu"):
        bench.count(topic, 1)
    assert bench.names("orders.*") == ["orders.eu", "orders.us"]
    assert bench.names("*eu") == ["orders*eu", "orders.eu", "trades.eu"]
    assert bench.names("orders.eu") == ["orders.eu"]
    assert bench.names("nothing") == []
    with pytest.raises(ClientError, match="match"):
        bench.answer("\n")


def test_a_topic_that_is_only_wanted_is_reported_too() -> None:
    bench = Bench(Rule("orders"))
    bench.link.answers = {"delivery": reported(("news", False, 2)), "delivery-2": None}
    bench.count("orders", 1)
    first, other = bench.answer()["topics"]
    assert (first["topic"], first["recorded"], first["subscriptions"]) == ("orders", True, 0)
    assert (other["topic"], other["recorded"], other["subscriptions"]) == ("news", False, 2)
    assert (other["messages"], other["first_time"], other["last_position"]) == (0, None, None)


def test_subscriptions_of_all_workers_count_by_name_and_by_pattern() -> None:
    bench = Bench()
    bench.count("orders.eu", 1)
    one = reported(("orders.eu", False, 2), ("orders.*", True, 3), ("trades.*", True, 9))
    other = reported(("orders.eu", False, 1), ("orders.*", True, 4))
    bench.link.answers = {"delivery": one, "delivery-2": other}
    [row] = bench.answer()["topics"]
    assert row["subscriptions"] == 10


def test_patterns_have_a_bound_and_bad_ones_are_no_error() -> None:
    rows = [(f"x{n:04}.*", True, 1) for n in range(PATTERNS_MAX)]
    interest = Interest([reported(("y.*", True, 5), ("(", True, 9), *rows)])
    assert interest.of("y.1") == 5
    assert sum(interest.of(f"x{n:04}.") for n in range(PATTERNS_MAX)) == PATTERNS_MAX - 2


def test_what_is_not_counted_yet_is_said() -> None:
    bench = Bench()
    assert bench.answer() == {"complete": True, "left_out": 0, "topics": []}
    bench.counting.complete = False
    assert bench.answer()["complete"] is False


def test_the_log_is_reported_without_delivery_too() -> None:
    bench = Bench()
    bench.count("a", 1)
    bench.link.error = ClientError("not_ready", "later")
    assert bench.names() == ["a"]


LIMIT_TURNS = 1_000


class CounterBench:
    def __init__(self, data: Path) -> None:
        self.rig = Rig(data)
        self.end = self.rig.end
        self.counting = TopicCounter(
            self.rig.paths, self._end, self.rig.clock, logging.getLogger("test")
        )

    def _end(self) -> int:
        if not self.end:
            raise ClientError("not_ready", "the journal is not there")
        return self.end

    def messages(self) -> int:
        rows, complete = self.counting.rows()
        assert complete
        return sum(row.messages for row in rows)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[CounterBench]:
    made = CounterBench(tmp_path)
    yield made
    made.counting.stop()


def test_a_short_log_is_counted_at_once(bench: CounterBench) -> None:
    assert bench.messages() == len(bench.rig.readable())
    assert bench.messages() == len(bench.rig.readable()), "and not twice"


def test_only_what_is_durable_is_counted(bench: CounterBench) -> None:
    whole = bench.end
    bench.end = bench.rig.readable()[7]
    assert 0 < bench.messages() < len(bench.rig.readable())
    bench.end = whole
    assert bench.messages() == len(bench.rig.readable())


def test_what_is_removed_is_taken_off(bench: CounterBench) -> None:
    before = bench.messages()
    with closing(bench.rig.places()) as places:
        [place] = places.by_serial()[1]
        places.unlink(place)
    with closing(Log(bench.rig.paths.journal, bench.rig.paths.archive)) as log:
        bench.counting.turn(log)
    left = bench.messages()
    assert left == len(bench.rig.readable())
    assert 0 < left < before


def test_slices_come_to_the_end(bench: CounterBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "SLICE_MS", 0)
    monkeypatch.setattr(topics, "WAIT_S", 0)
    bench.counting._wanted = bench.end
    bench.counting._asked_ms = bench.rig.clock.mono_ms()
    turns = 0
    with closing(Log(bench.rig.paths.journal, bench.rig.paths.archive)) as log:
        while bench.counting.turn(log):
            turns += 1
            assert turns < LIMIT_TURNS
    assert turns >= 2
    assert bench.messages() == len(bench.rig.readable())


def test_no_one_asks_so_nothing_is_counted(
    bench: CounterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "SLICE_MS", 0)
    bench.counting._wanted = bench.end
    bench.rig.clock.seconds += REST_MS
    with closing(Log(bench.rig.paths.journal, bench.rig.paths.archive)) as log:
        assert not bench.counting.turn(log)
    assert not bench.counting._thread.is_alive()


def test_what_is_not_counted_yet_is_reported_as_incomplete(
    bench: CounterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "WAIT_S", 0.01)
    bench.end += 1_000
    monkeypatch.setattr(TopicCounter, "turn", lambda *_: False)
    rows, complete = bench.counting.rows()
    assert (rows, complete) == ([], False)


def test_without_the_journal_no_one_knows_the_end(bench: CounterBench) -> None:
    bench.end = 0
    with pytest.raises(ClientError, match="not_ready"):
        bench.counting.rows()
