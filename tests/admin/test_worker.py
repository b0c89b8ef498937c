"""zbroker/admin/worker.py: what is due is done, what fails rests, what was cut off is finished."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.admin.rig import Rig
from tests.log.build import finish
from zbroker.admin import jobs, worker
from zbroker.admin.requests import RemovalQuery
from zbroker.errors import ClientError
from zbroker.log import archive
from zbroker.wire import internal as m

LIMIT_S = 20.0


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PACE_BYTES_S", 1 << 40)


def test_without_settings_nothing_is_touched(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.turns()
    assert rig.files() == {1: ["j"], 2: ["j"], 3: ["j"], 4: ["j"], 5: ["j"]}
    assert rig.results() == []


def test_what_is_old_is_archived_compressed_and_stays_readable(tmp_path: Path) -> None:
    rig = Rig(tmp_path, archive_after=1_000, compress_after=1_000)
    before = rig.readable()
    rig.turns()
    assert rig.files() == {1: ["A"], 2: ["A"], 3: ["A"], 4: ["A"], 5: ["j"]}
    assert rig.readable() == before
    assert rig.results()[0] == ("archive", [1], "done")
    assert [action for action, _, _ in rig.results()].count("compress") == 4
    why = rig.history.newest()[0].why
    assert why.endswith("old, compress_after is 1 s")


def test_the_thread_does_the_same(tmp_path: Path) -> None:
    rig = Rig(tmp_path, compress_after=1_000)
    done = threading.Event()
    add = rig.history.add
    rig.history.add = lambda entry: (add(entry), entry.ended and done.set())  # type: ignore[assignment, method-assign, return-value]
    rig.worker.start()
    try:
        assert done.wait(LIMIT_S)
    finally:
        rig.worker.stop()
    assert rig.files()[1] == ["J"]


def test_a_removal_runs_until_the_files_are_gone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, remove_after=1_000)
    rig.turns()
    assert rig.results() == [("remove", [1, 2, 3, 4], "running")]
    rig.clock.seconds += 1
    rig.turns()
    assert rig.results() == [("remove", [1, 2, 3, 4], "running")]
    rig.journal.unlink()
    rig.clock.seconds += 1
    rig.turns()
    assert rig.results() == [("remove", [1, 2, 3, 4], "done")]
    assert rig.files() == {5: ["j"]}


def test_a_removal_passes_the_share_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path, remove_after=1_000, remove_share_max=50)
    rig.turns()
    removes = [ask for ask in rig.journal.asked if isinstance(ask, m.Remove)]
    assert [(ask.through, ask.share_max, ask.dry_run) for ask in removes] == [(2, 50, False)]


def test_a_removal_that_was_under_way_is_followed_after_a_restart(tmp_path: Path) -> None:
    first = Rig(tmp_path, remove_after=1_000)
    first.turns()
    again = Rig(tmp_path)
    again.worker.begin()
    first.journal.unlink()
    again.turns()
    assert again.results() == [("remove", [1, 2, 3, 4], "done")]


@pytest.mark.parametrize("stop_at", [1, 5, 20])
@pytest.mark.parametrize(("setting", "half"), [("archive_after", "a"), ("compress_after", "J")])
def test_what_a_kill_cut_off_is_undone_and_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int, setting: str, half: str
) -> None:
    rig = Rig(tmp_path, segments=1, **{setting: 1_000})
    make = archive.copy if setting == "archive_after" else archive.pack
    with closing(rig.places()) as places:
        steps = make(places, 1)
        for _ in range(min(stop_at, 2)):
            next(steps)
        parts = [path.name for path in tmp_path.glob("*/*.part")]
        assert len(parts) == 1
        monkeypatch.setattr(archive, "discard", lambda *_: None)  # a kill cleans nothing up
        steps.close()
        monkeypatch.undo()
    assert list(tmp_path.glob("*/*.part"))
    rig.worker.begin()
    assert not list(tmp_path.glob("*/*.part"))
    rig.turns()
    assert rig.files()[1] == [half]
    assert rig.results()[0][::2] == ("tidy", "done")


@pytest.mark.parametrize(("make", "kept"), [(archive.copy, "a"), (archive.pack, "J")])
def test_two_whole_copies_are_finished_without_any_setting(
    tmp_path: Path, make: Callable[..., archive.Steps], kept: str
) -> None:
    rig = Rig(tmp_path)
    with closing(rig.places()) as places:
        finish(make(places, 2))
    assert len(rig.files()[2]) == 2
    rig.turns()
    assert rig.files()[2] == [kept]
    assert "interrupted" in rig.history.newest()[0].why
    assert len(rig.results()) == 1


def test_a_request_is_done_before_the_policy(tmp_path: Path) -> None:
    rig = Rig(tmp_path, compress_after=1_000)
    number = rig.worker.submit("archive", [3, 4], 2 << 20, "asked for by hand")
    rig.turns()
    assert rig.results()[0] == ("archive", [3, 4], "done")
    entry = rig.history.get(number)
    assert entry is not None
    assert (entry.by, entry.progress.done) == ("hand", entry.progress.total)


def test_requests_are_bounded(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(worker.HAND_MAX):
        rig.worker.submit("archive", [1], 1, "by hand")
    with pytest.raises(ClientError, match="too_many"):
        rig.worker.submit("archive", [1], 1, "by hand")


def test_a_request_that_waited_at_a_restart_is_reported_as_failed(tmp_path: Path) -> None:
    Rig(tmp_path).worker.submit("archive", [1], 1, "by hand")
    again = Rig(tmp_path)
    again.worker.begin()
    assert again.results() == [("archive", [1], "failed")]
    assert "ended" in again.history.newest()[0].reason


def test_one_segment_that_fails_does_not_keep_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.submit("compress", [1, 5, 2], 3 << 20, "by hand")
    rig.turns()
    assert (rig.files()[1], rig.files()[2], rig.files()[5]) == (["J"], ["J"], ["j"])
    entry = rig.history.newest()[0]
    assert entry.result == "failed"
    assert entry.reason.startswith("segment 5: ")


def test_what_is_worked_on_is_not_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.submit("compress", [3], 1 << 20, "by hand")
    made, removal = rig.worker.remove(rig.worker.entry("remove", "hand", ""), RemovalQuery(4), 100)
    assert made is not None
    assert (made.serials, removal.blocked) == ([1, 2], "segment 3 is being worked on")


def test_what_is_removed_is_not_worked_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.remove(rig.worker.entry("remove", "hand", ""), RemovalQuery(2), 100)
    rig.worker.submit("archive", [2, 3], 2 << 20, "by hand")
    rig.turns()
    assert rig.files()[2] == ["j"]
    assert rig.files()[3] == ["a"]
    entry = rig.history.newest()[0]
    assert entry.reason == "segment 2: it is being removed"


def test_a_dry_run_gives_nothing_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.remove(rig.worker.entry("remove", "hand", ""), RemovalQuery(2, dry_run=True), 100)
    rig.worker.submit("archive", [2], 1 << 20, "by hand")
    rig.turns()
    assert rig.files()[2] == ["a"]


def test_a_log_without_summaries_is_planned_for_before_all_of_them_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SUMMARIES_MAX_S", -1.0)
    rig = Rig(tmp_path, max_bytes=1)
    rig.turns()
    assert rig.results() == [("remove", [1, 2, 3, 4], "running")]


def test_what_fails_rests_is_reported_and_is_tried_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segments=1, compress_after=1_000, every=10_000)
    rig.journal.refuse[m.Retire] = ("internal", "not now")
    rig.turns()
    assert rig.results() == [("compress", [1], "failed")]
    assert [failure.reason for failure in rig.worker.failures] == ["not now"]
    rig.clock.seconds += 10
    rig.turns()
    assert len(rig.results()) == 1, "it rests"
    rig.journal.refuse.clear()
    rig.clock.seconds += 11
    rig.turns()
    assert rig.files()[1] == ["J"]
    assert rig.worker.failures == ()


def test_without_the_journal_nothing_is_decided(tmp_path: Path) -> None:
    rig = Rig(tmp_path, compress_after=1_000)
    welcome, rig.journal.welcome = rig.journal.welcome, None
    rig.turns()
    assert rig.results() == []
    rig.journal.welcome = welcome
    rig.clock.seconds += 1
    rig.turns()
    assert rig.files()[1] == ["J"]


def test_a_full_disk_refuses_before_anything_is_written(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segments=1)
    small = jobs.Jobs(rig.paths, rig.tools.link, threading.Event(), 1 << 60)
    for action in ("archive", "compress"):
        with pytest.raises(Exception, match="disk_full"):
            small.rewrite(action, 1, lambda _: None)  # type: ignore[arg-type]
    assert rig.files()[1] == ["j"]
    assert not list(tmp_path.glob("*/*.part"))


def test_a_refusal_for_space_is_called_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, segments=1, compress_after=1_000)
    monkeypatch.setattr(jobs.Jobs, "_keep_free", lambda *_: 1 << 60)
    rig.turns()
    assert rig.results() == [("compress", [1], "refused")]
    assert rig.worker.failures != ()


def test_a_stop_gives_up_what_is_under_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segments=1)
    rig.worker.stop()
    rig.worker.submit("archive", [1], 1 << 20, "by hand")
    rig.turns()
    assert rig.results() == [("archive", [1], "failed")]
    assert rig.files()[1] == ["j"]
    assert not list(tmp_path.glob("*/*.part"))


def test_who_holds_back_a_removal_is_known(tmp_path: Path) -> None:
    rig = Rig(tmp_path, remove_after=1_000)
    rig.journal.holders = m.Holders(
        0, 1, 1, 0, [m.Holding("reader", "replay", 1, 0)], stated=1 << 30
    )
    rig.turns()
    assert rig.results() == []
    assert rig.worker.blocked is not None
    assert rig.worker.blocked.why == "segments 1 to 4: needed by reader (replay)"


def test_a_queue_that_holds_back_a_removal_is_known(tmp_path: Path) -> None:
    rig = Rig(tmp_path, max_bytes=1)
    holdings = [m.Holding("reader", "replay", 1, 0), m.Holding("queues", "rare", 1, 0)]
    rig.journal.holders = m.Holders(0, 1, 1, 0, holdings, stated=1 << 30)
    rig.turns()
    assert rig.worker.blocked is not None
    assert rig.worker.blocked.queues == ("rare",)


def test_in_publisher_time_ages_go_by_the_newest_message(tmp_path: Path) -> None:
    rig = Rig(tmp_path, time="publisher")
    assert rig.worker.survey.ages(m.Holders(0, 1, 1, 777, [])) == 777


def test_a_clock_that_jumps_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    holders = m.Holders(0, 1, 1, 777, [])
    first = rig.worker.survey.ages(holders)
    wall = rig.clock.wall_ns() + 86_400 * 10**9
    rig.clock.wall_ns = lambda: wall  # type: ignore[method-assign]
    assert rig.worker.survey.ages(holders) == first
    assert rig.worker.survey.clock_behind_ms == 86_400_000


def test_a_new_index_is_followed_until_it_is_made(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.worker.reindex()
    rig.turns()
    assert rig.results() == [("reindex", [], "running")]
    rig.journal.indexed.set_result(m.Done(1))
    rig.clock.seconds += 1
    rig.turns()
    assert rig.results() == [("reindex", [], "done")]


def test_every_finished_action_has_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rig = Rig(tmp_path, segments=1, compress_after=1_000)
    rig.turns()
    [line] = [record.message for record in caplog.records if record.name == "test"]
    assert line.startswith("action 1: compress of segment 1 (policy: the last message is")
    assert ": done, " in line
