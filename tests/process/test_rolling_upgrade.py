"""The steps of docs/howto/upgrade-without-downtime.md, from a build of one feature level lower."""

from __future__ import annotations

import shutil
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.test_replication import sends
from zbroker.cli.admin_main import main
from zbroker.client import connect
from zbroker.replication.contract import FEATURE_LEVEL

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

LEVEL = f"FEATURE_LEVEL: Final = {FEATURE_LEVEL}"
SOME = 50
END = b"end"


class Build:
    """A place with this package as it was one feature level ago. used: some process runs it."""

    def __init__(self, place: Path) -> None:
        source, self._place = Path(zbroker.__file__).parent, place
        shutil.copytree(source, place / "zbroker", ignore=shutil.ignore_patterns("__pycache__"))
        contract = place / "zbroker/replication/contract.py"
        text, self._mark = contract.read_text(), place / "used"
        assert text.count(LEVEL) == 1
        lower = text.replace(LEVEL, f"FEATURE_LEVEL: Final = {FEATURE_LEVEL - 1}")
        contract.write_text(f"{lower}\nopen({str(self._mark)!r}, 'w').close()\n")

    def start(self, peer: Peer) -> None:
        """Starts it with this build: processes find what their parent finds."""
        self._mark.unlink(missing_ok=True)
        sys.path.insert(0, str(self._place))
        try:
            peer.start()
        finally:
            sys.path.remove(str(self._place))
        assert self._mark.exists(), f"{peer.name} runs another build"
        self._mark.unlink()

    @property
    def used(self) -> bool:
        return self._mark.exists()


class Program:
    """Publishes at whichever instance lets it, and reads all of it, in two threads."""

    def __init__(self, urls: list[str]) -> None:
        self.sent, self.seen, self._urls, self._over = 0, list[int](), urls, threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._publish, self._read)
        ]
        for each in self._threads:
            each.start()

    def _publish(self) -> None:
        with connect(self._urls, "p", timeout=WAIT_S) as client:
            while not self._over.wait(0.01):
                client.publish("t", b"%d" % (self.sent + 1), timeout=WAIT_S)
                self.sent += 1
            client.publish("t", END, timeout=WAIT_S)
            client.flush(timeout=WAIT_S)

    def _read(self) -> None:
        with connect(self._urls, timeout=WAIT_S) as client:
            for message in client.subscribe("t", since="epoch"):
                if message.data == END:
                    return
                self.seen.append(int(message.data))

    def goes_on(self) -> None:
        """Returns when more was acknowledged, and seen."""
        more = self.sent + SOME
        until(lambda: len(self.seen) >= more, f"{more} messages to be seen", WAIT_S)

    def end(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join(WAIT_S)
            assert not each.is_alive(), f"{self.sent} sent, {len(self.seen)} seen"


def test_instances_are_upgraded_one_after_the_other(tmp_path: Path) -> None:
    old = Build(tmp_path / "old")
    with Instances(2, starts=False) as instances:
        a, b = instances.peers
        for peer in (a, b):
            old.start(peer)
        for peer in (a, b):
            until(peer.is_open, f"{peer.name} to open", WAIT_S)
        program = Program([a.url, b.url])
        program.goes_on()
        for peer in (a, b):
            until(partial(sends, peer), f"the links of {peer.name}", WAIT_S)
            done = CliRunner().invoke(main, ["--data-dir", str(peer.data), "replication", "drain"])
            assert done.exit_code == 0, done.output
            peer.close()
            peer.start()
            program.goes_on()
        assert not old.used
        program.end()
        assert program.seen == list(range(1, program.sent + 1))
        instances.until_equal(program.sent + 1)
