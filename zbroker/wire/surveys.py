"""What the admin asks each delivery worker about its subscriptions, over ipc. Pure.

    admin                                           delivery, by its desk
        AskSubscriptions{cid, ...}        ->
                                          <-  Subscriptions{cid, incarnation, rows}

A question changes nothing, so there is no Hello: the admin makes a new socket for each, and throws
it away with what is queued in it when no answer comes in time.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from zbroker.wire.internal import Message
from zbroker.wire.messages import Options


class AskSubscriptions(Message, tag="ask_subscriptions"):
    """admin -> delivery. client, topic: only those with this name, this topic as it was asked for.

    limit: at most so many rows, those that are farthest behind.
    """

    cid: int
    client: str = ""
    topic: str = ""
    limit: int = 0


class SubscriptionRow(Struct, array_like=True, gc=False):
    """One subscription: whose, what it wants, where it stands and what it waits for.

    position: the first one not yet sent or stepped over; 0 while it is located. lag: positions
    behind what is durable. due_ms: when its rate lets the next message go. starts_ns: the log time
    at which it begins, while that is later than the log. since_ms: wall clock, ms since 1970.
    """

    client: str
    sid: str
    topic: str
    regex: bool
    filter: str
    options: Options
    state: str
    position: int
    lag: int
    credit: int
    sent_messages: int
    sent_bytes: int
    since_ms: int
    due_ms: int | None = None
    starts_ns: int | None = None


class Subscriptions(Message, tag="subscriptions"):
    """delivery -> admin. Rows by lag, largest first; left_out: how many more there are."""

    cid: int
    incarnation: int
    persisted: int
    rows: list[SubscriptionRow]
    left_out: int = 0


TO_DESK: Final = msgspec.msgpack.Decoder(AskSubscriptions)
FROM_DESK: Final = msgspec.msgpack.Decoder(Subscriptions)
