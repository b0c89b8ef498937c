"""What an admin says of links, and how the commands are called."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from zbroker.cli.admin_main import main

OUT: dict[str, Any] = {
    "name": "b", "direction": "out", "state": "sending", "instance": "10b714bc24174273",
    "to": ["tcp://10.0.0.2:9104"], "mode": "sync", "paused": False, "downgraded": False,
    "by_hand": False, "mark": 5300, "lag": 12, "on_the_way_bytes": 4096, "log_bytes": 0,
    "stopped": {}, "problem": "",
}  # fmt: skip
IN: dict[str, Any] = OUT | {
    "direction": "in", "state": "receiving", "to": [], "mode": "", "mark": None, "lag": None,
    "on_the_way_bytes": None, "log_bytes": None,
}  # fmt: skip
ALL = "GET /replication"


def links(*rows: dict[str, Any], needed: int | None = 1) -> dict[str, Any]:
    """The document of GET /replication."""
    return {
        "replicates": True, "persisted": 5312, "needed": needed, "through": 5300,
        "links": list(rows), "origins": [{"origin": "10b714bc24174273.5", "position": 5311}],
    }  # fmt: skip


def run(data: Any, *arguments: str) -> Result:
    """`zbroker-admin replication ARGUMENTS`."""
    return CliRunner().invoke(main, ["--data-dir", str(data), "replication", *arguments])


def changed(what: str) -> Any:
    """A change that succeeds: what an admin answers to any body."""
    return lambda body: {"link": "b", "dry_run": bool(body.get("dry_run")), "text": f"{what} done"}
