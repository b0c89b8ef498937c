"""When a start goes on in its generation, and when it begins another one."""

from __future__ import annotations

import pytest

from zbroker.ids import Origin
from zbroker.journal.end_note import Proof
from zbroker.journal.start_question import (
    ANSWER_MS,
    SEEN,
    UNPROVED,
    Decision,
    PeerAnswer,
    StartQuestion,
)

HERE = Origin(9, 5)


def asked(*peers: str, proved: Proof = Proof.UNKNOWN) -> StartQuestion:
    question = StartQuestion(peers or ("b", "c"), proved)
    question.tick(1_000)
    return question


def says(peer: str, position: int = 0, generation: int = 5, highest: int = 0) -> PeerAnswer:
    return PeerAnswer(peer, {generation: position} if position else {}, highest)


def test_a_journal_without_peers_asks_nobody() -> None:
    question = StartQuestion((), Proof.LOST)
    assert (question.state, question.due_ms, question.tick(0)) == (Decision.CONFIRMED, None, False)


def test_an_end_that_is_proved_asks_nobody() -> None:
    assert not asked(proved=Proof.PROVED).open


def test_a_generation_begins_also_when_all_peers_know_no_more() -> None:
    """A subscriber may know positions that only a disk had which was lost."""
    question = asked()
    assert not question.heard([says("b", 100)], HERE, 100)
    assert question.open
    assert question.heard([says("c", 70)], HERE, 100)
    assert (question.state, question.why) == (Decision.RAISED, UNPROVED)
    assert not question.heard([says("c", 70)], HERE, 100), "once"


def test_a_peer_that_knows_more_has_a_generation_begun_at_once() -> None:
    question = asked()
    assert question.heard([says("b", 101)], HERE, 100)
    assert question.state is Decision.RAISED


def test_a_peer_that_is_away_is_not_waited_for_longer() -> None:
    question = asked()
    question.heard([says("b", 100)], HERE, 100)
    assert question.due_ms == 1_000 + ANSWER_MS
    assert not question.tick(999 + ANSWER_MS)
    assert question.tick(1_000 + ANSWER_MS)
    assert (question.state, question.why) == (Decision.RAISED, "no answer of c")
    assert not question.tick(9_000 + ANSWER_MS), "once"


def test_an_end_that_is_known_to_be_lost_needs_no_answer() -> None:
    """Readers know positions that no peer ever had."""
    question = StartQuestion(("b",), Proof.LOST)
    assert question.tick(0)
    assert question.state is Decision.RAISED


@pytest.mark.parametrize("proved", [Proof.LOST, Proof.UNKNOWN])
def test_commits_wait_for_peers_as_long_as_a_start_may(proved: Proof) -> None:
    """Also where the generation began at once: what was lost may have the same commit."""
    question = StartQuestion(("b", "c"), proved)
    assert question.unheard(1_000)
    question.tick(1_000)
    question.heard([says("b", 100)], HERE, 100)
    assert question.unheard(999 + ANSWER_MS)
    assert not question.unheard(1_000 + ANSWER_MS)
    heard = StartQuestion(("b",), proved)
    heard.heard([says("b", 100)], HERE, 100)
    assert not heard.unheard(0)
    assert not StartQuestion(("b",), Proof.PROVED).unheard(0)
    assert not StartQuestion((), proved).unheard(0)


@pytest.mark.parametrize("answer", [says("b", 3, generation=8), says("b", highest=8)])
def test_a_peer_that_saw_a_later_generation_knows_more(answer: PeerAnswer) -> None:
    """The disk is older than that one; a peer may have heard of it without a record of it."""
    question = asked()
    assert question.heard([answer], HERE, 100)
    assert question.highest == 8
    assert (question.why == SEEN) == (not answer.holds)


def test_a_reader_that_saw_a_later_generation_has_another_begun() -> None:
    question = asked(proved=Proof.PROVED)
    assert not question.read(5, 5)
    assert question.read(8, 5)
    assert (question.highest, question.why) == (8, SEEN)


def test_a_reader_does_not_end_the_question() -> None:
    question = asked()
    assert not question.read(8, 5)
    assert question.open
    assert question.highest == 8, "the number will be above that"


def test_each_later_answer_is_the_same_question() -> None:
    """A virtual machine that was set back with its memory has no start."""
    question = asked("b", proved=Proof.PROVED)
    assert not question.heard([says("b", 100)], HERE, 100)
    assert not question.heard([says("b", 120)], HERE, 120)
    assert question.heard([says("b", 130)], HERE, 120)
    assert question.state is Decision.RAISED
    assert not question.heard([says("b", 130)], HERE._replace(generation=6), 0), "it has begun"


def test_what_peers_hold_of_an_older_generation_is_known_until_it_is_back() -> None:
    question = asked()
    question.heard([says("b", 130), says("c", 150)], HERE, 100)
    assert question.returning({5: 100, 6: 3}, 6) == {5: 150}
    assert question.returning({5: 150, 6: 3}, 6) == {}
