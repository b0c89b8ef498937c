"""Instances whose log is empty: new ones, and one that takes the place of a host that burned."""

from __future__ import annotations

import shutil
from typing import Final

import pytest
from click.testing import CliRunner

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.test_replication import serials
from zbroker.cli.admin_main import main
from zbroker.client import connect
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SMALL: Final = {"journal": {"segment_size": "1MiB"}}
BODY: Final = bytes(20_000)


def admin(peer: Peer, *arguments: str) -> str:
    """What `zbroker-admin replication ARGUMENTS` prints on that host."""
    result = CliRunner().invoke(main, ["--data-dir", str(peer.data), "replication", *arguments])
    return result.stdout + result.stderr


def publish(peer: Peer, name: str, count: int) -> int:
    """A program without a publish store sends so many messages; its highest sequence then."""
    with connect(peer.url, name) as client:
        for number in range(1, count + 1):
            client.publish("t", BODY)
            if number % 20 == 0 or number == count:  # so that a segment has not all of them
                client.flush(timeout=WAIT_S)
    return max(sequence for _, sequence in peer.messages())


def remove_old(peer: Peer) -> None:
    """Segments go until the first ones are not there."""

    def removed() -> bool:
        through = max(serials(peer)) - 1
        peer.running.ask("/journal/remove", {"through": through})
        return min(serials(peer)) > 2

    until(removed, "the removal", WAIT_S)


def test_three_new_instances_open_when_all_have_answered() -> None:
    with Instances(3) as instances:
        for peer in instances.peers:
            until(peer.is_open, f"{peer.name} to open", WAIT_S)
        publish(instances.peers[0], "p", 5)
        instances.until_equal(5)


def test_a_new_instance_waits_for_its_peers_or_for_a_person() -> None:
    with Instances(2, starts=False) as instances:
        a, b = instances.peers
        a.start()
        until(lambda: "b did not answer" in admin(a, "ls"), "what it waits for", WAIT_S)
        with pytest.raises(ZBrokerError), connect(a.url, "p", timeout=3):
            pass
        assert "publishers may log on" in admin(a, "fresh", "--dry-run")
        assert not a.is_open()
        a.begin_fresh()
        publish(a, "p", 5)
        b.start()
        instances.until_equal(5)


def test_a_host_that_burned_is_replaced_by_an_empty_one() -> None:
    """The log of the other one begins later by now; the new one knows what was published."""
    with Instances(2, more=SMALL) as instances:
        a, b = instances.peers
        high = publish(a, "p", 200)
        until(lambda: len(b.messages()) == 200, "the copy", WAIT_S)
        remove_old(a)
        b.kill()
        shutil.rmtree(b.data)
        b.start()
        until(b.is_open, "b to open", WAIT_S)
        assert "state" in admin(b, "missing")
        assert publish(b, "p", 5) > high, "it goes on after what the log of a has"
        until(lambda: b.messages().keys() <= a.messages().keys(), "what b took at a", WAIT_S)
        assert set(b.messages().values()) == {1}


def test_a_host_is_added_by_a_restart_of_each_of_the_others() -> None:
    """The steps of docs/howto/add-a-host.md."""
    with Instances(3, starts=False) as instances:
        a, b, c = instances.peers
        whole = {peer: peer.settings["destination"] for peer in (a, b)}
        for peer in (a, b):
            peer.settings["destination"] = [one for one in whole[peer] if one["name"] != c.name]
            peer.start()
        for peer in (a, b):
            until(peer.is_open, f"{peer.name} to open", WAIT_S)
        publish(a, "p", 40)
        c.start()
        waits = "the log is empty"  # for an answer, or, where that was quick, for what they hold
        until(lambda: waits in admin(c, "ls"), "what it waits for", WAIT_S)
        for number, peer in enumerate((a, b), 1):
            peer.close()
            peer.settings["destination"] = whole[peer]
            peer.start()
            until(peer.is_open, f"{peer.name} to open again", WAIT_S)
            publish(peer, "p", number)
        until(c.is_open, f"{c.name} to open", WAIT_S)
        publish(c, "p", 3)
        instances.until_equal(46)
