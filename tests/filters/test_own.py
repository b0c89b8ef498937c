"""Functions of one's own, offered by installed packages (zbroker/filters/own.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.filters.alone import takes
from tests.filters.test_compiler import About
from zbroker.config import parse
from zbroker.errors import ClientError, ConfigError
from zbroker.filters import FIXED, Payloads, Vocabulary, compile_expression, compile_filter, own

MODULE = """
def region(country: str, level: int = 1) -> str | None:
    return f"{country.upper()}-{level}"

def named(*, name):
    return name

number = 5
"""
OFFERED = """
[zbroker_functions]
REGION = mine_of_a_test:region
NAMED = mine_of_a_test:named
NUMBER = mine_of_a_test:number
GONE = mine_of_a_test:gone
ABS = mine_of_a_test:region
lower = mine_of_a_test:region
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package."""
    (tmp_path / "mine_of_a_test.py").write_text(MODULE)
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(OFFERED)
    monkeypatch.syspath_prepend(tmp_path)


def value(text: str, called: Callable[..., Any], payload: bytes = b'{"a": 5, "s": "x"}') -> Any:
    vocabulary = Vocabulary(own={"OWN": own.function_of(called)})
    found = compile_expression(text, vocabulary)
    return found.values(Payloads("json", [payload]), [0], About())[0]


@pytest.mark.seed("004-56")
def test_what_a_package_offers_is_called_by_the_filters_of_subscriptions() -> None:
    config = parse('[filters]\nfunctions = ["REGION"]\n', "z.toml")
    vocabulary = own.vocabulary_of("i", "g", config.filters.functions)
    test = compile_filter("REGION(/c) = 'DE-1' AND region(/c, 2) = 'DE-2'", vocabulary).test("json")
    assert takes(test, b'{"c": "de"}')
    assert not takes(test, b'{"c": "fr"}')
    assert not takes(test, b"{}")


def test_it_is_refused_where_a_filter_must_be_fixed() -> None:
    with pytest.raises(ClientError, match="no function REGION; it must mean the same everywhere"):
        compile_filter("REGION(/c) = 'x'", FIXED)


def test_what_the_config_does_not_name_is_not_loaded() -> None:
    with pytest.raises(ClientError, match="there is no function REGION"):
        compile_filter("REGION(/c) = 'x'", own.vocabulary_of("i", "g"))


@pytest.mark.parametrize(
    ("name", "reason", "hint"),
    [
        ("NONE", "'NONE' is offered by no installed package", "there are: ABS, GONE"),
        ("ABS", "'ABS' is a function of the language", "another name"),
        ("lower", "'lower' is not a name for a function", "A to Z"),
        ("GONE", "'GONE' cannot be loaded: AttributeError", "its package"),
        ("NUMBER", "'NUMBER' cannot be loaded: TypeError", "its package"),
        ("NAMED", "'NAMED' cannot be loaded: TypeError(\"its parameter 'name'", "its package"),
    ],
)
def test_what_cannot_be_had_is_refused_when_the_config_is_read(
    name: str, reason: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f'[filters]\nfunctions = ["{name}"]\n', "z.toml")
    assert caught.value.reason.startswith(f"z.toml:2: `filters.functions`: {reason}")
    assert hint in caught.value.hint


def test_parameters_are_read_as_they_are_annotated() -> None:
    def called(text: str, number: float, whole: int, any_value: Any) -> str:
        return repr((text, number, whole, any_value))

    assert value("OWN(/a, '1.5', /a, /s)", called) == repr(("5", 1.5, 5, "x"))
    assert value("OWN(/a, /s, /a, /s)", called) is None
    assert value("OWN(/none, 1, 1, /s)", called) is None
    assert value("OWN(/a, 1, 1, /none)", called) == repr(("5", 1, 1, None))


def test_it_has_as_many_arguments_as_its_parameters() -> None:
    def called(first: str, *others: str) -> int:
        return len(others)

    assert value("OWN('a', 'b', 'c')", called) == 2
    assert value("OWN()", lambda: 7) == 7
    with pytest.raises(ClientError, match="OWN takes at least 1 arguments, not 0"):
        value("OWN()", called)
    with pytest.raises(ClientError, match="OWN takes 0 arguments, not 1"):
        value("OWN(1)", lambda: 7)


@pytest.mark.parametrize(
    "result", [object(), b"x", [1], {}, 1 << 64, float("inf"), "x" * ((1 << 20) + 1)]
)
def test_a_result_that_is_no_value_is_null(result: object) -> None:
    assert value("OWN()", lambda: result) is None


@pytest.mark.parametrize("result", [True, False, 0, -1.5, "x", (1 << 64) - 1, None])
def test_texts_numbers_and_truths_are_results(result: object) -> None:
    assert value("OWN()", lambda: result) is result


def test_what_it_raises_is_null() -> None:
    def called() -> None:
        raise RuntimeError

    assert value("OWN()", called) is None
