"""What an operator sees of two instances that replicate, and does to them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from zbroker.cli.admin_main import main
from zbroker.client import connect
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
