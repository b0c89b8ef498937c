"""Entries of removed segments go, a bounded number at a time; what is kept is found as before."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bookmarks.checking import KIB, Checker, add_all, entries_in
from tests.bookmarks.logs import INSTANCE, FakeLog
from zbroker.bookmarks import keys, stored
from zbroker.bookmarks.index import Index
from zbroker.bookmarks.keys import Hint
from zbroker.bookmarks.stored import IndexTail, Sweep, TailEntries


def long_log() -> FakeLog:
    """Five segments of forty blocks with three publishers."""
    log = FakeLog()
    for _ in range(5):
        for number in range(120):
            log.publish(1 + number % 3, size=60 * KIB)
        log.roll_over()
    return log


def log_start_of(log: FakeLog, serial: int) -> int:
    return next(batch.position for batch, found in log.entries if found == serial)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


def full(path: Path, log: FakeLog) -> Index:
    index = Index(path, INSTANCE)
    add_all(index, log)
    index.commit(index.take())
    return index


def sweep_all(index: Index, commits: int = 1_000) -> int:
    """Commits until nothing is left to take out; how many that took."""
    for number in range(commits):
        if not index.forgetting:
            return number
        index.commit(index.take())
        assert index.failed == ""
    raise AssertionError("it does not end")


def test_nothing_of_removed_segments_stays(path: Path):
    log = long_log()
    index = full(path, log)
    log_start = log_start_of(log, 4)
    index.forget_before(log_start)
    sweep_all(index)
    Checker(log, index, log_start).check()
    index.close()
    anew = path.with_name("anew")
    kept = [entry for entry in log.entries if entry[0].position >= log_start]
    full(anew, FakeLog(kept)).close()
    assert entries_in(path) == entries_in(anew)


def test_each_commit_takes_out_a_bounded_number(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sweep.step, "__defaults__", (50,))
    log = long_log()
    index = full(path, log)
    index.forget_before(log_start_of(log, 4))
    before, sizes = len(_open_entries(index)), []
    while index.forgetting:
        index.commit(index.take())
        sizes.append(before - len(_open_entries(index)))
        before -= sizes[-1]
        Checker(log, index, log_start_of(log, 4)).check()
    index.close()
    assert max(sizes) <= 50
    assert len(sizes) >= 3 * 120 * 3 // 50


def _open_entries(index: Index) -> list[bytes]:
    stored = index._stored
    assert stored is not None
    with stored._env.begin() as txn:
        return [bytes(key) for key, _ in txn.cursor()]


def test_look_ups_are_right_before_anything_was_taken_out(path: Path):
    log = long_log()
    index = full(path, log)
    log_start = log_start_of(log, 3)
    index.forget_before(log_start)
    Checker(log, index, log_start).check()
    assert index.before_time(0) is None  # the log is read from its beginning
    index.close()


def test_what_a_process_left_goes_with_the_next_one(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sweep.step, "__defaults__", (50,))
    log = long_log()
    index = full(path, log)
    index.forget_before(log_start_of(log, 4))
    index.commit(index.take())
    index.close()
    again = Index(path, INSTANCE)
    assert not again.forgetting
    again.forget_before(log_start_of(log, 4))
    assert sweep_all(again) > 1
    again.close()
    assert min(position for _, position in entries_in(path)) == log_start_of(log, 4)


def test_a_log_start_never_sinks(path: Path):
    log = long_log()
    index = full(path, log)
    index.forget_before(log_start_of(log, 4))
    index.forget_before(log_start_of(log, 2))
    sweep_all(index)
    Checker(log, index, log_start_of(log, 4)).check()
    index.close()


def test_a_rising_log_start_begins_the_sweep_again(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sweep.step, "__defaults__", (50,))
    log = long_log()
    index = full(path, log)
    for serial in (2, 3, 4, 5):
        index.forget_before(log_start_of(log, serial))
        index.commit(index.take())
    sweep_all(index)
    index.close()
    assert min(position for _, position in entries_in(path)) == log_start_of(log, 5)


def test_entries_that_were_added_while_it_sweeps_stay(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Sweep.step, "__defaults__", (50,))
    log = long_log()
    index = full(path, log)
    index.forget_before(log_start_of(log, 4))
    while index.forgetting:
        log.publish(4, size=60 * KIB)
        index.add(*log.entries[-1])
        index.commit(index.take())
    Checker(log, index, log_start_of(log, 4)).check()
    index.close()


def test_an_old_place_after_a_late_one_stays_until_that_goes_too(path: Path):
    log = FakeLog()
    log.publish(1, size=60 * KIB)
    log.publish(1, size=60 * KIB, hole=3)
    log.roll_over()
    log.publish_late(1)
    log.publish(1, size=60 * KIB)
    log.roll_over()
    log.publish(1, size=60 * KIB)
    index = full(path, log)
    for serial in (2, 3):
        log_start = log_start_of(log, serial)
        index.forget_before(log_start)
        sweep_all(index)
        Checker(log, index, log_start).check()
    index.close()
    assert min(position for _, position in entries_in(path)) == log_start_of(log, 3)


def test_the_highest_publisher_id_is_the_last_line_of_runs(path: Path):
    log = FakeLog()
    for _ in range(2):
        log.publish((1 << 64) - 1, size=60 * KIB)
        log.roll_over()
    index = full(path, log)
    index.forget_before(log_start_of(log, 2))
    sweep_all(index)
    index.close()
    assert {position for _, position in entries_in(path)} == {log_start_of(log, 2)}


def test_damage_that_it_meets_is_remembered(path: Path):
    log = long_log()
    full(path, log).close()
    with lmdb.open(str(path)) as env, env.begin(write=True) as txn:
        key = keys.position_key(log_start_of(log, 2))
        txn.put(key, bytes([*bytes(txn.get(key))[:-1], 0]))
    index = Index(path, INSTANCE)
    index.forget_before(log_start_of(log, 4))
    index.commit(index.take())
    assert index.damaged
    assert "checksum" in index.failed
    assert not index.forgetting
    assert index.at_or_before(log_start_of(log, 4)) is None
    index.close()


def test_an_index_that_has_no_files_forgets_nothing(tmp_path: Path):
    (tmp_path / "file").write_text("")
    index = Index(tmp_path / "file" / "index", INSTANCE)
    assert index.failed
    index.forget_before(5)
    assert not index.forgetting
    index.close()


def test_one_transaction_has_space_for_all_its_steps():
    assert stored.COST_BYTES >= stored.STEPS * 4_096


PUTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)))


def _hint(position: int) -> Hint:
    return Hint(1, 8 * position, position)


@given(PUTS, st.integers(-1, 51))
def test_a_line_is_a_sorted_map(puts: list[tuple[int, int]], wanted: int):
    line, model = TailEntries(), {}
    for key, position in puts:
        line.put(key, _hint(position))
        model[key] = _hint(position)
    assert list(line.items()) == sorted(model.items())
    assert line.last == max(model, default=None)
    below = [key for key in model if key <= wanted]
    expected = (max(below), model[max(below)]) if below else None
    assert line.at_or_before(wanted) == expected


@given(PUTS, st.integers(0, 1_000))
def test_a_line_forgets_by_position_not_by_key(puts: list[tuple[int, int]], position: int):
    line = TailEntries()
    for key, at in puts:
        line.put(key, _hint(at))
    expected = [(key, hint) for key, hint in line.items() if hint.position < position]
    line.forget_after(position)
    assert list(line.items()) == expected


@given(PUTS, PUTS, PUTS)
def test_encoded_entries_come_in_the_order_of_lmdb(ones, twos, threes):
    tail = IndexTail()
    for key, at in ones:
        tail.positions.put(key, _hint(at))
    for key, at in twos:
        tail.runs.setdefault(at % 3, TailEntries()).put(key, _hint(at))
    for key, at in threes:
        tail.times.put(key, _hint(at))
    entries = list(tail.encoded())
    assert [key for key, _ in entries] == sorted({key for key, _ in entries})
    assert len(entries) == len(tail)
    assert all(isinstance(keys.decode_place(key, value), Hint) for key, value in entries)
