"""Rigs and worlds of the journal run the turn that ships: none of them commits by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HARNESSES = (
    "journal/looking.py", "journal/whole.py", "sim/journal_process.py", "sim/queues_journal.py",
    "sim/two_nodes.py", "sim/two_world.py", "sim/world.py",
    "torture/damage.py", "torture/engine.py", "torture/target.py",
)  # fmt: skip
#: of core and group commit: what only a turn may call
STEPS = frozenset({"beat", "group", "handle", "synced", "tick", "written_to"})
#: a client's core in the world has no turn of its own yet
ALLOWED = {"sim/world.py": {"handle", "tick"}}


@pytest.mark.parametrize("name", HARNESSES)
def test_a_harness_takes_no_step_of_a_commit_by_itself(name: str) -> None:
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called & STEPS <= ALLOWED.get(name, set())
