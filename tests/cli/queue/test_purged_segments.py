"""`queue purge --archive | --remove`: segments of the journal follow, if no one needs them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import run
from zbroker.cli.journal import admin_actions
from zbroker.cli.queue import purge as command

PURGE, REMOVE, ARCHIVE = "/queues/work/purge", "/journal/remove", "/journal/archive"
#: they end at 10, 20 and 30; the fourth one is open
ROWS = [
    {"serial": n, "open": n == 4, "end": None if n == 4 else 10 * n, "bytes": 5, "last_time": None}
    for n in (1, 2, 3, 4)
]


class Instance:
    """What an admin answers to a purge at `position` and to what follows; `held` in turn."""

    def __init__(self, fake: FakeAdmin) -> None:
        self.data, self.reported, self.position = fake.data, fake.reported, 25
        self.held: list[dict[str, Any]] = []
        fake.answers |= {
            "GET /journal": {"segments": ROWS},
            f"POST {PURGE}": self._purge,
            f"POST {REMOVE}": self._remove,
            f"POST {ARCHIVE}": lambda body: {
                "id": None if body["dry_run"] else 7, "skipped": [],
                "serials": [{"serial": 1, "bytes": 5, "why": "archive by hand"}],
            },
            "GET /actions/7": {
                "action": "any", "result": "done", "reason": "", "bytes": 5, "took_s": 0.1,
            },
        }  # fmt: skip

    def _purge(self, body: dict[str, Any]) -> dict[str, Any]:
        dry_run = bool(body.get("dry_run"))
        return {
            "queue": "work", "dry_run": dry_run, "count": 2, "text": "", "position": self.position,
        }  # fmt: skip

    def _remove(self, body: dict[str, Any]) -> dict[str, Any]:
        held = [self.held[0]] if self.held and "without" not in body else []
        if held and held[0]["what"] == "work":
            self.held.pop(0)
        serials = [] if held else list(range(1, body["through"] + 1))
        return {
            "id": 7 if serials and not body["dry_run"] else None, "serials": serials, "floor": 1,
            "blocked": "segment 1 is still needed" if held else "", "held_by": held,
        }  # fmt: skip

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.reported]


def holding(who: str, what: str) -> dict[str, Any]:
    return {"who": who, "what": what, "position": 5, "since": None}


@pytest.fixture
def instance(fake: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setattr(admin_actions, "POLL_S", 0.0)
    return Instance(fake)


def purge(instance: Instance, *options: str) -> Any:
    return run(instance.data, "purge", "work", "--point", "eod", *options)


def test_without_it_no_segment_is_touched(instance: Instance) -> None:
    assert purge(instance, "--yes").exit_code == 0
    assert instance.paths == [PURGE]


def test_whole_segments_before_the_place_are_removed_after_the_purge(instance: Instance) -> None:
    result = purge(instance, "--remove", "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert instance.paths[0] == PURGE
    assert instance.reported[-1] == (REMOVE, {"through": 2, "dry_run": False})
    reported = json.loads(result.stdout)
    assert (reported["count"], reported["journal"]["serials"]) == (2, [1, 2])
    assert reported["journal"]["result"] == "done"


def test_they_are_archived_likewise(instance: Instance) -> None:
    result = purge(instance, "--archive", "--yes")
    assert instance.reported[1:] == [(ARCHIVE, {"through": 2, "dry_run": False})]
    first, *_, last = result.stdout.splitlines()
    assert first == "work: 2 messages purged"
    assert last.startswith("archive: 1 segment, 5 B: done")


def test_the_segment_with_the_place_in_it_stays(instance: Instance) -> None:
    instance.position = 9
    result = purge(instance, "--remove", "--yes")
    assert instance.paths == [PURGE]
    assert result.stdout.splitlines()[-1] == "remove: 0 segments: nothing to do"


def test_a_dry_run_says_both_and_plans_without_the_queue_itself(instance: Instance) -> None:
    instance.held = [holding("queues", "work")]
    result = purge(instance, "--remove", "--dry-run")
    assert [body["dry_run"] for _, body in instance.reported] == [True, True]
    assert instance.reported[1][1] == {"through": 2, "dry_run": True, "without": "work"}
    first, *_, last = result.stdout.splitlines()
    assert first == "work: 2 messages would be purged (dry run)"
    assert last == "remove: 2 segments: dry run"


def test_nothing_is_removed_before_the_journal_heard_of_the_purge(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "POLL_S", 0.001)
    instance.held = [holding("queues", "work")] * 3
    assert purge(instance, "--remove", "--yes").exit_code == 0
    assert [body["dry_run"] for path, body in instance.reported if path == REMOVE] == [
        True, True, True, True, False,
    ]  # fmt: skip


def test_who_holds_a_segment_is_named_and_the_purge_stays_done(instance: Instance) -> None:
    instance.held = [holding("pricer", "orders")]
    result = purge(instance, "--remove", "--yes")
    assert result.exit_code == 1
    assert result.stdout.startswith("work: 2 messages purged")
    assert "pricer (orders) from position 5" in result.stderr


def test_a_queue_that_keeps_messages_is_not_waited_for_for_ever(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "POLL_S", 0.01)
    monkeypatch.setattr(command, "LET_GO_S", 0.03)
    instance.held = [holding("queues", "work")] * 99
    result = purge(instance, "--remove", "--yes")
    assert (result.exit_code, "queues (work) from position 5" in result.stderr) == (1, True)


def test_only_one_of_both(instance: Instance) -> None:
    result = purge(instance, "--remove", "--archive", "--yes")
    assert (result.exit_code, instance.reported) == (2, [])
