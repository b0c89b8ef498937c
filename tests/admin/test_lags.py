"""About when a position was placed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.admin.desk import Desk
from zbroker.admin.lags import LogTimes, Moment, between
from zbroker.log.reader import Gap, Log, first_time

SMALL = st.integers(0, 1_000)


@given(SMALL, SMALL, SMALL, SMALL, SMALL)
def test_an_estimate_stays_between_its_ends(
    position: int, low: int, low_ns: int, high: int, high_ns: int
) -> None:
    found = between(position, Moment(low, low_ns), Moment(high, high_ns))
    assert min(low_ns, max(low_ns, high_ns)) <= found <= max(low_ns, high_ns)


@given(st.lists(SMALL, min_size=2), SMALL, SMALL)
def test_what_stands_later_is_never_told_as_earlier(
    positions: list[int], low_ns: int, more_ns: int
) -> None:
    low, high = Moment(0, low_ns), Moment(1_000, low_ns + more_ns)
    found = [between(position, low, high) for position in sorted(positions)]
    assert found == sorted(found)


def test_the_ends_are_exact() -> None:
    low, high = Moment(10, 100), Moment(20, 300)
    assert [between(at, low, high) for at in (10, 15, 20)] == [100, 200, 300]


def times(log: Log, end: int) -> dict[int, int]:
    """The exact log time of the first message of every batch."""
    items = log.headers(log.seek(log.first_position), end)
    pairs = [item for item in items if not isinstance(item, Gap)]
    return {batch.position: first_time(batch) for batch, _ in pairs}


def test_an_estimate_is_off_by_a_segment_at_most(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    log = Log(desk.paths.journal, desk.paths.archive)
    exact = times(log, desk.end)
    starts = [start.position for start in log.starts]
    newest = Moment(desk.end, max(exact.values()))
    log_times = LogTimes(desk.paths.journal, desk.paths.archive)
    found = log_times.of(exact, newest)
    assert set(found) == set(exact)
    assert len(starts) > 3
    for position, ns in found.items():
        begin = max(start for start in starts if start <= position)
        end = min((start for start in starts if start > position), default=None)
        assert exact[begin] <= ns <= (exact[end] if end is not None else newest.ns)
    assert [found[start] for start in starts] == [exact[start] for start in starts]
    assert log_times.of(exact, newest) == found, "its files were closed and are opened again"
    log.close()


def test_what_is_not_in_the_log_has_no_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    log_times = LogTimes(desk.paths.journal, desk.paths.archive)
    assert log_times.of([0], Moment(desk.end, 1)) == {}
    nowhere = LogTimes(tmp_path / "none", tmp_path / "nothing")
    assert nowhere.of([5], Moment(9, 9)) == {}
