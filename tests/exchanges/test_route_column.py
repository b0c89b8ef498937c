"""The column with the routes of a batch: bytes, parts of it, and what a peer may not send."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.exchanges.making import cases
from tests.journal.build import publish
from zbroker.exchanges import BoundQueue, Routes
from zbroker.exchanges.route_column import QUEUES_MAX, decode, encode, part, routed, wrong
from zbroker.limits import BATCH_COUNT_MAX, U63_MAX
from zbroker.log.format import COLUMN_ROUTES, FLAG_SHOWS, Batch
from zbroker.log.queue_records import QueueDeclaration

BILLS = BoundQueue("bills", QueueDeclaration(1_700_000_000_000_000_001, 0xABCD, 2))
AUDIT = BoundQueue("audit", QueueDeclaration(5, (1 << 64) - 1, (1 << 32) - 1))
TWO = Routes((AUDIT, BILLS), ((0, 1), (), (1,)), array("H", [0, 1, 1, 2]))
ONE = Routes((BILLS,), ((0,),), array("H", [0, 0, 0]))
NONE = Routes((), ((),), array("H", [0]))


@st.composite
def made(draw: st.DrawFn) -> Routes:
    names = draw(st.lists(st.sampled_from("abcdé"), unique=True, max_size=4))
    queues = sorted(BoundQueue(name, QueueDeclaration(7, 1, 0)) for name in names)
    some = st.lists(st.sampled_from(range(len(queues))), unique=True) if queues else st.just([])
    wanted = draw(st.lists(some.map(sorted).map(tuple), min_size=1, max_size=6))
    sets = tuple(dict.fromkeys(wanted))
    return Routes(tuple(queues), sets, array("H", [sets.index(each) for each in wanted]))


def test_golden_bytes_never_change() -> None:
    assert encode(TWO).hex() == (
        "02000300"
        "05006175646974" "0500000000000000" "ffffffffffffffff" "ffffffff"
        "050062696c6c73" "01002a36fe9c9717" "cdab000000000000" "02000000"
        "020000000100" "0000" "01000100"
        "0000010001000200"
    )  # fmt: skip
    assert encode(ONE).hex() == (
        "01000100" "050062696c6c73" "01002a36fe9c9717" "cdab000000000000" "02000000" "01000000"
    )  # fmt: skip
    assert encode(NONE).hex() == "000001000000"


@given(made())
@cases(200)
def test_what_was_encoded_is_decoded(routes: Routes) -> None:
    assert decode(encode(routes), len(routes.column)) == routes


@given(made(), st.data())
@cases(200)
def test_a_part_says_the_same_of_its_messages(routes: Routes, data: st.DataObject) -> None:
    count = len(routes.column)
    first = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(first + 1, count))
    [(tag, column)] = part([(8, b"crc!"), (COLUMN_ROUTES, encode(routes))], count, first, end)
    found = decode(column, end - first)
    assert tag == COLUMN_ROUTES
    for at in range(first, end):
        assert found.queues_of(at - first) == routes.queues_of(at)
    assert {number for each in found.sets for number in each} == set(range(len(found.queues)))


def test_a_batch_without_the_column_has_no_part() -> None:
    assert part([(8, b"crc!")], 3, 0, 1) == []
    assert part([(COLUMN_ROUTES, b"?")], 3, 0, 1) == []


CUTS = range(len(encode(TWO)))


@pytest.mark.parametrize("size", CUTS)
def test_a_column_that_was_cut_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(encode(TWO)[:size], 4)


@pytest.mark.parametrize(
    ("routes", "count"),
    [
        (TWO, 3),
        (TWO, 5),
        (TWO._replace(queues=(BILLS, AUDIT)), 4),
        (TWO._replace(queues=(AUDIT, AUDIT)), 4),
        (TWO._replace(sets=((1, 0), (), (1,))), 4),
        (TWO._replace(sets=((0, 0), (), (1,))), 4),
        (TWO._replace(sets=((0, 2), (), (1,))), 4),
        (TWO._replace(sets=((0,), (), (0,))), 4),
        (TWO._replace(column=array("H", [0, 1, 3, 2])), 4),
        (TWO._replace(sets=()), 4),
        (ONE._replace(sets=((0,), (), (0, 0))), 2),
        (ONE, 0),
        (ONE, BATCH_COUNT_MAX + 1),
        (ONE._replace(queues=(BoundQueue("", BILLS.life),)), 3),
        (ONE._replace(queues=(BoundQueue("q" * 256, BILLS.life),)), 3),
        (ONE._replace(queues=(BoundQueue("q", QueueDeclaration(U63_MAX + 1, 1, 1)),)), 3),
        (Routes(tuple(BoundQueue(f"{n:04}", BILLS.life) for n in range(QUEUES_MAX + 1)),
                ((),), array("H", [0])), 1),
    ],
)  # fmt: skip
def test_what_no_router_says_is_refused(routes: Routes, count: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(encode(routes), count)
    assert wrong([(COLUMN_ROUTES, encode(routes))], count, 0)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        decode(encode(ONE).replace(b"bills", b"bill\xff"), 3)


def test_anything_else_is_refused() -> None:
    rng = random.Random(1)
    good = encode(TWO)
    refused = 0
    for _ in range(2_000):
        data = bytearray(good)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode(bytes(data), 4)
        except ValueError:
            refused += 1
    assert refused > 200


def test_two_of_them_and_those_of_a_commit_are_wrong() -> None:
    column = (COLUMN_ROUTES, encode(ONE))
    assert wrong([column], 3, 0) == wrong([(8, b"crc!")], 3, FLAG_SHOWS) == ""
    assert wrong([column, column], 3, 0)
    assert wrong([column], 3, FLAG_SHOWS)


def batch(routes: Routes | None, count: int = 4) -> Batch:
    found = publish(1, b"x", count)
    found.extra = [] if routes is None else [(COLUMN_ROUTES, encode(routes))]
    return found


def test_a_queue_finds_its_messages() -> None:
    found = routed(batch(TWO))
    assert found is not None
    assert found.of([BILLS]) == [0, 3]
    assert found.of([AUDIT]) == [0]
    assert found.of([AUDIT, BILLS]) == [0, 3]
    assert found.of([BoundQueue("bills", QueueDeclaration(1, 1, 1))]) == []
    assert sorted(found.queues) == [AUDIT, BILLS]


def test_all_who_ask_share_what_was_decoded() -> None:
    assert routed(batch(TWO)) is routed(batch(TWO))
    assert routed(batch(None)) is None
    assert routed(batch(TWO, count=3)) is None  # of another release, or damaged
