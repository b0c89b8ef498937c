"""tools/names.py: a class has a name of its own, files and classes have words of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import names

ROOT = Path(__file__).parent.parent


def test_the_package_keeps_the_rules() -> None:
    assert names.check(ROOT) == []


@pytest.mark.parametrize(
    ("where", "classes", "part"),
    [
        ("zbroker/queues/handing.py", [], "handing is not a noun"),
        ("zbroker/server/door.py", [], "private word 'door': listener"),
        ("zbroker/server/told_text.py", [], "private word 'told'"),
        ("zbroker/server/listener.py", ["FrontDoors", "DoorLogon"], "DoorLogon has"),
        ("zbroker/log/records.py", ["WiringRecord"], "private word 'wiring': definition"),
    ],
)
def test_a_private_word_is_noticed(where: str, classes: list[str], part: str) -> None:
    found = list(names.judge(where, classes))
    assert any(part in what for what in found)


@pytest.mark.parametrize(
    ("where", "classes"),
    [
        ("zbroker/cli/journal/verify.py", ["VerifyReport"]),
        ("zbroker/recording.py", ["Recording"]),
        ("zbroker/bookmarks/index.py", ["Bookmarks", "Lifetime", "Mark"]),
    ],
)
def test_words_of_the_field_are_left_alone(where: str, classes: list[str]) -> None:
    assert list(names.judge(where, classes)) == []


def test_classes_that_share_a_name_are_noticed(tmp_path: Path) -> None:
    for package in ("log", "wire"):
        (tmp_path / "zbroker" / package).mkdir(parents=True)
        (tmp_path / "zbroker" / package / "units.py").write_text("class Span: ...\n")
    assert names.check(tmp_path) == [
        "zbroker/log/units.py, zbroker/wire/units.py: classes share the name Span"
    ]


@pytest.mark.parametrize(
    "line",
    ["def told(): ...", "def f(room): ...", "a_door = 1", "self._desks = 1", "for floor in x: ..."],
)
def test_a_private_word_of_a_function_or_a_variable_is_noticed(tmp_path: Path, line: str) -> None:
    (tmp_path / "zbroker").mkdir()
    (tmp_path / "zbroker" / "units.py").write_text(f"{line}\n")
    (found,) = names.check(tmp_path)
    assert "has the private word" in found


def test_a_name_that_others_gave_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "zbroker").mkdir()
    (tmp_path / "zbroker" / "units.py").write_text("low = math.floor(high)\nlet(room=1)\n")
    assert names.check(tmp_path) == []
