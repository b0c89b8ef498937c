"""Queues of an instance that was away offer once it holds what its peers held."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replication.build import THERE, THIRD
from tests.replication.test_core import Process, record
from tests.replication.test_request_routes import NAMES, QUEUES, holds, told
from zbroker.engine.events import Asked
from zbroker.ids import Origin
from zbroker.link_topics import LinkTopics
from zbroker.replication.contract import FEATURE_LEVEL
from zbroker.replication.core import FromDestination
from zbroker.wire import replication as w
from zbroker.wire.internal import ReceiptItem
from zbroker.wire.owner_requests import PeersRead, QueuesHere
from zbroker.wire.replication import OriginPosition

WAIT_MS = 30_000


class Returned(Process):
    """It was away; its destinations have not answered yet."""

    def __init__(self, *destinations: str) -> None:
        super().__init__(*destinations)
        self.core._fence._wait_ms = WAIT_MS
        self.welcomed()
        self.tick()

    def answers(self, name: str, *rows: OriginPosition) -> None:
        session = self.core.outgoing[name].session
        said = holds(NAMES[name], *rows)
        welcome = w.LinkWelcome(session, FEATURE_LEVEL, name, "g", said, 1 << 20)
        self.hears(FromDestination(name, welcome))

    def asks(self, *, returning: bool = True) -> list[Any]:
        return told(self.hears(Asked(QUEUES, QueuesHere(returning))))


@pytest.mark.seed("000-11")
def test_the_queues_wait_until_all_that_peers_held_is_here() -> None:
    process = Returned("there", "third")
    process.answers("there", OriginPosition(*THERE, 1))
    assert process.asks() == [], "one peer did not answer"
    process.answers("third", OriginPosition(*THERE, 2))
    assert process.asks() == [], "it has records that are not here"
    process.linked()
    process.units(record(1), record(2))
    process.receipt(ReceiptItem(1, 1, 1))
    assert process.asks() == []
    process.receipt(ReceiptItem(2, 2, 2))
    assert process.asks() == [PeersRead()]


def test_what_peers_get_later_is_not_waited_for() -> None:
    process = Returned("there")
    process.answers("there", OriginPosition(*THERE, 0))
    process.asks()
    session = process.core.outgoing["there"].session
    said = w.Statement(*THERE, 1, 2, [OriginPosition(*THERE, 9)])
    process.hears(FromDestination("there", w.LinkBeat(session, said)))
    assert process.asks() == [PeersRead()]


def test_after_the_wait_the_queues_hear_who_is_missing_and_later_that_nobody_is() -> None:
    process = Returned("there", "third")
    process.answers("there", OriginPosition(*THERE, 1))
    assert process.asks() == []
    process.now_ms += WAIT_MS
    assert process.asks() == [PeersRead(["there", "third"])]
    process.linked()
    process.units(record(1))
    process.receipt(ReceiptItem(1, 1, 1))
    assert process.asks() == [PeersRead(["third"])]


def test_a_forgotten_peer_is_not_waited_for() -> None:
    process = Returned("there")
    process.core.own.forgotten = frozenset({"there"})
    assert process.asks() == [PeersRead()]


def test_rows_of_some_topics_and_closed_generations_are_not_waited_for() -> None:
    old = Origin(THIRD.instance, 1)
    process = Returned("there")
    process.core.own.closed = {old: 3}
    digest = LinkTopics(["x"]).digest
    process.answers("there", OriginPosition(*THERE, 5, digest), OriginPosition(*old, 9))
    assert process.asks() == [PeersRead()]


def test_once_it_is_over_another_queues_process_waits_for_nothing() -> None:
    process = Returned("there")
    process.answers("there")
    assert process.asks() == [PeersRead()]
    process.answers("there", OriginPosition(*THERE, 9))
    assert process.asks() == [PeersRead()]


def test_nothing_is_said_to_queues_that_do_not_ask_or_before_the_journal_spoke() -> None:
    process = Returned()
    assert process.asks(returning=False) == []
    assert process.asks() == [PeersRead()]
    early = Process()
    assert told(early.hears(Asked(QUEUES, QueuesHere(returning=True)))) == []
