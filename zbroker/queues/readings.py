"""What is read of the log for the core, message by message, and told to it. Pure.

What may be large is read slice by slice, one a turn: a slice ends as soon as so many bytes were
read and decoded or sent. What was read counts, also where the messages of a queue stand far apart
in the log; a slice ends with a batch, so one turn takes at most a batch more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyroaring import BitMap64

from zbroker.filters import Filter
from zbroker.limits import KIB
from zbroker.queues import giving
from zbroker.queues.effects import Examine, LogReading, Look, Looked, Reenter, Search
from zbroker.queues.finding import Found
from zbroker.queues.running import entered_of

if TYPE_CHECKING:
    from zbroker.queues.core import Core

SLICE_BYTES: Final = 256 * KIB  # of what filters look at


class Slice:
    """The first batches of `many`, until `most` bytes were read and handled.

    end: what stands before this position was read, or cannot be.
    """

    def __init__(self, many: Iterable[Found], positions: BitMap64, most: int) -> None:
        """many: the batches of these positions."""
        self._many, self._last, self._left = many, positions.max(), most
        self.end = positions.min()

    def __iter__(self) -> Iterator[Found]:
        block = None
        for found in self._many:
            yield found
            if found.block is not block:
                block = found.block
                self._left -= block.size
            if self._left <= 0:
                self.end = found.positions.max() + 1
                return
        self.end = self._last + 1

    def handled(self, size: int) -> None:
        """So many bytes were decoded or sent."""
        self._left -= size


class Matcher(NamedTuple):
    """How a filter is asked. type_of: how payloads of a topic are read; payloads: made of them."""

    type_of: Callable[[str], str]
    payloads: Callable[..., Any]

    def hits(self, found: Found, content: Filter) -> BitMap64:
        """The messages that it is true for."""
        return giving.matching(found, content, self.type_of, self.payloads)


def read_for(core: Core, effect: LogReading, many: Iterable[Found], matcher: Matcher) -> None:
    """Does a reading; the core hears of it when all was read. Raises: StorageError."""
    if isinstance(effect, Search):
        hit, end = _searched(effect, many, matcher)
        core.searched(effect.job, hit, end)
    elif isinstance(effect, Examine):
        core.examined(effect.job, *_examined(effect, many, matcher))
    elif isinstance(effect, Reenter):
        one = core.manager.running.get(effect.queue)
        entered = [entered_of(one, found) for found in many] if one is not None else []
        core.reentered(effect.job, [each for each in entered if each is not None])
    else:
        core.looked(effect.job, *_looked(effect, many))


def _looked(effect: Look, many: Iterable[Found]) -> tuple[list[Looked], int]:
    """The messages, and the position behind what was read."""
    rows: list[Looked] = []
    part = Slice(many, effect.positions, effect.bytes_max)
    for found in part:
        rows += giving.looked(found)
        part.handled(_decoded(found))
    return rows, part.end


def _examined(effect: Examine, many: Iterable[Found], matcher: Matcher) -> tuple[BitMap64, int]:
    """What matches, and the position behind what was examined."""
    hits, part = BitMap64(), Slice(many, effect.positions, SLICE_BYTES)
    for found in part:
        hits |= matcher.hits(found, effect.filter)
        part.handled(_decoded(found))
    return hits, part.end


def _searched(search: Search, many: Iterable[Found], matcher: Matcher) -> tuple[int | None, int]:
    """The first that matches, if one does; and the position behind what was examined."""
    part = Slice(many, search.positions, SLICE_BYTES)
    for found in part:
        hits = matcher.hits(found, search.filter)
        if hits:
            return hits.min(), hits.min() + 1
        part.handled(_decoded(found))
    return None, part.end


def _decoded(found: Found) -> int:
    """Bytes of its batch, all of which was decoded."""
    return sum(map(len, found.block.unpacked(found.at)))
