"""Notes in memory that survives a process: whose they are, and that they are there when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbroker import memory_notes


def test_a_note_is_of_one_user_and_one_instance(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    assert path != memory_notes.place(tmp_path, 8, "synced")
    note = memory_notes.MemoryNote(path, 8, 8)
    note.memory[:3] = b"abc"
    note.close()
    assert memory_notes.read(path, 8) == b"abc\0\0\0\0\0"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_note_that_is_there_is_not_taken_over(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    path.write_bytes(b"of somebody else")
    with pytest.raises(FileExistsError):
        memory_notes.MemoryNote(path, 8, 8)


def test_what_is_no_plain_file_counts_for_nothing(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "synced")
    assert memory_notes.read(path, 8) == b""
    path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"content!")
    assert memory_notes.read(path, 8) == b""


def test_a_note_takes_memory_as_it_is_used(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "sent")
    note = memory_notes.MemoryNote(path, 1 << 20, 4_096)
    assert path.stat().st_size == 1 << 20
    assert path.stat().st_blocks * 512 <= 16 << 10
    note.take(1 << 20)
    note.memory[-1:] = b"z"
    assert path.stat().st_blocks * 512 >= 1 << 20
    note.close()


def test_a_note_whose_file_is_another_one_takes_no_more(tmp_path: Path) -> None:
    path = memory_notes.place(tmp_path, 9, "sent")
    note = memory_notes.MemoryNote(path, 1 << 20, 4_096)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        note.take(8_192)
    path.write_bytes(b"of somebody else")
    with pytest.raises(FileNotFoundError, match="another file"):
        note.take(8_192)
    assert note.taken == 4_096
    assert path.read_bytes() == b"of somebody else"
    note.memory[:1] = b"z"
    note.close()


def test_all_notes_of_one_instance_are_removed(tmp_path: Path) -> None:
    for instance, what in ((9, "sent"), (9, "synced"), (8, "synced")):
        memory_notes.MemoryNote(memory_notes.place(tmp_path, instance, what), 8, 8).close()
    memory_notes.remove(9, tmp_path)
    assert [*tmp_path.iterdir()] == [memory_notes.place(tmp_path, 8, "synced")]
    memory_notes.remove(9, tmp_path / "missing")
