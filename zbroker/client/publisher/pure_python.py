"""The statements that publishing runs once per message, in Python: see hot_path.py."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from zbroker.client.publisher.packer import Extra
    from zbroker.client.publisher.receipt import AckTracker

F = TypeVar("F", bound=Callable[..., Any])
Q = TypeVar("Q", bound="QueuedMessage")


class QueuedMessage(Struct, gc=False, eq=False):
    """A message in the inbox, which is the receipt that its publisher has.

    `value` is the payload, then, once it is packed, its sequence: one assignment per message gives
    the number and lets go of the payload, which the publish store has.
    """

    _track: AckTracker
    topic: str
    value: bytes | int
    time: int | None = None
    extra: Extra | None = None


def untracked(kind: type[Q]) -> type[Q]:
    """Has the garbage collector leave out a subclass of QueuedMessage without attributes."""
    return kind  # a Struct says so itself


def receipts(
    kind: type[Q],
    track: AckTracker,
    topics: str | list[str],
    data: list[bytes],
    times: list[int] | None,
) -> list[Q]:
    """One for each payload; topics: of all of them, or one for each."""
    each = topics if isinstance(topics, list) else repeat(topics)
    return list(map(kind, repeat(track), each, data, times or repeat(None)))


def number(items: list[Q], sequence: int) -> None:
    """Gives `items` their sequences, from that one on."""
    for receipt in items:
        receipt.value = sequence
        sequence += 1


def payloads(items: list[Q], limit: int) -> list[bytes] | None:
    """The payloads of a batch of small messages that have one topic and nothing beside it.

    None if some are not like that, or for too many of them: packer.py has all the cases.
    """
    del items, limit
    return None


class MappedRecords:
    """A mapped file, to which records are appended. seeds: of their checksums, by topic."""

    __slots__ = ("map", "seeds", "write")

    def __init__(self, mapped: mmap.mmap, seeds: dict[str, int]) -> None:
        mapped.seek(0)
        self.map = mapped
        self.seeds = seeds
        self.write: Callable[[bytes], object] = mapped.write  # ValueError: there is no space

    def release(self) -> None:
        """Lets go of the memory; nothing more can be written."""


class StagingArea:
    """What of the staged messages `publish` looks at; their store sets it."""

    _file: MappedRecords
    _end: int
    _is_locked: Callable[[], bool]
    each: bool


class Inbox:
    """What `publish` looks at before it queues a message; the publisher sets it."""

    inbox: list[Any]
    known: set[str]  # topics that are good
    track: AckTracker
    staging: StagingArea | None
    loop: object = None
    inbox_limit: int
    wake_at: int

    def wake(self) -> None:
        """Ends the sleep of the one that takes messages out."""
        raise NotImplementedError

    def push(self) -> None:
        """Has what was queued sent."""
        self.wake()


def gated(
    kind: type[QueuedMessage], running: Callable[[], object] | None = None
) -> Callable[[F], F]:
    """Decorates `publish`: what queues a small message without options, if there is space, and
    calls the method for everything else. Here that is everything.

    kind: of receipts. running: gives the event loop, which has to be that of the client.
    """
    del kind, running
    return lambda publish: publish
