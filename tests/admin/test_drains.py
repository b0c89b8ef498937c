"""POST /replication/drain: nothing ends before destinations hold all that was acknowledged."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.admin.link_rows import FakeReplication, link, source
from tests.admin.queue_rows import Clock
from zbroker.admin.drains import LOOK_S, Drains
from zbroker.errors import ClientError
from zbroker.wire.surveys import DrainIngest, IngestDrained


class FakeIngest:
    """Answers in place of ingest: so many bytes are unsettled at each question."""

    def __init__(self, *unsettled: int) -> None:
        self.unsettled = list(unsettled)
        self.steps: list[str] = []
        self.silent = False

    def ask(self, answer: type, question: DrainIngest, processes: list[str]) -> dict[str, Any]:
        assert processes == ["ingest"]
        self.steps.append(question.what)
        if self.silent:
            return {"ingest": None}
        left = self.unsettled.pop(0) if self.unsettled else 0
        state = {"hold": "held", "leave": "left", "off": "off"}[question.what]
        return {"ingest": IngestDrained(0, state, left, 2 * (state == "left"))}


class Bench:
    """Its log ends at 90; each rest brings destinations on by 10."""

    def __init__(self, *rows: Any, unsettled: tuple[int, ...] = ()) -> None:
        self.process = FakeReplication(*rows)
        self.ingest: Any = FakeIngest(*unsettled)
        self.clock = Clock()
        self.step = 10
        self.drains = Drains(
            self.ingest, self.process.link, lambda: 90, self.clock, rest=self._rest
        )

    def _rest(self, seconds: float) -> None:
        assert seconds == LOOK_S
        self.clock.ms += 1_000
        self.process.rows = [
            msgspec.structs.replace(row, mark=min(90, (row.mark or 0) + self.step), lag=5)
            for row in self.process.rows
        ]

    def post(self, **body: object) -> dict[str, Any]:
        return self.drains.post(json.dumps(body).encode())


def test_sessions_end_when_each_destination_has_everything() -> None:
    bench = Bench(link("b", mark=70), link("c", mark=90), source(), unsettled=(10, 10))
    assert bench.post() == {
        "state": "left", "dry_run": False, "sessions": 2,
        "text": "publishers go on at other instances; stop this one when its subscribers may go, "
        "too",
    }  # fmt: skip
    assert bench.ingest.steps == ["hold", "hold", "hold", "leave"]


def test_the_log_counts_up_to_where_it_is_once_all_is_settled() -> None:
    """What is accepted and not in the log yet is lacked by everybody."""
    bench = Bench(link(mark=90), unsettled=(1,))
    bench.post()
    assert bench.ingest.steps == ["hold", "hold", "leave"]


def test_publishers_go_on_here_if_it_takes_too_long() -> None:
    bench = Bench(link(mark=10))
    bench.step = 1
    with pytest.raises(ClientError, match="b lacks 5 positions") as caught:
        bench.post(wait_s=3)
    assert caught.value.code == "not_ready"
    assert bench.ingest.steps == ["hold"] * 4 + ["off"]


@pytest.mark.parametrize("row", [link(state="down"), link(paused=True), source()])
def test_there_must_be_somewhere_to_go(row: Any) -> None:
    bench = Bench(row)
    with pytest.raises(ClientError, match="no destination"):
        bench.post()
    assert bench.ingest.steps == []


def test_a_link_that_goes_down_meanwhile_does_not_count_as_caught_up() -> None:
    bench = Bench(link(mark=10))
    rows = [link(state="down", mark=90)]
    bench.drains._rest = lambda _: setattr(bench.process, "rows", rows) or bench._rest(LOOK_S)
    with pytest.raises(ClientError, match="no link to a destination is up"):
        bench.post(wait_s=2)
    assert bench.ingest.steps[-1] == "off"


def test_a_destination_that_is_away_is_not_waited_for() -> None:
    bench = Bench(link("b"), link("c", state="down", mark=1))
    assert bench.post()["state"] == "left"


def test_it_can_be_taken_back_and_tried_dry() -> None:
    bench = Bench(link())
    assert bench.post(dry_run=True)["state"] == "off"
    assert bench.ingest.steps == []
    assert bench.post(off=True)["text"] == "publishers may log on here again"
    assert bench.ingest.steps == ["off"]


def test_a_silent_ingest_is_named() -> None:
    bench = Bench(link())
    bench.ingest.silent = True
    with pytest.raises(ClientError, match="ingest process does not answer"):
        bench.post()
