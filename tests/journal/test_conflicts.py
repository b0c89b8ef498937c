"""The file of conflicts: what is kept, what is only counted, and what damage does to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zbroker.journal.conflicts import HEAD, Conflicts, encode, read_conflicts
from zbroker.journal.group_builder import Conflict


def conflict(number: int, body: bytes = b"other") -> Conflict:
    return Conflict(
        time_ns=number, publisher=5, name="a", session=1, seq=number, count=1, crc=9,
        original_position=7, topics=["t"], body=body,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conflicts"


def test_what_was_kept_is_read_in_order(path: Path) -> None:
    Conflicts(path).keep([conflict(1), conflict(2)])
    Conflicts(path).keep([conflict(3, b"\0" * 100_000)])
    assert read_conflicts(path) == [conflict(1), conflict(2), conflict(3, b"\0" * 100_000)]
    assert Conflicts(path).kept == 3


def test_without_a_file_there_is_nothing(path: Path) -> None:
    assert read_conflicts(path) == []
    assert Conflicts(path).kept == 0
    assert not path.exists()


def test_the_bytes_of_a_record_never_change() -> None:
    assert encode(conflict(1)).hex() == (
        "7a624346010000006600000000a734c48ba774696d655f6e7301a97075626c697368657205a46e616d65a161"
        "a773657373696f6e01a373657101a5636f756e7401a363726309b16f726967696e616c5f706f736974696f6e"
        "07a6746f7069637391a174a5636f646563c0a4626f6479c4056f74686572"
    )


def test_what_does_not_fit_is_left_out(path: Path) -> None:
    size = len(encode(conflict(1)))
    file = Conflicts(path, max_bytes=3 * size)
    file.keep([conflict(1), conflict(2, b"x" * 4 * size), conflict(3)])
    file.keep([conflict(4), conflict(5)])
    assert [one.seq for one in read_conflicts(path)] == [1, 3, 4]
    assert (file.kept, path.stat().st_size) == (3, 3 * size)
    again = Conflicts(path, max_bytes=3 * size)
    again.keep([conflict(6)])
    assert again.kept == 3


def test_reading_stops_at_damage(path: Path) -> None:
    Conflicts(path).keep([conflict(n) for n in range(1, 4)])
    data = path.read_bytes()
    size = len(encode(conflict(1)))
    for offset in range(len(data)):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        assert len(read_conflicts(path)) == offset // size
    for end in range(len(data)):
        path.write_bytes(data[:end])
        assert len(read_conflicts(path)) == end // size


def test_a_damaged_file_is_put_aside_whole(path: Path) -> None:
    for number in (1, 2):
        Conflicts(path).keep([conflict(1), conflict(2)])
        torn = path.read_bytes()[:-1]
        path.write_bytes(torn)
        assert Conflicts(path).kept == 0
        assert path.with_name(f"conflicts.damaged-{number}").read_bytes() == torn
    Conflicts(path).keep([conflict(3)])
    assert read_conflicts(path) == [conflict(3)]


def test_a_record_of_a_version_to_come_ends_the_reading(path: Path) -> None:
    data = encode(conflict(1))
    magic, _, length, crc = HEAD.unpack_from(data)
    path.write_bytes(data + HEAD.pack(magic, 2, length, crc) + data[HEAD.size :])
    assert read_conflicts(path) == [conflict(1)]


def test_a_disk_that_fails_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Conflicts(path, max_bytes=2 * len(encode(conflict(1))))
    file.keep([conflict(1)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _full)
        file.keep([conflict(2)])
    assert (file.kept, "No space" in file.failed) == (1, True)
    assert read_conflicts(path) == [conflict(1)]
    file.keep([conflict(3)])
    assert (file.kept, file.failed) == (2, "")
    assert [one.seq for one in read_conflicts(path)] == [1, 3]


def _full(_fd: int) -> None:
    raise OSError(28, "No space left on device")
