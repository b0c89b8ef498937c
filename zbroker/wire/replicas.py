"""Messages of the replication process to the journal, besides those of all readers. Pure.

replication                                     journal
    AskOrigins{}                      ->  OriginRows{rows}          after the sync
    AskPublishers{ids}                ->  PublisherNames{rows}      after the sync
    PeerHolds{peer, generations}      ->
    OpenLink, Replicate, JournalReceipt: see zbroker.wire.internal
"""

from __future__ import annotations

from msgspec import Struct

from zbroker.wire.internal import Correlated, InternalMessage, JournalRequest
from zbroker.wire.replication import OriginPosition


class AskOrigins(JournalRequest, tag="ask_origins"):
    """What the log holds, after all that was sent before. An undecided journal says it at once."""


class OriginRows(Correlated, tag="origin_rows"):
    """rows: how far each origin is durable, also the own generations of this instance."""

    generation: int
    started_ns: int
    rows: list[OriginPosition]


class AskPublishers(JournalRequest, tag="ask_publishers"):
    """The names of publishers, by id."""

    ids: list[int]


class PublisherName(Struct, array_like=True, gc=False):
    """One row of the answer."""

    id: int
    name: str
    principal: str


class PublisherNames(Correlated, tag="publisher_names"):
    """Those that are known."""

    rows: list[PublisherName]


class PeerHolds(InternalMessage, tag="peer_holds"):
    """A peer says how far it has generations of this instance: [generation, position] of each."""

    incarnation: int
    peer: str
    generations: list[tuple[int, int]]


ToJournal = AskOrigins | AskPublishers | PeerHolds
FromJournal = OriginRows | PublisherNames
