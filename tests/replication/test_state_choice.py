"""Which source an empty log begins with, and what is done while its state comes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.replication.build import statement
from zbroker.engine.effects import JOURNAL, Answer, Note, Say
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.durability import DestinationRule
from zbroker.replication.incoming_link import IncomingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.state_choice import OPEN_MS, STALLED_MS, StateChoice
from zbroker.wire import replication as w
from zbroker.wire.replicas import (
    AskFirstStart,
    BeginFresh,
    ChangeLink,
    FirstStartRow,
    FollowLog,
    Links,
    MissingRange,
    SkipMissing,
    TakeState,
)

MINE, JOURNAL_NUMBER = 9, 77
FILLING, OPEN = FirstStartRow(0, "filling"), FirstStartRow(0, "open")
FRESH, TRY = ChangeLink(4, "fresh", ""), ChangeLink(4, "fresh", "", dry_run=True)


class Choice:
    """An instance whose log is empty, and the sources that send to it."""

    def __init__(self, *destinations: str) -> None:
        rules = [DestinationRule(name, sync=False) for name in destinations]
        self.own = OwnHoldings(MINE)
        self.own.takes_state = True
        self.links: dict[bytes, IncomingLink] = {}
        settings = ReplicationSettings(MINE, "here", "g", 1, rules)
        self.choice = StateChoice(settings, self.own, self.links)
        self.choice.journal = JOURNAL_NUMBER

    def source(self, name: str, *, holds: int = 0, welcomed: bool = True) -> IncomingLink:
        """One that sends here; it has so much of its own."""
        number = len(self.links) + 1
        said = statement(1, {Origin(100 + number, 5): holds} if holds else {})
        said.instance = 100 + number
        hello = w.LinkHello(w.PROTOCOL, 1, 7 * number, name, "g", said)
        link = IncomingLink(name.encode(), "", hello, number, 0)
        link.welcomed = welcomed
        self.links[link.rid] = link
        return link

    def is_asked(self, effects: list[Any]) -> list[bytes]:
        """Who is asked for a state by these effects."""
        assert all(isinstance(one.message, w.AskState) for one in effects)
        return [one.rid for one in effects]


def test_the_source_that_holds_most_is_asked() -> None:
    at = Choice("b", "c")
    at.source("b", holds=10)
    most = at.source("c", holds=30)
    at.source("d", holds=90, welcomed=False)
    effects = at.choice.said(FILLING)
    assert at.is_asked(effects) == [b"c"]
    assert isinstance(effects[0], Answer)
    assert effects[0].message == w.AskState(most.session)
    assert at.choice.said(FILLING) == [], "one at a time"


@pytest.mark.parametrize("row", [OPEN, FirstStartRow(0, "asking"), FirstStartRow(0, "following")])
def test_nobody_is_asked_while_the_log_does_not_wait_for_a_state(row: FirstStartRow) -> None:
    at = Choice("b")
    at.source("b", holds=10)
    assert at.choice.said(row) == []


def test_a_source_that_holds_nothing_has_no_state() -> None:
    at = Choice("b")
    at.source("b")
    assert at.choice.said(FILLING) == []


def test_a_source_whose_state_was_refused_is_not_asked_again() -> None:
    at = Choice("b", "c")
    at.source("b", holds=10)
    most = at.source("c", holds=30)
    at.choice.said(FILLING)
    at.choice.refused(most)
    assert at.is_asked(at.choice.said(FILLING)) == [b"b"]


def test_it_is_asked_again_when_this_instance_has_begun_a_generation() -> None:
    """What was wrong may have been that its state knows later ones of this instance."""
    at = Choice("b")
    only = at.source("b", holds=10)
    at.choice.said(FILLING)
    at.choice.refused(only)
    assert at.choice.said(FILLING) == []
    at.own.generation += 1
    assert at.is_asked(at.choice.said(FILLING)) == [b"b"]


def test_when_the_link_ends_in_the_middle_the_next_choice_begins_again() -> None:
    at = Choice("b", "c")
    at.source("b", holds=10)
    most = at.source("c", holds=30)
    at.choice.said(FILLING)
    del at.links[most.rid]
    assert at.is_asked(at.choice.said(FILLING)) == [b"b"]


def test_without_destinations_the_first_source_with_records_is_asked_at_its_hello() -> None:
    at = Choice()
    assert not at.choice.takes(at.source("empty"))
    assert at.choice.takes(at.source("b", holds=10))
    assert not at.choice.takes(at.source("c", holds=30)), "one at a time"


def test_with_destinations_a_hello_alone_decides_nothing() -> None:
    at = Choice("b")
    assert not at.choice.takes(at.source("b", holds=10))


def test_a_log_that_is_not_empty_takes_no_state() -> None:
    at = Choice()
    at.own.takes_state = False
    assert not at.choice.takes(at.source("b", holds=10))


def test_parts_go_to_the_journal_with_the_number_of_their_link() -> None:
    at = Choice("b")
    link = at.source("b", holds=10)
    at.choice.said(FILLING)
    message = w.StatePart(link.session, 3, True)
    [say] = at.choice.heard(link, message, [b"body"])
    assert isinstance(say, Say)
    assert (say.link, say.message) == (JOURNAL, TakeState(JOURNAL_NUMBER, link.number, 3, True))
    assert list(say.bodies) == [b"body"]
    assert at.choice.heard(link, message, []) == [], "a part is one frame"


def test_a_source_that_has_everything_is_followed() -> None:
    at = Choice("b")
    link = at.source("b", holds=10)
    at.choice.said(FILLING)
    [say] = at.choice.heard(link, w.NoState(link.session), [])
    assert isinstance(say, Say)
    assert say.message == FollowLog(JOURNAL_NUMBER)


def test_what_was_not_asked_for_is_not_taken() -> None:
    """A process before this one may have asked; its parts began elsewhere."""
    at = Choice("b", "c")
    link, other = at.source("b", holds=10), at.source("c", holds=5)
    at.choice.said(FILLING)
    assert at.choice.heard(other, w.NoState(other.session), []) == []
    assert at.choice.heard(other, w.StatePart(other.session, 0), [b"body"]) == []
    assert at.choice.heard(link, w.NoState(link.session), []) != []


def test_a_skip_of_any_source_goes_to_the_journal() -> None:
    at = Choice("b")
    link = at.source("b")
    [say] = at.choice.heard(link, w.SkipRange(link.session, 5, 6, 10, 20), [])
    assert isinstance(say, Say)
    assert say.message == SkipMissing(JOURNAL_NUMBER, link.number, 5, 6, 10, 20)
    assert at.choice.heard(link, w.SkipRange(link.session, 0, 6, 10, 20), []) == []


def test_a_source_of_which_nothing_more_comes_has_stalled() -> None:
    at = Choice("b")
    link = at.source("b", holds=10)
    assert at.choice.stalled(0) is None
    at.choice.said(FILLING)
    assert at.choice.stalled(1_000) is None
    assert at.choice.stalled(1_000 + STALLED_MS) is None
    at.choice.said(FirstStartRow(0, "filling", bytes=500))
    assert at.choice.stalled(1_001 + STALLED_MS) is None, "a part has come"
    assert at.choice.stalled(1_001 + 2 * STALLED_MS) is None
    assert at.choice.stalled(1_002 + 2 * STALLED_MS) is link


def test_the_journal_is_asked_each_beat_until_it_is_open_and_then_rarely() -> None:
    at = Choice("b")
    [say] = at.choice.tick(1_000)
    assert isinstance(say, Say)
    assert say.message == AskFirstStart(0, JOURNAL_NUMBER)
    assert (at.choice.tick(1_001), at.choice.next_wake_ms) == ([], 1_000 + BEAT_MS)
    at.choice.said(OPEN)
    assert at.choice.tick(1_000 + BEAT_MS) != []
    assert at.choice.next_wake_ms == 1_000 + BEAT_MS + OPEN_MS


def test_without_a_journal_nothing_is_asked() -> None:
    at = Choice("b")
    at.choice.journal = 0
    assert at.choice.tick(1_000) == []


def test_a_fresh_log_is_begun_when_a_person_says_so() -> None:
    at = Choice("b")
    at.choice.said(FirstStartRow(0, "asking", ["b"]))
    effects, changed = at.choice.fresh(TRY)
    assert (effects, changed.code) == ([], "")
    [note, say], changed = at.choice.fresh(FRESH)
    assert isinstance(note, Note)
    assert isinstance(say, Say)
    assert (note.name, say.message) == ("replication.fresh", BeginFresh(JOURNAL_NUMBER))
    assert (changed.cid, changed.code) == (4, "")
    assert at.choice.tick(0) != [], "what became of it is asked at once"


def test_an_open_log_is_not_begun_again() -> None:
    at = Choice("b")
    effects, changed = at.choice.fresh(FRESH)
    assert (effects, changed.code) == ([], "not_ready")
    at.choice.said(OPEN)
    effects, changed = at.choice.fresh(FRESH)
    assert (effects, changed.code) == ([], "bad_command")


def test_what_it_waits_for_is_explained() -> None:
    at, answer = Choice("b"), Links(1, [], 0)
    at.choice.explain(answer)
    assert (answer.phase, answer.waits) == ("", "the journal did not say yet how its log is")
    ranges = [MissingRange(1, 5, 1, 40, "state")]
    at.choice.said(FirstStartRow(0, "filling", text="it waits", bytes=9, ranges=ranges))
    at.choice.explain(answer)
    assert (answer.phase, answer.waits) == ("filling", "it waits")
    assert (answer.state_bytes, answer.ranges) == (9, ranges)
