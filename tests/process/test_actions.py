"""Old segments of a real instance: archived, compressed, removed; readable all the while."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.admin_broker import AdminBroker
from tests.process.load import until
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.seed("004-89")
@pytest.mark.seed("004-90")
@pytest.mark.seed("004-91")
@pytest.mark.seed("004-92")
@pytest.mark.seed("004-95")
def test_old_segments_are_archived_and_compressed_and_stay_readable(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data", archive_after="1s", compress_after="1s")
    with bench.broker:
        bench.publish(5)
        bench.wait(lambda: bench.sealed() == {("archive", True)}, "all sealed ones are archived")
        assert bench.replayed() == bench.sent
        files = bench.files()
        assert len(files["journal"]) == 1
        assert all(name.endswith(".journal.zst") for name in files["archive"])
        # the last file is there before its action says that it is done
        bench.wait(lambda: _results(bench, "archive", "compress") == {"done"}, "all are done")
        done = bench.actions("archive", "compress")
        assert any("archive_after is 1 s" in entry["why"] for entry in done)
        assert any("compress_after is 1 s" in entry["why"] for entry in done)
        bench.publish(1)
        assert bench.replayed() == bench.sent


@pytest.mark.seed("004-89")
@pytest.mark.seed("004-95")
def test_what_is_too_old_is_removed_and_the_rest_stays(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data", remove_after="2s", remove_share_max=100)
    with bench.broker:
        bench.publish(4)
        bench.wait(
            lambda: bench.segments() and all(s["open"] for s in bench.segments()),
            "sealed ones go",
        )
        bench.wait(
            lambda: _results(bench, "remove") == {"done"}, "the removals are reported as done"
        )
        entry = bench.actions("remove")[-1]
        assert "remove_after is 2 s" in entry["why"]
        assert entry["by"] == "policy"
        kept = bench.replayed()
        assert kept == bench.sent[len(bench.sent) - len(kept) :]
        assert 0 < len(kept) < len(bench.sent)
        before = len(bench.sent)
        bench.publish(1)
        assert bench.replayed()[-(len(bench.sent) - before) :] == bench.sent[before:]


def _results(bench: AdminBroker, *actions: str) -> set[str]:
    return {entry["result"] for entry in bench.actions(*actions)}


def test_a_log_stays_below_its_size(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data", max_bytes="4MiB", remove_share_max=50)
    with bench.broker:
        for _ in range(4):
            bench.publish(2)
        bench.wait(
            lambda: 0 < sum(s["bytes"] for s in bench.segments()) <= 4 << 20, "below max_bytes"
        )
        kept = bench.replayed()
        assert kept == bench.sent[len(bench.sent) - len(kept) :]


@pytest.mark.seed("004-89")
def test_by_hand_the_same_with_a_dry_run_first(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data")
    with bench.broker:
        bench.publish(4)
        serial = [s["serial"] for s in bench.segments()][1]
        status, found = bench.ask("POST", "/journal/archive", through=serial, dry_run=True)
        assert (status, found["id"], len(found["serials"])) == (200, None, 2)
        assert bench.files()["archive"] == []
        for action in ("archive", "compress"):
            _, found = bench.ask("POST", f"/journal/{action}", through=serial)
            _wait_action(bench, found["id"])
        assert [s["place"] for s in bench.segments()][:3] == ["archive", "archive", "journal"]
        assert bench.replayed() == bench.sent
        bench.wait(lambda: _would_go(bench, serial) == [1, 2], "the replay has let go of both")
        _, found = bench.ask("POST", "/journal/remove", through=serial)
        assert found["serials"] == [1, 2]
        _wait_action(bench, found["id"])
        assert bench.files()["archive"] == []
        kept = bench.replayed()
        assert kept == bench.sent[len(bench.sent) - len(kept) :]
        _, found = bench.ask("POST", "/journal/reindex")
        _wait_action(bench, found["id"])


def _would_go(bench: AdminBroker, serial: int) -> list[int]:
    return list(bench.ask("POST", "/journal/remove", through=serial, dry_run=True)[1]["serials"])


def _wait_action(bench: AdminBroker, number: int) -> None:
    bench.wait(
        lambda: (bench.ask("GET", f"/actions/{number}")[1] or {}).get("result") == "done",
        f"action {number}",
    )


def test_a_hold_keeps_what_it_names(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data")
    with bench.broker:
        bench.publish(3)
        position = bench.segments()[1]["first"]
        hold = {"who": "backup", "what": "copies", "position": position}
        assert bench.ask("POST", "/journal/hold", **hold, ttl_s=600)[0] == 200
        last = [s["serial"] for s in bench.segments()][-2]
        _, found = bench.ask("POST", "/journal/remove", through=last)
        assert found["serials"] == [1]
        assert [held["who"] for held in found["held_by"]] == ["backup"]
        assert bench.ask("POST", "/journal/hold", **hold, ttl_s=0)[0] == 200
        _, found = bench.ask("POST", "/journal/remove", through=last)
        assert found["serials"][-1] == last


def test_without_the_token_nothing_can_be_changed(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data")
    with bench.broker:
        token = bench.broker.data_dir / "run" / "admin.token"
        assert token.stat().st_mode & 0o777 == 0o600
        hold = {"who": "x", "what": "", "position": 1, "ttl_s": 1}
        assert bench.ask("POST", "/journal/hold", **hold)[0] == 200
        token.write_text("guess")
        status, found = bench.ask("POST", "/journal/remove", through=1)
        assert (status, found["code"]) == (403, "forbidden")
        assert bench.ask("GET", "/journal")[0] == 200


@pytest.mark.long
def test_a_killed_admin_leaves_nothing_half_done(tmp_path: Path) -> None:
    bench = AdminBroker(tmp_path / "data", archive_after="1s", compress_after="1s")
    rng = random.Random(7)
    with bench.broker:
        for _ in range(6):
            bench.publish(2)
            bench.wait(lambda: (bench.ask("GET", "/actions")[1] or {}).get("running"), "at work")
            until(_after(rng.uniform(0, 0.05)), "a moment")
            pid = _pid(bench)
            os.kill(pid, signal.SIGKILL)
            bench.wait(lambda killed=pid: _pid(bench) not in (0, killed), "the admin is back")
        bench.wait(lambda: bench.sealed() == {("archive", True)}, "all sealed ones are archived")
        bench.wait(lambda: len(bench.files()["journal"]) == 1, "no second copies")
        assert not list(bench.broker.data_dir.glob("*/*.part"))
        assert bench.replayed() == bench.sent

        def results() -> list[str]:
            return [entry["result"] for entry in bench.actions("archive", "compress")]

        bench.wait(lambda: "running" not in results(), "the last one tells its result")
        assert "failed" in results(), "a kill hit an action"


def _after(seconds: float) -> Callable[[], bool]:
    then = time.monotonic() + seconds
    return lambda: time.monotonic() >= then


def _pid(bench: AdminBroker) -> int:
    try:
        return bench.broker.pids.get("admin", 0)
    except (OSError, ValueError, ZBrokerError):
        return 0
