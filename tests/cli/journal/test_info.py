"""`zbroker-admin journal info` describes the log, or one segment."""

from __future__ import annotations

import json

from tests.cli.journal.test_new_generation import started
from tests.cli.journals import INSTANCE, Maker, admin, run, segments, ten_batches
from zbroker.log import format as f
from zbroker.log import records


def reported(maker: Maker, *arguments: str) -> dict:
    result = run(maker, "info", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_log_is_counted(maker: Maker) -> None:
    ten_batches(maker)
    maker.batch([b"x", b"y"], topics=["other"])
    maker.batch([b""], kind=f.KIND_NOOP, body=b"", topics=[])
    found = reported(maker)
    assert found["instance"] == f"{INSTANCE:016x}"
    assert (found["floor"], found["end"], found["generation"]) == (1, 34, 1)
    assert (found["messages"], found["control_records"], found["batches"]) == (32, 1, 12)
    assert found["topics"] == {"orders": 30, "other": 2}
    assert found["publishers"] == 1
    assert found["note"]["position"] == 34
    assert found["snapshot"] is None
    assert found["generations"] == [{"generation": 1, "first": 1}]


def test_the_newest_state_snapshot_is_named(maker: Maker) -> None:
    segments(maker, 3)
    assert reported(maker)["snapshot"] == 3
    assert reported(maker, "3")["snapshot"] is True
    assert reported(maker, "1")["snapshot"] is False


def test_compression_shows_in_the_ratio(maker: Maker) -> None:
    segments(maker, 3)
    assert reported(maker)["ratio"] == 1.0
    assert admin(maker.directory.parent, "journal", "compress", "--all-sealed").exit_code == 0
    found = reported(maker)
    assert found["packed"] == 2
    assert found["ratio"] > 2
    assert reported(maker, "1")["ratio"] > 10


def test_a_segment_has_its_header_its_counts_its_files(maker: Maker) -> None:
    segments(maker, 3)
    found = reported(maker, "2")
    first = next(b for b in maker.batches if b.offset == 8192 + 64 and b.position > 1)
    assert (found["serial"], found["first"], found["open"]) == (2, first.position, False)
    assert found["previous_last_position"] == first.position - 1
    assert found["messages"] + found["control_records"] == found["end"] - found["first"]
    assert [copy["place"] for copy in found["copies"]] == ["journal"]
    assert found["used_bytes"] <= found["size"]


def test_a_segment_that_is_not_there_is_not_found(maker: Maker) -> None:
    segments(maker, 2)
    result = run(maker, "info", "9")
    assert result.exit_code == 3
    assert "there are 1 to 2" in result.stderr


def test_each_generation_is_named_with_its_first_position(maker: Maker) -> None:
    segments(maker, 2)
    end = maker.batches[-1].end_position
    assert run(maker, "new-generation").exit_code == 0
    new = started(maker).generation
    found = reported(maker)
    assert found["generations"] == [
        {"generation": 1, "first": 1}, {"generation": new, "first": end},
    ]  # fmt: skip
    lines = run(maker, "info").stdout.splitlines()
    assert f"generations       1 from 1,{new} from {end}" in lines


def test_ranges_that_are_not_here_are_listed(maker: Maker) -> None:
    ten_batches(maker)
    for said in (
        records.OriginRecord(7, 1, since=1, position=9, skipped=4),
        records.OriginRecord(8, 2, digest=5, since=3, position=2),
    ):
        maker.batch([b""], kind=f.KIND_ORIGIN, body=records.encode(said), topics=[])
    assert reported(maker)["missing"] == [
        {"origin": "0000000000000007.1", "first": 4, "last": 9, "why": "skipped"},
        {"origin": "0000000000000008.2", "first": 1, "last": 2, "why": "topics"},
    ]
    lines = run(maker, "info").stdout.splitlines()
    assert "missing           2" in lines
    assert "missing of 0000000000000007.1: 4 to 9 (skipped)" in lines
    assert "missing" not in reported(maker, "1")


def test_text_has_a_fact_per_line(maker: Maker) -> None:
    ten_batches(maker)
    lines = run(maker, "info").stdout.splitlines()
    assert "messages          30" in lines
    assert lines[-1] == "topic=orders messages=30"
