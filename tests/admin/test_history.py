"""zbroker/admin/history.py: what was done is known after a restart, and the file stays small."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from msgspec.structs import replace

from zbroker.admin import history as h
from zbroker.admin.history import History, HistoryEntry, JobProgress

LOG = logging.getLogger("test")


def entry(number: int, result: str = "done") -> HistoryEntry:
    return HistoryEntry(number, "20260101T000000Z", "archive", "policy", "old", [number], 7, result)


def opened(tmp_path: Path) -> History:
    return History(tmp_path / "actions", LOG)


def test_what_was_done_is_known_after_a_restart(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(entry(1))
    first.add(replace(entry(2, "failed"), reason="no space", took_s=1.5))
    again = opened(tmp_path)
    assert again.newest() == first.newest()
    assert [found.id for found in again.newest()] == [2, 1]
    assert again.new(entry(0)).id == 3


def test_the_later_line_of_an_action_counts(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(entry(1, "running"))
    first.add(entry(1, "done"))
    found = opened(tmp_path).get(1)
    assert found is not None
    assert found.result == "done"


def test_what_was_under_way_is_known_as_interrupted(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(entry(1, "done"))
    first.add(entry(2, "running"))
    first.add(entry(3, "queued"))
    assert [found.id for found in opened(tmp_path).interrupted()] == [2, 3]


def test_progress_is_reported_and_not_written(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add(entry(1, "running"))
    size = (tmp_path / "actions").stat().st_size
    first.progress(1, 3, 7)
    found = first.get(1)
    assert found is not None
    assert found.progress == JobProgress(3, 7)
    assert (tmp_path / "actions").stat().st_size == size


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_that_was_cut_off_costs_only_itself(tmp_path: Path, cut: int) -> None:
    first = opened(tmp_path)
    first.add(entry(1))
    first.add(entry(2))
    path = tmp_path / "actions"
    path.write_bytes(path.read_bytes()[:-cut])
    again = opened(tmp_path)
    assert again.get(1) is not None
    again.add(entry(5))
    assert opened(tmp_path).get(5) is not None


def test_a_line_of_another_kind_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "actions").write_bytes(b'{"id": "x"}\n\xff\xff\n[]\n')
    assert opened(tmp_path).newest() == []
    assert opened(tmp_path).new(entry(0)).id == 1


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(h, "FILE_MAX_BYTES", 4_000)
    first = opened(tmp_path)
    for number in range(1, 101):
        first.add(entry(number))
        assert (tmp_path / "actions").stat().st_size <= 4_000
    again = opened(tmp_path)
    assert again.new(entry(0)).id == 101
    assert 10 < len(again.newest()) < 40


def test_what_is_under_way_survives_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(h, "FILE_MAX_BYTES", 1_000)
    monkeypatch.setattr(h, "ENTRIES_MAX", 3)
    first = opened(tmp_path)
    first.add(entry(1, "running"))
    for number in range(2, 60):
        first.add(entry(number))
    assert [found.id for found in opened(tmp_path).interrupted()] == [1]
    assert len(first.newest()) == 3


def test_a_history_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = History(tmp_path / "missing" / "actions", LOG)
    first.add(entry(1))
    first.add(entry(2))
    assert [found.id for found in first.newest()] == [2, 1]
    assert len([r for r in caplog.records if "history" in r.message]) == 1


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    opened(tmp_path).add(entry(1))
    assert (tmp_path / "actions").stat().st_mode & 0o777 == 0o600


def test_a_line_of_a_newer_version_is_left_out() -> None:
    line = h.encode(entry(1))
    assert h.decode(line) == entry(1)
    assert h.decode(line.replace(b'"v":1', b'"v":2')) is None
