"""A record batch of one instance's log, as it goes to the journal of another one."""

from __future__ import annotations

from msgspec import Struct

from zbroker.wire.messages import Columns


class Record(Struct, array_like=True, gc=False):
    """A record batch of another instance's log, unchanged; its body is a frame as above.

    instance, generation, position: its origin, of the first message that counts. after: the sender
    has nothing of this origin for us between this origin position and the record; a record
    whose `after` is not here yet is refused with `origin_gap`, as a batch by its `prev`.
    seq, prev, count, skip, cut, flags, crc: as in the batch header (zbroker.log.format).
    log_time, columns: the times that it got at its origin.
    A publisher record names its publisher and is not part of its origin's chain; a noop says that
    there is nothing for us of its origin up to its position.
    """

    kind: int
    instance: int
    generation: int
    position: int
    after: int
    log_time: int
    publisher: int = 0
    session: int = 0
    seq: int = 0
    prev: int = 0
    count: int = 1
    skip: int = 0
    cut: int = 0
    flags: int = 0
    crc: int = 0
    topics: list[str] = []
    columns: Columns | None = None
    extra: list[tuple[int, bytes]] = []
