"""Rigs and worlds run the turn that ships: none of them decides, commits or syncs by itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
#: those of the journal, and everything in this folder
HARNESSES = (
    "journal/looking.py", "journal/whole.py",
    "torture/damage.py", "torture/engine.py", "torture/target.py",
    *sorted(f"sim/{path.name}" for path in (TESTS / "sim").glob("[!_]*.py")
            if not path.name.startswith("test_")),
)  # fmt: skip
#: of cores and group commit: what only a turn may call
STEPS = frozenset({"beat", "group", "handle", "synced", "tick", "written_to"})
ALLOWED = {
    "sim/world.py": {"handle", "tick"},  # a client's core has no turn of its own there yet
    "sim/many_subscribers.py": {"handle", "tick"},  # likewise
    "sim/ports.py": {"handle", "tick"},  # passes on what the turn calls, and judges the order
    "sim/ingest_process.py": {"handle"},  # a planted bug: completions in the middle of effects
    "sim/queues_bugs.py": {"handle"},  # the same
    "sim/ends_world.py": {"tick"},  # what ingest knows of full queues, alone
    "sim/exclusive_world.py": {"beat"},  # a client's session, which has no turn of its own there
}


@pytest.mark.parametrize("name", HARNESSES)
def test_a_harness_takes_no_step_of_a_turn_by_itself(name: str) -> None:
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if not _is_super(node.func.value)  # of a core that overrides it
    }
    assert called & STEPS == ALLOWED.get(name, set())


def _is_super(value: ast.expr) -> bool:
    called = value.func if isinstance(value, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "super"
