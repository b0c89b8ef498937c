"""zbroker/queues/log_work.py: how much of the log is read in a turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import bench, perform_on, replayable
from zbroker.blocks.frame_builder import Block
from zbroker.filters import Payloads, compile_filter
from zbroker.queues import log_work
from zbroker.queues.effects import Examine, Examined, Search, Searched
from zbroker.queues.log_work import Matcher, Slice
from zbroker.queues.message_finder import FoundMessages

MATCHER = Matcher(lambda _topic: "auto", Payloads)


class Log:
    """Batches of one message each, all in one block or each in a block of its own."""

    def __init__(self, bytes_of_one: int, *, apart: int = 0) -> None:
        """apart: bytes of the log that a block has."""
        at = bench(replayable())
        for number in range(100):
            at.publish((b'{"n": %d}' % number).ljust(bytes_of_one))
        batches = at.log[-100:]
        self.positions = BitMap64([one.position for one in batches])
        whole = at._found(self.positions)
        one_block = Block(whole[0].block.start, batches, whole[-1].block.next)
        self.many = [
            FoundMessages(one_block, number, found.batch, found.positions)
            for number, found in enumerate(whole)
        ]
        if apart:
            self.many = whole
            for found in whole:
                found.block.size = apart
        self.read = 0

    def examine(self, text: str) -> tuple[list[int], int]:
        """What the core hears."""
        done = self._perform(Examine(1, self.positions, compile_filter(text)))
        assert isinstance(done, Examined)
        return list(done.matching), done.end

    def _perform(self, effect: Any) -> Any:
        return perform_on(self._found(), effect, MATCHER)

    def _found(self) -> Iterator[FoundMessages]:
        for one in self.many:
            self.read += 1
            yield one

    def search(self, text: str) -> tuple[int | None, int]:
        """What the core hears."""
        done = self._perform(Search(1, self.positions, compile_filter(text)))
        assert isinstance(done, Searched)
        return done.hit, done.end


def test_a_search_ends_with_the_first_that_matches() -> None:
    log = Log(20)
    at = log.positions[7]
    assert log.search("/n = 7 OR /n = 9") == (at, at + 1)
    assert log.read == 8


def test_small_messages_are_read_to_the_end_of_the_slice() -> None:
    log = Log(20)
    assert log.search("/n = 'none'") == (None, log.positions.max() + 1)
    assert log.read == 100


@pytest.mark.seed("003-33")
def test_a_slice_is_bounded_by_the_bytes_that_were_decoded() -> None:
    log = Log(log_work.SLICE_BYTES // 4)
    assert log.search("/n = 'none'") == (None, log.positions[3] + 1)
    assert log.read == 4


@pytest.mark.seed("003-33")
def test_a_slice_is_bounded_by_the_bytes_of_the_log_that_were_read() -> None:
    """Small messages that stand far apart: what lies between them has to be read, too."""
    log = Log(20, apart=log_work.SLICE_BYTES // 2)
    assert log.search("/n = 'none'") == (None, log.positions[1] + 1)
    assert log.read == 2


def test_all_that_a_filter_is_true_for_is_told() -> None:
    log = Log(20)
    at = log.positions
    assert log.examine("/n = 7 OR /n = 9") == ([at[7], at[9]], at.max() + 1)


@pytest.mark.seed("003-33")
@pytest.mark.parametrize(
    ("bytes_of_one", "apart", "read"),
    [(log_work.SLICE_BYTES // 4, 0, 4), (20, log_work.SLICE_BYTES // 2, 2)],
)
def test_what_filters_look_at_is_bounded_in_bytes(bytes_of_one: int, apart: int, read: int) -> None:
    """Of those that were decoded, and of those that were read for it."""
    log = Log(bytes_of_one, apart=apart)
    at = log.positions
    assert log.examine("/n >= 1") == ([*at[1:read]], at[read - 1] + 1)
    assert log.read == read


def test_what_cannot_be_read_at_the_end_was_looked_for() -> None:
    log = Log(20)
    del log.many[-2:]
    part = Slice(log.many, log.positions, log_work.SLICE_BYTES)
    assert part.end == log.positions.min()
    assert len(list(part)) == 98
    assert part.end == log.positions.max() + 1
