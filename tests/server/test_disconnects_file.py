"""zbroker/server/disconnects_file.py: kept over restarts of a process."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from zbroker.errors import StorageError
from zbroker.server.disconnects_file import DisconnectsFile, read
from zbroker.wire.disconnects import NONE

LOG = logging.getLogger("test")


def test_what_was_added_is_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "disconnects.json"
    assert read(path) == NONE
    file = DisconnectsFile(path, LOG)
    assert [file.add("ann"), file.add("bob"), file.add("ann")] == [1, 2, 3]
    assert read(path) == file.known
    assert file.known.clients == {"bob": 2, "ann": 3}
    assert path.stat().st_mode & 0o077 == 0


def test_another_admin_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "disconnects.json"
    DisconnectsFile(path, LOG).add("ann")
    assert DisconnectsFile(path, LOG).add("bob") == 2


def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "disconnects.json"
    path.write_bytes(b"{")
    with pytest.raises(StorageError, match="damaged"):
        read(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="io"):
        read(tmp_path)


def test_who_fills_the_disk_can_be_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = DisconnectsFile(tmp_path / "gone" / "disconnects.json", LOG)
    assert file.add("ann") == 1
    assert file.known.clients == {"ann": 1}
    assert "ann" in caplog.text
