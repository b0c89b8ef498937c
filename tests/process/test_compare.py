"""`replication compare` on instances that run: equal, and behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.process.instances import WAIT_S, Instances
from tests.process.load import until
from zbroker.cli.admin_main import main
from zbroker.client import connect

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def compared(*urls: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer."""
    result = CliRunner().invoke(main, ["--json", "replication", "compare", *urls])
    return result.exit_code, json.loads(result.stdout) if result.exit_code < 2 else {}


def test_instances_are_equal_when_each_has_what_the_other_has() -> None:
    with Instances(2) as instances:
        a, b = instances.peers
        for peer in (a, b):
            with connect(peer.url, f"at-{peer.name}") as client:
                client.publish_many("t", [b"%d" % n for n in range(5_000)])
                client.flush(timeout=WAIT_S)
        urls = a.url, b.listen["admin"]
        until(lambda: compared(*urls)[0] == 0, "both to be equal", WAIT_S)
        code, found = compared(*urls)
        held = [one["messages"] for origin in found["origins"] for one in origin["held"]]
        assert (code, found["state"], held) == (0, "equal", [5_000] * 4)


def test_what_one_lacks_is_lag() -> None:
    """After its second start no link leads to `b` any more."""
    with Instances(2) as instances:
        a, b = instances.peers
        with connect(a.url, "p") as client:
            client.publish("t", b"1", timeout=WAIT_S)
            client.flush(timeout=WAIT_S)
            urls = a.listen["admin"], b.listen["admin"]
            until(lambda: compared(*urls)[0] == 0, "both to be equal", WAIT_S)
            b.kill()
            client.publish("t", b"2", timeout=WAIT_S)
            client.flush(timeout=WAIT_S)
            assert compared(*urls)[0] == 3  # one does not answer
        b.settings = b.settings | {"destination": [], "listen": dict(b.listen)}
        del b.settings["listen"]["replication"]
        b.start()
        code, found = compared(*urls)
        (origin,) = found["origins"]
        assert (code, found["state"]) == (1, "lag")
        at_a, at_b = (one["lag"] for one in origin["held"])
        assert at_a == 0 < at_b <= 2  # a record of its generation may be after the first message
