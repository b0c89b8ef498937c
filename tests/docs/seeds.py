"""What the requirements state, and the tests that prove it: the tables of reference pages. Pure.

`tests/docs/seeds/<document>.toml` names each behaviour that a document states, in words of our own:

    [[behaviour]]
    section = "Where to begin"
    name = "epoch"
    words = "..."           # a row of the table
    missing = true          # nothing proves it yet: the page says "not there"
    outside = "..."         # zbroker has none of it, and why

A test proves one by `@pytest.mark.seed("<document>", "<name>")`, at most MARKS_MAX of them. Markers
are read from the source: no test has to be imported to make a page.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.docs.pages import ROOT

MARKS_MAX: Final = 5  # who claims more proves nothing in particular
DIRECTORY: Final = Path(__file__).parent / "seeds"
TESTS: Final = ROOT / "tests"
NOT_RUN: Final = frozenset({"skip", "skipif", "xfail"})
_KEYS: Final = {"section": str, "name": str, "words": str, "missing": bool, "outside": str}


class Behaviour(NamedTuple):
    """One thing that a document states."""

    section: str
    name: str
    words: str
    missing: bool = False
    outside: str = ""


class Proof(NamedTuple):
    """One marker: the test that has it, as `room/test_file.py::name`, and its other marks."""

    document: str
    name: str
    test: str
    marks: frozenset[str]


def documents() -> list[str]:
    """The documents there are."""
    return sorted(path.stem for path in DIRECTORY.glob("*.toml"))


def behaviours(document: str) -> list[Behaviour]:
    """What a document states. Raises: KeyError, AssertionError, TypeError if it is wrong."""
    tables = tomllib.loads((DIRECTORY / f"{document}.toml").read_text())
    found = [behaviour_of(table) for table in tables.pop("behaviour")]
    assert not tables, f"{document}.toml: {sorted(tables)}"
    return found


def behaviour_of(table: dict[str, Any]) -> Behaviour:
    """One table of such a file. Raises: KeyError, AssertionError, TypeError."""
    for key, value in table.items():
        assert isinstance(value, _KEYS[key]), f"{table}: {key}"
    return Behaviour(**table)


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
    """The markers in one file. Raises: AssertionError for one that is not two plain strings."""
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
                document, name = _arguments(each, f"{where}::{node.name}")
                yield Proof(document, name, f"{where}::{node.name}", marks - {"seed", ""})


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


def _arguments(node: ast.expr, test: str) -> tuple[str, str]:
    given = [ast.literal_eval(each) for each in node.args] if isinstance(node, ast.Call) else []
    assert len(given) == 2, f"{test}: a seed marker has a document and a name"
    return str(given[0]), str(given[1])


# -- the check and the table ----------------------------------------------------------------------


def complaints(stated: dict[str, list[Behaviour]], marked: list[Proof]) -> list[str]:
    """What is wrong with the markers and the behaviours of all documents; empty: nothing."""
    return [*_about_markers(stated, marked), *_about_behaviours(stated, marked)]


def _about_markers(stated: dict[str, list[Behaviour]], marked: list[Proof]) -> Iterator[str]:
    known = {(document, each.name) for document, all_ in stated.items() for each in all_}
    for proof in marked:
        if (proof.document, proof.name) not in known:
            yield f"{proof.test}: {proof.document} states no {proof.name!r}"
        if proof.marks & NOT_RUN:
            yield f"{proof.test}: does not run, so it proves no {proof.name!r}"
    for (test, *_), count in Counter((p.test, p.document, p.name) for p in marked).items():
        if count > 1:
            yield f"{test}: has one marker twice"
    for test, count in Counter(proof.test for proof in marked).items():
        if count > MARKS_MAX:
            yield f"{test}: claims {count} behaviours, at most {MARKS_MAX}"


def _about_behaviours(stated: dict[str, list[Behaviour]], marked: list[Proof]) -> Iterator[str]:
    by_name = _by_name(marked)
    for document, all_ in stated.items():
        for name, count in Counter(each.name for each in all_).items():
            if count > 1:
                yield f"{document}: states {name!r} twice"
        for each in all_:
            found = by_name[document, each.name]
            if (each.missing or each.outside) and found:
                yield f"{document}: {each.name!r} is there: {found[0].test} proves it"
            elif not (each.missing or each.outside) and not found:
                yield f"{document}: no test proves {each.name!r}"
            elif found and all("long" in proof.marks for proof in found):
                yield f"{document}: {each.name!r} is proved by long tests only"


def _by_name(marked: list[Proof]) -> defaultdict[tuple[str, str], list[Proof]]:
    found: defaultdict[tuple[str, str], list[Proof]] = defaultdict(list)
    for proof in marked:
        found[proof.document, proof.name].append(proof)
    return found


def table(document: str) -> str:
    """The rows of one document, in its order, a table per section."""
    by_name, parts, section = _by_name(proofs()), [], ""
    for each in behaviours(document):
        if each.section != section:
            section = each.section
            parts.append(f"\n### {section}\n\n| behaviour | proved by |\n|---|---|\n")
        parts.append(f"| {each.words} | {told(each, by_name[document, each.name])} |\n")
    return "".join(parts).removeprefix("\n")


def told(behaviour: Behaviour, found: list[Proof]) -> str:
    """What stands beside a behaviour."""
    if behaviour.outside:
        return f"outside: {behaviour.outside}"
    if behaviour.missing:
        return "not there"
    return "<br>".join(
        f"`{proof.test}`{' (long)' if 'long' in proof.marks else ''}" for proof in found
    )
