"""Data directories of every released format version are read, recovered and written on.

`python -m tools.golden tests/data/v1` made the one of version 1; expected.json is what was given to
its writer.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools import golden
from zbroker.admin.history import History
from zbroker.ids import parse_bookmark
from zbroker.journal.conflicts import read_conflicts
from zbroker.journal.fold import LogFold
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.places import SegmentPlace, open_places
from zbroker.log.reader import Cursor, Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import read_note
from zbroker.log.writer import Writer

DATA = Path(__file__).parent / "data"
BYTES_MAX = 300_000
VERSIONS = ["v1"]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    found: Path = DATA / request.param
    return found


@pytest.fixture
def expected(version: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((version / "expected.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture
def path(version: Path, tmp_path: Path) -> Path:
    """A copy that may be written to."""
    shutil.copytree(version, tmp_path / "data")
    return tmp_path / "data"


def rows(log: Log, end: int) -> list[dict[str, Any]]:
    """Everything from the oldest position on, with the serial of its segment."""
    found, cursor = [], log.seek(log.first_position)
    while cursor.position < end:
        (item,), cursor = log.read(cursor, end, 1)
        assert isinstance(item, Batch), item
        found.append(golden.row(cursor.serial, item))
    return found


def start(path: Path) -> tuple[Recovered, LogFold, RealDisk]:
    disk, fold = RealDisk(path / "journal"), LogFold(golden.INSTANCE)
    disk.lock()
    recovered = recover(
        disk, golden.INSTANCE, archive=RealDisk(path / "archive"), on_batch=fold,
        begin=fold.begin, segment_bytes=golden.SEGMENT_BYTES,
    )  # fmt: skip
    return recovered, fold, disk


def test_it_is_small(version: Path) -> None:
    assert sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) < BYTES_MAX


def test_it_has_everything_that_the_format_has(expected: dict[str, Any]) -> None:
    batches = expected["batches"]
    publishes = [batch for batch in batches if batch["kind"] == KIND_PUBLISH]
    assert {batch["kind"] & 0x7FFF for batch in batches} == {1, 3, 4, 5, 6, 7, 900}
    assert {batch["flags"] for batch in publishes} == {0, 1, 2}
    assert any(batch["skip"] for batch in publishes)
    assert any(batch["cut"] for batch in publishes)
    assert any(batch["columns"] and len(batch["columns"]) == 2 for batch in publishes)
    assert any(batch["extra"] for batch in publishes)
    assert any(len(batch["topics"]) == 3 for batch in publishes)
    assert {batch["origin_instance"] for batch in batches} == {golden.INSTANCE, golden.OTHER}
    assert {batch["serial"] for batch in batches} == {2, 3, 4, 5}


def test_segments_are_where_they_were_put(version: Path) -> None:
    places = open_places(version / "journal", version / "archive")
    found = [place._replace(file_bytes=0) for place in places.list()]
    places.close()
    assert found == [
        SegmentPlace(2, archived=True, packed=False, file_bytes=0),
        SegmentPlace(3, archived=False, packed=True, file_bytes=0),
        SegmentPlace(4, archived=False, packed=False, file_bytes=0),
        SegmentPlace(5, archived=False, packed=False, file_bytes=0),
    ]


def test_every_batch_is_what_was_written(version: Path, expected: dict[str, Any]) -> None:
    log = Log(version / "journal", version / "archive")
    assert (log.instance, log.generation) == (golden.INSTANCE, 1)
    assert (log.first_position, log.end()) == (expected["first_position"], expected["end"])
    assert rows(log, expected["end"]) == expected["batches"]
    log.close()


@pytest.mark.seed("004-08")
def test_every_bookmark_is_found(version: Path, expected: dict[str, Any]) -> None:
    log = Log(version / "journal", version / "archive")
    found = {text: log.locate(parse_bookmark(text)) for text in expected["bookmarks"]}
    log.close()
    assert found == expected["bookmarks"]


def test_recovery_finds_nothing_wrong(path: Path, expected: dict[str, Any]) -> None:
    recovered, fold, disk = start(path)
    disk.close()
    assert recovered.findings == []
    assert (recovered.generation, recovered.lost) == (1, None)
    assert (recovered.log_start, recovered.next_position) == (
        expected["first_position"],
        expected["end"],
    )
    assert recovered.oldest == expected["oldest"]
    for known in expected["publishers"]:
        publisher = fold.sessions.get(golden.publisher_id(known["name"]))
        assert publisher is not None
        assert {name: getattr(publisher, name) for name in known} == known


def test_it_can_be_written_on(path: Path, expected: dict[str, Any]) -> None:
    recovered, _, disk = start(path)
    to = Writer(disk, recovered.tail, segment_bytes=golden.SEGMENT_BYTES)
    more = 0
    while to.serial < 7:
        batch = golden.control(6, b"x" * 300)
        batch.position = to.position
        to.write([batch], recovered.last_log_time)
        to.sync()
        more += 1
    disk.close()
    again, _, disk = start(path)
    disk.close()
    assert again.next_position == expected["end"] + more
    log = Log(path / "journal", path / "archive")
    found = rows(log, again.next_position)
    log.close()
    assert found[: len(expected["batches"])] == expected["batches"]
    assert len(found) == len(expected["batches"]) + more


def test_the_note_is_read(version: Path, expected: dict[str, Any]) -> None:
    note = read_note(RealDisk(version / "journal", read_only=True))
    assert note is not None
    assert (note.instance, note.generation, note.serial) == (golden.INSTANCE, 1, 5)
    assert (note.position, note.oldest) == (expected["end"], expected["oldest"])


def test_summaries_are_read(version: Path, expected: dict[str, Any]) -> None:
    places = open_places(version / "journal", version / "archive")
    for serial in (2, 3, 4):
        summary = archive.summary(Log(places=places), serial)
        assert summary is not None
        batches = [batch for batch in expected["batches"] if batch["serial"] == serial]
        assert (summary.first, summary.batches) == (batches[0]["position"], len(batches))
    places.close()


def test_conflicts_are_read(version: Path, expected: dict[str, Any]) -> None:
    found = read_conflicts(version / "conflicts")
    rows = [msgspec.structs.asdict(one) | {"body": one.body.decode()} for one in found]
    assert rows == expected["conflicts"]


def test_actions_are_read(path: Path, expected: dict[str, Any]) -> None:
    history = History(path / "actions", logging.getLogger("test"))
    assert msgspec.to_builtins(history.newest()) == expected["actions"]


def test_the_tool_makes_what_can_be_read(tmp_path: Path) -> None:
    """So that the directory of the next version can be made when it is needed."""
    golden.make(tmp_path / "made")
    expected = json.loads((tmp_path / "made" / "expected.json").read_text(encoding="utf-8"))
    log = Log(tmp_path / "made" / "journal", tmp_path / "made" / "archive")
    assert rows(log, log.end()) == expected["batches"]
    log.close()
    assert Cursor(2, 8192, expected["first_position"]) == log.starts[0]
