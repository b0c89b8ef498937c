"""What an admin says of distributed transactions."""

from __future__ import annotations

from typing import Any

from tests.cli.admins import FakeAdmin

XID = "7:transfer-1:broker"
ROW: dict[str, Any] = {
    "principal": "shop", "xid": XID, "state": "prepared", "session": "billing",
    "instance": "10b714bc24174273", "here": True, "messages": 2, "locked": 1,
    "queues": ["orders", "bills"], "prepared": "20261127T101500Z", "age_s": 5_400.0,
}  # fmt: skip
MANAGER = "The transaction manager gets that answer when it asks"


def answers(fake: FakeAdmin, decision: str, **more: Any) -> str:
    """It decides as it is asked to. Returns: the path."""
    fake.answers[f"POST /transactions/{decision}"] = lambda body: {
        "principal": body["principal"], "xid": body["xid"], "decision": decision,
        "dry_run": body["dry_run"], "position": 0, "messages": 2 if decision == "commit" else 0,
        "locked": 0 if decision == "forget" else 1, "mixed": False,
    } | more  # fmt: skip
    return f"/transactions/{decision}"


def body(*, force: bool | None = False, dry_run: bool = False) -> dict[str, object]:
    """The request; force None: it has no such key."""
    key = {} if force is None else {"force": force}
    return {"xid": XID, "principal": "shop", **key, "dry_run": dry_run}
