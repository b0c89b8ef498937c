"""What a data directory knows of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbroker import known_log
from zbroker.ids import Origin

HERE = Origin(0xABCD, 7)


def test_what_was_written_is_known(tmp_path: Path) -> None:
    known_log.write(tmp_path, HERE, 100)
    known_log.write(tmp_path, HERE, 200)
    assert known_log.read(tmp_path, HERE.instance) == (7, 200)
    assert [path.name for path in tmp_path.iterdir()] == [known_log.NAME]


def test_nothing_is_known_where_nothing_was_written(tmp_path: Path) -> None:
    assert known_log.read(tmp_path, HERE.instance) is None
    assert known_log.read(tmp_path / "nowhere", HERE.instance) is None


def test_what_is_known_of_another_instance_does_not_count(tmp_path: Path) -> None:
    known_log.write(tmp_path, HERE, 100)
    assert known_log.read(tmp_path, HERE.instance + 1) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b'{"version": 1, "instance": "abcd", "generation": "x"}',
     b'{"version": 2, "instance": "abcd", "generation": 1, "position": 5}'],
)  # fmt: skip
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / known_log.NAME).write_bytes(content)
    assert known_log.read(tmp_path, HERE.instance) is None
