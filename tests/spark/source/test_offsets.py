"""Claims about offsets: they survive a checkpoint, and tell a loss from another log."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.spark.source.offsets import LogState, Offset, loss, parse, resumed

HERE = Origin(0xABC, 2)
STATE = LogState(HERE, log_start=10, head=50)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(1, 2**63 - 1))
def test_an_offset_survives_its_checkpoint(instance: int, generation: int, position: int) -> None:
    offset = Offset(Origin(instance, generation), position)
    assert parse(json.loads(json.dumps(offset.as_json()))) == offset


@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"v": 2, "journal": "abc", "generation": 1, "next": 5},
        {"v": 1, "journal": "xyz", "generation": 1, "next": 5},
        {"v": 1, "journal": "abc", "generation": 1},
        {"v": 1, "journal": "abc", "generation": None, "next": 5},
    ],
)
def test_what_is_no_offset_is_refused(given_: dict[str, object]) -> None:
    with pytest.raises(ZBrokerError) as caught:
        parse(given_)
    assert caught.value.code == "bad_bookmark"


@pytest.mark.parametrize(
    ("offset", "code", "kept", "again"),
    [
        (Offset(HERE, 10), None, None, 10),
        (Offset(HERE, 50), None, None, 50),
        (Offset(HERE, 9), "bookmark_expired", None, 10),
        (Offset(Origin(0xABC, 1), 20), "bookmark_not_found", 20, 20),
        (Offset(Origin(0xABC, 1), 40), "bookmark_not_found", 30, 30),
        (Offset(Origin(0xABC, 1), 99), "bookmark_not_found", 99, 50),
        (Offset(Origin(0xABC, 1), 3), "bookmark_not_found", 3, 10),
        (Offset(Origin(0xABC, 1), 20), "bookmark_not_found", None, 10),
        (Offset(Origin(0xDEF, 2), 20), "bookmark_not_found", None, 10),
    ],
)
def test_a_loss_has_a_reason_and_a_place_to_go_on(
    offset: Offset, code: str | None, kept: int | None, again: int
) -> None:
    error = loss(offset, STATE)
    assert (error.code if error else None) == code
    assert resumed(offset, STATE, kept) == again


def test_a_loss_names_the_remedy() -> None:
    error = loss(Offset(HERE, 9), STATE)
    assert error is not None
    assert "positions 9 to 9 were removed" in error.reason
    assert "failOnDataLoss" in error.hint


def test_the_vector_of_a_position_is_the_one_before_it() -> None:
    assert STATE.vector_before(10) == "0000000000000abc.2.9"


def test_an_offset_of_an_older_generation_is_good_up_to_where_that_ended() -> None:
    """A start while a peer is away begins a generation: every stream ended with it."""
    older = Offset(STATE.origin._replace(generation=STATE.origin.generation - 1), STATE.log_start)
    assert loss(older, STATE, older.next) is None
    assert loss(older, STATE, older.next - 1) is not None
    assert loss(older, STATE, None) is not None
