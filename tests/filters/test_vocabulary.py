"""What a filter may call, by where it is used (zbroker/filters/vocabulary.py)."""

from __future__ import annotations

import uuid

import pytest

from tests.filters.test_compiler import About
from zbroker.access.grants import Clause
from zbroker.clock import SystemClock
from zbroker.errors import ClientError
from zbroker.filters import FIXED, Payloads, Vocabulary, compile_expression, compile_filter
from zbroker.filters.functions import CHANGING, Function
from zbroker.filters.vocabulary import CONSTANTS
from zbroker.recording import RecordFilter

DOUBLE = Function(lambda item: item * 2, "n", 1, 1)
OWN = Vocabulary(own={"DOUBLE": DOUBLE})
ONCE = [*CHANGING, *CONSTANTS]


def value(text: str, vocabulary: Vocabulary = OWN) -> object:
    found = compile_expression(text, vocabulary)
    return found.values(Payloads("json", [b'{"a": 5}']), [0], About())[0]


@pytest.mark.parametrize("name", ONCE)
def test_what_has_another_value_later_or_elsewhere_is_refused_in_a_fixed_filter(name: str) -> None:
    with pytest.raises(ClientError) as caught:
        compile_filter(f"/a = {name}()", FIXED)
    assert caught.value.code == "bad_filter"
    assert caught.value.reason.startswith(f"column 6: {name} cannot be called here; it must mean")


@pytest.mark.parametrize("text", ["/a < UNIX_TIMESTAMP()", "user() = 'x'", "DOUBLE(/a) = 2"])
def test_a_record_refuses_what_is_not_fixed(text: str) -> None:
    with pytest.raises(ClientError, match="the same everywhere and at any time"):
        RecordFilter(text, "json")


@pytest.mark.parametrize("text", ["/a < UNIX_TIMESTAMP()", "user() = 'x'", "DOUBLE(/a) = 2"])
def test_a_right_refuses_what_is_not_fixed(text: str) -> None:
    with pytest.raises(ClientError, match="the same everywhere and at any time"):
        Clause(text)


def test_a_fixed_expression_refuses_what_is_not_fixed() -> None:
    with pytest.raises(ClientError, match="UUID7 cannot be called here"):
        compile_expression("UUID7()", FIXED)


def test_a_function_of_its_own_is_called_where_it_may() -> None:
    assert value("double(/a) + 1") == 11


def test_a_function_of_its_own_is_checked_like_all_others() -> None:
    with pytest.raises(ClientError, match="column 1: DOUBLE takes 1 arguments, not 2"):
        value("DOUBLE(/a, 1)")


def test_a_name_of_the_language_keeps_its_meaning() -> None:
    assert value("ABS(-5)", Vocabulary(own={"ABS": DOUBLE})) == 5


def test_a_constant_has_the_value_of_who_asks() -> None:
    asked = OWN.of_client("desk-1", "ann")
    assert value("CONCAT(user(), '/', CLIENT_NAME())", asked) == "ann/desk-1"


def test_a_constant_without_a_value_is_refused() -> None:
    with pytest.raises(ClientError, match="column 1: USER has no value here"):
        value("USER()")


def test_a_constant_takes_no_arguments() -> None:
    with pytest.raises(ClientError, match="column 1: USER takes 0 arguments, not 1"):
        value("USER(1)", OWN.of_client("desk-1", "ann"))


def test_an_unknown_function_is_refused_with_its_column() -> None:
    with pytest.raises(ClientError, match="column 6: there is no function NONE"):
        compile_filter("/a = NONE(1)")


def test_filters_of_two_users_have_one_key_only_if_they_ask_for_neither() -> None:
    ann, ben = OWN.of_client("c", "ann"), OWN.of_client("c", "ben")
    assert compile_filter("/a = 1", ann).key == compile_filter("/a = 1", ben).key
    assert compile_filter("/a = user()", ann).key != compile_filter("/a = user()", ben).key
    assert compile_filter("/a = user()", ann).key == compile_filter("/a = user()", ann).key


def test_one_text_after_another_is_parsed_with_its_own_vocabulary() -> None:
    compile_filter("DOUBLE(/a) = 2", OWN)
    with pytest.raises(ClientError, match="there is no function DOUBLE"):
        compile_filter("DOUBLE(/a) = 2")


def test_the_clock_is_that_of_the_machine() -> None:
    clock = SystemClock()
    before = clock.wall_ns() / 1e9
    found = value("UNIX_TIMESTAMP()")
    assert isinstance(found, float)
    assert before <= found <= clock.wall_ns() / 1e9


def test_uuids_are_of_version_7_and_each_is_another_one() -> None:
    found = [uuid.UUID(str(value("UUID7()"))) for _ in range(20)]
    assert {one.version for one in found} == {7}
    assert {one.variant for one in found} == {uuid.RFC_4122}
    assert len(set(found)) == 20
    milliseconds = [one.int >> 80 for one in found]
    assert milliseconds == sorted(milliseconds)
