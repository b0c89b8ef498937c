"""Why somebody may do something or not (zbroker/access/explanation.py)."""

from __future__ import annotations

import pytest

from tests.access.build import rules
from zbroker.access.explanation import explain

RULES = rules("""
[principal.a]
keys = ["$0"]
roles = ["one", "two"]
[[role.one.allow]]
actions = ["replay"]
topics = ["x.*"]
[[role.one.deny]]
actions = ["*"]
topics = ["x.s"]
[[role.one.deny]]
actions = ["replay"]
topics = ["x.f"]
filter = "/a = 1"
[[role.two.allow]]
actions = ["replay"]
topics = ["y"]
filter = "/a = 1"
[[role.two.allow]]
actions = ["admin_read"]
""")


@pytest.mark.parametrize(
    ("action", "topic", "verdict", "grants"),
    [
        ("replay", "x.a", "all", ["one allow 1"]),
        ("replay", "x.s", "no", ["one deny 1"]),
        ("replay", "x.f", "some", ["one allow 1", "one deny 2"]),
        ("replay", "y", "some", ["two allow 1"]),
        ("replay", "z", "no", []),
        ("replay", None, "some", ["one allow 1", "one deny 1", "one deny 2", "two allow 1"]),
        ("publish", None, "no", ["one deny 1"]),
        ("publish", "x.a", "no", []),
        ("admin_read", None, "all", ["two allow 2"]),
        ("consume", "z", "no", []),
    ],
)
def test_the_grants_that_decide_are_named(
    action: str, topic: str | None, verdict: str, grants: list[str]
) -> None:
    decision = explain(RULES, "a", action, topic)
    assert decision.verdict == verdict
    assert [f"{one.role} {one.kind} {one.number}" for one in decision.grants] == grants
