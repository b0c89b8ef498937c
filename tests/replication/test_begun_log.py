"""A link of a log that begins with the state of another instance: the link began to read while the
log was empty, and passes the state."""

from __future__ import annotations

from tests.journal.test_first_state import CLOSED, ORIGIN, process, taken
from tests.replication.build import HERE, Link, batch, records
from zbroker.ids import Origin
from zbroker.journal import snapshot
from zbroker.journal.first_state import learn
from zbroker.log.format import KIND_STATE, Batch

NEWER, OLDER = Origin(ORIGIN.instance, ORIGIN.generation), Origin(*CLOSED.origin)
LAST = {NEWER: 100, OLDER: CLOSED.end}  # messages of them that are not in the log


def begun(position: int) -> Batch:
    """The record of the state, as the journal writes it where a log begins at this position."""
    at = process()
    state, commit = taken(at), at.core.commit
    commit.begin(position)
    assert commit.states.place(state) is None
    (made,) = commit.batches
    assert (made.kind, made.position) == (KIND_STATE, position)
    record = batch(position, kind=KIND_STATE)
    record.body = made.body
    return record


def test_the_mark_stays_at_a_state_while_the_destination_lacks_messages_of_before() -> None:
    """Their publisher may send them again here, and they are duplicates then: an acknowledgement
    would say that the destination has them."""
    link = Link()
    link.connect({OLDER: LAST[OLDER]})
    link.reads(begun(1), batch(2))
    link.receipt(2)
    assert link.end.mark == 1
    link.beats({**LAST, HERE: 2})
    assert link.end.mark == 3


def test_messages_of_before_a_state_can_be_given_up() -> None:
    link = Link()
    link.connect({OLDER: 5})
    link.reads(begun(1))
    assert link.end.stopped == dict.fromkeys(LAST, "expired")
    assert link.end.selection.skippable == {NEWER: (1, LAST[NEWER]), OLDER: (6, LAST[OLDER])}
    assert link.end.selection.lacks == [NEWER.instance], "another instance may send them"


def test_a_destination_that_has_what_was_before_a_state_gets_what_comes_after() -> None:
    link = Link()
    link.connect(LAST)
    sent = link.reads(begun(1), batch(2, NEWER, LAST[NEWER] + 1))
    assert records(sent) == [(NEWER.instance, LAST[NEWER] + 1, LAST[NEWER])]
    assert link.end.stopped == {}


def test_a_later_snapshot_of_the_log_holds_no_mark() -> None:
    """What it says to be missing was written before it, and counted there."""
    at = process()
    state, commit = taken(at), at.core.commit
    learn(state, commit.sessions, 1)
    later = batch(7, kind=KIND_STATE)
    later.body = snapshot.Cutter(snapshot.folds(commit.sessions), 7).cut()
    link = Link()
    link.connect()
    link.reads(later)
    assert link.end.mark == 8
