"""Every place of the package that removes or renames a file, and why it cannot hit another's.

A segment may be the only copy of acknowledged messages, its directory may be shared with another
instance by mistake, and two directories may be one by a link. So each place is listed here with
what it looks at before; a new one fails this test until it is listed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import zbroker

PACKAGE = Path(zbroker.__file__).parent

HEADER: Final = "looks at the instance in the segment's header, and at device and inode of a copy"
OWNER: Final = "the archive directory's owner was checked; only side files and unfinished ones"
LOCKED: Final = "names that are no segment's, in the journal directory, which is locked and checked"
CHECKED: Final = "segments whose headers the same start has checked, one by one"
NEW: Final = "a file that the same code made a moment ago, under a name that nothing else has"
STORE: Final = "a publish store, locked by its client; its files are made by it alone"
CACHE: Final = "may be deleted at any time; can be made again from the log"
OWN: Final = "one file in the data directory or the user's own, replaced by its next version"
OUTPUT: Final = "in the output directory of a tool, which it made and marked as unfinished"
SCRATCH: Final = "a directory for temporary files, made by the process that removes it"
SEAM: Final = "the operation itself: its callers are listed"

PLACES: Final = {
    "access/keys.py make": NEW,
    "admin/audit.py Audit._write": OWN,
    "admin/audit.py _cut_torn": OWN,
    "admin/history.py History._rewrite": OWN,
    "admin/journal_link.py HoldLeases._save": OWN,
    "admin/authentication.py make": OWN,
    "log/archive.py CopyJob.make": OWNER,
    "log/archive.py tidy": OWNER,
    "log/summaries.py write_summary": OWNER,
    "bookmarks/files.py note_closed": CACHE,
    "bookmarks/files.py remove": CACHE,
    "bookmarks/files.py set_aside": CACHE,
    "bookmarks/files.py settle": CACHE,
    "bookmarks/files.py swap": CACHE,
    "control/contexts.py _write": OWN,
    "control/contexts.py remove": OWN,
    "control/contexts.py use_none": OWN,
    "cli/demo.py demo": SCRATCH,
    "cli/journal/export.py _write": OUTPUT,
    "cli/journal/export.py copy_file": OUTPUT,
    "cli/journal/new_journal.py _finish": OUTPUT,
    "cli/journal/new_journal.py _throw_away": OUTPUT,
    "cli/journal/offline.py _copy_one": HEADER,
    "client/publisher/file_store.py FileStore._give_up": STORE,
    "client/publisher/mapped_queue.py Staging._next_file": SCRATCH,
    "client/publisher/mapped_queue.py Staging._let_go": SCRATCH,
    "client/publisher/mapped_queue.py _mapped": SCRATCH,
    "client/publisher/mapped_queue.py forget": SCRATCH,
    "client/publisher/store_files.py _check_client": STORE,
    "client/publisher/store_files.py _first_segment": STORE,
    "demo/instances.py DemoInstance.put_back": SCRATCH,
    "demo/place.py _clear": SCRATCH,
    "server/disconnects_file.py DisconnectsFile._save": OWN,
    "durable_files.py append": OWN,
    "durable_files.py replace": OWN,
    "durable_files.py write": OWN,
    "journal/conflicts.py Conflicts._look": OWN,
    "log/disk.py RealDisk.rename": SEAM,
    "log/disk.py RealDisk.unlink": SEAM,
    "log/inventory.py Inventory._remember": LOCKED,
    "log/inventory.py Inventory.set_aside": CHECKED,
    "log/generations.py forget_mark": LOCKED,
    "log/generations.py write_mark": LOCKED,
    "log/owner.py claim": NEW,
    "log/places.py SegmentPlaces.unlink": HEADER,
    "log/segments.py discard": SEAM,
    "log/segments.py make_filled": LOCKED,
    "log/segments.py publish": LOCKED,
    "log/segments.py replace_file": SEAM,
    "journal/segment_removal.py remove_through": HEADER,
    "journal/end_note.py EndNote.forget": CACHE,
    "journal/segment_removal.py retire": HEADER,
    "log/writer.py Writer.__init__": LOCKED,
    "log/writer.py Writer._allocate": LOCKED,
    "log/writer.py Writer.reuse": STORE,
    "log/writer.py _Spare._give_up": LOCKED,
    "local.py _clean": SCRATCH,
    "memory_notes.py MemoryNote.__init__": NEW,
    "memory_notes.py remove": CACHE,
    "queues/delivered.py Delivered.open": CACHE,
    "queues/tables.py Tables.__init__": CACHE,
    "spark/local_session.py _publish_program": CACHE,
    "spark/jobs/export.py _save": OUTPUT,
    "spark/jobs/export.py export": OUTPUT,
    "spark/jobs/units.py _publish": OUTPUT,
    "spark/jobs/units.py write_unit": OUTPUT,
    "spark/jobs/units.py write_whole": OUTPUT,
    "supervisor/directory.py _take": OWN,
    "supervisor/directory.py _make_sockets": SCRATCH,
    "supervisor/directory.py clean": SCRATCH,
    "supervisor/directory.py prepare": SCRATCH,
    "supervisor/directory.py remove_sockets": SCRATCH,
    "supervisor/directory.py write_running": OWN,
}

REMOVING: Final = {"unlink", "rename", "rmtree", "rmdir", "truncate", "ftruncate"}
WRAPPERS: Final = {"discard", "replace_file"}
NOT_FILES: Final = {"clock.py", "filters/functions.py"}  # their `replace` is that of datetime


class _Calls(ast.NodeVisitor):
    """The functions of one module that remove or rename a file."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._inside: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        path_replace = (
            isinstance(called, ast.Attribute)
            and name == "replace"  # of a Path: one argument, where that of str has two
            and len(node.args) == 1
            and not node.keywords
        )
        wrapper = name in WRAPPERS if isinstance(called, ast.Name) else _is_durable(called)
        if name in REMOVING or path_replace or wrapper:
            self.found.add(".".join(self._inside))
        self.generic_visit(node)


def _is_durable(called: ast.expr) -> bool:
    """True for durable_files.replace(path, data)."""
    return ast.unparse(called) == "durable_files.replace"


def calls(source: str) -> set[str]:
    """Names of functions in `source` that remove or rename files."""
    visitor = _Calls()
    visitor.visit(ast.parse(source))
    return visitor.found


def places() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        if module not in NOT_FILES:
            yield from (f"{module} {name}" for name in sorted(calls(path.read_text())))


def test_every_place_that_removes_or_renames_is_listed_with_what_it_looks_at() -> None:
    assert sorted(places()) == sorted(PLACES)


@pytest.mark.parametrize(
    "line",
    [
        "p.unlink()",
        "disk.rename(a, b)",
        "shutil.rmtree(x)",
        "t.replace(p)",
        "discard(d, n)",
        "replace_file(d, n, b)",
    ],
)
def test_a_new_place_would_be_found(line: str) -> None:
    assert calls(f"class A:\n    def f(self):\n        {line}") == {"A.f"}


def test_replacing_text_is_no_removal() -> None:
    assert calls("def f(): return s.replace('a', 'b'), structs.replace(x, y=1)") == set()


def test_segments_are_unlinked_by_the_one_function_that_looks_at_the_header() -> None:
    """Everything that is listed under HEADER calls Places.unlink, or is it."""
    for place in (place for place, why in PLACES.items() if why == HEADER):
        module, _, name = place.partition(" ")
        tree = ast.parse((PACKAGE / module).read_text())
        [function] = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name == name.rpartition(".")[2]
        ]
        source = ast.unparse(function)
        assert "places.unlink(" in source or "header.instance != self.instance" in source, place
