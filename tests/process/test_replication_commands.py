"""What an operator sees of two instances that replicate, and does to them."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def run(peer: Peer, *arguments: str) -> Result:
    """`zbroker-admin ARGUMENTS` on the host of an instance."""
    return CliRunner().invoke(main, ["--data-dir", str(peer.data), *arguments])


def answer(peer: Peer, *arguments: str) -> Any:
    """The same in JSON; None while a busy process does not answer."""
    result = run(peer, "--json", *arguments)
    return json.loads(result.stdout) if result.exit_code == 0 else None


def link(peer: Peer, direction: str = "out") -> dict[str, Any]:
    """Its only link in this direction; none of it while there is none."""
    found = answer(peer, "replication", "ls") or {"links": []}
    rows = [row for row in found["links"] if row["direction"] == direction]
    return dict(rows[0]) if rows else {}


def are_raised(peer: Peer, *codes: str) -> bool | None:
    """Whether all these alarms are raised; None while a busy process does not answer."""
    with suppress(ZBrokerError):
        return set(codes) <= {alarm["code"] for alarm in peer.running.status()["alarms"]}
    return None


def test_links_are_looked_at_paused_and_downgraded() -> None:
    with Instances(2, destination={"mode": "sync"}) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            client.publish("t", b"1")
            client.flush(timeout=WAIT_S)
            until(lambda: link(a).get("lag") == 0, "the link", WAIT_S)
            assert (link(a)["name"], link(a)["state"], link(a)["mode"]) == ("b", "sending", "sync")
            assert (link(b, "in")["name"], link(b, "in")["state"]) == ("a", "receiving")
            assert "b: it holds everything" in run(a, "replication", "info", "b").stdout
            assert run(a, "replication", "lag", "b").stdout == "0\n"
            until(lambda: a.running.status()["replication"]["up"] == 1, "the status", WAIT_S)

            assert "acknowledgements wait for it" in run(a, "replication", "pause", "b").stdout
            until(lambda: link(a)["state"] == "paused", "the pause", WAIT_S)
            client.publish("t", b"2")
            with pytest.raises(ZBrokerError):
                client.flush(timeout=1)
            until(lambda: run(a, "replication", "lag", "--critical", "0").exit_code == 2, "a lag")
            until(lambda: are_raised(a, "sync_unreachable"), "the alarm", WAIT_S)
            assert run(a, "check", "--disk-warning", "100").exit_code == 2

            assert answer(a, "replication", "downgrade", "b")["link"] == "b"
            client.flush(timeout=WAIT_S)
            until(lambda: are_raised(a, "link_downgraded", "link_paused"), "the alarms", WAIT_S)
            assert len(b.messages()) == 1

            assert run(a, "replication", "resume", "b").exit_code == 0
            assert run(a, "replication", "upgrade", "b").exit_code == 0
            client.publish("t", b"3")
            client.flush(timeout=WAIT_S)
        assert len(b.messages()) == 3
        until(lambda: are_raised(a, "link_paused") is False, "the end of the alarm", WAIT_S)
        done = [entry["what"] for entry in reversed(a.running.ask("/audit")["entries"])]
        assert done == [
            f"POST /replication/b/{what} dry_run"
            for what in ("pause", "downgrade", "resume", "upgrade")
        ]


def test_a_pause_ends_with_the_process() -> None:
    with Instances(2) as instances:
        a, _ = instances.peers
        until(lambda: link(a).get("state") == "sending", "the link", WAIT_S)
        assert (
            "this ends with the replication process" in run(a, "replication", "pause", "b").stdout
        )
        until(lambda: link(a)["state"] == "paused", "the pause", WAIT_S)
        a.kill_process("replication")
        until(lambda: link(a).get("state") == "sending", "the link again", WAIT_S)


def test_publishers_go_on_elsewhere_before_a_planned_stop() -> None:
    """Also with an asynchronous destination: it has all that was acknowledged when they come."""
    with Instances(2) as instances:
        a, b = instances.peers
        until(lambda: link(a).get("state") == "sending", "the link", WAIT_S)
        running, errors = threading.Event(), list[Exception]()
        published = 0

        def publish(client: Client) -> None:
            nonlocal published
            try:
                while running.is_set():
                    client.publish("t", b"%d" % published, timeout=WAIT_S)
                    published += 1
            except ZBrokerError as error:
                errors.append(error)

        with connect([a.url, b.url], "p") as client:
            running.set()
            thread = threading.Thread(target=publish, args=(client,))
            thread.start()
            try:
                until(lambda: len(a.messages()) > 1_000, "messages", WAIT_S)
                said = answer(a, "replication", "drain")
                assert (said["state"], said["sessions"]) == ("left", 1), said
                until(lambda: client.url == b.url, "the failover", WAIT_S)
                there = len(b.messages())
                until(lambda: len(b.messages()) > there + 1_000, "more messages", WAIT_S)
            finally:
                running.clear()
                thread.join()
            assert errors == []
            client.flush(timeout=WAIT_S)
        a.close()
        assert len(b.messages()) == published
        a.start()
        instances.until_equal(published)
        with connect(a.url, "q") as client:
            client.publish("t", b"x").wait(WAIT_S)
