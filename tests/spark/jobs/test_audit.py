"""Claims about the audit as a command: it finds what was planted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.cli.main import main
from zbroker.errors import ClientError
from zbroker.ids import publisher_id
from zbroker.spark.jobs.audit import audit, scan
from zbroker.spark.jobs.sequences import joined, judge
from zbroker.spark.jobs.stretch import Stretch

MAKER = str(publisher_id("maker"))


def journal(directory: Path, *, planted: bool) -> Path:
    made = JournalMaker(directory)
    for number in range(30):
        if planted and number == 10:
            made.sequence += 5  # 201 to 205 are not there
        if planted and number == 20:
            made.sequence -= 3  # 403 to 405 come twice
        made.batch(["a"] * 20)
        made.control()
    made.close()
    return directory


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    line = ["spark", "audit", *map(str, arguments), "--json", "--partitions", "3"]
    done = CliRunner().invoke(main, line)
    assert done.stdout, done.output + repr(done.exception)
    return done.exit_code, json.loads(done.stdout)


def test_every_header_is_scanned_in_one_range(tmp_path: Path) -> None:
    ranges = Stretch(str(journal(tmp_path / "journal", planted=False))).ranges(7)
    assert sum(scan(part).messages for part in ranges) == 600


@pytest.mark.process
def test_an_instance_gives_the_same_runs_as_its_directory(tmp_path: Path) -> None:
    with zbroker.LocalBroker(tmp_path / "data") as broker:
        for name in ("one", "two"):
            with zbroker.connect(broker.url, name=name) as client:
                client.publish_many("t", [b"x"] * 50)
        live = [scan(part) for part in Stretch(broker.url).ranges(2)]
    files = [scan(part) for part in Stretch(str(tmp_path / "data")).ranges(2)]
    told = []
    for found in (live, files):
        runs = joined(run for part in found for run in part.runs)
        assert judge(runs) == []
        told.append({(run.publisher, run.first, run.last) for run in runs})
    assert told[0] == told[1]
    assert {(publisher, last - first) for publisher, first, last in told[0]} == {
        (publisher_id(name), 49) for name in ("one", "two")
    }


def test_damaged_positions_are_found(tmp_path: Path) -> None:
    directory = journal(tmp_path / "journal", planted=False)
    part = Stretch(str(directory)).ranges(1)[0]
    path = next(directory.glob("*.journal"))
    data = bytearray(path.read_bytes())
    at = data.index(b"zbRB", len(data) // 3 if len(data) < 200_000 else 50_000)
    data[at + 8 : at + 24] = bytes(16)
    path.write_bytes(data)
    assert [found.kind for found in scan(part).damaged] == ["damaged"]


def test_sequences_of_a_topic_are_not_judged(tmp_path: Path) -> None:
    stretch = Stretch(str(tmp_path), topic="a")
    with pytest.raises(ClientError, match="all topics"):
        audit(None, stretch, lambda *_: None)  # type: ignore[arg-type]


@pytest.mark.seed("004-11")
@pytest.mark.spark
def test_a_planted_gap_repeat_and_difference_are_found(spark: Any, tmp_path: Path) -> None:
    whole = journal(tmp_path / "whole" / "journal", planted=False)
    planted = journal(tmp_path / "planted" / "journal", planted=True)
    assert run(whole)[0] == 0
    code, report = run(planted)
    assert code == 1
    found = [(one["kind"], one["publisher"], one["first"], one["last"])
             for one in report["findings"]]  # fmt: skip
    assert found == [("gap", MAKER, 201, 205), ("repeat", MAKER, 403, 405)]
    assert report["messages"] == 600

    assert run(whole, "--against", whole)[0] == 0
    code, report = run(whole, "--against", planted)
    assert code == 1
    # the payloads of the maker tell their sequences
    found = [(one["kind"], one["first"], one["last"]) for one in report["findings"]]
    assert found == [("only_here", 201, 205), ("different", 403, 405), ("only_there", 601, 602)]
