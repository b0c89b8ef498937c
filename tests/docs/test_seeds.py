"""Claims about what the requirements state: each behaviour has a test, and each claim is honest."""

from __future__ import annotations

from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.docs import seeds
from tests.docs.seeds import MARKS_MAX, Behaviour, Proof


def test_every_stated_behaviour_is_proved_or_called_missing() -> None:
    stated = {name: seeds.behaviours(name) for name in seeds.documents()}
    assert stated
    assert seeds.complaints(stated, seeds.proofs()) == []


# -- the check of the check -----------------------------------------------------------------------

STATED = {
    "000": [
        Behaviour("s", "there", "It is there."),
        Behaviour("s", "not yet", "It will be there.", missing=True),
        Behaviour("s", "never", "It is elsewhere.", outside="why"),
    ]
}
THERE = Proof("000", "there", "test_x.py::test_it", frozenset())


def test_a_proved_behaviour_is_fine() -> None:
    assert seeds.complaints(STATED, [THERE]) == []


@pytest.mark.parametrize(
    ("marked", "complaint"),
    [
        ([], "no test proves 'there'"),
        ([THERE._replace(marks=frozenset({"skip"}))], "does not run"),
        ([THERE._replace(marks=frozenset({"xfail", "process"}))], "does not run"),
        ([THERE._replace(marks=frozenset({"long"}))], "by long tests only"),
        ([THERE, THERE._replace(name="their")], "states no 'their'"),
        ([THERE, THERE._replace(document="009")], "009 states no 'there'"),
        ([THERE, THERE], "one marker twice"),
        ([THERE, THERE._replace(name="not yet")], "'not yet' is there"),
        ([THERE, THERE._replace(name="never")], "'never' is there"),
    ],
)
def test_a_wrong_claim_is_noticed(marked: list[Proof], complaint: str) -> None:
    (told,) = seeds.complaints(STATED, marked)
    assert complaint in told


def test_a_test_that_claims_too_much_is_noticed() -> None:
    names = [str(number) for number in range(MARKS_MAX + 1)]
    stated = {"000": [Behaviour("s", name, "") for name in names]}
    marked = [THERE._replace(name=name) for name in names]
    (told,) = seeds.complaints(stated, marked)
    assert f"claims {MARKS_MAX + 1} behaviours" in told


def test_a_behaviour_that_is_stated_twice_is_noticed() -> None:
    (told,) = seeds.complaints({"000": [STATED["000"][0]] * 2}, [THERE])
    assert "states 'there' twice" in told


def test_markers_are_found_with_the_other_marks_of_their_test() -> None:
    text = """
        import pytest
        pytestmark = [pytest.mark.process, pytest.mark.timeout(3)]
        @pytest.mark.seed("000", "one")
        @pytest.mark.seed("001", "two")
        def test_a(): ...
        class TestMore:
            @pytest.mark.skipif(True, reason="x")
            @pytest.mark.seed("000", "three")
            def test_b(self): ...
        @other
        def test_c(): ...
    """
    around = {"process", "timeout"}
    assert list(seeds.proofs_in("t.py", dedent(text))) == [
        Proof("000", "one", "t.py::test_a", frozenset(around)),
        Proof("001", "two", "t.py::test_a", frozenset(around)),
        Proof("000", "three", "t.py::TestMore::test_b", frozenset(around | {"skipif"})),
    ]


@pytest.mark.parametrize("marker", ["seed", 'seed("000")', 'seed("000", "a", "b")'])
def test_a_marker_without_document_and_name_is_refused(marker: str) -> None:
    with pytest.raises(AssertionError, match="a document and a name"):
        list(seeds.proofs_in("t.py", f"@pytest.mark.{marker}\ndef test_a(): ...\n"))


@pytest.mark.parametrize("key", ["word", "mising"])
def test_a_misspelt_key_is_refused(key: str) -> None:
    with pytest.raises(KeyError):
        seeds.behaviour_of({"section": "s", "name": "n", "words": "w", key: True})


def test_what_is_missing_is_called_not_there() -> None:
    there, missing, outside = STATED["000"]
    assert seeds.told(there, [THERE]) == "`test_x.py::test_it`"
    assert seeds.told(there, [THERE._replace(marks=frozenset({"long"}))]).endswith("(long)")
    assert seeds.told(missing, []) == "not there"
    assert seeds.told(outside, []) == "outside: why"


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
    told: list[str] = []
    monkeypatch.setattr(conftest, "_bad_skips", told)
    report: Any = SimpleNamespace(
        skipped=True,
        longrepr=("test_x.py", 1, f"Skipped: {reason}"),
        keywords={"seed": 1} if proves else {},
        nodeid="test_x.py::test_it",
    )
    conftest.pytest_runtest_logreport(report)
    assert bool(told) is bad
