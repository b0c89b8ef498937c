"""zbroker/durable_files.py: small files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zbroker import durable_files


def test_a_file_is_replaced_as_a_whole_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "note"
    durable_files.write(path, b"a longer one")
    durable_files.write(path, b"short")
    assert path.read_bytes() == b"short"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["note"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "note"
    durable_files.write(path, b"old")
    (tmp_path / "note.new").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        durable_files.write(path, b"new")
    assert path.read_bytes() == b"old"


def test_bytes_and_name_are_synced_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    durable_files.write(tmp_path / "note", b"x")
    assert synced == [str(tmp_path / "note.new"), str(tmp_path)]


def test_bytes_are_added_at_the_end_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    durable_files.append(path, b"one\n")
    durable_files.append(path, b"two\n", sync=False)
    assert path.read_bytes() == b"one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_bytes_that_do_not_fit_are_not_added_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "lines", os.write
    durable_files.append(path, b"one\n")
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))
    with pytest.raises(OSError, match="No space left"):
        durable_files.append(path, b"two\n")
    assert path.read_bytes() == b"one\n"
