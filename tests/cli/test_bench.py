"""`zbroker bench` (zbroker/cli/bench)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fakes import FakeBroker
from zbroker import LocalBroker
from zbroker.cli.admin_main import main as admin
from zbroker.cli.bench.plan import PREFIX, BenchPlan, latency, quantile, rate
from zbroker.cli.bench.run import BenchRun
from zbroker.cli.main import main
from zbroker.errors import ZBrokerError

OPTIONS: dict[str, Any] = {
    "messages": 10, "size": 8, "batch": True, "publishers": 3, "subscribers": 1, "sync": 5,
}  # fmt: skip
SMALL = ("--messages", "2500", "--sync", "5")


def bench(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", url, *arguments])


# -- numbers --------------------------------------------------------------------------------------


def test_topics_are_below_bench() -> None:
    first, second = (BenchPlan.of(topic=None, **OPTIONS).topic for _ in range(2))
    assert first.startswith(PREFIX)
    assert first != second
    assert BenchPlan.of(topic="bench/mine", **OPTIONS).topic == "bench/mine"


@pytest.mark.parametrize("topic", ["orders", "bench", "bench/", "x/bench/y", "bench/\n"])
def test_another_topic_is_refused(topic: str) -> None:
    with pytest.raises(ZBrokerError) as caught:
        BenchPlan.of(topic=topic, **OPTIONS)
    assert caught.value.code == "bad_topic"
    assert bench("tcp://127.0.0.1:1", "--topic", topic).exit_code == 1


@given(st.integers(1, 1_000_000), st.integers(1, 64))
def test_publishers_share_the_messages_evenly(messages: int, publishers: int) -> None:
    options = OPTIONS | {"messages": messages, "publishers": publishers}
    shares = BenchPlan.of(topic="bench/x", **options).shares()
    assert (sum(shares), len(shares)) == (messages, publishers)
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_the_smallest_value_with_that_part_below(
    values: list[float], part: float
) -> None:
    found = quantile(sorted(values), part)
    at_most = [one for one in values if one <= found]
    below = [one for one in values if one < found]
    assert len(at_most) >= part * len(values) - 1e-9
    assert len(below) < part * len(values)


def test_latencies_are_milliseconds() -> None:
    assert latency([0.004, 0.001, 0.002]) == {
        "messages": 3, "p50_ms": 2.0, "p99_ms": 4.0, "max_ms": 4.0,
    }  # fmt: skip
    assert latency([]) == {}


def test_rates_are_per_second() -> None:
    assert rate(1_000, 500, 0.5) == {
        "messages": 1_000, "seconds": 0.5, "messages_s": 2_000.0, "mb_s": 1.0,
    }  # fmt: skip
    assert rate(1, 1, 0.0)["messages_s"] > 0


# -- runs -----------------------------------------------------------------------------------------


def test_ctrl_c_ends_it_with_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: BenchRun) -> None:
        run.results["publish"] = {"messages_s": 5.0}
        raise KeyboardInterrupt

    monkeypatch.setattr(BenchRun, "all", interrupted)
    with FakeBroker() as broker:
        result = bench(broker.url, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 130
    assert (found["interrupted"], found["results"]) == (True, {"publish": {"messages_s": 5.0}})


def test_an_error_of_a_publisher_is_the_error_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object) -> None:
        raise ZBrokerError("too_large", "no")

    monkeypatch.setattr(BenchRun, "_feed", failed)
    with FakeBroker() as broker:
        result = bench(broker.url, *SMALL)
    assert result.exit_code == 1
    assert "too_large" in result.stderr


@pytest.mark.process
def test_everything_is_measured_on_topics_of_its_own() -> None:
    with LocalBroker() as broker:
        result = bench(broker.url, *SMALL, "--single", "--publishers", "2", "--subscribers", "2",
                       "--json")  # fmt: skip
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        text = bench(broker.url, *SMALL)
        dumped = (
            CliRunner()
            .invoke(admin, ["--data-dir", str(broker.data_dir), "journal", "dump"])
            .stdout
        )
    results = found["results"]
    assert list(results) == ["publish", "persisted_ack", "replay", "live"]
    assert (results["publish"]["messages"], results["replay"]["messages"]) == (2_500, 5_000)
    assert (results["persisted_ack"]["messages"], results["live"]["messages"]) == (5, 10)
    assert (found["machine"]["durability"], found["machine"]["encrypted"]) == ("disk", False)
    assert text.exit_code == 0
    assert "persisted_ack" in text.stdout
    topics = {row["topic"] for row in map(json.loads, dumped.splitlines()) if "topic" in row}
    assert len(topics) == 2
    assert all(topic.startswith(PREFIX) for topic in topics)


@pytest.mark.process
def test_what_is_not_recorded_is_not_replayed() -> None:
    with LocalBroker(settings={"record": [{"topic": "orders"}]}) as broker:
        result = bench(broker.url, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["results"]) == ["publish", "persisted_ack", "live"]
    assert "not recorded" in found["notes"][0]
