"""The processes that the journal answers, and what they wait for. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from zbroker.engine.effects import Answer
from zbroker.errors import Bug
from zbroker.journal.group_builder import Body
from zbroker.wire import internal as m


class Requester(Struct):
    """A process that appends: only the newest connection of each one is listened to."""

    rid: bytes
    process: str
    incarnation: int
    number: int = 0  # of its Hello
    unconfirmed: deque[m.ReceiptItem] = field(default_factory=deque)
    fresh: int = 0  # items at the right end that were not sent yet


class Control(NamedTuple):
    """A control record of this instance: its kind and its body."""

    kind: int
    body: bytes


class InFlight(NamedTuple):
    """What leaves once everything below `position` is durable."""

    position: int
    items: list[tuple[Requester, m.ReceiptItem]]
    opened: list[Answer]
    durable: list[tuple[int, int]]  # publisher, its highest sequence in the group
    moved: bool  # readers wait for what is in the group
    travels: int = 0  # the newest record of this instance's generation in it or before that travels


def pair(entries: Sequence[object], bodies: list[Body]) -> None:
    """Each has a body. Raises: Bug."""
    if len(bodies) != len(entries):
        raise Bug(f"{len(entries)} entries came with {len(bodies)} bodies")


def demand(requester: Requester, process: str) -> None:
    """Only this process may send it. Raises: Bug."""
    if requester.process != process:
        raise Bug(f"{requester.process} sent what only {process} may send")
