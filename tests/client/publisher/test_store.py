"""The publish store in memory."""

from __future__ import annotations

from zbroker.client.publisher.packer import PackedBatch
from zbroker.client.publisher.store import BATCH_OVERHEAD, MemoryStore


def batch(first, last):
    return PackedBatch(last - first + 1, b"x" * 10, 0, "t", None, None, first, last, first - 1)


def filled():
    store = MemoryStore()
    for first, last in ((1, 3), (4, 4), (8, 9)):
        store.append(batch(first, last))
    return store


def test_it_counts_what_it_holds():
    store = filled()
    assert (len(store.batches), store.messages, store.bytes) == (3, 6, 3 * (10 + BATCH_OVERHEAD))


def test_find_gives_the_first_batch_that_ends_at_or_above():
    assert [filled().find(s) for s in (1, 3, 4, 5, 9, 10)] == [0, 0, 1, 2, 2, 3]


def test_removing_from_the_middle_keeps_order():
    store = filled()
    assert store.remove(1).first == 4
    assert [store.popleft().first, store.popleft().first] == [1, 8]
    assert (store.bytes, store.messages) == (0, 0)
