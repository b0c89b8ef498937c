"""What peers hold of other instances is known where a vector is looked up."""

from __future__ import annotations

from zbroker.engine.contract import Now
from zbroker.ids import Origin
from zbroker.journal import effects as je
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.end_note import Proof
from zbroker.journal.events import Incoming, Requested
from zbroker.journal.forgotten_peers import ForgottenRow
from zbroker.journal.sessions import Sessions
from zbroker.wire import internal as m
from zbroker.wire.replicas import ForgetPeer, PeerHolds
from zbroker.wire.replication import OriginPosition

HERE, MINE, RID = 9, 77, b"\0link"
OLDER, NEWER = Origin(8, 1), Origin(8, 2)


class Heard:
    """A journal, and what its look-ups are given of other instances."""

    def __init__(self) -> None:
        self.sessions = Sessions()
        settings = JournalSettings(HERE, MINE, peers=("b", "c"))
        end = LogEnd(1, 1, 0, 1, 1, 1, Proof.PROVED)
        self.core = JournalCore(settings, RetentionSettings(()), self.sessions, end)
        self.ask(m.Hello("replication", 1))

    def ask(self, message: m.InternalMessage) -> list[je.Effect]:
        return list(self.core.handle(Requested([Incoming(RID, message, [])]), Now(0, 1_000)))

    def says(self, peer: str, rows: dict[Origin, int], *, digest: int = 0) -> dict[Origin, int]:
        given = [OriginPosition(*one, at, digest) for one, at in rows.items()]
        self.ask(PeerHolds(MINE, peer, [], given))
        return self.coming

    def answers(self, peer: str) -> None:
        """It has nothing of this instance, as it was asked in this generation."""
        here = self.core.commit.generation
        self.ask(PeerHolds(MINE, peer, [(here, 0)], [], here))

    @property
    def where(self) -> je.Where:
        """What a look-up is given."""
        [effect] = self.ask(m.Locate(1, "0"))
        assert isinstance(effect, je.LocatePoint)
        return effect.where

    @property
    def coming(self) -> dict[Origin, int]:
        return self.where.coming


def test_what_is_here_does_not_come() -> None:
    heard = Heard()
    assert heard.says("b", {OLDER: 7, NEWER: 3}) == {OLDER: 7, NEWER: 3}
    heard.sessions.origins.of(NEWER).position = 3
    assert heard.coming == {OLDER: 7}


def test_the_peer_that_holds_most_counts_as_it_said_last() -> None:
    heard = Heard()
    heard.says("b", {OLDER: 7})
    assert heard.says("c", {OLDER: 9}) == {OLDER: 9}
    assert heard.says("c", {}) == {OLDER: 7}, "c was set back"


def test_own_generations_and_those_under_topics_do_not_count() -> None:
    heard = Heard()
    assert heard.says("b", {Origin(HERE, 1): 5}) == {}
    assert heard.says("b", {OLDER: 7}, digest=3) == {}


def test_nothing_comes_of_a_closed_generation() -> None:
    heard = Heard()
    heard.says("b", {OLDER: 7})
    heard.sessions.origins.fold_closed_row(ClosedRow(*OLDER, 4, 2, 3, 4, 4, 0, 4, 0))
    assert heard.coming == {}


def test_nothing_comes_from_a_peer_that_was_forgotten() -> None:
    heard = Heard()
    heard.says("b", {OLDER: 7})
    heard.ask(ForgetPeer(1, MINE, "b"))
    assert heard.coming == {}


def test_older_generations_of_its_own_may_come_back_until_all_have_answered() -> None:
    """A reader that saw more of them waits, since the same messages may be here by another name."""
    heard = Heard()
    heard.answers("b")
    assert not heard.core.commit.fenced, "publishers do not wait for c"
    assert heard.where.fenced
    heard.answers("c")
    assert not heard.where.fenced


def test_a_peer_that_was_forgotten_is_not_waited_for() -> None:
    heard = Heard()
    heard.answers("b")
    heard.sessions.forgotten_peers.fold_row(ForgottenRow("c"))
    assert not heard.where.fenced
