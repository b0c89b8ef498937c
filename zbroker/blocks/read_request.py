"""What a core wants read of the log. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from msgspec import Struct

from zbroker.blocks.frame_builder import Block
from zbroker.log.reader import Cursor
from zbroker.topics import Matcher


class Read(NamedTuple):
    """Read whole batches from `cursor` on, below `limit`, for replay `key`.

    seek: `cursor` is a hint; its position is what is wanted. live: it has caught up.
    wants: other topics may be passed over; wants_key says the same of two that want the same.
    headers: batches without their bodies, as they are in the log, so a commit shows nothing yet.
    Done with `BlockRead` or `ReadFailed`.
    """

    key: int
    cursor: Cursor
    seek: bool
    limit: int
    max_bytes: int
    live: bool = False
    wants: Matcher | None = None
    wants_key: Hashable = None
    headers: bool = False


class BlockRead(Struct, gc=False):
    """A Read was done."""

    read: Read
    block: Block
