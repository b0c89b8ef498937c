"""What the requirement documents state, and the tests that prove it: a page for developers. Pure.

`tests/docs/seeds/<document>.toml` has a row for each statement of a document, in words of our own:

    [[row]]
    section = "Where to begin"
    id = "004-44"
    words = "..."
    needs = "..."           # nothing proves it yet, and what it waits for: one of NEEDS
    differs = "..."         # zbroker does something else, and why; a test proves that
    nothing = "..."         # the document states that nothing has to be done, and why that holds

A test proves a row by `@pytest.mark.seed("<id>")`, at most MARKS_MAX of them. Markers are read from
the source, so no test has to be imported to make the page; a marker on anything that pytest does
not collect is an error.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.docs.pages import ROOT

MARKS_MAX: Final = 6  # a test that claims more proves nothing in particular
DIRECTORY: Final = Path(__file__).parent / "seeds"
TESTS: Final = ROOT / "tests"
NOT_RUN: Final = frozenset({"skip", "skipif", "xfail"})
INSTANCE: Final = "a second instance"
REQUESTS: Final = "requests between instances"
NEEDS: Final = frozenset({INSTANCE, REQUESTS, "sessions", "transactions", "exchanges"})
#: One instance keeps every row of these, but for those that need a second one.
COMPLETE: Final = frozenset({"002", "003", "004"})
#: The only rows that may differ: what a log without last values, or of segments, cannot do; and
#: what need not be replicated, since messages have owners, and names that are the same everywhere.
DIFFERING: Final = frozenset({
    "001-14", "001-17", "001-18", "001-26", "001-27", "001-42", "001-48", "001-58",
    "002-10", "002-37", "003-31", "003-37", "004-14", "004-87",
    "004-93", "004-100",
})  # fmt: skip
_KEYS: Final = {"section", "id", "words", "needs", "differs", "nothing"}


class Row(NamedTuple):
    """One statement of a document."""

    section: str
    id: str
    words: str
    needs: str = ""
    differs: str = ""
    nothing: str = ""


class Proof(NamedTuple):
    """One marker: the id, the test that has it as `folder/test_file.py::name`, its other marks."""

    id: str
    test: str
    marks: frozenset[str]


def documents() -> list[str]:
    """The documents there are."""
    return sorted(path.stem for path in DIRECTORY.glob("*.toml"))


def rows(document: str) -> list[Row]:
    """What a document states. Raises: KeyError, AssertionError, TypeError if it is wrong."""
    tables = tomllib.loads((DIRECTORY / f"{document}.toml").read_text())
    found = [row_of(table) for table in tables.pop("row")]
    assert not tables, f"{document}.toml: {sorted(tables)}"
    return found


def row_of(table: dict[str, Any]) -> Row:
    """One table of such a file. Raises: KeyError, AssertionError, TypeError."""
    for key, value in table.items():
        if key not in _KEYS:
            raise KeyError(key)
        assert isinstance(value, str), f"{table}: {key}"
    return Row(**table)


# -- markers --------------------------------------------------------------------------------------


def proofs(root: Path = TESTS) -> list[Proof]:
    """Every marker of every test, in the order of files and lines."""
    found: list[Proof] = []
    for path in sorted(root.rglob("test_*.py")):
        text = path.read_text()
        if "mark.seed(" in text:
            found += proofs_in(path.relative_to(root).as_posix(), text)
    return found


def proofs_in(where: str, text: str) -> Iterator[Proof]:
    """The markers in one file. Raises: AssertionError for one that is not one plain string."""
    tree = ast.parse(text)
    yield from _proofs_of(tree.body, where, _of_file(tree))


def marks_in(text: str) -> dict[str, frozenset[str]]:
    """The tests at the top of a file and their marks."""
    tree = ast.parse(text)
    around = _of_file(tree)
    return {
        node.name: around | {_mark_of(each) for each in node.decorator_list}
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def _proofs_of(body: Iterable[ast.stmt], where: str, around: frozenset[str]) -> Iterator[Proof]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        marks = around | {_mark_of(each) for each in node.decorator_list}
        if isinstance(node, ast.ClassDef):
            yield from _proofs_of(node.body, f"{where}::{node.name}", marks)
        for each in node.decorator_list:
            if _mark_of(each) == "seed":
                test = f"{where}::{node.name}"
                assert is_collected(node), f"{test}: pytest does not collect it"
                yield Proof(_argument(each, test), test, marks - {"seed", ""})


def _of_file(tree: ast.Module) -> frozenset[str]:
    """The names in `pytestmark = ...`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            given = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            return frozenset(map(_mark_of, given))
    return frozenset()


def _mark_of(node: ast.expr) -> str:
    """`x` of `pytest.mark.x` or `pytest.mark.x(...)`; else ""."""
    name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    return name.removeprefix("pytest.mark.") if name.startswith("pytest.mark.") else ""


def is_collected(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """True for what pytest collects by its name."""
    return node.name.startswith("Test" if isinstance(node, ast.ClassDef) else "test_")


def _argument(node: ast.expr, test: str) -> str:
    given = [ast.literal_eval(each) for each in node.args] if isinstance(node, ast.Call) else []
    assert len(given) == 1, f"{test}: a seed marker has the id of a row"
    return str(given[0])


# -- the check and the table ----------------------------------------------------------------------


def complaints(stated: dict[str, list[Row]], marked: list[Proof]) -> list[str]:
    """What is wrong with the markers and the rows of all documents; empty: nothing."""
    return [*_about_markers(stated, marked), *_about_rows(stated, marked)]


def _about_markers(stated: dict[str, list[Row]], marked: list[Proof]) -> Iterator[str]:
    known = {each.id for all_ in stated.values() for each in all_}
    for proof in marked:
        if proof.id not in known:
            yield f"{proof.test}: there is no row {proof.id}"
        if proof.marks & NOT_RUN:
            yield f"{proof.test}: does not run, so it does not prove {proof.id}"
    for (test, _), count in Counter((proof.test, proof.id) for proof in marked).items():
        if count > 1:
            yield f"{test}: has one marker twice"
    for test, count in Counter(proof.test for proof in marked).items():
        if count > MARKS_MAX:
            yield f"{test}: claims {count} rows, at most {MARKS_MAX}"


def _about_rows(stated: dict[str, list[Row]], marked: list[Proof]) -> Iterator[str]:
    by_id = _by_id(marked)
    for document, all_ in stated.items():
        for id_, count in Counter(each.id for each in all_).items():
            if count > 1:
                yield f"{document}: has row {id_} twice"
        for each in all_:
            yield from _about_row(document, each)
            found = by_id[each.id]
            if (each.needs or each.nothing) and found:
                yield f"{each.id} is there: {found[0].test} proves it"
            elif not (each.needs or each.nothing) and not found:
                yield f"no test proves {each.id}"
            elif found and all("long" in proof.marks for proof in found):
                yield f"{each.id} is proved by long tests only"


def _about_row(document: str, row: Row) -> Iterator[str]:
    if not row.id.startswith(f"{document}-"):
        yield f"{document}: {row.id} belongs elsewhere"
    if row.needs and row.needs not in NEEDS:
        yield f"{row.id}: needs {row.needs!r}, which is none of NEEDS"
    if document in COMPLETE and row.needs not in {"", INSTANCE}:
        yield f"{row.id}: one instance can keep it"
    if document in COMPLETE and row.nothing:
        yield f"{row.id}: document {document} states nothing that needs nothing"
    if row.differs and row.id not in DIFFERING:
        yield f"{row.id}: may not differ"


def _by_id(marked: list[Proof]) -> defaultdict[str, list[Proof]]:
    found: defaultdict[str, list[Proof]] = defaultdict(list)
    for proof in marked:
        found[proof.id].append(proof)
    return found


def tables() -> str:
    """A table per section of each document."""
    by_id, parts = _by_id(proofs()), []
    for document in documents():
        section = ""
        parts.append(f"\n## Document {document}\n")
        for each in rows(document):
            if each.section != section:
                section = each.section
                parts.append(f"\n### {section}\n\n| row | statement | proved by |\n|---|---|---|\n")
            parts.append(f"| {each.id} | {each.words} | {shown(each, by_id[each.id])} |\n")
    return "".join(parts).removeprefix("\n")


def shown(row: Row, found: list[Proof]) -> str:
    """What the table says beside a statement."""
    if row.needs:
        return f"not there: needs {row.needs}"
    if row.nothing:
        return f"nothing to do: {row.nothing}"
    tests = "<br>".join(
        f"`{proof.test}`{' (long)' if 'long' in proof.marks else ''}" for proof in found
    )
    return f"differs: {row.differs}<br>{tests}" if row.differs else tests
