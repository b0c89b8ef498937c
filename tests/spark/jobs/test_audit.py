"""Claims about the audit as a command: it finds what was planted, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs package pyspark")

import pyarrow as pa

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.cli.main import main
from zbroker.errors import ClientError
from zbroker.ids import publisher_id
from zbroker.spark.jobs.audit import (
    Digests,
    audit,
    compared,
    digests,
    merged,
    rough,
    scan,
    seen,
    unlike,
)
from zbroker.spark.jobs.job_runner import Stretch
from zbroker.spark.jobs.sequences import SequenceFinding, joined, judge

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
    reported = []
    for found in (live, files):
        runs = joined(run for part in found for run in part.runs)
        assert judge(runs) == []
        reported.append({(run.publisher, run.first, run.last) for run in runs})
    assert reported[0] == reported[1]
    assert {(publisher, last - first) for publisher, first, last in reported[0]} == {
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


# -- two logs ---------------------------------------------------------------------------------

Row = tuple[int, int, str, bytes]  # publisher, sequence, topic, payload
ROWS: list[Row] = [
    (publisher, sequence, "t", b"%d" % sequence)
    for sequence in range(1, 3_000)
    for publisher in (5, (1 << 63) + 1)
]


def batch(rows: list[Row]) -> Any:
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        {
            "publisher": pa.array(map(str, columns[0])),
            "sequence": pa.array(columns[1], pa.int64()),
            "position": pa.array(range(1, len(rows) + 1), pa.int64()),
            "topic": pa.array(columns[2]),
            "payload": pa.array(columns[3], pa.binary()),
        }
    )


def digested(rows: list[Row], size: int = 500) -> Digests:
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return merged(digests([batch(part)]) for part in parts)


def test_the_same_messages_have_the_same_digests_however_they_are_cut() -> None:
    shuffled = sorted(ROWS, key=lambda row: (row[0], -row[1]))
    assert digested(ROWS) == digested(shuffled, 777)
    assert len(digested(ROWS)) == 2 * 3


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ([(5, 2_000, "t", b"other")], "different"),
        ([(5, 2_000, "u", b"2000")], "different"),
        ([(5, 2_000, "t", b"2000")] * 2, "different"),
        ([], "only_here"),
    ],
)
def test_what_differs_is_found(changed: list[Row], kind: str) -> None:
    others = [row for row in ROWS if row[:2] != (5, 2_000)] + changed
    buckets = unlike(digested(ROWS), digested(others))
    assert buckets == [(5, 1)]
    wanted = frozenset(buckets)
    found = compared(seen([batch(ROWS)], wanted), seen([batch(others)], wanted))
    assert [(one.kind, one.publisher, one.first, one.last) for one in found] == [
        (kind, 5, 2_000, 2_000)
    ]


def test_neighbours_are_one_finding() -> None:
    here, there = seen([batch(ROWS[:4])], {(5, 0)}), seen([batch(ROWS[:30])], {(5, 0)})
    assert [(one.kind, one.first, one.last) for one in compared(here, there)] == [
        ("only_there", 3, 15)
    ]


def test_swapped_payloads_are_a_difference() -> None:
    swapped = [(5, 1, "t", b"2"), (5, 2, "t", b"1")]
    assert digested(swapped) != digested([(5, 1, "t", b"1"), (5, 2, "t", b"2")])


def test_what_no_one_looked_into_is_reported_roughly() -> None:
    assert rough([(5, 1)]) == [SequenceFinding("unlike", 5, 1_024, 2_047, 0)]
