"""Claims about one side in one round: what it reports, and how that is checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perf.brokers.reading import Reading
from perf.brokers.server import Server
from perf.harness import payloads
from perf.round_plan import Plan, Task
from perf.rounds import parsed
from perf.turn import Turn


class FakeBroker:
    """A module of `perf.brokers` that publishes at once."""

    SEQUENCES = True

    def make(self, _server: Server, _topic: str) -> None:
        """Nothing."""

    def publish(self, _server: Server, _topic: str, _bodies: list[bytes]) -> tuple[float, float]:
        return 10.0, 10.5


def turn(tmp_path: Path, broker: Any = None) -> Turn:
    plan = Plan(messages=2_000, workloads=("publish", "queue", "fanout"))
    task = Task("x", "zbroker", 3, str(tmp_path), str(tmp_path), str(tmp_path), plan.as_json())
    return Turn(task, broker or FakeBroker(), Server("nowhere", dict))


def test_the_rate_is_from_the_first_publish_to_the_last_ack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turn(tmp_path).publish()
    first = next(parsed(capsys.readouterr().out))
    assert (first["side"], first["round"], first["value"]) == ("x", 3, 4_000)


def test_a_workload_that_fails_is_reported_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ValueError("no answer")

    turn(tmp_path).safely("steady", fail)
    (sample,) = parsed(capsys.readouterr().out)
    assert (sample["workload"], sample["failed"]) == ("steady", "ValueError: no answer")


def test_a_rate_that_a_broker_cannot_reach_is_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = turn(tmp_path)
    made.publish()  # 4,000 a second
    capsys.readouterr()
    made.safely("steady 5,000/s", lambda: made.steady_at(5_000))
    (sample,) = parsed(capsys.readouterr().out)
    assert sample["failed"] == "this is more than it publishes at all"


def test_what_a_broker_cannot_do_is_not_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = turn(tmp_path)
    for work in (made.live, made.replay, made.steady, made.queue, made.fan_out):
        work()
    assert capsys.readouterr().out == ""


def test_a_missing_message_is_seen_by_its_sum(tmp_path: Path) -> None:
    bodies = payloads(100)
    total = sum(body[11] + 700 + index for index, body in enumerate(bodies))
    made = turn(tmp_path)
    made.check({"total": total}, bodies)
    with pytest.raises(ValueError, match="not of 100 messages in a row"):
        made.check({"total": total - 1}, bodies)


def test_other_lines_of_a_client_are_no_samples() -> None:
    lines = f"%3|connecting\n{json.dumps({'side': 'x'})}\n\n"
    assert list(parsed(lines)) == [{"side": "x"}]


@pytest.mark.parametrize("start", [True, False])
def test_the_clock_of_a_replay_starts_before_anything_can_come(start: bool) -> None:
    order: list[str] = []
    reading = Reading(1, start, lambda: order.append("ready"))
    reading.subscribing()
    order.append("subscribe")
    reading.subscribed()
    assert order == (["ready", "subscribe"] if start else ["subscribe", "ready"])


def test_a_subscriber_ends_with_the_last_message() -> None:
    reading = Reading(3, False, lambda: None)
    assert [reading.took(2), reading.took(1)] == [False, True]
    assert reading.ended > 0
