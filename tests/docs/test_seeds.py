"""Claims about what the requirements state: each row has a test, and each claim is honest."""

from __future__ import annotations

from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.docs import seeds
from tests.docs.seeds import MARKS_MAX, Proof, Row


def test_every_row_is_proved_or_says_why_not() -> None:
    stated = {name: seeds.rows(name) for name in seeds.documents()}
    assert len(stated) == 5
    assert seeds.complaints(stated, seeds.proofs()) == []


# -- the check of the check -----------------------------------------------------------------------

THERE_ROW = Row("s", "000-1", "It is there.")
LATER_ROW = Row("s", "000-2", "It will be there.", needs=seeds.INSTANCE)
EMPTY_ROW = Row("s", "000-3", "It needs nothing.", nothing="why")
STATED = {"000": [THERE_ROW, LATER_ROW, EMPTY_ROW]}
THERE = Proof("000-1", "test_x.py::test_it", frozenset())


def test_a_proved_row_is_fine() -> None:
    assert seeds.complaints(STATED, [THERE]) == []


@pytest.mark.parametrize(
    ("marked", "complaint"),
    [
        ([], "no test proves 000-1"),
        ([THERE._replace(marks=frozenset({"skip"}))], "does not run"),
        ([THERE._replace(marks=frozenset({"xfail", "process"}))], "does not run"),
        ([THERE._replace(marks=frozenset({"long"}))], "by long tests only"),
        ([THERE, THERE._replace(id="000-9")], "no row 000-9"),
        ([THERE, THERE], "one marker twice"),
        ([THERE, THERE._replace(id="000-2")], "000-2 is there"),
        ([THERE, THERE._replace(id="000-3")], "000-3 is there"),
    ],
)
def test_a_wrong_claim_is_noticed(marked: list[Proof], complaint: str) -> None:
    (said,) = seeds.complaints(STATED, marked)
    assert complaint in said


@pytest.mark.parametrize(
    ("document", "row", "complaint"),
    [
        ("000", THERE_ROW._replace(id="001-1"), "belongs elsewhere"),
        ("000", LATER_ROW._replace(needs="time"), "none of NEEDS"),
        ("004", LATER_ROW._replace(id="004-1", needs="sessions"), "one instance can keep it"),
        ("004", EMPTY_ROW._replace(id="004-1"), "states nothing that needs nothing"),
        ("004", THERE_ROW._replace(id="004-1", differs="why"), "may not differ"),
    ],
)
def test_a_wrong_row_is_noticed(document: str, row: Row, complaint: str) -> None:
    marked = [] if row.needs or row.nothing else [THERE._replace(id=row.id)]
    (said,) = seeds.complaints({document: [row]}, marked)
    assert complaint in said


def test_a_test_that_claims_too_much_is_noticed() -> None:
    ids = [f"000-{number}" for number in range(MARKS_MAX + 1)]
    stated = {"000": [Row("s", id_, "") for id_ in ids]}
    (said,) = seeds.complaints(stated, [THERE._replace(id=id_) for id_ in ids])
    assert f"claims {MARKS_MAX + 1} rows" in said


def test_a_row_that_is_there_twice_is_noticed() -> None:
    (said,) = seeds.complaints({"000": [THERE_ROW] * 2}, [THERE])
    assert "row 000-1 twice" in said


def test_markers_are_found_with_the_other_marks_of_their_test() -> None:
    text = """
        import pytest
        pytestmark = [pytest.mark.process, pytest.mark.timeout(3)]
        @pytest.mark.seed("000-1")
        @pytest.mark.seed("001-2")
        def test_a(): ...
        class TestMore:
            @pytest.mark.skipif(True, reason="x")
            @pytest.mark.seed("000-3")
            def test_b(self): ...
        @other
        def test_c(): ...
    """
    around = {"process", "timeout"}
    assert list(seeds.proofs_in("t.py", dedent(text))) == [
        Proof("000-1", "t.py::test_a", frozenset(around)),
        Proof("001-2", "t.py::test_a", frozenset(around)),
        Proof("000-3", "t.py::TestMore::test_b", frozenset(around | {"skipif"})),
    ]


@pytest.mark.parametrize("marker", ["seed", "seed()", 'seed("000", "a")'])
def test_a_marker_without_one_id_is_refused(marker: str) -> None:
    with pytest.raises(AssertionError, match="the id of a row"):
        list(seeds.proofs_in("t.py", f"@pytest.mark.{marker}\ndef test_a(): ...\n"))


@pytest.mark.parametrize("head", ["def fill(): ...", "class Fill: ..."])
def test_a_marker_on_what_pytest_does_not_collect_is_refused(head: str) -> None:
    with pytest.raises(AssertionError, match="does not collect"):
        list(seeds.proofs_in("t.py", f'@pytest.mark.seed("000-1")\n{head}\n'))


@pytest.mark.parametrize("key", ["word", "need"])
def test_a_misspelt_key_is_refused(key: str) -> None:
    with pytest.raises(KeyError):
        seeds.row_of({"section": "s", "id": "n", "words": "w", key: "x"})


def test_the_page_says_what_is_there() -> None:
    assert seeds.shown(THERE_ROW, [THERE]) == "`test_x.py::test_it`"
    long = THERE._replace(marks=frozenset({"long"}))
    assert seeds.shown(THERE_ROW, [long]).endswith("(long)")
    assert seeds.shown(LATER_ROW, []) == "not there: needs a second instance"
    assert seeds.shown(EMPTY_ROW, []) == "nothing to do: why"
    differs = THERE_ROW._replace(differs="why")
    assert seeds.shown(differs, [THERE]) == "differs: why<br>`test_x.py::test_it`"


@pytest.mark.parametrize(
    ("reason", "proves", "bad"),
    [
        ("needs package: x", False, False),
        ("needs package: x", True, True),
        ("needs root", True, True),
        ("long: later", True, False),
    ],
)
def test_a_test_that_proves_something_may_not_be_skipped(
    reason: str, proves: bool, bad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(conftest, "_bad_skips", reported)
    report: Any = SimpleNamespace(
        skipped=True,
        longrepr=("test_x.py", 1, f"Skipped: {reason}"),
        keywords={"seed": 1} if proves else {},
        nodeid="test_x.py::test_it",
    )
    conftest.pytest_runtest_logreport(report)
    assert bool(reported) is bad
