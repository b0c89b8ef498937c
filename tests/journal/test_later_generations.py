"""What a journal makes of generations that only readers, here or at peers, have seen."""

from __future__ import annotations

import pytest

from tests.journal.build import publish
from zbroker.engine.contract import Now
from zbroker.engine.effects import Sync
from zbroker.engine.events import Synced
from zbroker.ids import Origin, format_vector
from zbroker.journal import effects as je
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.end_note import Proof
from zbroker.journal.events import GenerationBegun, Incoming, Requested, Reserved, Written
from zbroker.journal.later_generations import AHEAD_S, READER_MS, SECOND_NS, believed
from zbroker.journal.origin_rows import newest, travelling
from zbroker.journal.origins import OriginRow
from zbroker.journal.sessions import Sessions
from zbroker.journal.start_question import ANSWER_MS
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_SHARED_POINT
from zbroker.log.generations import EPOCH_S
from zbroker.log.point_records import SharedPointRecord
from zbroker.log.records import encode
from zbroker.wire import internal as m
from zbroker.wire.replicas import PeerHolds
from zbroker.wire.replication import GENERATION_MAX

HERE, THERE, MINE, RID = 9, 8, 77, b"\0link"
NOW_S = 5_000  # since 2020
OWN = 40  # the generation here
KNOWN = 30  # of the other instance


class Readers:
    """A journal with a peer, which its readers ask for places."""

    def __init__(self, proved: Proof = Proof.PROVED, peers: tuple[str, ...] = ("b",)) -> None:
        self.sessions = Sessions(HERE)
        self.has(THERE, KNOWN)
        settings = JournalSettings(HERE, MINE, peers=peers)
        end = LogEnd(OWN, 1, 0, 1, 1, 1, proved)
        self.core = JournalCore(settings, RetentionSettings(()), self.sessions, end)
        self.now_ms = 0
        self.ask(m.Hello("replication", 1))

    def has(self, instance: int, generation: int) -> None:
        """A record of it is in the log."""
        self.sessions.origins.of(Origin(instance, generation)).position = 1

    @property
    def now(self) -> Now:
        return Now(self.now_ms, (EPOCH_S + NOW_S) * SECOND_NS)

    def ask(self, message: m.InternalMessage) -> list[je.Effect]:
        return list(self.core.handle(Requested([Incoming(RID, message, [])]), self.now))

    def reads(self, instance: int, generation: int, at: int = 4) -> je.Where:
        """A reader has seen this generation."""
        vector = format_vector({Origin(THERE, 1): 7, Origin(instance, generation): at})
        [effect] = self.ask(m.Locate(1, vector))
        assert isinstance(effect, je.LocatePoint)
        return effect.where

    def says(self, *rows: tuple[int, int]) -> None:
        """The peer has heard of these."""
        self.ask(PeerHolds(MINE, "b", [], later=list(rows)))

    @property
    def rows(self) -> list[tuple[int, int]]:
        """What this instance says to its peers."""
        rows, closed, *_ = travelling(self.sessions)
        said = newest(rows, closed)
        return self.core.commit.later.rows(self.sessions.origins, said)

    def begins(self) -> int:
        """The generation that begins in this turn; 0: none."""
        begun, end = 0, 0
        effects = list(self.core.tick(self.now, drained=True))
        while effects:
            effect, event = effects.pop(0), None
            if isinstance(effect, je.BeginGeneration):
                begun = effect.generation
                event = GenerationBegun(self.core.commit.serial + 1)
            elif isinstance(effect, je.Reserve):
                event = Reserved(True, True, U63_MAX)
            elif isinstance(effect, je.WriteGroup):
                event, end = Written(self.core.commit.serial), effect.end
            elif isinstance(effect, Sync):
                event = Synced(end)
            effects += self.core.handle(event, self.now) if event is not None else ()
        return begun


def test_a_generation_begins_above_one_that_a_reader_has_seen() -> None:
    at = Readers()
    assert at.begins() == 0
    at.reads(HERE, NOW_S + 100)
    assert at.begins() > NOW_S + 100
    at.reads(HERE, NOW_S + 100)
    assert at.begins() == 0, "it has begun"


@pytest.mark.parametrize("generation", [OWN - 1, OWN])
def test_a_known_number_begins_nothing(generation: int) -> None:
    at = Readers()
    at.reads(HERE, generation)
    assert at.begins() == 0


def test_without_peers_nobody_else_has_the_log() -> None:
    """It is of a copy, and refused."""
    at = Readers(peers=())
    at.reads(HERE, OWN + 1)
    assert at.begins() == 0


def test_the_number_of_a_start_is_above_what_a_reader_saw_before_it() -> None:
    at = Readers(Proof.UNKNOWN)
    at.begins()
    at.reads(HERE, NOW_S + 100)
    assert at.begins() == 0, "peers are still asked"
    at.now_ms = ANSWER_MS
    assert at.begins() > NOW_S + 100


def test_a_reader_is_not_believed_far_beyond_the_clock() -> None:
    """Anyone could take the highest number that there can be."""
    at = Readers()
    limit = NOW_S + AHEAD_S
    assert at.reads(HERE, limit + 1).believed == limit == believed(at.now.wall_ns)
    assert at.begins() == 0
    at.reads(HERE, limit)
    assert at.begins() > limit


def test_with_a_clock_that_is_far_ahead_there_is_room_for_a_number_above() -> None:
    """What a journal believes is sent to peers, and one of them begins a generation above it."""
    assert believed(U63_MAX) == GENERATION_MAX


def test_readers_begin_one_generation_in_a_while() -> None:
    at = Readers()
    at.reads(HERE, NOW_S + 100)
    begun = at.begins()
    at.now_ms = READER_MS - 1
    at.reads(HERE, begun + 1)
    assert at.begins() == 0
    at.now_ms = READER_MS
    at.reads(HERE, begun + 1)
    assert at.begins() > begun + 1


def test_peers_hear_of_a_generation_until_a_later_one_is_here() -> None:
    at = Readers()
    changes = at.core.commit.later.changes
    at.reads(THERE, 60)
    assert at.rows == [(THERE, 60)]
    assert at.core.commit.later.changes > changes, "the replication process asks what is new"
    at.now_ms = READER_MS
    at.reads(THERE, 50)
    assert at.rows == [(THERE, 60)], "one above it is above both"
    at.has(THERE, 59)
    assert at.rows == [(THERE, 60)]
    at.has(THERE, 61)
    assert at.rows == []
    assert at.begins() == 0, "it is not of this instance"


def test_what_a_state_named_is_said_while_nothing_of_it_is_here() -> None:
    """The state of another instance has generations of a third one with nothing in them; that one
    takes no state that knows later generations of it than its own."""
    at = Readers()
    at.sessions.origins.fold_row(OriginRow(THERE, KNOWN + 5, 0, 0, -1, 0, 1, -1, 0, 0, -1))
    assert at.rows == [(THERE, KNOWN + 5)]
    at.reads(THERE, KNOWN + 9)
    assert at.rows == [(THERE, KNOWN + 9)], "only the latest matters"
    at.has(THERE, KNOWN + 9)
    assert at.rows == []


@pytest.mark.parametrize(("instance", "generation"), [(THERE, KNOWN), (7, 60)])
def test_what_is_here_or_of_a_stranger_is_not_passed_on(instance: int, generation: int) -> None:
    at = Readers()
    at.reads(instance, generation)
    at.says((instance, generation))
    assert at.rows == []


def test_a_closed_generation_is_known() -> None:
    at = Readers()
    at.sessions.origins.fold_closed_row(ClosedRow(THERE, 60, 4, 2, 3, 4, 4, 0, 4, 0))
    at.reads(THERE, 60)
    assert at.rows == []


def test_the_word_of_a_reader_of_one_instance_does_not_hide_that_of_another() -> None:
    at = Readers()
    at.has(6, 1)
    at.reads(THERE, 60)
    at.reads(6, 70)
    assert at.rows == [(THERE, 60), (6, 70)]


def test_what_a_peer_has_heard_counts_here_and_is_passed_on() -> None:
    at = Readers()
    at.says((HERE, 9_000), (THERE, 60))
    assert at.begins() > 9_000
    assert at.rows == [(THERE, 60)]
    changes = at.core.commit.later.changes
    at.says((HERE, 9_000), (THERE, 60))
    assert at.begins() == 0
    assert at.core.commit.later.changes == changes


@pytest.mark.parametrize("point", ["0", "5|4|", "20260101T000000Z", "not,a,point", "point:x"])
def test_other_points_name_no_generation(point: str) -> None:
    at = Readers()
    at.ask(m.Locate(1, point))
    assert at.rows == []
    assert at.begins() == 0


def test_a_reader_may_name_it_by_a_point_of_all_instances() -> None:
    at = Readers()
    made = publish(7, b"")
    made.kind, made.origin_instance, made.origin_generation = KIND_SHARED_POINT, THERE, 1
    covers = format_vector({Origin(HERE, NOW_S + 100): 4})
    made.body = encode(SharedPointRecord("eod", 1, covers))
    at.sessions.named.fold(made)
    at.ask(m.Locate(1, "point:eod"))
    assert at.begins() > NOW_S + 100
