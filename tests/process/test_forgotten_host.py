"""The steps of docs/howto/a-forgotten-host-returns.md, on two instances."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tests.docs.pages import ROOT, Page
from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.test_replication import publish
from zbroker.cli.admin_main import main
from zbroker.client import connect

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PATH: Final = ROOT / "docs/howto/a-forgotten-host-returns.md"
PAGE: Final = Page(PATH, PATH.read_text())
ORIGIN: Final = "10b714bc24174273.5"  # of the page
SOME: Final = 50
STOPPED: Final = re.compile(r"origin ([0-9a-f]+\.\d+) is not sent to \w+ \(fork\)")


def admin(peer: Peer, command: str) -> str:
    """What a command prints on the host of an instance."""
    _, *arguments = command.split()
    result = CliRunner().invoke(main, ["--data-dir", str(peer.data), *arguments])
    return result.stdout + result.stderr


def step(peer: Peer, command: str, origin: str = ORIGIN) -> str:
    """The same for a line of a block of the page."""
    lines = [line for block in PAGE.blocks for line in block.text.splitlines()]
    assert command in lines, f"{PAGE.name} has no such step"
    return admin(peer, command.replace(ORIGIN, origin))


def stopped(peer: Peer) -> list[str]:
    """Origins that are a fork on its link to `a`, as the page has it."""
    return STOPPED.findall(step(peer, "zbroker-admin replication info a"))


def missing(peer: Peer) -> str:
    """As the process that answers heard it last: it asks the journal now and then."""
    return step(peer, "zbroker-admin replication missing")


def send(peer: Peer, name: str, count: int, begin: int) -> None:
    """A program without a publish store; all of it is acknowledged."""
    with connect(peer.url, name) as client:
        publish(client, count, begin)
        client.flush(timeout=WAIT_S)


def read(peer: Peer, since: str) -> tuple[list[int], str]:
    """What a subscriber is sent from there on, and its vector then."""
    with connect(peer.url) as client:
        found = client.subscribe("t", since=since, until="now")
        return [int(message.data) for message in found], found.vector


def set_back(a: Peer, b: Peer, image: Path) -> None:
    """The disk of `a` becomes an older one while `b`, which has more, is away and is forgotten."""
    b.kill()
    a.kill()
    shutil.rmtree(a.data)
    shutil.copytree(image, a.data)
    a.start()
    until(a.is_open, f"{a.name} to open", WAIT_S)
    until(lambda: a.links().open_generations == 1, "a new generation", WAIT_S)
    assert "refused (fork)" in admin(a, "zbroker-admin replication forget b")
    until(lambda: a.links().open_generations == 0, "the older one to be closed", WAIT_S)


@pytest.mark.long
def test_what_a_forgotten_host_has_is_taken_again(tmp_path: Path) -> None:
    with Instances(2) as instances:
        a, b = instances.peers
        for peer in (a, b):
            until(peer.is_open, f"{peer.name} to open", WAIT_S)
        send(a, "p", SOME, 0)
        instances.until_equal(SOME)
        a.close()
        shutil.copytree(a.data, tmp_path / "image")
        a.start()
        send(a, "p", SOME, SOME)
        instances.until_equal(2 * SOME)
        numbers, vector = read(b, "epoch")
        assert numbers == list(range(2 * SOME))

        set_back(a, b, tmp_path / "image")
        assert len(a.messages()) == SOME
        send(a, "q", SOME, 2 * SOME)
        b.start()
        send(b, "r", SOME, 3 * SOME)
        until(lambda: stopped(b), "the fork", WAIT_S)
        [origin] = stopped(b)
        fork = f"zbroker-admin replication fork {ORIGIN} --keep b"
        assert "(dry run)" in step(a, f"{fork} --dry-run", origin)
        assert stopped(b) == [origin]
        assert f"records of {origin} from " in step(a, fork, origin)

        instances.until_equal(4 * SOME)
        until(lambda: not stopped(b), "the links", WAIT_S)
        until(lambda: step(a, "zbroker-admin replication lag b") == "0\n", "the lag", WAIT_S)
        until(lambda: f"origin={origin} " in missing(a), "the old names to be listed", WAIT_S)
        assert "why=forked" in missing(a)
        assert "no conflicts" in step(a, "zbroker-admin journal conflicts")
        for peer in (a, b):
            assert sorted(read(peer, "epoch")[0]) == list(range(4 * SOME))
            assert sorted(read(peer, vector)[0]) == list(range(2 * SOME, 4 * SOME))
        send(a, "q", SOME, 4 * SOME)
        send(b, "r", SOME, 5 * SOME)
        instances.until_equal(6 * SOME)
