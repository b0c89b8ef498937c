"""What is recorded (zbroker/recording.py)."""

from __future__ import annotations

import pytest

from zbroker.config import RecordConfig
from zbroker.limits import TOPICS_MAX
from zbroker.recording import BadRule, Recording


def recording(*rules: tuple[str, bool, str]) -> Recording:
    return Recording([RecordConfig(topic, regex, type_) for topic, regex, type_ in rules])


def test_without_a_table_everything_is_recorded() -> None:
    every = Recording([])
    assert every.everything
    assert every("whatever")
    assert not every._known, "nothing is remembered where nothing has to be decided"
    assert every.type_of("whatever") == "auto"


def test_with_a_table_only_what_fits_one_is_recorded() -> None:
    some = recording(("orders", False, "nvfix"), ("trades[.].*", True, "json"))
    assert not some.everything
    assert [some(t) for t in ("orders", "orders.x", "trades.eu", "trades", "prices")] == [
        True, False, True, False, False,
    ]  # fmt: skip


def test_the_first_table_that_fits_says_the_type() -> None:
    some = recording(("a", False, "fix"), ("a|b", True, "msgpack"), ("b", False, "json"))
    assert [some.type_of(topic) for topic in ("a", "b", "c")] == ["fix", "msgpack", "auto"]


def test_answers_are_remembered_within_a_bound() -> None:
    some = recording(("t[0-9]*", True, "auto"))
    for number in range(TOPICS_MAX + 3):
        assert some(f"t{number}")
    assert len(some._known) == 3


@pytest.mark.parametrize(
    ("topic", "regex", "code"),
    [("a(", True, "bad_filter"), ("(?=a)", True, "bad_filter"), ("a\n", False, "bad_topic")],
)
def test_a_table_that_cannot_be_used_is_named(topic: str, regex: bool, code: str) -> None:
    with pytest.raises(BadRule) as caught:
        recording(("fine", False, "auto"), (topic, regex, "auto"))
    assert (caught.value.code, caught.value.index) == (code, 1)
