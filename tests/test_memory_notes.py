"""Notes in memory that survives a process: whose they are, and that they are there when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbroker import memory_notes


def test_a_note_is_of_one_user_and_one_instance(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    assert path != memory_notes.place(tmp_path, 8, "synced")
    memory = memory_notes.make(path, 8)
    memory[:3] = b"abc"
    memory.close()
    assert memory_notes.read(path, 8) == b"abc\0\0\0\0\0"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_note_that_is_there_is_not_taken_over(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    path.write_bytes(b"of somebody else")
    with pytest.raises(FileExistsError):
        memory_notes.make(path, 8)


def test_what_is_no_plain_file_counts_for_nothing(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    assert memory_notes.read(path, 8) == b""
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"content!")
    assert memory_notes.read(path, 8) == b""
