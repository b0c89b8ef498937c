"""The rules of the house that no other tool knows; run by scripts/check and tests/test_tidy.py.

- every Python file begins with a docstring that says what it is for
- files that decide or describe are pure: they import nothing that moves bytes or tells the time
- imports run downward, and processes never import each other: they send messages
- a function has at most 60 lines, a file at most 500 (tests mirror the package: there it is
  the file they test that has to be short)
- words of the field lead to files by their names (tools/field_words.py); names of files and classes
  are nouns of the field, each for one thing (tools/names.py)
- nothing is left over: no marks of unfinished work, no breakpoints, no `print` outside the programs
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import field_words, names
from tools.layers import LAYERS

FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
ROOTS: Final = ("zbroker", "pyspark_zbroker", "tests", "tools", "perf")
PRINTING: Final = ("zbroker/cli/", "tools/", "perf/")

#: Everything in these folders besides these files; by name, wherever they are; and by path.
PURE_FOLDERS: Final = {
    "zbroker/blocks": ("block_reader.py",),
    "zbroker/definitions": (),
    "zbroker/delivery": ("__main__.py", "loop.py", "ports.py"),
    "zbroker/engine": (),
    "zbroker/exchanges": (),
    "zbroker/ingest": (
        "__main__.py",
        "loop.py",
        "ports.py",
    ),
    "zbroker/journal": (
        "__main__.py",
        "background.py",
        "conflicts.py",
        "fold.py",
        "helper_threads.py",
        "locate.py",
        "locate_vector.py",
        "log_port.py",
        "lookup.py",
        "loop.py",
        "ports.py",
        "segment_removal.py",
        "snapshot_finder.py",
        "startup.py",
    ),
    "zbroker/queues": (
        "__main__.py",
        "delivered.py",
        "loop.py",
        "full_queue_port.py",
        "replication_port.py",
        "tables.py",
    ),
    "zbroker/queues/work": (),
}
PURE_NAMES: Final = frozenset({"core.py", "format.py", "messages.py", "internal.py", "codec.py"})
PURE_PATHS: Final = frozenset(
    {
        "zbroker/access/grants.py",
        "zbroker/admin/retention.py",
        "zbroker/admin/alarms.py",
        "zbroker/admin/link_alarms.py",
        "zbroker/admin/requests.py",
        "zbroker/admin/audit_format.py",
        "zbroker/admin/documents.py",
        "zbroker/admin/rates.py",
        "zbroker/admin/schedule.py",
        "zbroker/admin/tallies.py",
        "zbroker/admin/content_digests.py",
        "zbroker/admin/words.py",
        "zbroker/cli/bench/plan.py",
        "zbroker/cli/check/verdict.py",
        "zbroker/client/consumer/held_messages.py",
        "zbroker/client/consumer/message.py",
        "zbroker/client/consumer/settlement.py",
        "zbroker/client/connection.py",
        "zbroker/client/subscriber/core.py",
        "zbroker/client/effects.py",
        "zbroker/client/subscriber/feed.py",
        "zbroker/client/subscriber/options.py",
        "zbroker/client/subscriber/requests.py",
        "zbroker/client/bookmark_stores/progress.py",
        "zbroker/client/values.py",
        "zbroker/config/tree.py",
        "zbroker/server/listener/guard.py",
        "zbroker/endpoints.py",
        "zbroker/errors.py",
        "zbroker/heartbeats.py",
        "zbroker/ids.py",
        "zbroker/log/batch_index.py",
        "zbroker/log/cover.py",
        "zbroker/log/records.py",
        "zbroker/log/references.py",
        "zbroker/limits.py",
        "zbroker/toml_source.py",
        "zbroker/server/peers.py",
        "zbroker/server/token_listener.py",
        "zbroker/recording.py",
        "zbroker/supervisor/processes.py",
        "zbroker/wire/disconnects.py",
        "zbroker/wire/surveys.py",
    }
)
IMPURE: Final = frozenset(
    {"asyncio", "lmdb", "logging", "os", "random", "secrets", "select", "signal", "socket"}
    | {"subprocess", "tempfile", "threading", "time", "zmq"}
)

LEFT_OVER: Final = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")


def check(root: Path) -> list[str]:
    """Every complaint about the Python files below `root`, as `path:line: what`."""
    complaints = []
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            where = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            complaints += [f"{where}:{line}: {what}" for line, what in judge(where, text)]
    return complaints


def judge(where: str, text: str) -> Iterator[tuple[int, str]]:
    """Line and complaint, for the file with this path and text."""
    tree = ast.parse(text)
    if text and not ast.get_docstring(tree):
        yield 1, "has no docstring that says what it is for"
    lines = text.count("\n")
    if lines > FILE_LINES_MAX and not where.startswith("tests/"):
        yield lines, f"has {lines} lines, at most {FILE_LINES_MAX}: it does too much"
    yield from _long_functions(tree)
    yield from _left_over(where, text, tree)
    if where.startswith(("zbroker/", "pyspark_zbroker/")):
        yield from _impure_imports(where, tree)
        yield from _upward_imports(where, tree)


def _long_functions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                what = f"`{node.name}` has {lines} lines, at most {FUNCTION_LINES_MAX}"
                yield node.lineno, what


def _left_over(where: str, text: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := LEFT_OVER.search(line):
            yield number, f"{found[0]} is left over"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "breakpoint":
            yield node.lineno, "a breakpoint is left over"
        elif node.func.id == "print" and not where.startswith(PRINTING):
            yield node.lineno, "only the programs print"


def _impure_imports(where: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    folder, _, file = where.rpartition("/")
    pure = folder in PURE_FOLDERS and file not in PURE_FOLDERS[folder]
    if not pure and file not in PURE_NAMES and where not in PURE_PATHS:
        return
    for line, name in imported(tree):
        if name.partition(".")[0] in IMPURE:
            yield line, f"is pure but imports {name}"


def _upward_imports(where: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    module = where.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    layer = next((name for name in _upwards(module) if name in LAYERS), "")
    if layer in ("", "zbroker") and module != "zbroker":
        yield 1, f"{module} is in no layer of tools/layers.py"
        return
    # a module with a line of its own in the table may import no more of its package than that says
    own = () if layer == module and module.count(".") > 1 else (layer,)
    allowed = (*LAYERS[layer], *own)
    for line, name in imported(tree):
        if name.partition(".")[0] in ("zbroker", "pyspark_zbroker") and not _fits(name, allowed):
            yield line, f"{module} may not import {name}: imports run downward"


def _upwards(module: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def _fits(name: str, allowed: tuple[str, ...]) -> bool:
    if "*" in allowed or name in allowed:
        return True
    return any(prefix in allowed for prefix in _upwards(name) if prefix != "zbroker")


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, anywhere in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def main() -> int:
    """Prints every complaint; exit 1 if there is one."""
    root = Path(__file__).resolve().parent.parent
    complaints = check(root) + field_words.check(root) + names.check(root)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
