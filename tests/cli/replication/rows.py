"""What an admin says of links, and how the commands are called."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from zbroker.cli.admin_main import main

OUT: dict[str, Any] = {
    "name": "b", "direction": "out", "state": "sending", "instance": "10b714bc24174273",
    "to": ["tcp://10.0.0.2:9104"], "mode": "sync", "paused": False, "downgraded": False,
    "by_hand": False, "mark": 5300, "lag": 12, "on_the_way_bytes": 4096, "log_bytes": 0,
    "stopped": {}, "problem": "", "address": None,
}  # fmt: skip
IN: dict[str, Any] = OUT | {
    "direction": "in", "state": "receiving", "to": [], "mode": "", "mark": None, "lag": 7,
    "on_the_way_bytes": None, "log_bytes": None, "address": "10.0.0.2:40112",
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


class LinkChange:
    """What every command that changes a link does; `what` is its name."""

    what: ClassVar[str]

    def test_the_answer_says_what_follows(self, fake: FakeAdmin) -> None:
        what, path = self.what, f"/replication/b/{self.what}"
        fake.answers[f"POST {path}"] = changed(what)
        assert run(fake.data, what, "b").stdout == f"b: {what}: {what} done\n"
        assert fake.reported == [(path, {"dry_run": False})]

    def test_a_dry_run_is_marked(self, fake: FakeAdmin) -> None:
        what, path = self.what, f"/replication/b/{self.what}"
        fake.answers[f"POST {path}"] = changed(what)
        result = run(fake.data, what, "b", "--dry-run")
        assert result.stdout == f"b: {what} (dry run): {what} done\n"
        assert fake.reported == [(path, {"dry_run": True})]
        found = json.loads(run(fake.data, what, "b", "--dry-run", "--json").stdout)
        assert found == {"link": "b", "dry_run": True, "text": f"{what} done"}

    def test_an_unknown_destination_is_not_found(self, fake: FakeAdmin) -> None:
        refused = {"code": "not_found", "reason": "there is no destination 'x'", "hint": ""}
        fake.answers[f"POST /replication/x%2Fy/{self.what}"] = (404, refused)
        result = run(fake.data, self.what, "x/y")
        assert (result.exit_code, "no destination" in result.stderr) == (3, True)
        assert run(fake.data, self.what, "").exit_code == 2
