"""`zbroker-admin journal repair` saves what is intact, and never touches what it reads."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.journals import INSTANCE, PUBLISHER, Maker, admin, flip, run, segments, ten_batches
from zbroker.cli.journal.repair import mended
from zbroker.journal.fold import LogFold
from zbroker.limits import MIB
from zbroker.log import format as f
from zbroker.log.disk import RealDisk
from zbroker.log.reader import Gap, Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.segments import segment_name
from zbroker.log.writer import Writer


def repaired(maker: Maker, output: Path, *arguments: str) -> dict:
    before = contents(maker)
    result = run(maker, "repair", "--output", str(output), "--json", *arguments)
    assert result.stdout, result.stderr
    reported = json.loads(result.stdout)
    assert result.exit_code == (0 if reported["ok"] else 1)
    assert contents(maker) == before, "the old files stay as they are"
    return reported


def contents(maker: Maker) -> dict[str, bytes]:
    data = maker.directory.parent
    return {str(path): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def started(output: Path) -> Recovered:
    disk = RealDisk(output / "journal")
    found = recover(disk, INSTANCE, segment_bytes=MIB)
    disk.close()
    return found


def read(output: Path) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    """Bodies of messages by position, and gaps, as every reader gets them."""
    log = Log(output / "journal")
    items, _ = log.read(log.seek(1), log.end(), 1 << 30)
    log.close()
    gaps = [(item.first, item.end) for item in items if isinstance(item, Gap)]
    batches = [item for item in items if isinstance(item, f.Batch)]
    return {b.position: bytes(b.body) for b in batches if b.kind == f.KIND_PUBLISH}, gaps


def originals(maker: Maker, *but: int) -> dict[int, bytes]:
    """Bodies by position, without the batches with these numbers."""
    return {
        batch.position: bytes(batch.body)
        for number, batch in enumerate(maker.batches)
        if number not in but and batch.kind == f.KIND_PUBLISH
    }


def clean(output: Path) -> bool:
    """Nothing is damaged in it; gaps are gaps."""
    found = json.loads(admin(output, "--json", "journal", "verify").stdout)
    return not found["damaged"] and not found["missing_segments"]


def test_an_intact_log_is_the_same_afterwards(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    reported = repaired(maker, tmp_path / "out")
    assert (reported["lost"], reported["generation"]) == ([], 1)
    assert read(tmp_path / "out") == (originals(maker), [])
    assert admin(tmp_path / "out", "journal", "verify").exit_code == 0
    found = started(tmp_path / "out")
    assert (found.next_position, found.findings) == (maker.batches[-1].end_position, [])


DAMAGE: dict[str, Callable[[f.Batch], int]] = {
    "body": lambda batch: batch.offset + batch.header_length + 3,
    "batch header": lambda batch: batch.offset + 20,
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("number", [0, 5])
def test_a_damaged_batch_becomes_a_gap_with_bounds(
    maker: Maker, tmp_path: Path, what: str, number: int
) -> None:
    ten_batches(maker)
    batch = maker.batches[number]
    flip(maker, 1, DAMAGE[what](batch))
    reported = repaired(maker, tmp_path / "out")
    assert [(gap["first"], gap["end"]) for gap in reported["lost"]] == [
        (batch.position, batch.end_position)
    ]
    assert reported["lost_positions"] == 3
    bodies, gaps = read(tmp_path / "out")
    assert bodies == originals(maker, number)
    assert gaps == [(batch.position, batch.end_position)]
    assert clean(tmp_path / "out")
    assert reported["generation"] == 1
    assert started(tmp_path / "out").next_position > 31  # a state snapshot is after the end


def test_a_damaged_group_header_costs_nothing(maker: Maker, tmp_path: Path) -> None:
    ten_batches(maker)
    flip(maker, 1, maker.batches[5].offset - f.GROUP_LENGTH + 20)
    assert repaired(maker, tmp_path / "out")["lost"] == []
    assert read(tmp_path / "out")[0] == originals(maker)
    assert admin(tmp_path / "out", "journal", "verify").exit_code == 0


def test_a_lost_end_is_not_given_again(maker: Maker, tmp_path: Path) -> None:
    """The broker would not start on this one; on the new one it does."""
    ten_batches(maker)
    start = maker.batches[8].offset - f.GROUP_LENGTH
    maker.close()
    with (maker.directory / segment_name(1)).open("r+b") as file:
        file.seek(start)
        file.write(bytes(MIB - start))
    reported = repaired(maker, tmp_path / "out")
    assert [(gap["first"], gap["end"]) for gap in reported["lost"]] == [(25, 31)]
    assert reported["generation"] > 1
    found = started(tmp_path / "out")
    assert (found.generation, found.lost) == (reported["generation"], None)
    assert [finding.code for finding in found.findings] == ["journal.damaged_range"]
    assert found.next_position > 31
    assert read(tmp_path / "out")[0] == originals(maker, 8, 9)


def test_a_publisher_learns_what_it_was_acknowledged(maker: Maker, tmp_path: Path) -> None:
    """Its last message is lost, but not that it was there."""
    ten_batches(maker)
    flip(maker, 1, DAMAGE["body"](maker.batches[9]))
    repaired(maker, tmp_path / "out")
    fold = LogFold(INSTANCE)
    disk = RealDisk(tmp_path / "out" / "journal")
    recover(disk, INSTANCE, segment_bytes=MIB, begin=fold.begin, on_batch=fold)
    disk.close()
    known = fold.sessions.get(PUBLISHER)
    assert known is not None
    assert known.high == 30


def test_a_missing_segment_is_a_gap(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 5)
    maker.close()
    rows = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    (maker.directory / segment_name(3)).unlink()
    reported = repaired(maker, tmp_path / "out")
    wanted = (rows[2]["first"], rows[2]["end"])
    assert [(gap["first"], gap["end"]) for gap in reported["lost"]] == [wanted]
    assert read(tmp_path / "out")[1] == [wanted]
    findings = started(tmp_path / "out").findings
    assert [(one.code, one.first, one.end) for one in findings] == [
        ("journal.damaged_range", *wanted)
    ]


def test_headers_damaged_in_different_places_are_put_together(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    for at in (20, 30, f.HEADER_COPY_AT + 50, f.HEADER_COPY_AT + 90):
        flip(maker, 2, at)
    reported = repaired(maker, tmp_path / "out")
    assert (reported["lost"], reported["mended_headers"]) == ([], [2])
    assert read(tmp_path / "out") == (originals(maker), [])


def test_headers_damaged_in_the_same_place_cost_the_segment(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    rows = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    for at in (20, f.HEADER_COPY_AT + 21):
        flip(maker, 2, at)
    reported = repaired(maker, tmp_path / "out")
    assert [(gap["first"], gap["end"]) for gap in reported["lost"]] == [
        (rows[1]["first"], rows[1]["end"])
    ]


def test_what_is_damaged_here_is_taken_from_a_backup(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 3)
    backup = tmp_path / "backup"
    assert run(maker, "export", "--output", str(backup)).exit_code == 0
    maker.disk = RealDisk(maker.directory)
    maker.writer._disk = maker.writer._spares[0]._disk = maker.disk
    segments(maker, 5)
    for number in (3, 4, 20):
        flip(maker, serial_of(maker, number), DAMAGE["batch header"](maker.batches[number]))
    late = next(n for n, b in enumerate(maker.batches) if serial_of(maker, n) == 4)
    flip(maker, 4, DAMAGE["body"](maker.batches[late]))
    reported = repaired(maker, tmp_path / "out", "--also", str(backup))
    positions = [maker.batches[number].position for number in (3, 4, 20)]
    assert [(part["first"], part["end"]) for part in reported["filled"]] == [
        (positions[0], positions[1] + 1), (positions[2], positions[2] + 1),
    ]  # fmt: skip
    assert [gap["first"] for gap in reported["lost"]] == [maker.batches[late].position]
    assert read(tmp_path / "out")[0] == originals(maker, late)


def serial_of(maker: Maker, number: int) -> int:
    """The segment that a batch is in: offsets begin again in each."""
    before = maker.batches[: number + 1]
    return 1 + sum(1 for a, b in pairwise(before) if b.offset < a.offset)


def test_a_copy_of_another_log_is_refused(maker: Maker, tmp_path: Path) -> None:
    ten_batches(maker)
    other = tmp_path / "other" / "journal"
    other.mkdir(parents=True)
    disk = RealDisk(other)
    recover(disk, INSTANCE + 1, segment_bytes=MIB)
    disk.close()
    result = run(maker, "repair", "--output", str(tmp_path / "out"), "--also", str(other.parent))
    assert result.exit_code == 74
    assert "copy of another log" in result.stderr
    assert not (tmp_path / "out").exists()


def test_nothing_is_taken_from_another_generation(maker: Maker, tmp_path: Path) -> None:
    """A copy that went its own way has other messages at the same positions."""
    ten_batches(maker)
    backup = tmp_path / "backup"
    assert run(maker, "export", "--output", str(backup)).exit_code == 0
    with (maker.directory / segment_name(1)).open("r+b") as file:
        file.seek(maker.batches[5].offset - f.GROUP_LENGTH)
        file.write(bytes(MIB // 2))
    again = RealDisk(maker.directory)
    tail = recover(again, INSTANCE, segment_bytes=MIB, accept_loss=True).tail
    maker.disk, maker.writer = again, Writer(again, tail, segment_bytes=MIB)
    assert maker.writer.header.generation > 1
    assert maker.writer.position == 16
    other = maker.batch([b"another", b"message", b"here"])
    flip(maker, 2, other.offset + 20)
    maker.batch([b"behind"])
    reported = repaired(maker, tmp_path / "out", "--also", str(backup))
    assert reported["filled"] == []
    assert [(gap["first"], gap["end"]) for gap in reported["lost"]] == [(16, 19)]


def test_one_sealed_segment_is_saved_while_an_instance_runs(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 4)
    rows = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    owner = RealDisk(maker.directory)
    owner.lock()
    reported = repaired(maker, tmp_path / "out", "--segment", "2")
    owner.close()
    assert (reported["first_position"], reported["end_position"]) == (
        rows[1]["first"],
        rows[1]["end"],
    )
    log = Log(tmp_path / "out" / "journal")
    assert (log.first_position, log.end()) == (rows[1]["first"], rows[1]["end"])
    log.close()


def test_a_running_instance_is_not_repaired_under_its_feet(maker: Maker, tmp_path: Path) -> None:
    segments(maker, 2)
    owner = RealDisk(maker.directory)
    owner.lock()
    result = run(maker, "repair", "--output", str(tmp_path / "out"))
    owner.close()
    assert result.exit_code == 74
    assert "second_writer" in result.stderr


def test_the_next_steps_put_the_new_log_in_place(maker: Maker, tmp_path: Path) -> None:
    """They are run as they are printed; then the tools read the new log."""
    segments(maker, 3)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    flip(maker, 2, DAMAGE["batch header"](maker.batches[15]))
    reported = repaired(maker, tmp_path / "out")
    data = maker.directory.parent
    (data / "index").mkdir()
    for line in reported["next"][1:]:
        subprocess.run(line, shell=True, check=True)
    assert not (data / "index").exists()
    assert (data / "journal.damaged" / segment_name(2)).exists()
    assert (data / "archive.damaged" / segment_name(1)).exists()
    found = json.loads(admin(data, "--json", "journal", "verify").stdout)
    assert (found["damaged"], len(found["gaps"])) == ([], 1)


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_costs_no_more_than_what_it_hit(maker: Maker, tmp_path: Path, seed: int) -> None:
    """Random flips: what is saved is a subset of what was written, and everything that verify
    could read before is in it."""
    rng = random.Random(seed)
    ten_batches(maker)
    for _ in range(rng.randrange(1, 5)):
        batch = rng.choice(maker.batches)
        start = batch.offset - f.GROUP_LENGTH
        flip(maker, 1, rng.randrange(start, batch.end_offset))
    log = Log(maker.directory)
    items, _ = log.read(log.seek(1), 31, 1 << 30)
    log.close()
    readable = {i.position: bytes(i.body) for i in items if isinstance(i, f.Batch)}
    repaired(maker, tmp_path / "out")
    bodies, _ = read(tmp_path / "out")
    assert bodies == readable
    assert bodies.items() <= originals(maker).items()
    assert clean(tmp_path / "out")
    started(tmp_path / "out")


def test_a_header_is_put_together_word_by_word() -> None:
    header = f.SegmentHeader(1, 2, 3, 4, 5, 6, 7, 8, 9).encode()
    first, second = bytearray(header), bytearray(header)
    first[0] ^= 1
    first[40] ^= 1
    second[64] ^= 1
    assert mended(bytes(first), bytes(second)) == header
    second[41] ^= 1
    assert mended(bytes(first), bytes(second)) is None
    assert mended(b"", header) is None
