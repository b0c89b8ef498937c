"""The filter of a link: which messages of a batch a destination gets, by their content. Pure.

The answer is the same at each instance that sends the batch: the filter may call nothing that
changes, and sees the time that a message got at its origin. A message that is not of its type does
not match, as with subscriptions; a batch that cannot be read is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from zbroker.limits import STORED_MAX_BYTES
from zbroker.log.batch_index import BatchMetadata, plain_of
from zbroker.log.format import COLUMN_ORIGIN_TIME, Batch
from zbroker.topics import TYPE_DEFAULT
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

_TIME_BYTES: Final = 8
TypeOf = Callable[[str], str]  # the type of the payloads of a topic


def as_any(_topic: str) -> str:
    """The type of payloads where no `[[record]]` table says one."""
    return TYPE_DEFAULT


class UnpackedBody:
    """The body of a batch, read once for all that look into it."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    @cached_property
    def plain(self) -> bytes | memoryview:
        """Without its compression. Raises: ClientError bad_frame, too_large."""
        return plain_of(self._batch)

    @cached_property
    def messages(self) -> list[bytes]:
        """All of them. Raises: ClientError bad_frame, too_large."""
        return bodies.unpack(self.plain, None, self._batch.count, STORED_MAX_BYTES)


class LinkFilter:
    """A filter, compiled once."""

    def __init__(self, text: str, type_of: TypeOf = as_any) -> None:
        """type_of: how payloads of a topic are read. Raises: ClientError bad_filter."""
        # few links have a filter, and this import takes time
        from zbroker.filters import FIXED, Payloads, compile_at_once

        self._filter = compile_at_once(text, FIXED)
        self._payloads, self._type_of = Payloads, type_of

    def picks(self, batch: Batch, at: Sequence[int], body: UnpackedBody) -> list[int]:
        """Those of the messages `at`, by their places in the body, for which it is true, in order.

        Raises: ClientError, if the body or a column cannot be read.
        """
        about, found = BatchMetadata(_at_origin(batch)), list[int]()
        types = [self._type_of(topic) for topic in batch.topics]
        kinds = dict.fromkeys(types)
        index = bodies.topic_indexes(batch.columns, batch.count)
        for kind in kinds:
            same = at if len(kinds) == 1 else [one for one in at if types[index[one]] == kind]
            test = self._filter.test(kind)
            if same and test.maybe(body.plain):
                found += test.picks(self._payloads(kind, body.messages), same, about)
        return found if len(kinds) == 1 else sorted(found)


def _at_origin(batch: Batch) -> Batch:
    """A batch with the log times that its messages got at their origin."""
    original = next((data for tag, data in batch.extra if tag == COLUMN_ORIGIN_TIME), b"")
    if not original:
        return batch
    each = len(original) == _TIME_BYTES * batch.count
    columns = replace(batch.columns or Columns(), time=original if each else None)
    return replace(batch, columns=columns, log_time=bodies.times(original)[-1])
