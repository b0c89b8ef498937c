"""What an admin says of exchanges and bindings, and the commands that show it."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from zbroker.cli.admin_main import main

EVENTS: dict[str, Any] = {
    "name": "events", "kind": "topic", "alternate": "", "auto_delete": False, "internal": False,
    "predeclared": False, "bindings": 1,
}  # fmt: skip
BOUND: dict[str, Any] = {
    "exchange": "events", "queue": "bills", "key": "order.*", "arguments": {},
    "instance": "10b714bc24174273", "here": True,
}  # fmt: skip
OFFER: dict[str, Any] = BOUND | {
    "exchange": "offers", "key": "", "arguments": {"x-match": "any", "n": 1}, "instance": "",
}  # fmt: skip
OFFER_LINE = "exchange=offers queue=bills key=- arguments=x-match:any,n:1 instance=- here=yes\n"
BOUND_LINE = (
    "exchange=events queue=bills key=order.* arguments=- instance=10b714bc24174273 here=yes\n"
)


def bound(*rows: dict[str, Any], left_out: int = 0) -> dict[str, Any]:
    """The answer to GET /bindings."""
    return {"left_out": left_out, "bindings": list(rows)}


def run(data: Any, *arguments: str) -> Result:
    """`zbroker-admin ARGUMENTS`."""
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments])
