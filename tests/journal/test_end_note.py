"""The note of where the log ended last: what counts, and what it proves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zbroker import memory_notes
from zbroker.journal.end_note import EndNote, GroupEnd, Proof, proof

LAST, BEFORE = GroupEnd(100, 7), GroupEnd(90, 6)


@pytest.mark.parametrize(
    ("noted", "means"),
    [
        (LAST, Proof.PROVED),
        (BEFORE, Proof.PROVED),  # a kill came between the last group and its note
        (None, Proof.UNKNOWN),
        (GroupEnd(80, 5), Proof.UNKNOWN),  # of another time: a disk that was set back may hold it
        (GroupEnd(100, 8), Proof.UNKNOWN),
        (GroupEnd(90, 7), Proof.UNKNOWN),
        (GroupEnd(101, 7), Proof.LOST),
    ],
)
def test_an_end_is_proved_by_the_note_of_its_newest_groups_only(
    noted: GroupEnd | None, means: Proof
) -> None:
    assert proof(noted, LAST, BEFORE) is means


def test_a_note_is_there_for_the_next_process(tmp_path: Path) -> None:
    note = EndNote(9, tmp_path)
    assert note.before is None
    note.write(LAST)
    note.write(GroupEnd(110, 9))
    note.close()
    again = EndNote(9, tmp_path)
    assert again.before == GroupEnd(110, 9)
    again.write(LAST)
    again.close()
    assert EndNote(9, tmp_path).before == LAST
    assert EndNote(8, tmp_path).before is None


def test_a_start_that_is_undecided_leaves_the_note_of_the_process_before(tmp_path: Path) -> None:
    """It would prove an end that was never confirmed, if the process ended then."""
    note = EndNote(9, tmp_path)
    note.write(LAST)
    note.close()
    EndNote(9, tmp_path).close()
    assert EndNote(9, tmp_path).before == LAST


def test_a_note_that_is_not_kept_up_is_taken_away(tmp_path: Path) -> None:
    note = EndNote(9, tmp_path)
    note.write(LAST)
    note.close()
    EndNote(9, tmp_path).forget()
    assert EndNote(9, tmp_path).before is None


def test_without_memory_there_is_no_note_and_nothing_fails(tmp_path: Path) -> None:
    note = EndNote(9, tmp_path / "nowhere")
    note.write(LAST)
    note.close()
    assert note.before is None


@pytest.mark.parametrize("at", [0, 8, 20, 31])
def test_a_damaged_note_is_none(tmp_path: Path, at: int) -> None:
    note = EndNote(9, tmp_path)
    note.write(LAST)
    note.close()
    path = memory_notes.place(tmp_path, 9, "synced")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert EndNote(9, tmp_path).before is None


def test_a_note_is_for_its_user_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    note = EndNote(9, tmp_path)
    note.write(LAST)
    note.close()
    path = memory_notes.place(tmp_path, 9, "synced")
    assert path.stat().st_mode & 0o777 == 0o600
    os.rename(path, tmp_path / "elsewhere")  # noqa: PTH104 - both names are of this test
    path.symlink_to(tmp_path / "elsewhere")
    assert EndNote(9, tmp_path).before is None
