"""What a disk of a simulated instance holds, also while nothing runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.disk import SimDisk
from tests.sim.two_nodes import Message, messages
from zbroker.ids import Origin
from zbroker.journal.origins import tie_of
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, Batch
from zbroker.log.reader import Log


class DiskContent(NamedTuple):
    """messages: that are there. origins: of these, and of others by ties, with each message."""

    messages: set[Message]
    origins: set[tuple[Message, Origin]]


def batches_on(disk: SimDisk, below: int) -> Iterator[Batch]:
    """Everything below that position, with bodies."""
    log = Log(disk=disk)
    cursor = log.seek(log.first_position)
    while True:
        items, after = log.read(cursor, below, 1 << 20)
        yield from (item for item in items if isinstance(item, Batch))
        if after == cursor or not items:
            return
        cursor = after


def content_of(disk: SimDisk, below: int) -> DiskContent:
    """What is there below that position."""
    found = DiskContent(set(), set())
    for batch in batches_on(disk, below):
        if batch.kind == KIND_PUBLISH:
            stored = [message for message, _ in messages(batch)]
            found.messages.update(stored)
            found.origins.update((message, batch.origin) for message in stored)
        elif batch.kind == KIND_TIE:
            tie = tie_of(batch)
            sequences = range(tie.first, tie.last + 1)
            found.origins.update(((tie.publisher, n), tie.origin) for n in sequences)
    return found
