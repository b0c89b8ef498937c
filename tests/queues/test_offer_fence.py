"""After an instance was away its replicated queues offer what it has read of its peers' records."""

from __future__ import annotations

import pytest

from tests.queues.test_replicated import QUEUE, THERE, Shared, gone, moves, wants
from zbroker.config import QueueConfig
from zbroker.engine.effects import Note
from zbroker.limits import BEAT_MS
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import PeersRead, QueuesHere

ONCE = QueueConfig("once", topic="t", scope="distributed", semantics="at-most-once")


@pytest.fixture
def bench() -> Shared:
    return Shared(replicates=True)


@pytest.mark.seed("000-11")
def test_nothing_is_offered_or_given_before_peers_were_heard(bench: Shared) -> None:
    bench.consume()
    mine = bench.many(2)
    wants(bench)
    assert (bench.got(), moves(bench)) == ([], [])
    assert bench.ask(s.Explain(1, "q")).state == "returning"
    bench.peers_read()
    assert bench.got() == mine
    assert [one.deliveries for one in bench.seen()] == [1, 1]


def test_it_offers_once_it_has_read_what_was_durable_when_peers_were_heard(bench: Shared) -> None:
    bench.consume()
    mine = bench.many(2)
    bench.reading = False
    bench.facts_of(gone(mine[:1], bench.origin))
    bench.peers_read()
    assert bench.got() == []
    bench.reading = True
    bench.run()
    assert bench.got() == mine[1:]


def test_what_is_offered_while_a_peer_is_missing_is_flagged() -> None:
    bench = Shared(QUEUE, ONCE, replicates=True)
    bench.consume()
    bench.consume("once", sid="s2")
    mine = bench.many(1)
    bench.peers_read("there")
    assert [(one.position, one.deliveries) for one in bench.seen()] == [(mine[0], 2)]
    [note] = [one for one in bench.notes if one.name == "queues.peers_missing"]
    assert "there" in note.text
    late = bench.many(1)
    assert [(one.position, one.deliveries) for one in bench.seen()][1:] == [(late[0], 1)]
    bench.peers_read("there")
    assert isinstance(note, Note)
    assert len([one for one in bench.notes if one.name == "queues.peers_missing"]) == 1
    bench.peers_read()
    assert bench.got("s2") == mine + late


def test_it_is_asked_on_each_beat_until_that_is_over(bench: Shared) -> None:
    said = [one for one in bench.to_replication if isinstance(one, QueuesHere)]
    assert [one.returning for one in said] == [True]
    bench.pass_ms(BEAT_MS)
    bench.peers_read()
    bench.pass_ms(BEAT_MS)
    said = [one for one in bench.to_replication if isinstance(one, QueuesHere)]
    assert [one.returning for one in said] == [True, True, False]


def test_a_look_that_the_journal_did_not_answer_is_made_again(bench: Shared) -> None:
    bench.consume()
    mine = bench.many(1)
    bench.silent = True
    bench.peers_read()
    bench.pass_ms(20_000)
    assert bench.got() == []
    bench.silent = False
    bench.turn.hear(PeersRead())
    bench.run()
    assert bench.got() == mine


def test_acknowledgements_and_takeovers_count_meanwhile(bench: Shared) -> None:
    theirs = bench.from_peer(2)
    bench.facts_of(gone([1]))
    assert list(bench.messages) == theirs[1:]
    assert bench.ask(s.TakeOver(1, "q", THERE.instance)).count == 1
    bench.consume()
    assert bench.got() == []
    bench.peers_read()
    assert bench.got() == theirs[1:]


def test_local_queues_wait_for_nobody() -> None:
    bench = Shared(QueueConfig("q", topic="t"), replicates=True)
    bench.consume()
    mine = bench.many(1)
    assert bench.got() == mine
    assert bench.to_replication == [QueuesHere(True)], "sessions may be asked for"


def test_a_queue_that_is_made_later_offers_at_once(bench: Shared) -> None:
    bench.peers_read()
    made = {"topic": "t", "scope": "distributed"}
    assert not bench.ask(s.Define(1, "create", "later", made)).code
    bench.consume("later", sid="s2")
    mine = bench.many(1)
    assert bench.got("s2") == mine
