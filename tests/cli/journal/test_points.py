"""Named points, wherever a tool takes a place of the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import msgpack

from tests.cli.admins import FakeAdmin
from tests.cli.journal.test_archive import ROWS, names
from tests.cli.journals import INSTANCE, Maker, admin, run, segments, ten_batches
from zbroker.ids import Origin, format_vector
from zbroker.journal import snapshot
from zbroker.journal.sessions import Sessions
from zbroker.log import format as f
from zbroker.log.point_records import SharedPointRecord
from zbroker.log.records import PointRecord


def place(maker: Maker, name: str, position: int | None = None) -> int:
    """Sets a point, here unless `position` says where; the position after what is before it."""
    position = maker.writer.position if position is None else position
    maker.batch([b""], kind=f.KIND_POINT, body=point(name, position), topics=[])
    return position


def point(name: str, position: int) -> bytes:
    return msgpack.encode(PointRecord(name, format_vector({Origin(INSTANCE, 1): position - 1})))


def reported(maker: Maker, *arguments: str) -> list[dict]:
    result = run(maker, *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.seed("003-26")
def test_a_dump_begins_and_ends_at_a_point(maker: Maker) -> None:
    ten_batches(maker)
    noon = place(maker, "noon", 13)
    evening = place(maker, "evening")
    ten_batches(maker)
    rows = reported(maker, "dump", "--since", "point:noon", "--until", "point:evening")
    assert (rows[0]["position"], rows[-1]["position"]) == (noon, evening - 1)
    assert reported(maker, "dump", "--since", "point:evening")[0]["position"] == evening


def test_a_point_of_all_instances_is_before_what_it_does_not_cover(maker: Maker) -> None:
    """Its place is that of its vector; a local point of before does not count."""
    ten_batches(maker)
    place(maker, "noon")
    covers = format_vector({Origin(INSTANCE, 1): 12})
    body = msgpack.encode(SharedPointRecord("noon", 1, covers))
    maker.batch([b""], kind=f.KIND_SHARED_POINT, body=body, topics=[])
    ten_batches(maker)
    first, *_ = (row for row in reported(maker, "dump", "--since", "point:noon"))
    assert first["position"] == 13
    body = msgpack.encode(SharedPointRecord("night", 1, format_vector({Origin(INSTANCE, 1): 999})))
    maker.batch([b""], kind=f.KIND_SHARED_POINT, body=body, topics=[])
    assert reported(maker, "dump", "--since", "point:night") == []


def test_a_point_that_was_set_again_is_where_it_was_set_last(maker: Maker) -> None:
    ten_batches(maker)
    place(maker, "noon", 4)
    place(maker, "noon", 22)
    assert reported(maker, "dump", "--since", "point:noon")[0]["position"] == 22


@pytest.mark.parametrize("command", [("dump", "--since"), ("grep", "x", "--since")])
def test_a_point_that_is_not_there_is_an_error(maker: Maker, command: tuple[str, ...]) -> None:
    ten_batches(maker)
    result = run(maker, *command, "point:noon")
    assert result.exit_code == 1
    assert "unknown_point: there is no point 'noon'" in result.stderr
    assert "point ls" in result.stderr


@pytest.mark.seed("003-26")
def test_a_copy_begins_with_the_segment_of_a_point(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 3)
    noon = place(maker, "noon")
    segments(maker, 5, states=False)
    run(maker, "export", "--output", str(tmp_path / "o"), "--from", "point:noon")
    assert names(tmp_path / "o" / "journal")[0] == "0000000003.journal"
    assert noon > 1


@pytest.mark.seed("003-26")
@pytest.mark.parametrize("command", ["archive", "remove", "compress"])
def test_segments_that_end_before_a_point_are_meant(maker: Maker, command: str) -> None:
    segments(maker, 3)
    noon = place(maker, "noon")
    segments(maker, 5, states=False)
    state_with(maker, "noon", noon)
    result = run(maker, command, "--point", "noon", "--json")
    assert result.exit_code == 0, result.output
    serials = json.loads(result.stdout)["serials"]
    found = [row if command == "remove" else row["serial"] for row in serials]
    assert found == [1, 2], "the point is in the third one"


def test_a_point_is_in_the_snapshot_when_its_segment_is_gone(maker: Maker) -> None:
    segments(maker, 3)
    noon = place(maker, "noon")
    segments(maker, 5, states=False)
    state_with(maker, "noon", noon)
    assert run(maker, "remove", "--through", "4").exit_code == 0
    assert len(names(maker.directory)) == 1
    rows = json.loads(run(maker, "archive", "--point", "noon", "--json").stdout)
    assert (rows["result"], rows["serials"]) == ("nothing to do", [])


def state_with(maker: Maker, name: str, position: int) -> None:
    """A state snapshot that knows a point."""
    sessions = Sessions(INSTANCE)
    batch = f.Batch(f.KIND_POINT, position, 0, 0, 0, 0, 1, 0, [], point(name, position), 0, 0)
    sessions.named.fold(batch)
    cutter = snapshot.Cutter(snapshot.folds(sessions), maker.writer.position)
    maker.batch([b""], kind=f.KIND_STATE, body=cutter.cut(), topics=[])
    assert cutter.done


@pytest.mark.seed("003-26")
@pytest.mark.parametrize("command", ["archive", "remove"])
def test_a_running_instance_says_where_the_point_is(fake: FakeAdmin, command: str) -> None:
    rows = [row | {"end": end} for row, end in zip(ROWS, (10, 20, 30, None), strict=True)]
    fake.answers["GET /journal"] = {"segments": rows}
    fake.answers["GET /points?name=noon"] = {"points": [{"name": "noon", "position": 25}]}
    unknown = {"code": "unknown_point", "reason": "there is no such point", "hint": "look"}
    fake.answers["GET /points?name=night"] = (404, unknown)
    fake.answers[f"POST /journal/{command}"] = {"id": None, "serials": [], "skipped": []}
    assert admin(fake.data, "journal", command, "--point", "noon").exit_code == 0
    assert fake.reported == [(f"/journal/{command}", {"through": 2, "dry_run": False})]
    result = admin(fake.data, "journal", command, "--point", "night")
    assert "there is no such point" in result.stderr


def test_one_way_to_say_which_segments_is_enough(maker: Maker) -> None:
    result = run(maker, "archive", "--point", "noon", "--through", "1")
    assert result.exit_code == 2
    assert "--point NAME" in result.stderr
