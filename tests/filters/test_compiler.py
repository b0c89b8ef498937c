"""Compiled filters and the slow reading of their trees agree (zbroker/filters/compiler)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.filters import making, naive
from tests.filters.alone import takes
from tests.formats.describing import KINDS
from tests.seed_counts import seed_count
from zbroker.filters import Payloads, compile_filter
from zbroker.filters.nodes import fields_of
from zbroker.filters.parser import parse
from zbroker.formats import TYPES, FormatError, decode


class About:
    """Of the messages of a batch; none of them the same."""

    def __init__(self, headers: Sequence[dict[str, Any] | None] = ()) -> None:
        self.headers = headers

    def topic(self, i: int) -> str:
        return ("x", "AB", "orders")[i % 3]

    def time_ns(self, i: int) -> int:
        return i * 500_000_000

    def bookmark(self, i: int) -> str:
        return f"7|{i}|" if i else ""

    def header(self, i: int, name: str) -> object:
        found = self.headers[i] if self.headers else None
        return None if found is None else found.get(name)

    def key(self, i: int) -> bytes | None:
        return (None, b"k", b"\xff", b"")[i % 4]

    def message(self, i: int, payload: bytes) -> dict[str, Any]:
        """What is reported of slow reading."""
        return {
            "TOPIC_NAME": self.topic(i),
            "BOOKMARK": self.bookmark(i),
            "LAST_UPDATED": self.time_ns(i) / 1e9 or None,
            "MESSAGE_SIZE": len(payload),
            "KEY": (None, "k", b"\xff", "")[i % 4],
            "HEADERS": self.headers[i] if self.headers else None,
        }


def expected(text: str, type_: str, data: Sequence[bytes], about: About) -> list[int]:
    """What matches, by the slow reading."""
    tree, found = parse(text), []
    for i, payload in enumerate(data):
        message = about.message(i, payload)
        try:
            value: Any = decode(type_, payload)
        except FormatError:
            if fields_of(tree):
                continue
            value = None
        if naive.truth(naive.evaluate(tree, value, message)) is True:
            found.append(i)
    return found


@pytest.mark.seed("004-09")
@pytest.mark.seed("004-55")
@pytest.mark.parametrize("type_", KINDS, ids=TYPES)
@given(data=st.data())
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_a_compiled_filter_picks_what_the_slow_reading_picks(type_: str, data: Any) -> None:
    text = data.draw(making.with_message)
    batch = data.draw(st.lists(making.payloads(type_), max_size=6))
    about = About(data.draw(making.rows_of_headers))
    filter_ = compile_filter(text)
    test = filter_.test(type_)
    wanted = expected(text, type_, batch, about)
    every = range(len(batch))
    alone, shared = Payloads(type_, batch), Payloads(type_, batch)
    assert test.picks(alone, every, about) == wanted
    compile_filter("/z = 1").test(type_).picks(shared, every, about)
    assert test.picks(shared, every, about) == wanted
    assert test.picks(shared, every[::2], about) == [i for i in wanted if i % 2 == 0]


@example("HEADER('a') = 'x' AND /b > 1", [{"b": 2}] * 2, [{"a": "x"}, {"a": b"x"}, *[None] * 4])
@example("NOT HEADER('a') = 'x'", [{}] * 3, [{"a": "y"}, {"a": b"x"}, {"a": ""}, *[None] * 3])
@given(
    text=making.with_headers,
    values=st.lists(making.objects, max_size=6),
    headers=making.rows_of_headers,
)
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_headers_and_fields_are_read_alike(
    text: str, values: list[dict[str, Any]], headers: list[dict[str, Any] | None]
) -> None:
    batch, about = [msgspec.json.encode(value) for value in values], About(headers)
    test = compile_filter(text).test("json")
    picked = test.picks(Payloads("json", batch), range(len(batch)), about)
    assert picked == expected(text, "json", batch, about)
    assert picked == [i for i, data in enumerate(batch) if _one(text, data, headers[i])], (
        "each alone, it is the same"
    )


def _one(text: str, data: bytes, headers: dict[str, Any] | None) -> bool:
    return takes(compile_filter(text).test("json"), data, headers=headers)


@given(text=making.expressions, batch=st.lists(making.payloads("json"), max_size=6))
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_a_message_that_can_be_read_is_true_false_or_null(text: str, batch: list[bytes]) -> None:
    picked: list[int] = []
    for each in (text, f"NOT {text}", f"(NOT {text}) IS NULL"):
        each = f"/none IS NULL AND {each}"  # so that it looks into payloads
        picked += (
            compile_filter(each)
            .test("json")
            .picks(Payloads("json", batch), range(len(batch)), About())
        )
    readable = compile_filter("/none IS NULL").test("json")
    assert sorted(picked) == readable.picks(Payloads("json", batch), range(len(batch)), About())


@example("/a = 'x' AND /b > 1", {"a": "x", "b": 2})
@given(text=making.expressions, value=making.objects)
@settings(max_examples=seed_count(50, 400), deadline=None)
def test_one_message_is_a_batch_of_one(text: str, value: dict[str, Any]) -> None:
    payload = msgspec.json.encode(value)
    found = takes(compile_filter(text).test("json"), payload)
    assert found == bool(naive.truth(naive.evaluate(parse(text), value, {})))
