"""Reports to the admin about connections and subscriptions: their lag, and why they wait. Pure.

A subscription may wait for several reasons; the one that would have to go first is reported:

    locating        the journal did not say yet where it begins
    paused          its subscriber paused it
    future start    it begins at a time that is later than the log
    caught up       there is nothing more to send
    not replicated  it is fully durable, and enough synchronous destinations do not have more
    no credit       its subscriber has to read, or that of one with which it is combined
    rate            its pace lets the next message go later
    sending         none of these: it is its turn soon
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from zbroker.delivery.connections import DeliveryConnection
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.replay import Replay
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.contract import MS_NS, Now
from zbroker.server.token_listener import client_row, client_rows
from zbroker.wire.surveys import (
    Answer,
    AskClients,
    AskSubscriptions,
    AskTopics,
    ClientRow,
    Clients,
    Peers,
    SubscriptionRow,
    TopicRow,
    Topics,
)
from zbroker.wire.surveys import Subscriptions as AllSubscriptions

if TYPE_CHECKING:
    from zbroker.delivery.core import DeliveryCore

ROWS_MAX: Final = 1_000  # of one answer: a turn has to stay short
TOPICS_MAX: Final = 10_000  # likewise, of smaller rows
_Found = tuple[int, str, str, int]  # minus its lag, client, sid, key: as rows are sorted


def answer(
    core: DeliveryCore, ask: AskClients | AskTopics | AskSubscriptions, peers: Peers, now: Now,
    incarnation: int,
) -> Answer:  # fmt: skip
    """The answer to a question. peers: the address of a connection. incarnation: of the process."""
    if isinstance(ask, AskClients):
        return clients(core, ask, peers, now.mono_ms)
    if isinstance(ask, AskTopics):
        return Topics(ask.cid, *topics(core))
    found, left_out = rows(core, ask, now.mono_ms)
    return AllSubscriptions(ask.cid, incarnation, core.cursors.persisted, found, left_out)


def rows(
    core: DeliveryCore, ask: AskSubscriptions, now_ms: int
) -> tuple[list[SubscriptionRow], int]:
    """The subscriptions that `ask` is about, the largest lag first; how many were left out.

    `now_ms` is monotonic.
    """
    found = list(_found(core, ask))
    first = nsmallest(min(ask.limit, ROWS_MAX), found)
    return [_row(core, one, now_ms) for one in first], len(found) - len(first)


def _found(core: DeliveryCore, ask: AskSubscriptions) -> Iterator[_Found]:
    connections, replays, persisted = core.connections, core.cursors.of, core.cursors.persisted
    for key, one in core.subscriptions.items():
        if ask.topic and one.topic != ask.topic:
            continue
        client = connections[one.names.rid].token.name
        if ask.client and client != ask.client:
            continue
        replay = replays.get(key)
        ahead = one.trail.handled(replay.position) - persisted if replay is not None else 0
        yield min(0, ahead), client, one.names.sid, key


def _row(core: DeliveryCore, found: _Found, now_ms: int) -> SubscriptionRow:
    ahead, client, _, key = found
    one, replay = core.subscriptions[key], core.cursors.of.get(key)
    due_ms = None
    if replay is not None and replay.due_ns is not None:
        due_ms = max(0, replay.due_ns // MS_NS - now_ms)
    state = _state(one, replay, core.cursors)
    return SubscriptionRow(
        client, one.names.sid, one.topic, one.regex, one.selection.text, one.options, state,
        replay.position if replay is not None else 0, -ahead, one.credit, one.sent_messages,
        one.sent_bytes, one.since_ms, due_ms if state == "rate" else None, one.not_before_ns,
        one.trail.handled(replay.position) if replay is not None else 0,
        one.trail.in_hand(one.sent_messages),
    )  # fmt: skip


def _state(one: SubscriptionState, replay: Replay | None, cursors: Cursors) -> str:
    if replay is None:
        return "locating"
    if one.paused:
        return "paused"
    if one.not_before_ns is not None:
        return "future start"
    if replay.position >= cursors.persisted:
        return "in hand" if one.trail.in_hand(one.sent_messages) else "caught up"
    if replay.position >= cursors.limit(replay):
        return "not replicated"
    if any(member.credit <= 0 for member in replay.members):
        return "no credit"
    return "rate" if replay.due_ns is not None else "sending"


# -- connections ------------------------------------------------------------------------------


def clients(core: DeliveryCore, ask: AskClients, peers: Peers, now_ms: int) -> Clients:
    """The connections that `ask` wants, by name. `now_ms`: monotonic."""

    def row(one: DeliveryConnection) -> ClientRow:
        many = one.subscriptions.values()
        sent = sum(each.sent_messages for each in many)
        return client_row(one, peers, now_ms, sent, len(many))

    return client_rows(core.connections, ask, min(ask.limit, ROWS_MAX), row)


def topics(core: DeliveryCore) -> tuple[list[TopicRow], int]:
    """Topics and patterns by their subscriptions, most first; how many more there are."""
    counts = Counter((one.topic, one.regex) for one in core.subscriptions.values())
    first = counts.most_common(TOPICS_MAX)
    return [TopicRow(*key, count) for key, count in first], len(counts) - len(first)


def numbers(core: DeliveryCore, *, unrecorded: bool) -> dict[str, int | float | str]:
    """For `status` and metrics. unrecorded: some messages are not recorded."""
    counts, cursors = core.counts, core.cursors
    live = {"unrecorded": counts.unrecorded, "dropped": counts.dropped} if unrecorded else {}
    return {
        "clients": len(core.connections),
        "subscriptions": sum(len(one.subscriptions) for one in core.connections.values()),
        "lag_max": cursors.lag_max,
        "messages_out": counts.messages_out,
        "bytes_out": counts.bytes_out,
        "errors": core.connections.errors,
        "rewound": counts.rewound,
        "fell_back": cursors.fell_back,
        **live,
    }
