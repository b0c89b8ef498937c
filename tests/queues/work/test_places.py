"""The fold as bytes. That a dump equals the log is in test_queue."""

from __future__ import annotations

from array import array

import pytest
from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals

NOW = Now(0, 10**15)


def dumped() -> dict[str, bytes]:
    queue = Queue(QueueConfig("q", priority="/p"))
    queue.entered(Arrivals(BitMap64([5, 6]), array("Q", [1, 2]), expires=[(99, 5, 6)]))
    queue.failed(BitMap64([5]), "cancelled", 10**16)
    return queue.dump()


def load(rows: dict[str, bytes]) -> Queue:
    queue = Queue(QueueConfig("q", priority="/p"))
    queue.load(rows)
    return queue


def test_a_dump_has_what_is_leased_as_if_it_were_not() -> None:
    queue = load(dumped())
    before = queue.dump()
    queue.join(1, "ann", 0, False, NOW)
    queue.offer(Now(0, 0), {1: True})
    assert queue.leased(1) == BitMap64([6])
    assert queue.dump() == before


def test_a_dump_may_be_loaded_and_dumped_again() -> None:
    assert load(dumped()).dump() == dumped()


@pytest.mark.parametrize("missing", ["format", "here", "barriers", "runs", "dues"])
def test_what_is_not_complete_is_refused(missing: str) -> None:
    rows = dumped()
    del rows[missing]
    with pytest.raises(ValueError, match=r"format|complete"):
        load(rows)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format"):
        load(dumped() | {"format": b"2"})


@pytest.mark.parametrize("row", ["here", "barriers", "expired", "delayed", "failures.0", "known"])
def test_bytes_that_are_no_set_are_refused(row: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        load(dumped() | {row: b"nonsense"})


def test_tables_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="contradict"):
        load(dumped() | {"here": bytes(BitMap64([6]).serialize())})
