"""Names of branches as text: one for each, and back."""

from __future__ import annotations

import pytest

from zbroker.xids import XID_PART_MAX, XID_TEXT_MAX, Xid, parse_xid

ALL = "".join(map(chr, range(32, 127)))


@pytest.mark.parametrize(
    "xid",
    [
        Xid(7, "transfer-1", "broker"),
        Xid(0, "a"),
        Xid(7, "a:b", ""),
        Xid(7, "a", "b:"),
        Xid(7, "50% off", "%3A"),
        Xid((1 << 31) - 1, "%" * XID_PART_MAX, ":" * XID_PART_MAX),
        *(Xid(1, ALL[at : at + 60], ALL[at + 30 : at + 90]) for at in (0, 30, 60)),
    ],
)
def test_the_text_of_an_xid_names_it_alone(xid: Xid) -> None:
    text = str(xid)
    assert parse_xid(text) == xid
    assert text.count(":") == 2
    assert " " not in text
    assert len(text) <= XID_TEXT_MAX


def test_a_usual_name_is_shown_as_it_is() -> None:
    assert str(Xid(7, "transfer-1", "broker")) == "7:transfer-1:broker"
    assert str(Xid(7, "a:b c%", "d")) == "7:a%3Ab%20c%25:d"


def test_the_last_colon_may_be_left_out() -> None:
    assert parse_xid("7:a") == parse_xid("7:a:") == Xid(7, "a", "")


@pytest.mark.parametrize(
    "text",
    ["", "7", "7:", "7::b", "x:a:b", "-1:a:b", "7:a:b:c", "²:a:b", "7:ü:b", "7:%00:b", "7:%FC:b",
     f"7:{'a' * 65}:b", f"7:a:{'b' * 65}", f"{1 << 31}:a:b", f"{'9' * 5_000}:a:b"],
)  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_xid(text)
