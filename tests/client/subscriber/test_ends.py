"""Where a subscription begins and ends, as it is asked for again."""

from __future__ import annotations

import pytest

from tests.client.wired import HERE, HERE_TEXT
from zbroker.client.subscriber.ends import Ends
from zbroker.ids import NOW

SEEN = {HERE: 9}
NINE = HERE_TEXT + "9"


@pytest.mark.parametrize(
    ("bookmark", "until", "again"),
    [
        (None, None, (NINE, None)),
        ("0", None, (NINE, None)),
        ("5|1|", "5|7|", (NINE, "5|7|")),
        ("20260101T000000Z", "20270101T000000", (NINE, "20270101T000000")),
        ("[5|1|:5|7|)", None, (f"({NINE}:5|7|)", None)),
        ("(0:20270101T000000]", None, (f"({NINE}:20270101T000000]", None)),
        (f"[{HERE_TEXT}5:)", None, (f"({NINE}:)", None)),
    ],
)
def test_only_the_start_moves_on(bookmark, until, again):
    ends = Ends(bookmark, until)
    assert ends.asked({}) == (bookmark, until)
    assert ends.asked(SEEN) == again


@pytest.mark.parametrize(
    ("bookmark", "until", "bounded"),
    [("0", None, False), ("0", "5|7|", True), ("[0:)", None, False), ("[0:5|7|)", None, True)],
)
def test_what_has_an_end_is_bounded(bookmark, until, bounded):
    assert Ends(bookmark, until).bounded is bounded


@pytest.mark.parametrize(
    ("bookmark", "until", "resolved", "again"),
    [
        ("0", "now", ("0", NINE), (NINE, NINE)),
        (f"[0:{NOW})", None, (f"[0:{NINE}]", None), (f"({NINE}:{NINE}]", None)),
        ("0", "point:eod", ("0", NINE), (NINE, NINE)),
        ("[point:a:point:b)", None, (f"[point:a:{NINE}]", None), (f"({NINE}:{NINE}]", None)),
    ],
)
def test_an_end_that_may_move_becomes_a_moment(bookmark, until, resolved, again):
    ends = Ends(bookmark, until)
    assert ends.unfixed
    ends.resolve(NINE)
    assert not ends.unfixed
    assert (ends.asked({}), ends.asked(SEEN)) == (resolved, again)


@pytest.mark.parametrize(
    ("bookmark", "timed", "behind"),
    [
        ("20260101T000000Z", True, {}), ("[20260101T000000Z:)", True, {}), ("0", False, {}),
        (NINE, False, SEEN), (f"({NINE}:)", False, SEEN), (f"[{NINE}:)", False, {}),
    ],
)  # fmt: skip
def test_a_vector_or_a_time_is_known_as_one(bookmark, timed, behind):
    ends = Ends(bookmark, None)
    assert (ends.timed, ends.behind) == (timed, behind)
