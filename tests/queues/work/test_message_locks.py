"""zbroker/queues/work/message_locks.py: what branches are to take, by how; in tables."""

from __future__ import annotations

import pytest
from msgspec import msgpack
from pyroaring import BitMap64

from zbroker.queues.work.message_locks import OVER_MAX, MessageLocks
from zbroker.queues.work.values import Lock

ANN = "ann", "stage.1"


def filled() -> MessageLocks:
    locks = MessageLocks()
    locks.put(BitMap64([1, 2]), Lock(ANN))
    locks.put(BitMap64([5]), Lock(ANN, "bad"))
    locks.put(BitMap64([7]), Lock(("bob", "stage.1"), "bad"))
    locks.check()
    return locks


def test_what_a_branch_has_is_said_by_how_it_takes_it() -> None:
    locks = filled()
    assert locks.of(ANN) == {"": BitMap64([1, 2]), "bad": BitMap64([5])}
    assert locks.all_of(ANN) == BitMap64([1, 2, 5])
    assert locks.all_of(("eve", "stage.1")) == BitMap64()
    assert locks.branch(5) == ANN
    locks.drop(BitMap64([5, 2]))
    locks.check()
    assert locks.of(ANN) == {"": BitMap64([1])}


def test_tables_have_all_of_it() -> None:
    locks = MessageLocks()
    locks.load(filled().dump())
    assert locks.of(ANN) == filled().of(ANN)
    assert locks.all == filled().all


def test_tables_of_an_earlier_release_are_read() -> None:
    locks = MessageLocks()
    locks.load(msgpack.encode([("ann", "stage.1", bytes(BitMap64([3]).serialize()))]))
    assert locks.of(ANN) == {"": BitMap64([3])}


@pytest.mark.parametrize("data", [b"", b"\xc1", msgpack.encode([1]), msgpack.encode([("a", "b")])])
def test_what_is_not_readable_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not readable"):
        MessageLocks().load(data)


def test_branches_that_were_rolled_back_by_force_are_remembered_up_to_a_limit() -> None:
    known = MessageLocks()
    for number in range(OVER_MAX + 1):
        known.end(("ann", str(number)))
    assert not known.is_over(("ann", "0"))
    assert known.is_over(("ann", "1"))
    again = MessageLocks()
    again.load_over(known.dump_over())
    assert again.is_over(("ann", str(OVER_MAX)))
    assert MessageLocks().dump_over() == b""
    for bad in (b"no", b"\x91\x01"):
        with pytest.raises(ValueError, match=r".+"):
            again.load_over(bad)
