"""What of a batch of the log enters a queue, and how. Pure.

If a batch has one topic, and the queue does not look into messages, one range enters, and no
payload is touched. The result depends on the message and the definition only, so reading the log
again gives the same queue.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
from pyroaring import BitMap64

from zbroker.definitions.definition import Definition, RoutedName
from zbroker.exchanges import route_column
from zbroker.filters import Expression, Filter, Payloads
from zbroker.filters.values import is_null, number
from zbroker.limits import U63_MAX
from zbroker.log.batch_index import BatchMetadata
from zbroker.log.format import FLAG_ZSTD, Batch
from zbroker.queues.work.values import Arrivals, Run
from zbroker.wire import bodies

U64_MAX: Final = (1 << 64) - 1
HASHES_MAX: Final = 10_000  # of group keys remembered; then the memory starts over
HASHED_MAX_BYTES: Final = 64  # a longer key is not remembered

_NS_OF_MS: Final = 1_000_000
_NO_MSGPACK: Final = b"\xc1"  # msgpack never says this
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


class QueueIntake:
    """Takes batches of recorded messages, of one queue."""

    def __init__(
        self, definition: Definition, type_of: Callable[[str], str], begin: int = 0
    ) -> None:
        """type_of: how payloads of a topic are read. begin: nothing before this position enters."""
        self._definition = definition
        self._type_of = type_of
        self._begin = begin
        config = definition.config
        self._after_ns = config.expiration * _NS_OF_MS
        self._model = config.expiration_model
        self._hashes: dict[bytes, int] = {}

    def __call__(self, batch: Batch, payloads: Callable[[], list[bytes]]) -> Arrivals | None:
        """What enters; None: nothing. `payloads` gives all messages of the body, if it is asked.

        Raises: whatever `payloads` raises.
        """
        definition = self._definition
        picks = self._on_topics(batch)
        content = None
        if picks and definition.needs_payload:
            content = _Content(batch, payloads, self._type_of)
            if definition.filter is not None:
                picks = content.picks(definition.filter, picks)
        if not picks:
            return None
        positions = _positions(batch, picks)
        entered = Arrivals(_bitmap(positions))
        if content is not None:
            self._look(content, picks, positions, entered)
        if definition.config.max_bytes:
            messages = payloads()
            entered.sizes = array("Q", [len(messages[at]) for at in picks])
        if definition.needs_times:
            entered.expires = self._expires(batch, picks, positions)
        return entered

    def _on_topics(self, batch: Batch) -> Sequence[int]:
        """The messages that count, by index, and whose topic is wanted, or that are routed here."""
        first, last = batch.skip, batch.count - batch.cut
        if self._begin > batch.position:
            first += self._begin - batch.position
        if first >= last:
            return ()
        if self._definition.config.bound:
            return _routed(batch, self._definition.names, first, last)
        wanted = [self._definition.topics(topic) for topic in batch.topics]
        if False not in wanted:
            return range(first, last)
        if True not in wanted or batch.columns is None or batch.columns.index is None:
            return ()
        index = bodies.indexes(batch.columns.index)
        return [at for at in range(first, last) if wanted[index[at]]]

    def _look(
        self, content: _Content, picks: Sequence[int], positions: Sequence[int], entered: Arrivals
    ) -> None:
        """Adds what expressions say."""
        definition = self._definition
        if definition.priority is not None:
            values = content.values(definition.priority, picks)
            entered.priorities = array("Q", map(priority_of, values))
        if definition.group_key is not None:
            values = content.values(definition.group_key, picks)
            entered.groups = array("q", map(self._group_of, values))
        if definition.barrier is not None:
            found = content.picks(definition.barrier, picks)
            shift = positions[0] - picks[0]
            entered.barriers = BitMap64([at + shift for at in found])

    def _group_of(self, value: Any) -> int:  # noqa: ANN401 - what a payload may hold
        if is_null(value) or value != value:
            return 0
        data = _key_bytes(value)
        found = self._hashes.get(data)
        if found is None:
            found = group_hash(data)
            if len(data) <= HASHED_MAX_BYTES:
                if len(self._hashes) >= HASHES_MAX:
                    self._hashes.clear()
                self._hashes[data] = found
        return found

    # -- expiry -------------------------------------------------------------------------------

    def _expires(self, batch: Batch, picks: Sequence[int], positions: Sequence[int]) -> list[Run]:
        """Runs of messages that expire at the same time."""
        columns = batch.columns
        own = columns.expiry if columns is not None and self._model != "queue" else None
        if own is None and not self._after_ns:
            return []
        if own is None and (columns is None or columns.time is None):
            end = self._of_queue(batch.log_time)
            if isinstance(positions, range):
                return [(end, positions.start, positions.stop)]
            return _runs(repeat(end), positions)
        return _runs(self._ends(batch, picks, own), positions)

    def _ends(self, batch: Batch, picks: Sequence[int], own: bytes | None) -> Iterator[int]:
        """When each expires; 0: never."""
        column = batch.columns.time if batch.columns is not None else None
        times = bodies.times(column) if column is not None else None
        expiry = bodies.expiry(own, batch.count) if own is not None else None
        for at in picks:
            by_queue = self._of_queue(batch.log_time if times is None else times[at])
            yield self._of_both(expiry[at] if expiry is not None else 0, by_queue)

    def _of_queue(self, time_ns: int) -> int:
        return min(time_ns + self._after_ns, U63_MAX) if self._after_ns else 0

    def _of_both(self, own: int, by_queue: int) -> int:
        """When a message expires; one without an expiry of its own does `by_queue`."""
        if not own:
            return by_queue
        if self._model == "latest":
            return max(own, by_queue)
        return min(own, by_queue) if self._model == "earliest" else own


def _routed(batch: Batch, names: frozenset[RoutedName], first: int, last: int) -> Sequence[int]:
    """The messages that count and go to a queue with one of these names."""
    found = route_column.routed(batch)
    if found is None:
        return ()
    at = found.of(names)
    if len(at) == batch.count:
        return range(first, last)
    return [place for place in at if first <= place < last]


class _Content:
    """What the messages of a batch hold, decoded once for all that is asked."""

    def __init__(
        self, batch: Batch, payloads: Callable[[], list[bytes]], type_of: Callable[[str], str]
    ) -> None:
        self._batch, self._unpack = batch, payloads
        self._types = [type_of(topic) for topic in batch.topics]
        column = batch.columns.index if batch.columns is not None else None
        self._index = bodies.indexes(column) if column is not None else None
        self._about = BatchMetadata(batch)
        self._payloads: dict[str, Payloads] = {}

    def picks(self, content: Filter, at: Sequence[int]) -> Sequence[int]:
        """Those of `at` that a filter is true for."""
        found: list[int] = []
        parts = list(self._by_type(at))
        for kind, same in parts:
            test = content.test(kind)
            if (
                kind in self._payloads
                or self._batch.flags & FLAG_ZSTD
                or test.maybe(self._batch.body)
            ):
                found += test.picks(self._of_type(kind), same, self._about)
        return found if len(parts) == 1 else sorted(found)

    def values(self, expression: Expression, at: Sequence[int]) -> list[Any]:
        """The value of an expression for each of `at`."""
        parts = list(self._by_type(at))
        if len(parts) == 1:
            return expression.values(self._of_type(parts[0][0]), at, self._about)
        found: dict[int, Any] = {}
        for kind, same in parts:
            values = expression.values(self._of_type(kind), same, self._about)
            found.update(zip(same, values, strict=True))
        return [found[i] for i in at]

    def _by_type(self, at: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """`at` by how it is read; at least one part."""
        kinds = dict.fromkeys(self._types)
        if len(kinds) == 1 or self._index is None:
            yield self._types[0], at
            return
        for kind in kinds:
            same = [i for i in at if self._types[self._index[i]] == kind]
            if same:
                yield kind, same

    def _of_type(self, kind: str) -> Payloads:
        payloads = self._payloads.get(kind)
        if payloads is None:
            payloads = self._payloads[kind] = Payloads(kind, self._unpack())
        return payloads


def priority_of(value: Any) -> int:  # noqa: ANN401 - what a payload may hold
    """A value as a priority of 64 bits, rounded down; 0 for other values and below 0."""
    found = value if value.__class__ is int else number(value)
    if found is None or not found > 0:  # not so of NaN, either
        return 0
    return U64_MAX if found >= U64_MAX else int(found)


def group_hash(data: bytes) -> int:
    """A hash of a key, 64 bits, signed; never 0, which means that there is no key."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True) or 1


def _key_bytes(value: Any) -> bytes:  # noqa: ANN401 - what a payload may hold
    """Equal for equal keys, as a filter compares numbers: 5 and 5.0 are one key."""
    if value.__class__ is float and -(1 << 63) <= value <= 1 << 63 and value.is_integer():
        value = int(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _NO_MSGPACK  # all of these are one key: their order is kept


def _positions(batch: Batch, picks: Sequence[int]) -> Sequence[int]:
    shift = batch.position - batch.skip
    if isinstance(picks, range):
        return range(picks.start + shift, picks.stop + shift)
    return array("Q", [at + shift for at in picks])


def _bitmap(positions: Sequence[int]) -> BitMap64:
    if not isinstance(positions, range):
        return BitMap64(positions)
    found = BitMap64()
    found.add_range(positions.start, positions.stop)
    return found


def _runs(ends: Iterable[int], positions: Sequence[int]) -> list[Run]:
    """Neighbours that end at the same time, as runs; without those that never do."""
    found: list[Run] = []
    end = first = after = 0
    for each, position in zip(ends, positions):  # noqa: B905 - there may be one end for all
        if each != end or position != after:
            if end:
                found.append((end, first, after))
            end, first = each, position
        after = position + 1
    if end:
        found.append((end, first, after))
    return found
