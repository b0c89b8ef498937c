"""`zbroker-admin journal remove` keeps the rules, with an instance and without one."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journal.test_archive import ROWS, names
from tests.cli.journals import INSTANCE, Maker, admin, run, segments
from zbroker.limits import MIB
from zbroker.log import segments as files
from zbroker.log.disk import RealDisk
from zbroker.log.reader import Log
from zbroker.log.recovery import recover


def removed(maker: Maker, *arguments: str) -> dict:
    result = run(maker, "remove", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.seed("004-96")
def test_the_oldest_go_and_the_rest_can_be_started_on(maker: Maker) -> None:
    segments(maker, 5)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    assert run(maker, "compress", "--through", "2").exit_code == 0
    reported = removed(maker, "--through", "3")
    assert reported["serials"] == [1, 2, 3]
    assert names(maker.directory) == ["0000000004.journal", "0000000005.journal"]
    assert names(maker.directory.parent / "archive") == []
    assert not list(maker.directory.glob("*.idx"))
    disk = RealDisk(maker.directory)
    found = recover(disk, INSTANCE, segment_bytes=MIB)
    disk.close()
    assert found.log_start == reported["floor"] > 1
    assert (found.oldest, found.findings) == (4, [])


def test_both_slots_of_the_note_say_it_before_a_file_goes(
    maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(maker, 4)
    seen: list[set[int]] = []
    real = RealDisk.unlink

    def unlink(self: RealDisk, name: str) -> None:
        if name.endswith(".journal"):
            slots = [
                files.decode_note(self.read(files.NOTE_FILE, at, 64)) for at in files.NOTE_SLOTS
            ]
            seen.append({slot.oldest for slot in slots})
        real(self, name)

    monkeypatch.setattr(RealDisk, "unlink", unlink)
    removed(maker, "--through", "2")
    assert seen == [{3}, {3}]


def test_without_a_snapshot_after_it_nothing_goes(maker: Maker) -> None:
    segments(maker, 3, states=False)
    result = run(maker, "remove", "--through", "1")
    assert result.exit_code == 1
    assert "no complete state snapshot is after segment 1" in result.stderr
    assert len(names(maker.directory)) == 3


def test_the_open_one_stays(maker: Maker) -> None:
    segments(maker, 3)
    result = run(maker, "remove", "--through", "3", "--json")
    assert json.loads(result.stdout)["serials"] == [1, 2]
    assert result.exit_code == 1
    assert "segment 3 is the open one" in result.stderr


def test_a_dry_run_says_what_would_go_and_what_not(maker: Maker) -> None:
    segments(maker, 3)
    result = run(maker, "remove", "--through", "3", "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[1] for line in lines[:-1]] == ["what=remove", "what=remove", "what=keep"]
    assert lines[-1] == "remove: 2 segments: dry run"
    assert len(names(maker.directory)) == 3


def test_an_archive_that_is_not_mounted_stops_it(maker: Maker) -> None:
    segments(maker, 4)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    archive = maker.directory.parent / "archive"
    archive.rename(archive.with_name("elsewhere"))
    result = run(maker, "remove", "--through", "2")
    assert result.exit_code == 74
    assert "mounted" in result.stderr
    assert len(names(maker.directory)) == 3


def test_what_was_removed_is_in_the_history(maker: Maker) -> None:
    segments(maker, 3)
    removed(maker, "--through", "1")
    result = admin(maker.directory.parent, "--json", "action", "ls")
    [action] = json.loads(result.stdout)["actions"]
    assert (action["action"], action["serials"], action["by"]) == ("remove", [1], "hand")


def test_readers_see_the_log_start(maker: Maker) -> None:
    segments(maker, 4)
    reported = removed(maker, "--through", "2")
    log = Log(maker.directory)
    assert log.first_position == reported["floor"]
    assert list(log.missing) == []
    log.close()


# -- with an instance -------------------------------------------------------------------------


def test_a_running_instance_does_it(fake: FakeAdmin) -> None:
    fake.answers["GET /journal"] = {"segments": ROWS}
    fake.answers["POST /journal/remove"] = {
        "id": 3, "serials": [1], "floor": 11, "blocked": "", "held_by": [],
    }  # fmt: skip
    fake.answers["GET /actions/3"] = {
        "id": 3, "action": "remove", "result": "done", "reason": "", "bytes": 5, "took_s": 0.1,
    }  # fmt: skip
    result = admin(fake.data, "--json", "journal", "remove", "--before", "20260101T120000Z")
    assert result.exit_code == 0, result.output
    assert fake.reported == [("/journal/remove", {"through": 1, "dry_run": False})]
    reported = json.loads(result.stdout)
    assert (reported["serials"], reported["result"], reported["floor"]) == ([1], "done", 11)


def test_who_holds_it_back_is_named(fake: FakeAdmin) -> None:
    fake.answers["GET /journal"] = {"segments": ROWS}
    held_by = [{"who": "pricer", "what": "replay of orders", "position": 5, "since": "x"}]
    fake.answers["POST /journal/remove"] = {
        "id": None, "serials": [], "floor": 1, "blocked": "segment 1 is still needed",
        "held_by": held_by,
    }  # fmt: skip
    result = admin(fake.data, "journal", "remove", "--through", "1")
    assert result.exit_code == 1
    assert "segment 1 is still needed: pricer (replay of orders) from position 5" in result.stderr
    assert "journal holders" in result.stderr
