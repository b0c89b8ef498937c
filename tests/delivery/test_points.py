"""Texts to points: what is asked, what the answers make of it, and a model of all of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal import build
from tests.journal.looking import SECOND, Looking, Seen
from zbroker.clock import format_time, parse_time
from zbroker.delivery.pending_lookups import Asking, Question
from zbroker.delivery.points import Point, RangePoints, refused, settle, values, wanted
from zbroker.errors import ClientError
from zbroker.ids import (
    EPOCH,
    NOW,
    Origin,
    format_bookmark,
    format_vector,
    is_vector,
    parse_bookmark,
    parse_vector,
)
from zbroker.journal.locate import Locator
from zbroker.wire.internal import Located
from zbroker.wire.messages import Subscribe

HERE = Origin(build.INSTANCE, 1)
TIME = "20200101T000000"

# -- what is asked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bookmark", "until", "expected"),
    [
        (None, None, RangePoints([NOW], [])),
        ("1|2|", None, RangePoints(["1|2|"], [])),
        ("1|2|", "now", RangePoints(["1|2|"], [NOW])),
        ("[1|2|:3|4|)", None, RangePoints(["1|2|"], ["3|4|"], "at", "at")),
        ("(1|2|,1|3|:3|4|,3|5|]", None, RangePoints(["1|2|", "1|3|"], ["3|4|", "3|5|"], "behind",
                                               "behind")),
        ("[0:now)", None, RangePoints(["0"], [NOW], "at", "at")),
        (f"({TIME}:{TIME})", None, RangePoints([TIME], [TIME], "behind", "at")),
        ("[1|2|:)", None, RangePoints(["1|2|"], [], "at", "at")),
        ("(:1|2|]", None, RangePoints([EPOCH], ["1|2|"], "behind", "behind")),
    ],
)  # fmt: skip
def test_a_text_says_what_has_to_be_located(bookmark, until, expected):
    assert wanted(bookmark, until) == expected


@pytest.mark.parametrize(
    ("bookmark", "until", "why"),
    [
        ("[1|2|:1|3|)", "now", "leave out `until`"),
        ("[1|2|:1|3|)", "1|2|", "leave out `until`"),
        ("[1|2|:1|3|", None, "is between"),
        ("[1|2|)", None, "no colon"),
        ("[1|2|:1|3|:1|4|)", None, "more than one colon"),
        ("[:)", None, "no end at all"),
        ("[[1|2|:1|3|)", None, "not of the form"),
        ("[now:1|3|)", None, "not of the form"),
        ("[1|2|:yesterday)", None, "not of the form"),
        ("[1|2|,:1|3|)", None, "not of the form"),
        ("[20209999T000000:0|1|)", None, "names no date"),
        ("0", "1|1|,1|2|", "takes one bookmark"),
    ],
)
def test_what_is_no_point_is_refused_with_the_reason(bookmark, until, why):
    with pytest.raises(ClientError, match=why) as raised:
        wanted(bookmark, until)
    assert raised.value.code == "bad_bookmark"


@pytest.mark.parametrize("text", ["[{}:0|1|)", "[0:{})", "{}"])
def test_a_list_that_is_too_long_is_refused(text):
    with pytest.raises(ClientError, match="too_many"):
        wanted(text.format(",".join(["1|1|"] * 1_001)), None)


def test_an_until_is_one_value():
    assert values("1|2|", end=True) == ["1|2|"]


# -- what the answers make of it ------------------------------------------------------------------


def reported(*answers: int | str) -> list[Located]:
    """Positions, or codes of refusals."""
    return [
        Located(n, code="" if isinstance(one, int) else f"bookmark_{one}", log_start=5,
                persisted=90, position=one if isinstance(one, int) else 0, reason=f"number {n}")
        for n, one in enumerate(answers)
    ]  # fmt: skip


def test_a_list_begins_at_the_oldest_that_is_found():
    assert settle(reported("not_found", 9, "pending", 7), HERE) == Point(7)


def test_a_list_ends_at_the_latest_that_is_found():
    assert settle(reported("expired", 9, "pending", 7), HERE, end=True) == Point(9)


@pytest.mark.parametrize(
    ("answers", "begin", "end"),
    [
        ((7, "expired"), "expired", ""),
        (("expired", "pending"), "expired", "pending"),
        (("not_found", "pending"), "pending", "pending"),
        (("not_found", "expired"), "expired", "expired"),
        (("not_found",), "not_found", "not_found"),
        ((7, "pending", "not_found"), "", ""),
    ],
)
def test_of_several_refusals_one_counts(answers, begin, end):
    for expected, is_end in ((begin, False), (end, True)):
        found = refused(reported(*answers), end=is_end)
        assert (found.code if found is not None else "") == (expected and f"bookmark_{expected}")


def test_an_expired_bookmark_is_refused_with_the_oldest_one_kept():
    with pytest.raises(ClientError) as raised:
        settle(reported(9, "expired"), HERE)
    assert raised.value.reason == (
        f"number 1; the oldest one kept follows the vector {format_vector({HERE: 4})}"
    )


# -- a model --------------------------------------------------------------------------------------


class Model:
    """What a text selects of a list of messages, by looking at each of them."""

    def __init__(self, messages: list[Seen], end: int) -> None:
        self.messages, self.end = messages, end

    def cut(self, text: str, *, behind: bool, last: bool) -> int | None:
        """The position of a cut; None if it is not found."""
        if text in (EPOCH, NOW):
            return 1 if text == EPOCH else self.end
        if is_vector(text):
            return next(iter(parse_vector(text).values())) + behind
        if "|" not in text:
            late = [one.position for one in self.messages if one.time_ns >= parse_time(text)
                    + behind]  # fmt: skip
            return min(late, default=self.end)
        named = [parse_bookmark(part) for part in text.split(",")]
        found = [m.position + behind for m in self.messages if (m.publisher, m.sequence) in named]
        return (max if last else min)(found, default=None)

    def select(self, opening: str, first: str, last: str, closing: str) -> list[int] | None:
        """The positions in the range; None if it is refused."""
        begin = self.cut(first or EPOCH, behind=opening == "(", last=False)
        end = self.cut(last or NOW, behind=closing == "]", last=True)
        if begin is None or end is None:
            return None
        return [one.position for one in self.messages if begin <= one.position < end]


class Ranged:
    """A log, who looks in it, and the model of it."""

    def __init__(self, path: Path, seed: int, *, indexed: bool) -> None:
        self.looking = Looking()
        self.looking.fill(random.Random(seed), 80)
        self.locator: Locator = self.looking.look(path, indexed=indexed)
        self.model = Model(self.looking.messages, self.looking.whole.core.persisted)

    def question(self, text: str) -> Question:
        """Asked and answered."""
        asking = Asking()
        question = Question.of(b"", Subscribe("s", "t", bookmark=text), 0)
        for ask in asking.ask(question):
            asking.answered(self.locator.locate(
                ask.cid, ask.value, self.looking.where, cut=ask.cut, end=ask.end
            ))  # fmt: skip
        assert len(question.answers) == question.values
        return question

    def select(self, text: str) -> list[int] | None:
        """The positions of messages that a subscription would be sent."""
        question = self.question(text)
        try:
            start, end = question.start(HERE), question.end(HERE)
        except ClientError as error:
            if error.code not in ("bookmark_not_found", "bookmark_pending"):
                raise
            return None
        return [
            one.position for one in self.model.messages
            if start.position <= one.position and (start.time_ns or 0) <= one.time_ns
            and (end is None or one.position < end.position)
        ]  # fmt: skip


@pytest.fixture(scope="module", params=[(1, True), (2, True), (3, False)], ids=str)
def ranged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranged:
    seed, indexed = request.param
    return Ranged(tmp_path_factory.mktemp("ranged"), seed, indexed=indexed)


def bookmarks(messages: list[Seen]) -> st.SearchStrategy[str]:
    """Of messages that are there, and sometimes of one that is not."""
    there = st.sampled_from(messages)
    off = st.sampled_from([0, 0, 0, 0, 1])
    return st.builds(lambda one, more: format_bookmark(one.publisher, one.sequence + more),
                     there, off)  # fmt: skip


def ends(messages: list[Seen]) -> st.SearchStrategy[str]:
    """Every kind of value."""
    times = st.builds(
        lambda one, more: format_time(one.time_ns + more),
        st.sampled_from(messages), st.sampled_from([0, 0, SECOND, -SECOND, 500_000_000]),
    )  # fmt: skip
    return st.one_of(
        st.sampled_from(["", EPOCH, NOW, "19700101T000000Z", "21990101T000000Z"]),
        bookmarks(messages),
        st.lists(bookmarks(messages), min_size=2, max_size=4).map(",".join),
        times,
        st.builds(lambda one: format_vector({HERE: one.position}), st.sampled_from(messages)),
    )


@given(data=st.data())
def test_a_range_selects_what_a_model_selects(ranged: Ranged, data: st.DataObject) -> None:
    values_ = ends(ranged.model.messages)
    opening, closing = data.draw(st.sampled_from(["[", "("])), data.draw(st.sampled_from("])"))
    first, last = data.draw(values_), data.draw(values_)
    if first or last:
        text = f"{opening}{first}:{last}{closing}"
        assert ranged.select(text) == ranged.model.select(opening, first, last, closing), text


@given(data=st.data())
def test_without_brackets_a_range_begins_at_a_time_and_after_all_else(
    ranged: Ranged, data: st.DataObject
) -> None:
    first = data.draw(ends(ranged.model.messages).filter(bool))
    timed = "|" not in first and "." not in first.removesuffix("Z").partition("T")[0]
    opening = "[" if timed else "("
    assert ranged.select(first) == ranged.model.select(opening, first, "", ")")


def inside_out(messages: list[Seen]) -> Iterator[str]:
    """Ranges that end before they begin."""
    early, late = messages[3], messages[-3]
    names = [format_bookmark(one.publisher, one.sequence) for one in (late, early)]
    yield f"[{names[0]}:{names[1]}]"
    yield f"({names[0]}:{names[0]})"
    yield f"[{format_time(late.time_ns)}:{format_time(early.time_ns)}]"
    yield f"[0|1|:{names[1]}]"
    yield "[21990101T000000:0|1|]"
    yield "[21990101T000000:21980101T000000]"
    yield "(21990101T000000:21990101T000000]"


def test_a_range_that_ends_before_it_begins_is_empty(ranged: Ranged) -> None:
    for text in inside_out(ranged.model.messages):
        question = ranged.question(text)
        start, end = question.start(HERE), question.end(HERE)
        assert end is not None
        assert end.time_ns is None, text
        assert end.position <= start.position, text


def test_a_range_in_the_future_waits_for_both_of_its_ends(ranged: Ranged) -> None:
    question = ranged.question("(21980101T000000:21990101T000000]")
    start, end = question.start(HERE), question.end(HERE)
    assert end is not None
    assert start.time_ns == parse_time("21980101T000000") + 1
    assert end.time_ns == parse_time("21990101T000000") + 1
