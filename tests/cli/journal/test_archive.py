"""`zbroker-admin journal archive`, and what archive and compress have in common."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker, admin, run, segments
from zbroker.cli.journal import admin_actions
from zbroker.log.disk import RealDisk
from zbroker.log.reader import Log

ROWS = [
    {"serial": 1, "open": False, "last_time": "20260101T000000Z"},
    {"serial": 2, "open": False, "last_time": "20260102T000000Z"},
    {"serial": 3, "open": False, "last_time": None},
    {"serial": 4, "open": True, "last_time": "20260103T000000Z"},
]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_actions, "POLL_S", 0.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.journal*")) if folder.is_dir() else []


def messages(maker: Maker) -> list[bytes]:
    log = Log(maker.directory, maker.directory.parent / "archive")
    items, _ = log.read(log.seek(1), log.end(), 1 << 30)
    log.close()
    return [bytes(item.body) for item in items]


# -- without an instance ----------------------------------------------------------------------


def test_archived_segments_stay_part_of_the_log(maker: Maker) -> None:
    segments(maker, 4)
    before = messages(maker)
    result = run(maker, "archive", "--through", "2", "--json")
    assert result.exit_code == 0, result.output
    reported = json.loads(result.stdout)
    assert [row["serial"] for row in reported["serials"]] == [1, 2]
    assert (reported["result"], reported["id"]) == ("done", 1)
    assert names(maker.directory.parent / "archive") == ["0000000001.journal", "0000000002.journal"]
    assert names(maker.directory) == ["0000000003.journal", "0000000004.journal"]
    assert messages(maker) == before


@pytest.mark.parametrize("command", ["archive", "compress", "remove"])
def test_an_archive_directory_that_is_the_journal_directory_is_refused(
    maker: Maker, command: str
) -> None:
    segments(maker, 4)
    (maker.directory.parent / "archive").symlink_to("journal")
    result = run(maker, command, "--through", "2")
    assert result.exit_code == 78
    assert "is the journal directory itself" in result.stderr
    assert len(names(maker.directory)) == 4


@pytest.mark.parametrize("command", ["archive", "compress", "remove"])
def test_the_archive_directory_of_another_instance_is_refused(maker: Maker, command: str) -> None:
    segments(maker, 4)
    away = maker.directory.parent / "archive"
    away.mkdir()
    (away / "owner").write_text('{"version": 1, "instance": "00000000000000aa"}')
    result = run(maker, command, "--through", "2")
    assert result.exit_code == 74
    assert "belongs to instance 00000000000000aa" in result.stderr
    assert len(names(maker.directory)) == 4


def test_a_dry_run_changes_nothing(maker: Maker) -> None:
    segments(maker, 3)
    result = run(maker, "archive", "--all-sealed", "--dry-run")
    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["serial=1", "what=archive"], ["serial=2", "what=archive"], ["archive:", "2"],
    ]  # fmt: skip
    assert len(names(maker.directory)) == 3
    assert not (maker.directory.parent / "archive").exists()
    assert not (maker.directory.parent / "actions").exists()


def test_the_open_segment_is_left_out(maker: Maker) -> None:
    segments(maker, 2)
    reported = json.loads(run(maker, "archive", "--through", "2", "--json").stdout)
    assert [row["serial"] for row in reported["serials"]] == [1]
    assert [row["serial"] for row in reported["skipped"]] == [2]


def test_only_segments_that_are_old_enough(maker: Maker) -> None:
    segments(maker, 4)
    times = json.loads(run(maker, "ls", "--json").stdout)["segments"]
    before = times[1]["last_time"]  # the second one's last message is not older than this
    reported = json.loads(run(maker, "archive", "--before", before, "--json").stdout)
    assert [row["serial"] for row in reported["serials"]] == [1]


def test_what_was_interrupted_is_finished(maker: Maker) -> None:
    """A crash left two copies of one segment and an unfinished file."""
    segments(maker, 3)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    archive = maker.directory.parent / "archive"
    raw = archive / "0000000001.journal"
    (maker.directory / raw.name).write_bytes(raw.read_bytes())
    (archive / "0000000002.journal.part").write_bytes(b"half")
    before = messages(maker)
    reported = json.loads(run(maker, "compress", "--through", "1", "--json").stdout)
    assert reported["result"] == "done"
    assert names(archive) == ["0000000001.journal.zst"]
    assert names(maker.directory) == ["0000000002.journal", "0000000003.journal"]
    assert messages(maker) == before


def test_a_running_instance_is_not_worked_around(maker: Maker) -> None:
    segments(maker, 3)
    owner = RealDisk(maker.directory)
    owner.lock()
    result = run(maker, "archive", "--all-sealed")
    owner.close()
    assert result.exit_code == 74
    assert "second_writer" in result.stderr
    assert "process" in result.stderr
    assert len(names(maker.directory)) == 3


@pytest.mark.parametrize(
    "arguments",
    [(), ("--through", "1", "--all-sealed"), ("--before", "soon"), ("--through", "0")],
)
def test_a_selection_that_is_none_is_a_usage_error(maker: Maker, arguments) -> None:
    segments(maker, 2)
    assert run(maker, "archive", *arguments).exit_code == 2


def test_a_serial_that_is_not_there_is_not_found(maker: Maker) -> None:
    segments(maker, 2)
    result = run(maker, "archive", "--through", "9")
    assert result.exit_code == 3
    assert "there are 1 to 2" in result.stderr


# -- with one ---------------------------------------------------------------------------------


def asked(fake: FakeAdmin, *arguments: str) -> dict:
    result = admin(fake.data, "--json", "journal", "archive", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def planning(fake: FakeAdmin) -> FakeAdmin:
    fake.answers["GET /journal"] = {"segments": ROWS}
    planned = [{"serial": 1, "bytes": 9, "why": "by hand"}]
    fake.answers["POST /journal/archive"] = lambda body: {
        "id": None if body["dry_run"] else 7, "serials": planned, "skipped": [],
    }  # fmt: skip
    states = iter(["queued", "running", "done", "done"])
    fake.answers["GET /actions/7"] = lambda _: {
        "id": 7, "action": "archive", "result": next(states), "reason": "", "bytes": 9,
        "took_s": 0.5, "progress": {"done": 4, "total": 9},
    }  # fmt: skip
    return fake


@pytest.mark.parametrize(
    ("arguments", "through"),
    [
        (("--through", "2"), 2),
        (("--all-sealed",), 3),
        (("--before", "20260101T120000Z"), 1),
        (("--before", "20260601T000000Z"), 2),  # of the third one no one knows
    ],
)
def test_the_admin_learns_up_to_which_segment(planning: FakeAdmin, arguments, through) -> None:
    reported = asked(planning, *arguments)
    assert planning.reported == [("/journal/archive", {"through": through, "dry_run": False})]
    assert (reported["result"], reported["id"], reported["took_s"]) == ("done", 7, 0.5)


def test_nothing_is_asked_for_if_no_segment_is_old_enough(planning: FakeAdmin) -> None:
    reported = asked(planning, "--before", "20250101T000000Z")
    assert reported["result"] == "nothing to do"
    assert planning.reported == []


def test_a_dry_run_is_the_admins_plan(planning: FakeAdmin) -> None:
    reported = asked(planning, "--through", "1", "--dry-run")
    assert planning.reported == [("/journal/archive", {"through": 1, "dry_run": True})]
    assert reported["result"] == "dry run"


def test_no_one_has_to_wait(planning: FakeAdmin) -> None:
    assert asked(planning, "--through", "1", "--no-wait")["result"] == "queued"
    result = admin(planning.data, "journal", "archive", "--through", "1", "--no-wait")
    assert "action show 7" in result.stdout


def test_a_failed_action_is_an_error(planning: FakeAdmin) -> None:
    planning.answers["GET /actions/7"] = {
        "id": 7, "action": "archive", "result": "failed", "reason": "disk_full: no space",
        "bytes": 9, "took_s": 0.5,
    }  # fmt: skip
    result = admin(planning.data, "journal", "archive", "--through", "1")
    assert result.exit_code == 1
    assert "disk_full: no space" in result.stderr


def test_a_refusal_is_reported_in_the_admins_words(planning: FakeAdmin) -> None:
    planning.answers["POST /journal/archive"] = (
        429, {"code": "too_many", "reason": "17 wait already", "hint": "later"},
    )  # fmt: skip
    result = admin(planning.data, "journal", "archive", "--through", "1")
    assert result.exit_code == 1
    assert result.stderr == "zbroker-admin journal: too_many: 17 wait already (later)\n"


def test_without_the_token_nothing_is_changed(planning: FakeAdmin) -> None:
    (planning.data / "run" / "admin.token").unlink()
    result = admin(planning.data, "journal", "archive", "--through", "1")
    assert result.exit_code == 3
    assert "admin.token is not there" in result.stderr
    assert planning.reported == []


def test_another_instance_on_the_port_of_a_dead_one_is_not_asked(
    maker: Maker, fake: FakeAdmin
) -> None:
    segments(maker, 3)
    fake.answers["GET /status"] = {"state": "ready", "data_dir": "/elsewhere"}
    assert run(maker, "archive", "--through", "1").exit_code == 0
    assert fake.reported == []
    assert names(maker.directory.parent / "archive") == ["0000000001.journal"]
