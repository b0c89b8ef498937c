"""POST /replication/drain: nothing ends before destinations hold all that was acknowledged; then
what this instance owns of replicated queues goes to one of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.admin.link_rows import FakeReplication, link, source
from tests.admin.queue_rows import Clock
from zbroker.admin.drains import LOOK_S, Drains
from zbroker.errors import ClientError
from zbroker.wire.queue_surveys import DrainQueues, LeavingQueue, QueuesDrained
from zbroker.wire.surveys import IngestDrained


class FakeProcesses:
    """Answers in place of ingest: so many bytes are unsettled at each question; and of the queues.

    answers: of the queues to what they are asked, the last one again and again; None: silent.
    """

    def __init__(self, *unsettled: int) -> None:
        self.unsettled = list(unsettled)
        self.steps: list[str] = []
        self.silent = False
        self.processes = ["ingest"]
        self.answers: dict[str, list[QueuesDrained | None]] = {}
        self.asked: list[DrainQueues] = []

    def ask(self, answer: type, question: Any, processes: list[str]) -> dict[str, Any]:
        if processes == ["queues"]:
            self.asked.append(question)
            many = self.answers[question.what]
            return {"queues": many.pop(0) if len(many) > 1 else many[0]}
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
        self.ingest: Any = FakeProcesses(*unsettled)
        self.clock = Clock()
        self.step = 10
        self.drains = Drains(
            self.ingest, self.process.link, lambda: 90, self.clock, "a", rest=self._rest
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
        "to": "b", "consumers": 0, "queues": [], "problem": "", "done": True,
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


# -- replicated queues ------------------------------------------------------------------------


def rows(state: str, *many: LeavingQueue, consumers: int = 0) -> QueuesDrained:
    return QueuesDrained(0, state, list(many), consumers, 2)


def work(owned: int, leased: int = 0, given: int = 0, **more: Any) -> LeavingQueue:
    return LeavingQueue("work", owned, leased, given, **more)


def owning(*links: Any, **answers: list[QueuesDrained | None]) -> Bench:
    """An instance with queues. answers: to `look`, before and after `give`; `quiet`, `give`."""
    bench = Bench(*links)
    bench.ingest.processes = ["ingest", "queues"]
    bench.ingest.answers = {
        "look": [rows("off", work(9)), rows("giving", work(0, given=9))],
        "quiet": [rows("quiet", work(9))],
        "give": [rows("giving", work(9))],
        "off": [rows("off")],
        **answers,
    }
    return bench


def steps(bench: Bench) -> list[str]:
    return [ask.what for ask in bench.ingest.asked]


def test_what_it_owns_goes_to_one_destination_when_consumers_are_done() -> None:
    bench = owning(
        link("c", state="down"), link("d", topics=["t"]), link("e", filter="/a = 1"),
        link("b", instance=0xB), link("f"), source(),
        quiet=[rows("quiet", work(9, 4)), rows("quiet", work(9), consumers=1), rows("quiet")],
    )  # fmt: skip
    said = bench.post()
    assert steps(bench) == ["look", "quiet", "quiet", "quiet", "give", "look"]
    assert bench.ingest.asked[4].to == 0xB
    [queue] = said["queues"]
    assert queue == {"queue": "work", "given": 9, "left": 0, "why": "", "advice": ""}
    assert (said["to"], said["consumers"], said["problem"], said["done"]) == ("b", 2, "", True)


def test_consumers_that_hold_something_for_too_long_are_not_waited_for() -> None:
    bench = owning(link(), quiet=[rows("quiet", work(9, 4), consumers=1)])
    assert bench.post(wait_s=3)["done"] is True
    assert steps(bench) == ["look", *["quiet"] * 4, "give", "look"]


def test_publishers_and_consumers_share_the_time() -> None:
    bench = owning(link(mark=80), quiet=[rows("quiet", work(9, 4))])
    bench.post(wait_s=3)
    assert steps(bench).count("quiet") == 3


def test_an_instance_that_owns_nothing_of_others_gives_nothing() -> None:
    bench = owning(link(), look=[rows("off")])
    assert bench.post()["done"] is True
    assert steps(bench) == ["look"]


def test_without_a_destination_for_it_all_stays_and_consumers_stay() -> None:
    bench = owning(link(topics=["t"]))
    said = bench.post()
    assert steps(bench) == ["look"]
    assert (said["state"], said["to"], said["done"]) == ("left", "", False)
    assert (said["queues"][0]["left"], "no destination" in said["queues"][0]["why"]) == (9, True)


def test_what_is_not_given_in_time_is_named() -> None:
    bench = owning(link(), look=[rows("off", work(9)), rows("giving", work(5, given=4))])
    said = bench.post()
    assert (said["queues"][0]["left"], said["done"]) == (5, False)
    assert "not done in time" in said["queues"][0]["why"]


def test_messages_of_keys_stay_and_are_not_waited_for() -> None:
    kept = work(9, keeps="group_key", initial=True)
    bench = owning(link(), look=[rows("off", kept), rows("giving", kept)])
    said = bench.post()
    assert steps(bench)[-2:] == ["give", "look"]
    assert "group_key" in said["queues"][0]["why"]
    assert said["queues"][0]["advice"].endswith(
        "at b: zbroker-admin queue takeover work --from a --until-back"
    )


def test_another_instance_has_to_act_for_one_that_is_away() -> None:
    acts = work(0, acts_for=["c"])
    bench = owning(link(), look=[rows("off", acts), rows("giving", acts)])
    [queue] = bench.post()["queues"]
    assert queue["advice"] == (
        "a acts for c, and does not take over more; after the stop, at b: "
        "zbroker-admin queue takeover work --from c --until-back"
    )


def test_the_destination_has_to_have_all_of_it() -> None:
    """The records that give it away are the end of the log."""
    bench = owning(link(mark=90))
    bench.drains._queues._persisted = lambda: 200
    said = bench.post()
    assert ("does not have all of it" in said["problem"], said["done"]) == (True, False)
    ends = iter([90, 100])
    bench = owning(link(mark=90))
    bench.drains._queues._persisted = lambda: next(ends)
    assert bench.post()["done"] is True


@pytest.mark.parametrize(
    "answers",
    [
        {"look": [None]}, {"quiet": [None]}, {"give": [None]}, {"give": [rows("off", work(9))]},
        {"look": [rows("off", work(9)), rows("off", work(9))]},
    ],
)  # fmt: skip
def test_queues_that_are_silent_or_begin_again_are_a_problem(answers: dict[str, Any]) -> None:
    bench = owning(link(), **answers)
    said = bench.post()
    assert (said["state"], said["done"]) == ("left", False)
    assert "drain again" in said["problem"]


def test_a_dry_run_says_what_would_be_given() -> None:
    bench = owning(link(), look=[rows("off", work(9))])
    said = bench.post(dry_run=True)
    assert steps(bench) == ["look"]
    [queue] = said["queues"]
    assert (said["to"], queue["left"], queue["why"]) == ("b", 9, "")


def test_queues_offer_again_when_it_is_taken_back() -> None:
    bench = owning(link())
    bench.post(off=True)
    assert (steps(bench), bench.ingest.steps) == (["off"], ["off"])
