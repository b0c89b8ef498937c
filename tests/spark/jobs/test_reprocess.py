"""Claims about reprocessing: all that a function yields is published in order, and once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.cli.main import main
from zbroker.errors import ClientError
from zbroker.spark import plan_ranges, replay_arrow
from zbroker.spark.jobs.job_runner import Stretch
from zbroker.spark.jobs.reprocess import COLUMNS, FunctionName, applied, identity, source_options

FIXES = "tests.spark.jobs.fixes"


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[JournalMaker]:
    made = JournalMaker(tmp_path / "old" / "journal")
    for _ in range(10):
        made.batch(["a", "b"] * 10, size=20)
    yield made
    made.close()


def made_of(maker: JournalMaker, name: str, form: Any = "messages") -> list[tuple[str, bytes]]:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    batches = applied(replay_arrow(part, COLUMNS), FunctionName(f"{FIXES}:{name}", form))
    return [(row["topic"], row["payload"]) for one in batches for row in one.to_pylist()]


def doubled(maker: JournalMaker) -> list[tuple[str, bytes]]:
    return [(f"{m.topic}.doubled", m.data * 2) for m in maker.messages]


def test_a_function_gets_messages(maker: JournalMaker) -> None:
    assert made_of(maker, "doubled") == doubled(maker)


def test_a_function_gets_record_batches(maker: JournalMaker) -> None:
    assert made_of(maker, "counted", "arrow") == [("counted", b"200")]


def test_what_is_no_message_is_refused(maker: JournalMaker) -> None:
    with pytest.raises(ClientError, match="yielded"):
        made_of(maker, "wrong")


@pytest.mark.parametrize("name", ["fixes", "nowhere:at_all", f"{FIXES}:nothing", f"{FIXES}:Any.x"])
def test_a_function_that_is_not_there_says_so(name: str) -> None:
    with pytest.raises(ClientError):
        FunctionName(name).load()


def test_another_range_function_or_topic_is_another_job(maker: JournalMaker) -> None:
    ranges, what = plan_ranges(maker.directory), FunctionName("m:f")
    known = identity(ranges, what, "t")
    assert identity(plan_ranges(maker.directory, min_partitions=9), what, "t") == known
    shorter = [*ranges[:-1], replace(ranges[-1], end=ranges[-1].end - 1)]
    others = [(shorter, what, "t"), (ranges, FunctionName("m:g"), "t"), (ranges, what, "u")]
    assert known not in [identity(*other) for other in others]


def test_a_stretch_becomes_options_of_the_data_source() -> None:
    stretch = Stretch("tcp://h:1", topic="a,b", journal="/old", filter="/x > 1")
    assert source_options(stretch) == {
        "endpoint": "tcp://h:1", "journal": "/old", "topicPattern": r"a\,b", "filter": "/x > 1",
        "filterType": "auto", "startingBookmark": "earliest",
    }  # fmt: skip
    with pytest.raises(ClientError, match="no end"):
        source_options(stretch._replace(until="-1h"))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["spark", "reprocess", *map(str, arguments)])


def test_a_range_without_an_end_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path, "m:f", "tcp://h:1").exit_code == 2


def read(url: str) -> list[tuple[str, bytes]]:
    with (
        zbroker.connect(url) as client,
        client.subscribe(".*doubled", regex=True, since="epoch", until="now") as subscription,
    ):
        return [(message.topic, message.data) for message in subscription]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.process
def test_a_range_is_published_once_and_a_stream_goes_on(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    last = maker.messages[-1]
    ends = f"{zbroker.ids.publisher_id('maker')}|{last.sequence}|"
    with zbroker.LocalBroker(tmp_path / "data") as broker:
        line = (maker.directory, f"{FIXES}:doubled", broker.url, "--json")
        for _ in range(2):
            done = run(*line, "--until", ends)
            assert done.exit_code == 0, done.output
            assert json.loads(done.stdout)["rows"] == 200
        assert read(broker.url) == doubled(maker)
        done = run(*line, "--checkpoint", tmp_path / "check", "--since", ends)
        assert json.loads(done.stdout)["rows"] == 0, done.output
        maker.batch(["c"] * 5, size=20)
        done = run(*line, "--checkpoint", tmp_path / "check", "--since", ends)
        assert json.loads(done.stdout)["rows"] == 5, done.output
        assert read(broker.url) == doubled(maker)
