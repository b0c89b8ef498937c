"""What is read of the log for the core, message by message, and told to it. Pure.

A search reads a slice: until something matches, or SLICE_BYTES were read and decoded. What was read
counts, also where the messages of a queue stand far apart in it; it ends with a batch, so one turn
takes at most a batch more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyroaring import BitMap64

from zbroker.filters import Filter
from zbroker.limits import KIB
from zbroker.queues import giving
from zbroker.queues.effects import Examine, LogReading, Reenter, Search
from zbroker.queues.finding import Found
from zbroker.queues.running import entered_of

if TYPE_CHECKING:
    from zbroker.queues.core import Core

SLICE_BYTES: Final = 256 * KIB


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
        core.examined(effect.job, _all_hits(effect, many, matcher))
    elif isinstance(effect, Reenter):
        one = core.manager.running.get(effect.queue)
        entered = [entered_of(one, found) for found in many] if one is not None else []
        core.reentered(effect.job, [each for each in entered if each is not None])
    else:
        core.looked(effect.job, [row for found in many for row in giving.looked(found)])


def _all_hits(effect: Examine, many: Iterable[Found], matcher: Matcher) -> BitMap64:
    hits = BitMap64()
    for found in many:
        hits |= matcher.hits(found, effect.filter)
    return hits


def _searched(search: Search, many: Iterable[Found], matcher: Matcher) -> tuple[int | None, int]:
    """The first that matches, if one does; and the position behind what was examined."""
    size, block = 0, None
    for found in many:
        hits = matcher.hits(found, search.filter)
        if hits:
            return hits.min(), hits.min() + 1
        size += sum(map(len, found.block.unpacked(found.at)))
        if found.block is not block:
            block = found.block
            size += block.size
        if size >= SLICE_BYTES:
            return None, found.positions.max() + 1
    return None, search.positions.max() + 1
