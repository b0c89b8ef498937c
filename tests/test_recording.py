"""What is recorded (zbroker/recording.py)."""

from __future__ import annotations

import pytest

from zbroker import config
from zbroker.config import RecordConfig
from zbroker.errors import ConfigError
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


@pytest.mark.seed("004-28")
def test_without_a_table_nothing_may_be_recorded() -> None:
    none = Recording([], nothing=True)
    assert not none.everything
    assert (none("whatever"), none.kind("whatever")) == (False, False)
    some = Recording([RecordConfig("orders")], nothing=True)
    assert [some("orders"), some("whatever")] == [True, False], "a table says what is"


@pytest.mark.seed("004-03")
def test_with_a_table_only_what_fits_one_is_recorded() -> None:
    some = recording(("orders", False, "nvfix"), ("trades[.].*", True, "json"))
    assert not some.everything
    assert [some(t) for t in ("orders", "orders.x", "trades.eu", "trades", "prices")] == [
        True, False, True, False, False,
    ]  # fmt: skip


@pytest.mark.seed("004-27")
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
    assert (caught.value.code, caught.value.index, caught.value.key) == (code, 1, "topic")


def test_a_filter_that_cannot_be_used_is_named_with_its_column() -> None:
    with pytest.raises(BadRule, match=r"column [0-9]+") as caught:
        Recording([RecordConfig("a"), RecordConfig("b", filter="/x >"), RecordConfig("c")])
    assert (caught.value.code, caught.value.index, caught.value.key) == ("bad_filter", 1, "filter")


def test_a_start_with_such_a_filter_says_file_line_table_and_column() -> None:
    text = "[[record]]\ntopic = 'a'\n[[record]]\ntopic = 'b'\nfilter = '/x >'\n"
    with pytest.raises(ConfigError, match=r"^bad_config: z.toml:5: .* of table 2: column [0-9]+"):
        config.parse(text, "z.toml")


def test_the_first_table_that_fits_decides_whether_content_does() -> None:
    some = Recording(
        [
            RecordConfig("a"),
            RecordConfig("a|b", regex=True, type="json", filter="/x > 1"),
            RecordConfig("b"),
        ]
    )
    assert some.by_content
    assert [some.kind(topic) for topic in ("a", "b", "c")] == [True, None, False]
    assert [some(topic) for topic in ("a", "b", "c")] == [True, True, False]
    assert some.content("b").look([b'{"x":1}', b'{"x":2}'], [0, 1], Nowhere()) == ({1}, 0)


def test_without_a_filter_nothing_is_decided_by_content() -> None:
    assert not recording(("a", False, "json")).by_content
    assert Recording([]).kind("whatever") is True


def test_payloads_that_are_not_what_their_type_says_are_counted() -> None:
    messages = [b'{"x":2}', b"{", b'{"x":0}', b"", b'{"x":', b"{}", b"7"]
    read_as_json = RecordConfig("a", type="json", filter="/x > 1")
    for table, unreadable in ((read_as_json, 3), (RecordConfig("a", filter="/x > 1"), 0)):
        content = Recording([table]).content("a")
        assert content.look(messages, range(7), Nowhere()) == ({0}, unreadable)
        assert content.look(messages, [0], Nowhere()) == ({0}, 0)


class Nowhere:
    """Where a filter asks for nothing but fields."""

    def topic(self, i: int) -> str:
        raise AssertionError(i)

    def time_ns(self, i: int) -> int:
        raise AssertionError(i)

    def bookmark(self, i: int) -> str:
        raise AssertionError(i)

    def header(self, i: int, name: str) -> object:
        raise AssertionError(i, name)

    def key(self, i: int) -> bytes | None:
        raise AssertionError(i)
