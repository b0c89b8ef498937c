"""Exchanges between the processes of an instance: rows from the journal, and who goes by them.

    ingest, queues                                  journal
        AskExchanges{after}               ->
                                          <-  ExchangeRows{changes, rows}         after the sync
        ExchangesUsed{position}           ->                                      (ingest)
    and to everybody, in Watermarks: `exchanges`, the number of changes, and `routed`: ingest routes
    by all records below this position.

They are asked for once the journal listens, before any publisher logs on, and when their number has
changed. A binding is answered once its record is below `routed`: all messages that are published
later are routed by it. Only ingest routes, so only its word counts; one that starts asks before it
takes publishes, so its predecessor's word holds for it, too.
"""

from __future__ import annotations

from msgspec import Raw

from zbroker.wire.internal import Correlated, InternalMessage, JournalRequest


class AskExchanges(JournalRequest, tag="ask_exchanges"):
    """ingest, queues -> journal. after: of the last answer, `changes`; 0: everything is wanted.
    Answered by ExchangeRows."""

    after: int = 0


class ExchangeRows(Correlated, tag="exchanges"):
    """journal -> ingest, queues: durable. rows: as zbroker.exchanges.exchange_rows has them.

    changes: how many there were. position: all records before it are in here. whole: nothing but
    these rows holds; else they come on top of what was said before.
    """

    changes: int
    position: int
    rows: list[Raw]
    whole: bool = True


class ExchangesUsed(InternalMessage, tag="exchanges_used"):
    """ingest -> journal: publishes are routed by all records before this position. Not answered."""

    incarnation: int
    position: int


ToJournal = AskExchanges | ExchangesUsed
