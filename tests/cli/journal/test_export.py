"""`zbroker-admin journal export` copies the log consistently, also while it grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journal.test_archive import messages, names
from tests.cli.journals import INSTANCE, Maker, admin, flip, run, segments, ten_batches
from zbroker.cli.journal import export
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, Batch
from zbroker.log.reader import Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import segment_name


def exported(maker: Maker, output: Path, *arguments: str) -> dict:
    result = run(maker, "export", "--output", str(output), "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def started(output: Path) -> Recovered:
    disk = RealDisk(output / "journal")
    found = recover(disk, INSTANCE, segment_bytes=MIB)
    disk.close()
    return found


def codes(found: Recovered) -> list[str]:
    return [finding.code for finding in found.findings]


def bodies(output: Path) -> list[bytes]:
    log = Log(output / "journal")
    items, _ = log.read(log.seek(log.first_position), log.end(), 1 << 30)
    log.close()
    assert all(isinstance(item, Batch) for item in items)
    return [bytes(item.body) for item in items]


def test_the_copy_has_everything_and_can_be_started_on(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    assert run(maker, "archive", "--through", "2").exit_code == 0
    assert run(maker, "compress", "--through", "1").exit_code == 0
    reported = exported(maker, tmp_path / "out")
    assert (reported["verified"], reported["live"], reported["segments"], reported["packed"]) == (
        True,
        False,
        4,
        1,
    )
    assert bodies(tmp_path / "out") == messages(maker)
    assert names(tmp_path / "out" / "journal")[0] == "0000000001.journal.zst"
    found = started(tmp_path / "out")
    assert found.next_position == maker.batches[-1].end_position
    assert codes(found) == ["journal.copied"]
    identity = json.loads((tmp_path / "out" / "instance.json").read_text())
    assert identity == {"version": 1, "instance": f"{INSTANCE:016x}"}


def test_the_copy_takes_no_space_for_what_is_not_written_yet(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    exported(maker, tmp_path / "out")
    newest = (tmp_path / "out" / "journal" / segment_name(2)).stat()
    assert newest.st_size == MIB
    assert newest.st_blocks * 512 < MIB / 2


def test_the_tools_take_the_copy_as_a_data_directory(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    exported(maker, tmp_path / "out")
    assert admin(tmp_path / "out", "journal", "verify").exit_code == 0


def test_without_an_instance_also_what_no_note_proves_is_copied(
    maker: Maker, tmp_path: Path
) -> None:
    """After a power cut the note may be older than what was acknowledged."""
    ten_batches(maker)
    slots = (maker.directory / "acked-through").read_bytes()
    maker.batch([b"acknowledged"])
    (maker.directory / "acked-through").write_bytes(slots)
    assert exported(maker, tmp_path / "out")["end_position"] == 32
    assert started(tmp_path / "out").next_position == 32


def test_a_log_without_a_note_is_started_once_before(maker: Maker, tmp_path: Path) -> None:
    ten_batches(maker)
    (maker.directory / "acked-through").write_bytes(bytes(1024))
    result = run(maker, "export", "--output", str(tmp_path / "out"))
    assert result.exit_code == 3
    assert "start the instance once" in result.stderr


# -- while an instance writes -----------------------------------------------------------------


@pytest.fixture
def live(maker: Maker, fake: FakeAdmin) -> Maker:
    fake.answers["POST /journal/hold"] = {}
    return maker


def test_the_log_is_held_while_it_is_copied(live: Maker, fake: FakeAdmin, tmp_path: Path) -> None:
    segments(live, 3)
    reported = exported(live, tmp_path / "out")
    assert reported["live"] is True
    first, last = fake.reported[0][1], fake.reported[-1][1]
    assert (first["position"], first["what"]) == (1, f"export to {tmp_path / 'out'}")
    assert first["ttl_s"] > 0
    assert last == first | {"ttl_s": 0}


def test_what_is_written_meanwhile_is_left_out(
    live: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log grows, rolls over, archives and packs after the copying."""
    segments(live, 3)
    end = live.batches[-1].end_position
    expected = [bytes(batch.body) for batch in live.batches]
    real = export.copy_file
    grown: list[int] = []

    def copy_file(places, serial, target, copied):
        if not grown:
            live.disk = RealDisk(live.directory)
            grown.append(live.writer.serial)
            live.writer._disk = live.writer._spares[0]._disk = live.disk
            segments(live, 5)
        return real(places, serial, target, copied)

    monkeypatch.setattr(export, "copy_file", copy_file)
    reported = exported(live, tmp_path / "out")
    assert live.writer.serial == 5
    assert (reported["end_position"], reported["segments"], reported["verified"]) == (end, 3, True)
    assert bodies(tmp_path / "out") == expected
    assert started(tmp_path / "out").next_position == end


def test_a_half_written_group_is_left_out(live: Maker, tmp_path: Path) -> None:
    ten_batches(live)
    end = live.batches[-1].end_offset
    with (live.directory / segment_name(1)).open("r+b") as file:
        file.seek(-(-end // 512) * 512)
        file.write(b"zbGR" + bytes(range(200)))
    reported = exported(live, tmp_path / "out")
    assert (reported["end_position"], reported["verified"]) == (31, True)
    assert codes(started(tmp_path / "out")) == ["journal.copied"]


def test_a_group_that_no_note_proves_is_left_out(live: Maker, tmp_path: Path) -> None:
    ten_batches(live)
    slots = (live.directory / "acked-through").read_bytes()
    live.batch([b"written, not acknowledged yet"])
    (live.directory / "acked-through").write_bytes(slots)
    reported = exported(live, tmp_path / "out")
    assert reported["end_position"] == 31
    assert started(tmp_path / "out").next_position == 31


def test_a_segment_that_moves_meanwhile_is_found_again(
    live: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(live, 3)
    real = export._write
    moved: list[str] = []

    def write(disk, name, size, chunks, copied):
        if not moved:
            moved.append(name)
            archive = live.directory.parent / "archive"
            archive.mkdir()
            (live.directory / name).rename(archive / name)
        real(disk, name, size, chunks, copied)

    monkeypatch.setattr(export, "_write", write)
    assert exported(live, tmp_path / "out")["verified"] is True
    assert len(names(tmp_path / "out" / "journal")) == 3


def test_what_was_removed_meanwhile_stops_it(live: Maker, fake: FakeAdmin, tmp_path: Path) -> None:
    segments(live, 3)
    fake.answers["POST /journal/hold"] = (
        400, {"code": "bookmark_expired", "reason": "the oldest position kept is 20", "hint": "x"},
    )  # fmt: skip
    result = run(live, "export", "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "the oldest position kept is 20" in result.stderr
    assert not (tmp_path / "out").exists()


# -- parts ------------------------------------------------------------------------------------


def test_a_part_begins_with_a_segment_and_ends_with_a_group(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 5)
    rows = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    first, last = rows[1], rows[3]
    reported = exported(
        maker, tmp_path / "out", "--from", str(first["first"] + 2), "--to", str(last["first"] + 3)
    )
    assert (reported["first_position"], reported["end_position"]) == (
        first["first"],
        last["first"] + 3,
    )
    assert names(tmp_path / "out" / "journal") == [segment_name(serial) for serial in (2, 3, 4)]
    assert reported["verified"] is True
    assert (reported["snapshot"], started(tmp_path / "out").log_start) == (4, first["first"])


def test_a_part_may_end_in_a_packed_segment(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    assert run(maker, "compress", "--all-sealed").exit_code == 0
    reported = exported(maker, tmp_path / "out", "--to", "5")
    assert names(tmp_path / "out" / "journal") == ["0000000001.journal"]
    assert (reported["end_position"], reported["verified"]) == (5, True)
    assert started(tmp_path / "out").next_position == 5


def test_times_are_points_too(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    rows = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    reported = exported(maker, tmp_path / "out", "--from", rows[2]["first_time"])
    assert names(tmp_path / "out" / "journal") == [segment_name(3), segment_name(4)]
    assert reported["verified"] is True


def test_a_range_with_nothing_in_it_is_not_found(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    assert run(maker, "remove", "--through", "2").exit_code == 0
    result = run(maker, "export", "--output", str(tmp_path / "out"), "--to", "3")
    assert result.exit_code == 3


# -- where it goes ----------------------------------------------------------------------------


def test_an_existing_directory_is_not_touched(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    (tmp_path / "out").mkdir()
    result = run(maker, "export", "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "is there already" in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_what_an_earlier_try_left_is_thrown_away(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    part = tmp_path / "out.part"
    part.mkdir()
    (part / "unfinished").touch()
    (part / "junk").touch()
    exported(maker, tmp_path / "out")
    assert not part.exists()
    assert not (tmp_path / "out" / "junk").exists()


def test_a_part_directory_of_somebody_else_is_not(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "precious").touch()
    assert run(maker, "export", "--output", str(tmp_path / "out")).exit_code == 1
    assert (tmp_path / "out.part" / "precious").exists()


def test_a_failure_leaves_nothing_behind(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(maker, 3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_write", full)
    result = run(maker, "export", "--output", str(tmp_path / "out"))
    assert result.exit_code == 74
    assert "No space left" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_damage_is_copied_and_reported(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 3)
    batch = maker.batches[3]
    flip(maker, 1, batch.offset + batch.header_length + 5)
    result = run(maker, "export", "--output", str(tmp_path / "out"), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["verified"] is False
    assert "journal verify" in result.stderr


def test_an_unreadable_segment_does_not_stop_a_backup(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    flip(maker, 2, 20)
    flip(maker, 2, HEADER_COPY_AT + 20)
    result = run(maker, "export", "--output", str(tmp_path / "out"), "--json")
    assert result.exit_code == 1
    assert len(names(tmp_path / "out" / "journal")) == 4


def test_the_first_start_of_a_copy_begins_a_new_generation(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    exported(maker, tmp_path / "out")
    found = started(tmp_path / "out")
    assert found.generation > exported(maker, tmp_path / "second")["generation"] == 1
    assert found.tail.header.first_position == found.next_position
    assert (started(tmp_path / "out").generation, codes(started(tmp_path / "out"))) == (
        found.generation, [],
    )  # fmt: skip
    assert recover(maker.disk, INSTANCE, segment_bytes=MIB).generation == 1, "the original goes on"
