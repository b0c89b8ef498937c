"""zbroker/admin/topic_counter.py: a thread counts what a real log holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.admin.desk import Desk
from zbroker.admin import topic_counter
from zbroker.admin.topic_counter import REST_MS, TopicCounter
from zbroker.errors import ClientError
from zbroker.log.reader import Log

LIMIT_TURNS = 1_000


class Bench:
    def __init__(self, data: Path) -> None:
        self.desk = Desk(data)
        self.end = self.desk.end
        self.counting = TopicCounter(
            self.desk.paths, self._end, self.desk.clock, logging.getLogger("test")
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
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.counting.stop()


def test_a_short_log_is_counted_at_once(bench: Bench) -> None:
    assert bench.messages() == len(bench.desk.readable())
    assert bench.messages() == len(bench.desk.readable()), "and not twice"


def test_only_what_is_durable_is_counted(bench: Bench) -> None:
    whole = bench.end
    bench.end = bench.desk.readable()[7]
    assert 0 < bench.messages() < len(bench.desk.readable())
    bench.end = whole
    assert bench.messages() == len(bench.desk.readable())


def test_what_is_removed_is_taken_off(bench: Bench) -> None:
    before = bench.messages()
    with closing(bench.desk.places()) as places:
        [place] = places.by_serial()[1]
        places.unlink(place)
    with closing(Log(bench.desk.paths.journal, bench.desk.paths.archive)) as log:
        bench.counting.turn(log)
    left = bench.messages()
    assert left == len(bench.desk.readable())
    assert 0 < left < before


def test_slices_come_to_the_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_counter, "SLICE_MS", 0)
    monkeypatch.setattr(topic_counter, "WAIT_S", 0)
    bench.counting._wanted = bench.end
    bench.counting._asked_ms = bench.desk.clock.mono_ms()
    turns = 0
    with closing(Log(bench.desk.paths.journal, bench.desk.paths.archive)) as log:
        while bench.counting.turn(log):
            turns += 1
            assert turns < LIMIT_TURNS
    assert turns >= 2
    assert bench.messages() == len(bench.desk.readable())


def test_nobody_asks_so_nothing_is_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_counter, "SLICE_MS", 0)
    bench.counting._wanted = bench.end
    bench.desk.clock.seconds += REST_MS
    with closing(Log(bench.desk.paths.journal, bench.desk.paths.archive)) as log:
        assert not bench.counting.turn(log)
    assert not bench.counting._thread.is_alive()


def test_what_is_not_counted_yet_is_told_as_incomplete(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_counter, "WAIT_S", 0.01)
    bench.end += 1_000
    monkeypatch.setattr(TopicCounter, "turn", lambda *_: False)
    rows, complete = bench.counting.rows()
    assert (rows, complete) == ([], False)


def test_without_the_journal_nobody_knows_the_end(bench: Bench) -> None:
    bench.end = 0
    with pytest.raises(ClientError, match="not_ready"):
        bench.counting.rows()
