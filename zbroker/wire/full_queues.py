"""The message of the queues process to ingest about queues that are full. Pure.

by XPUB: FullQueues, at once when it changes and to each new reader; on each beat while a queue is
full, or while the queues process is starting.
"""

from __future__ import annotations

from msgspec import Struct

from zbroker.wire.internal import InternalMessage


class FullQueue(Struct, array_like=True, frozen=True, gc=False):
    """A queue with overflow = "reject-publish" in which as much waits as may.

    topic: a topic, or with regex a pattern; "" of a queue that is bound: then `lives` are its
    names in the routes of messages. max_length, max_bytes: its limits, 0: none.
    """

    name: str
    topic: str
    regex: bool
    lives: list[tuple[int, int, int]]
    max_length: int
    max_bytes: int


class FullQueues(InternalMessage, tag="full_queues"):
    """queues -> ingest. All queues that are full. known: False: this process has not read its
    queues yet, so what the one before it said still holds."""

    rows: list[FullQueue]
    known: bool = True
