"""Events that several processes have in common: what a core hears. Pure.

A wire message of another process is an event as it was decoded, without a wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from zbroker.access.core import Access
    from zbroker.errors import StorageError


class Commands(Struct, gc=False):
    """A burst of clients' commands (zbroker.server.peers.Received), in their order of arrival."""

    received: Sequence[Any]


class Asked(Struct, gc=False):
    """A question of the admin process."""

    rid: bytes
    question: Any


class NotSent(Struct, gc=False):
    """Base: something could not be sent to this peer, and nothing more was in this drain."""

    rid: bytes


class Gone(NotSent, gc=False):
    """The peer is not connected any more."""


class Full(NotSent, gc=False):
    """The peer does not read fast enough: `effect` was not sent, and is still owed to it."""

    effect: Struct


class ReadFailed(Struct):
    """The log could not be read for this effect or read."""

    of: Any
    error: StorageError


class Synced(Struct, gc=False):
    """A Sync was done: the log is durable up to this position."""

    position: int


class RulesChanged(Struct, gc=False):
    """The access rules are other ones now."""

    access: Access


class Unauthenticated(Struct, gc=False):
    """A connection was refused because no principal has this key."""

    key: str
    host: str


class StopAsked(Struct, gc=False):
    """The process was asked to stop."""
