"""`zbroker-admin journal dump` shows what was written."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from tests.cli.journals import (
    PUBLISHER,
    SECOND_NS,
    TIME_NS,
    Maker,
    flip,
    run,
    ten_batches,
)
from zbroker.cli.admin_main import main
from zbroker.cli.journal import journal
from zbroker.cli.target import Target
from zbroker.journal import format as f
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Columns


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def dumped(maker: Maker, *arguments: str) -> list[dict]:
    result = run(maker, "dump", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_a_message_has_position_topic_bookmark_time_data(maker: Maker) -> None:
    maker.batch([b"one", b"\xff\x00", "ä".encode()])
    assert dumped(maker) == [
        {"position": 1, "topic": "orders", "bookmark": f"{PUBLISHER}|1|",
         "time": "20231114T221321Z", "data": "one"},
        {"position": 2, "topic": "orders", "bookmark": f"{PUBLISHER}|2|",
         "time": "20231114T221321Z", "data_base64": "/wA="},
        {"position": 3, "topic": "orders", "bookmark": f"{PUBLISHER}|3|",
         "time": "20231114T221321Z", "data": "ä"},
    ]  # fmt: skip


def test_control_records_say_their_kind(maker: Maker) -> None:
    record = b"\x82\xa4name\xa5maker\xa9principal\xa3joe"
    maker.batch([b""], kind=f.KIND_PUBLISHER, body=record, topics=[])
    maker.batch([b""], kind=f.KIND_NOOP, body=b"\x01", topics=[])
    maker.batch([b""], kind=77, body=b"x")
    rows = dumped(maker)
    assert [row["kind"] for row in rows] == ["publisher", "noop", "77"]
    assert (rows[0]["name"], rows[0]["principal"]) == ("maker", "joe")
    assert rows[1]["data"] == "\x01"


def test_columns_give_topic_and_time_of_each_message(maker: Maker) -> None:
    times = [TIME_NS, TIME_NS + SECOND_NS, TIME_NS + 2 * SECOND_NS]
    columns = Columns(array("H", [1, 0, 1]).tobytes(), array("q", times).tobytes())
    maker.batch([b"a", b"b", b"c"], topics=["x", "y"], columns=columns)
    rows = dumped(maker)
    assert [row["topic"] for row in rows] == ["y", "x", "y"]
    assert [row["time"][-3:] for row in rows] == ["20Z", "21Z", "22Z"]


def test_skipped_messages_do_not_count(maker: Maker) -> None:
    maker.batch([b"a", b"b", b"c"], skip=2)
    maker.batch([b"d"])
    rows = dumped(maker)
    assert [(row["position"], row["data"]) for row in rows] == [(1, "c"), (2, "d")]
    assert [row["bookmark"] for row in rows] == [f"{PUBLISHER}|1|", f"{PUBLISHER}|2|"]


def test_compressed_bodies_are_shown_plain(maker: Maker) -> None:
    body = zstandard.compress(pack([b"a" * 1000, b"b"]))
    maker.batch([b"", b""], body=body, flags=f.FLAG_ZSTD)
    assert [row["data"] for row in dumped(maker)] == ["a" * 1000, "b"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), range(1, 31)),
        (("--from", "5"), range(5, 31)),
        (("--to", "5"), range(1, 5)),
        (("--from", "5", "--to", "9"), range(5, 9)),
        (("--from", "9", "--to", "5"), ()),
        (("--from", "31"), ()),
        (("--from", "1000"), ()),
        (("--from", "0", "--limit", "2"), (1, 2)),
        (("--limit", "0"), ()),
        (("--json", "--from", "29"), (29, 30)),
    ],
)
def test_from_is_shown_but_not_to(maker: Maker, arguments, expected) -> None:
    ten_batches(maker)
    assert [row["position"] for row in dumped(maker, *arguments)] == list(expected)


def test_headers_show_batches_and_where_they_stand(maker: Maker) -> None:
    ten_batches(maker)
    rows = dumped(maker, "--headers", "--from", "4", "--limit", "3")
    assert [(row["position"], row["end"]) for row in rows] == [(4, 7), (7, 10), (10, 13)]
    batch = maker.batches[1]
    assert (rows[0]["offset"], rows[0]["body_bytes"]) == (batch.offset, batch.body_length)
    assert "data" not in rows[0]


@pytest.mark.parametrize("arguments", [(), ("--headers",)])
def test_an_empty_journal_dumps_nothing(maker: Maker, arguments) -> None:
    assert dumped(maker, *arguments) == []


def test_a_damaged_range_is_a_line_and_an_error(maker: Maker) -> None:
    ten_batches(maker)
    batch = maker.batches[4]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "dump", "--from", "11", "--to", "18")
    assert result.exit_code == 1
    assert "1 ranges could not be read" in result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row.get("position") for row in rows] == [11, 12, None, 16, 17]
    assert rows[2]["gap"]["first"] == 13
    assert rows[2]["gap"]["end"] == 16


def test_a_body_that_is_not_what_it_says_is_a_gap(maker: Maker) -> None:
    maker.batch([b"", b""], body=b"not msgpack")
    maker.batch([b"good"])
    result = run(maker, "dump")
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert (rows[0]["gap"]["first"], rows[0]["gap"]["end"]) == (1, 3)
    assert rows[1]["data"] == "good"


def test_without_a_journal_the_exit_code_is_not_found(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data-dir", str(tmp_path), "journal", "verify"])
    assert result.exit_code == 3
    assert "there is no journal" in result.stderr


def test_a_url_is_refused_since_files_are_read() -> None:
    target = Target("tcp://127.0.0.1:9101", None, None, False)
    result = CliRunner().invoke(journal, ["dump"], obj=target)
    assert result.exit_code == 2
    assert "--data-dir" in result.stderr
