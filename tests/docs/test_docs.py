"""Claims about the manual: its blocks run, its links resolve, it is complete and short enough."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.docs import generate
from tests.docs.pages import ROOT, WITHOUT, Page, blocks_of, matches, prose_of, read_pages
from tests.docs.running import Place, Program
from tests.log.test_format import GOLDEN
from tests.process.postgres import PostgresServer, programs_or_skip
from tests.sim import (
    exclusive_bugs,
    letters_bugs,
    points_bugs,
    sessions_bugs,
    single_active_bugs,
    transactions_bugs,
)
from tests.sim.log_world import PLANTED
from tests.sim.test_world import BUGS
from zbroker.local import LocalBroker
from zbroker.log import format as journal_format
from zbroker.wire import branches, codec, messages, queue_messages, stages, transactions

PAGES = read_pages()
RUNNING = [page for page in PAGES if page.runs]
LINES_MAX = {"README.md": 110, "docs/reference/wire.md": 150, "docs/reference/journal.md": 100}
LINES_MAX_OTHERS = 400
NAMED = re.compile(r"\bzbroker(?:\.\w+)+")
NO_MODULES = (
    "zbroker.toml",
    "zbroker.example.toml",
    "zbroker.service",
)  # files


#: the pages with commands
WIRE = (
    "docs/reference/wire.md", "docs/reference/queues.md", "docs/reference/exchanges.md",
    "docs/reference/transactions.md", "docs/reference/consumer-credit.md",
)  # fmt: skip


def page(name: str) -> Page:
    return next(each for each in PAGES if each.name == name)


def ids(pages: list[Page]) -> list[str]:
    return [each.name for each in pages]


# -- blocks that run ------------------------------------------------------------------------------


def run_page(each: Page, directory: Path, database: str = "") -> None:
    """All blocks of a page, in order; each prints what the page says. database: for psycopg."""
    with LocalBroker(directory / "zbroker-data") as broker:
        place = Place(directory, broker, {DATABASE: database} if database else {})
        program = Program(place, without_zbroker=each.text.startswith(WITHOUT))
        printed = ""
        try:
            for block in each.blocks:
                if block.mark == "prints":
                    assert matches(block.text, printed), f"{each.name}:{block.line}: {printed}"
                elif block.language == "python" and block.mark == "alone":
                    for _ in range(2):
                        run_alone(place, each, block.line, block.text)
                elif block.language == "python":
                    printed = program.run(each, block.line, block.text)
                elif block.language == "sh":
                    printed = place.shell(block.text)
        finally:
            program.close()


def run_alone(place: Place, each: Page, line: int, text: str) -> None:
    program = Program(place, without_zbroker=True)
    try:
        assert program.run(each, line, text)
    finally:
        program.close()


def uses_spark(each: Page) -> bool:
    """True if a program of the page makes a Spark session."""
    return any(" session(" in block.text for block in each.blocks if block.language == "python")


SPARK_PAGES = [
    pytest.param(  # a session for each of them: one is enough for every day
        each, id=each.name, marks=() if "replay-with-spark" in each.name else pytest.mark.long
    )
    for each in RUNNING
    if uses_spark(each)
]


#: pages with several instances or large files: more than a minute together
LONG_PAGES = (
    "docs/howto/workers-in-two-data-centres.md", "docs/howto/a-file-is-damaged.md",
    "docs/howto/keep-the-journal-small.md", "docs/howto/back-up-a-running-journal.md",
    "docs/tutorial/three-hosts.md",
)  # fmt: skip


#: how the page about PostgreSQL names its database
DATABASE = "postgresql:///shop"
DATABASE_PAGE = "docs/howto/a-row-and-a-message-both-or-neither.md"
#: what that page says to do for sqlite3
SQLITE = {"import psycopg": "import sqlite3", f'psycopg.connect("{DATABASE}")':
          'sqlite3.connect("shop.db")', "%s": "?"}  # fmt: skip


@pytest.mark.process
def test_the_blocks_of_the_page_about_postgresql_run(tmp_path: Path) -> None:
    pytest.importorskip("transaction", reason="needs package transaction")
    with PostgresServer(programs_or_skip()) as server:
        run_page(page(DATABASE_PAGE), tmp_path, server.url)


@pytest.mark.process
def test_the_page_about_postgresql_holds_for_sqlite3_too(tmp_path: Path) -> None:
    pytest.importorskip("transaction", reason="needs package transaction")
    each = page(DATABASE_PAGE)
    text = each.text
    for there, here in SQLITE.items():
        assert there in text
        text = text.replace(there, here)
    run_page(each._replace(text=text), tmp_path)


@pytest.mark.seed("002-37")
@pytest.mark.process
@pytest.mark.parametrize(
    "each",
    [
        pytest.param(each, id=each.name, marks=pytest.mark.long if each.name in LONG_PAGES else ())
        for each in RUNNING
        if not uses_spark(each) and each.name != DATABASE_PAGE
    ],
)
def test_the_blocks_of_a_page_run(each: Page, tmp_path: Path) -> None:
    run_page(each, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.parametrize("each", SPARK_PAGES)
def test_the_blocks_of_a_spark_page_run(each: Page, tmp_path: Path) -> None:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs package pyspark")
    run_page(each, tmp_path)


@pytest.mark.process
def test_a_program_without_zbroker_cannot_import_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "zbroker-data") as broker:
        program = Program(Place(tmp_path, broker), without_zbroker=True)
        try:
            with pytest.raises(AssertionError, match="does without zbroker"):
                program.run(PAGES[0], 1, "import zbroker")
        finally:
            program.close()


def test_a_block_that_prints_something_else_is_noticed() -> None:
    assert matches("a …\nb\n", "a 17\nb\n")
    assert not matches("a …\nb\n", "a 17\nc\n")
    assert not matches("17\n", "171\n")


def test_blocks_are_found_with_their_marks() -> None:
    text = "<!-- prints -->\n```text\nx\n```\n\n```python\ny\n```\n"
    found = [(block.language, block.text, block.line, block.mark) for block in blocks_of(text)]
    assert found == [("text", "x\n", 3, "prints"), ("python", "y\n", 7, "")]


# -- what is made from code -----------------------------------------------------------------------


@pytest.mark.parametrize("each", PAGES, ids=ids(PAGES))
def test_what_is_made_from_code_is_up_to_date(each: Page) -> None:
    assert each.text == generate.renewed(each), "run: python -m tests.docs.generate"


def test_every_made_part_is_in_the_manual() -> None:
    found = [name for each in PAGES for name in generate.parts_of(each)]
    assert sorted(found) == sorted(generate.PARTS)


def test_every_command_of_the_wire_has_an_example_in_hex() -> None:
    shown = wire_examples()
    unions = {
        "ingest": messages.IngestCommand | stages.CommitStaged | stages.AbortStaged,
        "delivery": messages.DeliveryCommand,
        "queues": queue_messages.QueuesCommand | transactions.ToQueues | branches.ToQueues,
    }
    for listener, union in unions.items():
        known = {kind.__struct_config__.tag for kind in union.__args__}
        assert known == {name for at, name, _ in shown if at == listener}
    decoders = {"ingest": codec.INGEST, "delivery": codec.DELIVERY, "queues": codec.QUEUES}
    for listener, name, data in shown:
        decoded = codec.decode(decoders[listener], data)
        assert decoded.__struct_config__.tag == name


def test_every_example_in_hex_is_in_the_program_too() -> None:
    written = [map_ for name in WIRE for block in page(name).blocks for map_ in maps_in(block)]
    for _, name, data in wire_examples():
        wanted = msgspec.msgpack.decode(data)
        assert any(same(map_, wanted) for map_ in written), f"{name}: {wanted}"


def wire_examples() -> list[tuple[str, str, bytes]]:
    """(listener, command, bytes) of each row `| listener | command | hex |`."""
    row = re.compile(r"^\| (\w+) \| `(\w+)`[^|]*\| `([0-9a-f]+)` \|$", re.MULTILINE)
    return [
        (listener, name, bytes.fromhex(data))
        for where, name, data in row.findall("".join(page(name).text for name in WIRE))
        for listener in (("ingest", "delivery") if where == "both" else (where,))
    ]


def maps_in(block: Any) -> Iterator[dict[str, Any]]:
    """Maps with a `cmd` in a program; what is no literal is None."""
    if block.language != "python":
        return
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found = {value_of(key): value_of(value) for key, value in pairs if key is not None}
            if "cmd" in found:
                yield found


def value_of(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def same(written: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return written.keys() == wanted.keys() and all(
        value is None or value == wanted[key] for key, value in written.items()
    )


def test_the_hex_of_the_journal_page_is_the_golden_one() -> None:
    shown = {
        block.text.partition("\n")[0].strip(): "".join(block.text.split()[1:])
        for block in page("docs/reference/journal.md").blocks
        if block.text.split()[0] in GOLDEN
    }
    assert shown == GOLDEN


def test_the_sizes_of_the_journal_page_are_those_of_the_code() -> None:
    text = page("docs/reference/journal.md").text
    for name in ("SEGMENT", "GROUP", "BATCH", "NOTE"):
        size = getattr(journal_format, name).size
        assert f"({size} bytes" in text, f"{name} has {size} bytes"


def test_the_journal_page_says_which_kinds_travel() -> None:
    """Kinds as in the code, so also whether they may be stepped over: that is a bit of them."""
    text = page("docs/reference/journal.md").text
    table = text.partition("| kind | travels |")[2].partition("\n\n")[0]
    found: dict[int, str] = {}
    commits = []
    for row in table.splitlines()[2:]:
        kinds, travels, *_ = row.strip("| ").split(" | ")
        names, how = re.split("[;,] ", kinds), travels.split("; ")
        for name, one in zip(names, how * (len(names) // len(how)), strict=True):
            if name.endswith("with flag 4"):
                commits.append(one)
            else:
                found[int(name.split()[0], 0)] = one
    assert found == journal_format.TRAVELS
    assert commits == [journal_format.COMMIT_TRAVELS]
    assert set(found) == {
        value for name, value in vars(journal_format).items() if name.startswith("KIND_")
    }


def test_every_planted_bug_is_named() -> None:
    text = page("docs/explanation/reliability.md").text
    of_sessions = (*transactions_bugs.BUGS, *sessions_bugs.BUGS)
    of_queues = (
        *letters_bugs.BUGS, *exclusive_bugs.BUGS, *single_active_bugs.BUGS, *points_bugs.BUGS
    )  # fmt: skip
    planted = (*BUGS, *PLANTED, *of_sessions, *of_queues)
    assert [bug for bug in planted if bug not in text] == []


# -- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", PAGES, ids=ids(PAGES))
def test_every_link_resolves(each: Page) -> None:
    for link in each.links:
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (each.path.parent / path).resolve() if path else each.path
        assert target.exists(), f"{each.name}: {link}"
        if anchor:
            assert anchor in Page(target, target.read_text()).anchors, f"{each.name}: {link}"


def linked_from(each: Page) -> set[Path]:
    return {(each.path.parent / link.partition("#")[0]).resolve() for link in each.links}


def test_the_index_is_linked_from_the_readme_and_has_every_page() -> None:
    index = page("docs/index.md")
    assert index.path in linked_from(page("README.md"))
    linked = linked_from(index)
    assert [each.name for each in PAGES if each is not index and each.path not in linked] == []


@pytest.mark.parametrize("each", PAGES, ids=ids(PAGES))
def test_every_name_of_the_package_resolves(each: Page) -> None:
    for name in set(NAMED.findall(each.text)):
        if not name.startswith(NO_MODULES):
            resolve(name)


def resolve(name: str) -> object:
    """The module or attribute that a dotted name means. Raises: AssertionError."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        module = ".".join(parts[:split])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in parts[split:]:
            assert hasattr(found, part), name
            found = getattr(found, part)
        return found
    raise AssertionError(name)


def test_a_name_that_does_not_resolve_is_noticed() -> None:
    with pytest.raises(AssertionError):
        resolve("zbroker.journal.nothing")


@pytest.mark.parametrize("each", PAGES, ids=ids(PAGES))
def test_a_page_keeps_its_limit(each: Page) -> None:
    made = sum(text.count("\n") for text in generate.parts_of(each).values())
    limit = LINES_MAX.get(each.name)
    lines = each.text.count("\n")
    assert lines <= limit if limit else lines - made <= LINES_MAX_OTHERS


#: what a page for users may not promise while replication has no bootstrap
NOT_THERE = ("be a peer that copies", "automatic takeover")


def test_no_page_for_users_describes_what_is_not_there() -> None:
    users = [each for each in PAGES if not each.name.startswith("docs/explanation/")]
    reported = [
        (each.name, words)
        for each in users
        for words in NOT_THERE
        if words in " ".join(each.text.split())
    ]
    assert reported == []


def test_the_readme_says_how_to_install_it() -> None:
    for name in ("README.md", "docs/tutorial/first-steps.md", "docs/howto/install.md"):
        assert "pip install ." in page(name).text


def test_the_first_screen_of_the_readme_says_what_is_not_there() -> None:
    lines = page("README.md").text.splitlines()[:25]
    assert any("Not there: partitions" in line for line in lines)


def test_every_figure_of_the_readme_is_on_the_page_about_performance() -> None:
    measured = page("README.md").text.partition("## Measured")[2].partition("\n\n##")[0]
    rows = [row for row in measured.splitlines() if row.startswith("| ") and re.search(r"\d", row)]
    tables = page("docs/reference/performance.md").text
    figures = re.findall(r"(\d+(?:\.\d+)?) (?:M/s|k/s|us)", " ".join(rows[1:]))
    assert len(rows) == 5  # the head and four figures
    assert len(figures) == 9
    assert [figure for figure in figures if not re.search(rf"\b{figure}\b", tables)] == []


def test_what_the_code_says_of_a_page_is_there() -> None:
    """Code names pages, and headings of them in quotes."""
    named = re.compile(r"docs/([\w/]+\.md)(?:, \"([^\"]+)\")?")
    for path in sorted((ROOT / "zbroker").rglob("*.py")):
        for name, heading in named.findall(path.read_text()):
            target = ROOT / "docs" / name
            assert target.exists(), f"{path.name}: {name}"
            if heading:
                text = prose_of(target.read_text()).lower()
                assert re.search(rf"^#+ .*{re.escape(heading.lower())}", text, re.MULTILINE), (
                    f"{path.name}: {name} has no heading {heading!r}"
                )


def test_the_manual_names_no_place_of_a_machine() -> None:
    for each in PAGES:
        assert not re.search(r"/(work|root|home)/", each.text), each.name
