"""Old segments of a real instance: archived, compressed, removed; readable all the while."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.desk import Desk
from tests.process.load import until
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.seed("004-89")
@pytest.mark.seed("004-90")
@pytest.mark.seed("004-91")
@pytest.mark.seed("004-92")
@pytest.mark.seed("004-95")
def test_old_segments_are_archived_and_compressed_and_stay_readable(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data", archive_after="1s", compress_after="1s")
    with desk.broker:
        desk.publish(5)
        desk.wait(lambda: desk.sealed() == {("archive", True)}, "all sealed ones are archived")
        assert desk.replayed() == desk.sent
        files = desk.files()
        assert len(files["journal"]) == 1
        assert all(name.endswith(".journal.zst") for name in files["archive"])
        done = desk.actions("archive", "compress")
        assert {entry["result"] for entry in done} == {"done"}
        assert any("archive_after is 1 s" in entry["why"] for entry in done)
        assert any("compress_after is 1 s" in entry["why"] for entry in done)
        desk.publish(1)
        assert desk.replayed() == desk.sent


@pytest.mark.seed("004-89")
@pytest.mark.seed("004-95")
def test_what_is_too_old_is_removed_and_the_rest_stays(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data", remove_after="2s", remove_share_max=100)
    with desk.broker:
        desk.publish(4)
        desk.wait(
            lambda: desk.segments() and all(s["open"] for s in desk.segments()), "sealed ones gone"
        )
        desk.wait(lambda: _results(desk, "remove") == {"done"}, "the removals are told as done")
        entry = desk.actions("remove")[-1]
        assert "remove_after is 2 s" in entry["why"]
        assert entry["by"] == "policy"
        kept = desk.replayed()
        assert kept == desk.sent[len(desk.sent) - len(kept) :]
        assert 0 < len(kept) < len(desk.sent)
        before = len(desk.sent)
        desk.publish(1)
        assert desk.replayed()[-(len(desk.sent) - before) :] == desk.sent[before:]


def _results(desk: Desk, action: str) -> set[str]:
    return {entry["result"] for entry in desk.actions(action)}


def test_a_log_stays_below_its_size(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data", max_bytes="4MiB", remove_share_max=50)
    with desk.broker:
        for _ in range(4):
            desk.publish(2)
        desk.wait(
            lambda: 0 < sum(s["bytes"] for s in desk.segments()) <= 4 << 20, "below max_bytes"
        )
        kept = desk.replayed()
        assert kept == desk.sent[len(desk.sent) - len(kept) :]


@pytest.mark.seed("004-89")
def test_by_hand_the_same_with_a_dry_run_first(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    with desk.broker:
        desk.publish(4)
        serial = [s["serial"] for s in desk.segments()][1]
        status, found = desk.ask("POST", "/journal/archive", through=serial, dry_run=True)
        assert (status, found["id"], len(found["serials"])) == (200, None, 2)
        assert desk.files()["archive"] == []
        for action in ("archive", "compress"):
            _, found = desk.ask("POST", f"/journal/{action}", through=serial)
            _wait_action(desk, found["id"])
        assert [s["place"] for s in desk.segments()][:3] == ["archive", "archive", "journal"]
        assert desk.replayed() == desk.sent
        desk.wait(lambda: _would_go(desk, serial) == [1, 2], "the replay has let go of both")
        _, found = desk.ask("POST", "/journal/remove", through=serial)
        assert found["serials"] == [1, 2]
        _wait_action(desk, found["id"])
        assert desk.files()["archive"] == []
        kept = desk.replayed()
        assert kept == desk.sent[len(desk.sent) - len(kept) :]
        _, found = desk.ask("POST", "/journal/reindex")
        _wait_action(desk, found["id"])


def _would_go(desk: Desk, serial: int) -> list[int]:
    return list(desk.ask("POST", "/journal/remove", through=serial, dry_run=True)[1]["serials"])


def _wait_action(desk: Desk, number: int) -> None:
    desk.wait(
        lambda: (desk.ask("GET", f"/actions/{number}")[1] or {}).get("result") == "done",
        f"action {number}",
    )


def test_a_hold_keeps_what_it_names(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    with desk.broker:
        desk.publish(3)
        position = desk.segments()[1]["first"]
        hold = {"who": "backup", "what": "copies", "position": position}
        assert desk.ask("POST", "/journal/hold", **hold, ttl_s=600)[0] == 200
        last = [s["serial"] for s in desk.segments()][-2]
        _, found = desk.ask("POST", "/journal/remove", through=last)
        assert found["serials"] == [1]
        assert [held["who"] for held in found["held_by"]] == ["backup"]
        assert desk.ask("POST", "/journal/hold", **hold, ttl_s=0)[0] == 200
        _, found = desk.ask("POST", "/journal/remove", through=last)
        assert found["serials"][-1] == last


def test_without_the_token_nothing_can_be_changed(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    with desk.broker:
        token = desk.broker.data_dir / "run" / "admin.token"
        assert token.stat().st_mode & 0o777 == 0o600
        hold = {"who": "x", "what": "", "position": 1, "ttl_s": 1}
        assert desk.ask("POST", "/journal/hold", **hold)[0] == 200
        token.write_text("guess")
        status, found = desk.ask("POST", "/journal/remove", through=1)
        assert (status, found["code"]) == (403, "forbidden")
        assert desk.ask("GET", "/journal")[0] == 200


def test_a_killed_admin_leaves_nothing_half_done(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data", archive_after="1s", compress_after="1s")
    rng = random.Random(7)
    with desk.broker:
        for _ in range(6):
            desk.publish(2)
            desk.wait(lambda: (desk.ask("GET", "/actions")[1] or {}).get("running"), "at work")
            until(_after(rng.uniform(0, 0.05)), "a moment")
            pid = _pid(desk)
            os.kill(pid, signal.SIGKILL)
            desk.wait(lambda killed=pid: _pid(desk) not in (0, killed), "the admin is back")
        desk.wait(lambda: desk.sealed() == {("archive", True)}, "all sealed ones are archived")
        desk.wait(lambda: len(desk.files()["journal"]) == 1, "no second copies")
        assert not list(desk.broker.data_dir.glob("*/*.part"))
        assert desk.replayed() == desk.sent

        def results() -> list[str]:
            return [entry["result"] for entry in desk.actions("archive", "compress")]

        desk.wait(lambda: "running" not in results(), "the last one tells its result")
        assert "failed" in results(), "a kill hit an action"


def _after(seconds: float) -> Callable[[], bool]:
    then = time.monotonic() + seconds
    return lambda: time.monotonic() >= then


def _pid(desk: Desk) -> int:
    try:
        return desk.broker.pids.get("admin", 0)
    except (OSError, ValueError, ZBrokerError):
        return 0
