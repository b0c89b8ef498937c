"""Segments are removed while the broker runs: when no one needs them, and never before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.process.load import until
from zbroker.client import Client, connect
from zbroker.client.publisher.receipt import Receipt
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError
from zbroker.limits import KIB
from zbroker.local import LocalBroker
from zbroker.log.disk import RealDisk
from zbroker.log.segments import list_segments, segment_name
from zbroker.server.spawn import command

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

BODY: Final = 20 * KIB
SEGMENTS: Final = 5
SETTINGS: Final = {"journal": {"segment_size": "1MiB"}}


class World:
    """A broker with a log of several segments, and its admin."""

    def __init__(self, broker: LocalBroker) -> None:
        self.broker = broker
        self.admin = Admin(broker.status()["endpoints"]["admin"])
        self.bookmarks: list[str] = []

    def fill(self, client: Client) -> None:
        """Publishes numbers until there are SEGMENTS with a snapshot in the newest one."""
        receipts: list[Receipt] = []
        while self.journal["segments"] < SEGMENTS or self.journal["stated"] < SEGMENTS:
            for _ in range(20):
                receipts.append(client.publish("t", b"%d:" % len(receipts) + bytes(BODY)))
            client.flush(20)
        self.bookmarks = [receipt.wait(20) for receipt in receipts]

    @property
    def journal(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.broker.status()["journal"]
        return stats

    @property
    def serials(self) -> list[int]:
        disk = RealDisk(self.broker.data_dir / "journal", read_only=True)
        return [serial for serial, _ in list_segments(disk)]

    def remove(self, through: int, *, dry_run: bool = False) -> dict[str, Any]:
        return self.admin.tell("/journal/remove", {"through": through, "dry_run": dry_run})

    def first_seen(self, client: Client, since: str = "epoch") -> int:
        messages = client.subscribe("t", since=since, until="now")
        return next(int(message.data.split(b":")[0]) for message in messages)

    def deleted_but_open(self) -> list[str]:
        """Files of the journal that are gone and still take space."""
        found = []
        for pid in self.broker.pids.values():
            for link in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = str(link.readlink())
                except OSError:
                    continue
                if ".journal" in target and target.endswith("(deleted)"):
                    found.append(target)
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as broker:
        world = World(broker)
        with connect(broker.url, "p") as client:
            world.fill(client)
        until(lambda: not world.remove(3, dry_run=True)["blocked"], "segments may go", 20)
        yield world


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.seed("004-94")
def test_what_was_removed_is_gone_and_the_rest_is_served_also_after_a_restart(
    world: World, tmp_path: Path
) -> None:
    plan = world.remove(3, dry_run=True)
    assert (plan["serials"], plan["blocked"]) == ([1, 2, 3], "")
    assert world.serials[0] == 1
    for serial in (2, 3):
        shutil.copy(tmp_path / "data/journal" / segment_name(serial), tmp_path)
    with connect(world.broker.url, "reader") as reader:
        assert world.first_seen(reader) == 0  # the files were open once
        done: dict[str, Any] = {}

        def is_done() -> bool:
            """Delivery reports on its beat what the reader needs: until then nothing is removed."""
            done.update(world.remove(3))
            assert done["serials"] or done["blocked"]
            return bool(done["serials"])

        until(is_done, "the reader has let go", 10)
        assert (done["serials"], done["floor"]) == ([1, 2, 3], plan["floor"])
        until(lambda: world.serials[0] == 4, "the files are gone", 10)
        until(lambda: not world.deleted_but_open(), "no one keeps them open", 40)
        first = _check_the_rest(world, reader, plan["floor"])
    until(lambda: (world.journal["oldest"], world.journal["removing"]) == (4, 0), "told", 10)
    bookmarks = world.bookmarks
    world.broker.close()
    for serial in (2, 3):  # a crash came before they were unlinked
        shutil.copy(tmp_path / segment_name(serial), tmp_path / "data/journal")
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as broker:
        again = World(broker)
        again.bookmarks = bookmarks
        until(lambda: again.serials[0] == 4, "what a crash left is gone", 10)
        with connect(broker.url, "p") as client:
            assert _check_the_rest(again, client, plan["floor"]) == first
            client.publish("t", b"new").wait(10)


def _check_the_rest(world: World, client: Client, log_start: int) -> int:
    """The number of the first message that is still there; bookmarks before it are expired."""
    first = world.first_seen(client)
    assert first > 0
    until(lambda: world.journal["first_position"] == log_start, "the log start is reported", 5)
    assert world.first_seen(client, world.bookmarks[first]) == first + 1
    with pytest.raises(ZBrokerError, match="bookmark_expired"):
        world.first_seen(client, world.bookmarks[0])
    return first


@pytest.mark.seed("003-31")
@pytest.mark.parametrize("action", ["archive", "remove"])
def test_the_end_of_a_day_gives_up_the_segments_of_what_was_purged(
    tmp_path: Path, action: str
) -> None:
    queue = {"name": "trades", "topic": "t", "kind": "replayable"}
    with LocalBroker(tmp_path / "data", settings={**SETTINGS, "queue": [queue]}) as broker:
        world = World(broker)
        with connect(broker.url, "p") as client:
            world.fill(client)
            broker.ask("/points", {"name": "eod"})
            client.publish("t", b"next day").wait(20)

        def purge(*options: str) -> subprocess.CompletedProcess[str]:
            arguments = ["queue", "purge", "trades", "--point", "eod", f"--{action}", *options]
            program = command("zbroker.cli.admin_main", "--url", broker.url, "--json", *arguments)
            return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)

        def planned() -> bool:
            return bool(json.loads(purge("--dry-run").stdout)["journal"]["serials"])

        until(planned, "segments may go", 30)
        assert world.serials[0] == 1, "a dry run changes nothing"
        with connect(broker.url, "slow reader") as reader:
            if action == "remove":
                subscription = reader.subscribe("t", since="epoch", credit=1)
                until(lambda: len(world.admin.ask("/holders")["holders"]) > 1, "it is reported", 10)
                held = purge("--yes")
                assert (held.returncode, "slow reader (t)" in held.stderr) == (1, True), held
                assert json.loads(held.stdout)["count"] > 0, "the purge is done all the same"
                assert world.serials[0] == 1
                subscription.close()
        until(lambda: not any(
            one["who"] == "slow reader" for one in world.admin.ask("/holders")["holders"]
        ), "it has let go", 30)  # fmt: skip
        done = purge("--yes")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["journal"]
        gone = [one["serial"] if action == "archive" else one for one in found["serials"]]
        assert found["result"] == "done"
        assert gone == list(range(1, gone[-1] + 1))
        until(lambda: world.serials[0] == gone[-1] + 1, "they are gone from the journal", 10)
        archived = sorted(one.name for one in (tmp_path / "data/archive").glob("*.journal"))
        assert archived == [segment_name(one) for one in gone if action == "archive"]
        with connect(broker.url, "late") as late:
            assert (world.first_seen(late) == 0) == (action == "archive")
            assert [one.data for one in late.consume("trades", since="epoch", until="now")] == [
                b"next day"
            ]


@pytest.mark.seed("004-43")
@pytest.mark.seed("004-97")
def test_a_subscriber_that_does_not_read_is_named_and_keeps_its_part(world: World) -> None:
    with connect(world.broker.url, "slow reader") as reader:
        subscription = reader.subscribe("t", since="epoch", credit=1)
        until(lambda: world.admin.ask("/holders")["holders"], "it is reported", 10)
        held = world.remove(3)
        assert held["serials"] == []
        assert "still needed" in held["blocked"]
        assert [(one["who"], one["what"]) for one in held["held_by"]] == [("slow reader", "t")]
        assert world.serials[0] == 1
        subscription.close()
        until(lambda: world.remove(3)["serials"] == [1, 2, 3], "it is let go", 10)
        until(lambda: world.serials[0] == 4, "the files are gone", 10)


def test_files_wait_for_a_delivery_that_is_silent(world: World) -> None:
    with stopped(world.broker.pids["delivery"]):
        assert world.remove(2)["serials"] == [1, 2]
        reported = world.admin.ask("/journal")
        assert (reported["removing"], reported["silent"]) == ([1, 2], ["delivery"])
        assert world.serials[0] == 1
        until(lambda: world.journal["first_position"] > 1, "the log start is reported", 5)
    until(lambda: world.serials[0] == 3, "the files are gone", 10)


def test_a_removal_that_did_not_begin_to_unlink_is_forgotten_with_the_process(
    world: World,
) -> None:
    pids = world.broker.pids
    with stopped(pids["delivery"]):
        world.remove(2)
        os.kill(pids["journal"], signal.SIGKILL)
        until(lambda: _is_new(world, pids["journal"]), "the journal is back", 20)
        assert world.journal["first_position"] == 1
        assert world.serials[0] == 1
    with connect(world.broker.url, "reader") as reader:
        assert world.first_seen(reader) == 0
    until(lambda: world.remove(2)["serials"] == [1, 2], "it is asked for again", 20)
    until(lambda: world.serials[0] == 3, "the files are gone", 10)


def _is_new(world: World, pid: int) -> bool:
    try:
        return world.broker.pids.get("journal") not in (None, pid) and "floor" in world.admin.ask(
            "/journal"
        )
    except ZBrokerError:
        return False


def test_the_index_is_made_again_while_the_broker_serves(world: World) -> None:
    number = world.admin.tell("/journal/reindex", {})["id"]
    with connect(world.broker.url, "q") as client:
        bookmarks = [client.publish("t", b"%d:" % n).wait(10) for n in range(20)]
        until(lambda: _result(world, number) == "done", "the index is swapped", 30)
        bookmarks.append(client.publish("t", b"20:").wait(10))
        behind = [
            len(list(client.subscribe("t", since=bookmark, until="now")))
            for bookmark in (bookmarks[0], bookmarks[-2], world.bookmarks[-1])
        ]
        assert behind == [20, 1, 21]
    assert world.journal["index_failed"] == ""
    left = [path.name for path in (world.broker.data_dir).iterdir() if "index" in path.name]
    assert left == ["index"]


def _result(world: World, number: int) -> str:
    return str(world.admin.ask(f"/actions/{number}")["result"])


def test_an_archive_directory_that_is_the_journal_directory_is_refused(tmp_path: Path) -> None:
    """A symbolic link was enough for the broker to remove every sealed segment by itself."""
    journal, link = tmp_path / "journal", tmp_path / "link"
    journal.mkdir()
    link.symlink_to(journal)
    for archive in (journal, link):
        settings = {"directory": str(journal), "archive_directory": str(archive)}
        with pytest.raises(ZBrokerError, match="is the journal directory itself"):
            LocalBroker(tmp_path / "data", settings={"journal": settings})
    assert list(journal.iterdir()) == []


def test_two_instances_cannot_share_an_archive_directory(tmp_path: Path) -> None:
    """One would remove the archived segments of the other, which have the same names."""
    archive = tmp_path / "archive"
    archive.mkdir()
    settings = {"journal": {"archive_directory": str(archive)}}
    with LocalBroker(tmp_path / "one", settings=settings) as first:
        with pytest.raises(ZBrokerError, match="belongs to instance"):
            LocalBroker(tmp_path / "other", settings=settings)
        assert first.status()["journal"]["generation"] == 1
    with LocalBroker(tmp_path / "one", settings=settings):
        pass  # its own directory
