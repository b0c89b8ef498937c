"""`zbroker-admin journal verify` finds every wrong byte."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.journal.test_archive import messages
from tests.cli.journals import (
    INSTANCE,
    PUBLISHER,
    Maker,
    flip,
    run,
    segments,
    ten_batches,
)
from tests.log.build import finish
from zbroker.cli.journal.verify import VerifyReport, verify
from zbroker.cli.progress import silent
from zbroker.limits import MIB
from zbroker.log import format as f
from zbroker.log.archive import pack
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Gap, Log
from zbroker.log.segments import segment_name


def verified(maker: Maker) -> VerifyReport:
    maker.close()
    return verify(maker.directory, lambda _what, _done, _total: None)


def test_an_intact_log_is_counted(maker: Maker) -> None:
    ten_batches(maker)
    maker.batch([b""], kind=f.KIND_NOOP, body=b"", topics=[])
    result = run(maker, "verify", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found == {
        "ok": True, "instance": f"{INSTANCE:016x}", "generation": 1, "first_position": 1,
        "end_position": 32, "messages": 30, "control_records": 1, "batches": 11, "groups": 11,
        "segments": 1, "archived": 0, "packed": 0, "bytes": MIB, "bytes_behind_end": 0,
        "publishers": 1, "missing_segments": [], "snapshot": None,
        "first_time": "20231114T221321Z", "last_time": "20231114T221348Z", "missing_sequences": 0,
        "holes": [], "gaps": [], "damaged": [],
    }  # fmt: skip


def test_an_empty_journal_is_whole(maker: Maker) -> None:
    report = verified(maker)
    assert report.ok
    assert (report.first_position, report.end_position) == (1, 1)


def test_sealed_segments_are_whole_too(maker: Maker) -> None:
    for _ in range(30):
        maker.batch([bytes(100_000)])
    report = verified(maker)
    assert report.ok, report.lines()
    assert report.segments >= 3
    assert (report.messages, report.groups) == (30, 30)


def test_progress_reaches_its_totals(maker: Maker) -> None:
    ten_batches(maker)
    maker.close()
    seen = []
    verify(maker.directory, lambda *step: seen.append(step))
    assert ("messages", 30, 30) in seen
    assert seen[-1] == ("files", MIB, MIB)


def test_text_ends_with_the_verdict(maker: Maker) -> None:
    ten_batches(maker)
    result = run(maker, "verify")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "ok: every byte is as it was written"


@pytest.mark.parametrize("seed", range(60))
def test_any_flipped_byte_is_found(maker: Maker, seed: int) -> None:
    ten_batches(maker)
    rng = random.Random(seed)
    batch = rng.choice(maker.batches)
    group_at = batch.offset - f.GROUP_LENGTH
    offset = group_at + rng.randrange(f.GROUP.size) if seed % 3 == 0 else (
        batch.offset + rng.randrange(batch.header_length + batch.body_length)
    )  # fmt: skip
    flip(maker, 1, offset)
    result = run(maker, "verify")
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines()[-1].startswith("DAMAGED")


DAMAGE: dict[str, Callable[[f.Batch], int]] = {
    "body": lambda batch: batch.offset + batch.header_length,
    "batch header": lambda batch: batch.offset + 20,
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("number", [0, 5, 9])
def test_what_cannot_be_served_is_a_gap_of_exactly_these_positions(
    maker: Maker, what: str, number: int
) -> None:
    ten_batches(maker)
    batch = maker.batches[number]
    flip(maker, 1, DAMAGE[what](batch))
    report = verified(maker)
    assert [(gap.first, gap.end) for gap in report.gaps] == [(batch.position, batch.end_position)]
    assert report.messages == 27
    assert report.damaged


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_in_a_sealed_segment_is_found(maker: Maker, what: str) -> None:
    for _ in range(30):
        maker.batch([bytes(100_000)])
    last_of_first = next(b for b, after in pairwise(maker.batches) if after.offset < b.offset)
    flip(maker, 1, DAMAGE[what](last_of_first))
    report = verified(maker)
    position = last_of_first.position
    assert [(gap.first, gap.end) for gap in report.gaps] == [(position, position + 1)]
    assert [place.serial for place in report.damaged] == [1]
    assert report.messages == 29


def test_a_damaged_group_header_hides_no_message(maker: Maker) -> None:
    ten_batches(maker)
    flip(maker, 1, maker.batches[5].offset - f.GROUP_LENGTH + 20)
    report = verified(maker)
    assert report.gaps == []
    assert report.messages == 30
    assert len(report.damaged) == 1
    assert not report.ok


def test_acknowledged_groups_that_are_gone_are_a_gap(maker: Maker) -> None:
    ten_batches(maker)
    maker.close()
    start = maker.batches[7].offset - f.GROUP_LENGTH
    with (maker.directory / segment_name(1)).open("r+b") as file:
        file.seek(start)
        file.write(bytes(MIB - start))
    report = verified(maker)
    assert [(gap.first, gap.end) for gap in report.gaps] == [(22, 31)]


def test_a_bad_segment_header_is_named(maker: Maker) -> None:
    ten_batches(maker)
    flip(maker, 1, 30)
    assert verified(maker).ok  # its copy is good
    flip(maker, 1, f.HEADER_COPY_AT + 30)
    report = verified(maker)
    assert not report.ok
    assert [place.why for place in report.damaged] == ["header: crc"]


def test_a_hole_is_what_was_issued_but_is_not_here(maker: Maker) -> None:
    maker.batch([b"a"])
    maker.sequence = 100  # numbers that were never used
    maker.batch([b"b"], prev=1)
    maker.sequence = 111
    maker.batch([b"c"], prev=110)  # 101 to 110 were issued
    report = verified(maker)
    assert [(hole.publisher, hole.first, hole.last) for hole in report.holes] == [
        (PUBLISHER, 101, 110)
    ]
    assert report.as_dict()["missing_sequences"] == 10
    assert report.ok


def test_late_batches_fill_holes(maker: Maker) -> None:
    maker.batch([b"a"])
    maker.sequence = 12
    maker.batch([b"b"], prev=11)
    maker.sequence = 5
    maker.batch([b"c", b"d"], flags=f.FLAG_LATE, prev=4)
    report = verified(maker)
    assert [(hole.first, hole.last) for hole in report.holes] == [(2, 4), (7, 11)]


def test_what_a_running_instance_writes_after_the_end_does_not_count(maker: Maker) -> None:
    ten_batches(maker)
    written: list[int] = []

    def meanwhile(_what: str, _done: int, _total: int) -> None:
        if len(written) < 3:
            written.append(maker.batch([b"new"]).position)

    report = verify(maker.directory, meanwhile)
    assert written
    assert report.ok, report.lines()
    assert (report.messages, report.end_position) == (30, 31)
    assert Log(maker.directory).end() > 31
    maker.close()


def test_many_findings_are_cut_short_in_text_only() -> None:
    report = VerifyReport(instance=1)
    report.gaps = [Gap(n, n + 1, "damaged") for n in range(25)]
    text = "\n".join(report.lines())
    assert "and 15 more" in text
    assert len(report.as_dict()["gaps"]) == 25


# -- archived and packed segments -----------------------------------------------------------------


def spread(maker: Maker) -> tuple[Path, Path]:
    """Six segments: two packed in the archive, one raw there, one packed here, two raw here."""
    segments(maker, 6)
    assert run(maker, "archive", "--through", "3").exit_code == 0
    assert run(maker, "compress", "--through", "2").exit_code == 0
    data = maker.directory.parent
    disk = RealDisk(maker.directory)
    places = SegmentPlaces(disk, RealDisk(data / "archive"))
    finish(pack(places, 4))
    places.unlink(next(p for p in places.by_serial()[4] if not p.packed))
    places.close()
    return maker.directory, data / "archive"


def test_archived_and_packed_segments_are_whole_too(maker: Maker) -> None:
    spread(maker)
    result = run(maker, "verify", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["segments"], found["archived"], found["packed"]) == (6, 3, 3)
    assert found["snapshot"] == 6
    assert found["messages"] + found["control_records"] == found["end_position"] - 1


@pytest.mark.parametrize("seed", range(30))
def test_any_flipped_byte_of_a_packed_file_is_found(maker: Maker, seed: int) -> None:
    """A few bits of a Zstandard frame mean nothing: then all messages are as they were."""
    journal, archive = spread(maker)
    before = messages(maker)
    rng = random.Random(seed)
    path = rng.choice(
        [archive / "0000000001.journal.zst", archive / "0000000002.journal.zst",
         journal / "0000000004.journal.zst"]
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    report = verify(journal, silent, archive)
    if report.ok:
        assert messages(maker) == before
        return
    assert {place.serial for place in report.damaged} == {int(path.name[:10])}
    assert report.damaged[0].file == f"{path.parent.name}/{path.name}"


def test_a_damaged_archived_file_is_found(maker: Maker) -> None:
    journal, archive = spread(maker)
    path = archive / "0000000003.journal"
    data = bytearray(path.read_bytes())
    data[data.index(b"zbRB") + 1_000] ^= 1
    path.write_bytes(data)
    report = verify(journal, silent, archive)
    assert [place.file for place in report.damaged] == ["archive/0000000003.journal"]
    assert len(report.gaps) == 1


def test_a_copy_that_readers_do_not_use_is_checked_too(maker: Maker) -> None:
    """Of two copies the raw one is read; the damaged one would be left when it goes."""
    journal, archive = spread(maker)
    raw = archive / "0000000003.journal"
    data = bytearray(raw.read_bytes())
    (journal / raw.name).write_bytes(data)
    data[20_000] ^= 1
    raw.write_bytes(data)
    report = verify(journal, silent, archive)
    assert report.gaps == []
    assert [place.file for place in report.damaged] == ["archive/0000000003.journal"]


def test_segments_that_are_not_there_are_named(maker: Maker) -> None:
    _, archive = spread(maker)
    archive.rename(archive.with_name("not mounted"))
    result = run(maker, "verify")
    assert result.exit_code == 1
    assert "missing_segments   1, 2, 3" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("INCOMPLETE")


def test_a_log_whose_beginning_was_removed_needs_a_snapshot(maker: Maker) -> None:
    segments(maker, 4)
    assert run(maker, "remove", "--through", "2").exit_code == 0
    assert "no state snapshot" not in run(maker, "verify").stdout
    for serial in (3, 4):
        path = maker.directory / segment_name(serial)
        data = bytearray(path.read_bytes())
        at = next(
            b for b in maker.batches
            if b.kind == f.KIND_STATE and data[b.offset : b.offset + 4] == b"zbRB"
        )  # fmt: skip
        data[at.offset + at.header_length] ^= 1
        path.write_bytes(data)
    assert "no state snapshot" in run(maker, "verify").stdout
