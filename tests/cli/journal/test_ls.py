"""`zbroker-admin journal ls` shows every segment, wherever it is."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker, admin, run, segments
from zbroker.cli import show
from zbroker.log.segments import segment_name

KEYS = ["serial", "place", "packed", "first", "end", "first_time", "last_time", "bytes", "size",
        "open"]  # fmt: skip


def listed(maker: Maker, *arguments: str) -> list[dict]:
    result = run(maker, "ls", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["segments"]


def test_segments_follow_one_another(maker: Maker) -> None:
    segments(maker, 3)
    rows = listed(maker)
    assert [list(row) for row in rows] == [KEYS] * 3
    assert [row["serial"] for row in rows] == [1, 2, 3]
    assert [row["first"] for row in rows[1:]] == [row["end"] for row in rows[:-1]]
    assert [row["open"] for row in rows] == [False, False, True]
    assert rows[-1]["end"] is None
    assert rows[0]["first_time"] == "20231114T221321Z"
    assert rows[0]["last_time"] < rows[1]["first_time"]


def test_archived_and_packed_segments_are_listed_where_they_are(maker: Maker) -> None:
    segments(maker, 4)
    before = listed(maker)
    data = maker.directory.parent
    assert admin(data, "journal", "archive", "--through", "2").exit_code == 0
    assert admin(data, "journal", "compress", "--through", "1").exit_code == 0
    rows = listed(maker)
    assert [(row["place"], row["packed"]) for row in rows] == [
        ("archive", True), ("archive", False), ("journal", False), ("journal", False),
    ]  # fmt: skip
    assert rows[0]["bytes"] < rows[0]["size"] == before[0]["size"]
    same = ("serial", "first", "end", "first_time", "last_time", "size")
    assert [[row[key] for key in same] for row in rows] == [
        [row[key] for key in same] for row in before
    ]


def test_plain_text_is_a_line_per_segment(maker: Maker) -> None:
    segments(maker, 2)
    lines = run(maker, "ls").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["serial=1", "serial=2"]
    assert "open=yes" in lines[1]


def test_a_terminal_gets_a_table(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    segments(maker, 2)
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    assert "│" in run(maker, "ls").stdout


def test_an_empty_journal_has_one_open_segment(maker: Maker) -> None:
    [row] = listed(maker)
    assert (row["open"], row["first_time"], row["last_time"]) == (True, None, None)


def test_an_archive_that_is_not_mounted_is_named(maker: Maker) -> None:
    segments(maker, 3)
    (maker.directory / segment_name(1)).unlink()
    result = run(maker, "ls")
    assert "segments 1 to 1 are not there" in result.stderr
    assert "mounted" in result.stderr


def test_an_unreadable_segment_is_listed(maker: Maker) -> None:
    segments(maker, 3)
    with (maker.directory / segment_name(2)).open("r+b") as file:
        file.write(bytes(8192))
    rows = listed(maker)
    assert [row["serial"] for row in rows] == [1, 2, 3]
    assert rows[1]["first"] is None


def test_the_files_are_read_while_an_instance_runs(maker: Maker, fake: FakeAdmin) -> None:
    segments(maker, 2)
    assert len(listed(maker)) == 2
    assert fake.reported == []
