"""Ties that a destination refuses, since it lacks the messages: are these in this log, or not?"""

from __future__ import annotations

from tests.replication.build import HERE, THERE, THIRD, Link, batch, records
from zbroker.ids import Origin
from zbroker.log.format import KIND_TIE, Batch
from zbroker.replication.effects import FindStart
from zbroker.replication.outgoing_link import AGAIN_MS, HELLO_WAIT_MS
from zbroker.wire import replication as w
from zbroker.wire.replication import LinkItem

FOURTH = Origin(4, 8)
NEWER = Origin(THIRD.instance, THIRD.generation + 1)
FULL, LACKS = "disk_full", "origin_gap"


def tie(position: int, at: int) -> Batch:
    """A tie of the third instance."""
    return batch(position, THIRD, at, kind=KIND_TIE)


class Refusing(Link):
    """Its destination refuses some records. log: what is read each time, from the beginning."""

    def __init__(self, *log: Batch) -> None:
        super().__init__()
        self.log, self.judged = log, 0

    def sends(self, refused: dict[tuple[Origin, int], str]) -> list[tuple[int, int, int]]:
        """The log is read; of what goes, these are refused, by origin and position, with a code.
        Returns: what goes."""
        sent = self.reads(*self.log)
        ordinals = [
            (message.ordinal + n, (Origin(record.instance, record.generation), record.position))
            for message in sent for n, record in enumerate(message.records)
        ]  # fmt: skip
        items = [LinkItem(n, refused[one], "so") for n, one in ordinals if one in refused]
        if ordinals:
            since, self.judged = self.judged, ordinals[-1][0]
            self.receipt(self.judged, *items, since=since)
        return records(sent)

    def again(self) -> None:
        """After a while the link reads from where the destination is."""
        (find,) = (one for one in self.tick(AGAIN_MS) if isinstance(one, FindStart))
        self.begins(find)

    def skippable(self) -> dict[Origin, tuple[int, int]]:
        return dict(self.end.selection.skippable)


def test_a_tie_that_is_refused_with_what_is_before_it_on_its_way_waits() -> None:
    link = Refusing(batch(1, FOURTH, 1), tie(2, 1))
    link.connect()
    assert link.sends({(THIRD, 1): LACKS}) == [(4, 1, 0), (3, 1, 0)]
    assert link.end.stopped == {THIRD: "origin_gap"}
    assert link.skippable() == {}


def test_a_tie_is_expired_once_it_is_refused_by_a_destination_that_has_all_before_it() -> None:
    link = Refusing(batch(1, FOURTH, 1), tie(2, 1))
    link.connect()
    link.sends({(THIRD, 1): LACKS})
    link.again()
    assert link.sends({(THIRD, 1): LACKS}) == [(3, 1, 0)]
    assert link.end.stopped == {THIRD: "expired"}
    assert link.skippable() == {THIRD: (1, 1)}
    assert link.end.selection.lacks == [THIRD.instance], "another instance may send them"


def test_an_expired_tie_goes_once_the_destination_has_its_messages_by_another_way() -> None:
    link = Refusing(tie(1, 1), batch(2, THIRD, 2))
    link.connect()
    for _ in range(2):
        assert link.sends({(THIRD, 1): LACKS, (THIRD, 2): LACKS}) == [(3, 1, 0), (3, 2, 1)]
        link.again()
    link.sends({})
    assert (link.end.stopped, link.skippable()) == ({}, {})
    assert link.end.peer.rows[THIRD].position == 2


def test_an_origin_goes_on_after_a_tie_that_was_given_up() -> None:
    link = Refusing(tie(1, 1), batch(2, THIRD, 2))
    link.connect()
    for _ in range(2):
        link.sends({(THIRD, 1): LACKS, (THIRD, 2): LACKS})
        link.again()
    link.sends({(THIRD, 1): LACKS, (THIRD, 2): LACKS})
    (skip,) = link.end.skip([THIRD])
    link.beats({THIRD: 1}, ordinal=link.judged)
    (find,) = (one for one in link.tick() if isinstance(one, FindStart))
    link.begins(find)
    assert link.sends({}) == [(3, 2, 1)]
    assert (link.end.stopped, link.skippable()) == ({}, {})
    assert getattr(skip, "message", None) == w.SkipRange(link.end.session, *THIRD, 1, 1)


def test_each_tie_is_looked_at_by_itself() -> None:
    """The destination may have the messages of the next one."""
    link = Refusing(tie(1, 1), tie(2, 2))
    link.connect()
    for _ in range(2):
        link.sends({(THIRD, 1): LACKS, (THIRD, 2): LACKS})
        link.again()
    link.sends({(THIRD, 2): LACKS})
    assert link.end.stopped == {THIRD: "origin_gap"}
    link.again()
    link.sends({(THIRD, 2): LACKS})
    assert link.skippable() == {THIRD: (2, 2)}


def test_a_tie_waits_while_the_destination_refuses_what_is_before_it() -> None:
    """A nearly full disk takes ties and no messages."""
    link = Refusing(batch(1, FOURTH, 1), tie(2, 1))
    link.connect()
    for _ in range(3):
        link.sends({(FOURTH, 1): FULL, (THIRD, 1): LACKS})
        assert link.end.stopped == {FOURTH: "disk_full", THIRD: "origin_gap"}
        assert link.skippable() == {}
        link.again()


def test_a_tie_waits_while_its_own_newer_generation_is_not_there() -> None:
    """A host was set back; its publishers sent it again what came back to it by the tie."""
    link = Refusing(batch(1, NEWER, 1), tie(2, 1))
    link.connect()
    for _ in range(3):
        link.sends({(NEWER, 1): FULL, (THIRD, 1): LACKS})
        assert link.end.stopped == {NEWER: "disk_full", THIRD: "origin_gap"}
        link.again()


def in_a_circle(sources: list[int]) -> Refusing:
    """The tie's messages are in a newer generation, which may not begin before the tie is taken."""
    link = Refusing(batch(1, NEWER, 1), tie(2, 1))
    link.connect(sources=sources)
    link.sends({(NEWER, 1): LACKS, (THIRD, 1): LACKS})
    assert link.end.stopped == {NEWER: "origin_gap", THIRD: "origin_gap"}
    assert link.end.selection.lacks == []
    link.again()
    link.sends({(NEWER, 1): LACKS, (THIRD, 1): LACKS})
    assert link.end.stopped == {NEWER: "origin_gap", THIRD: "gap"}
    return link


def test_another_instance_sends_what_a_tie_and_its_newer_generation_wait_for() -> None:
    link = in_a_circle(sources=[FOURTH.instance])
    assert link.end.state == "sending"
    assert link.end.selection.lacks == [THIRD.instance]
    assert link.skippable() == {}


def test_without_another_instance_a_new_session_begins_with_the_newer_generation() -> None:
    link = in_a_circle(sources=[HERE.instance])
    assert link.end.state == "down"
    link.tick(HELLO_WAIT_MS)
    link.judged = 0
    link.welcomed({HERE: 0})
    assert link.sends({}) == [(3, 1, 0), (3, 1, 0)]
    assert link.end.stopped == {}


def test_a_newer_generation_that_waits_for_a_tie_does_not_hold_it_up() -> None:
    link = Refusing(tie(1, 1), batch(2, NEWER, 1))
    link.connect()
    for _ in range(2):
        link.sends({(THIRD, 1): LACKS, (NEWER, 1): LACKS})
        link.again()
    link.sends({(THIRD, 1): LACKS, (NEWER, 1): LACKS})
    assert link.end.stopped[THIRD] == "expired"


def test_a_tie_waits_for_what_another_instance_sends() -> None:
    link = Refusing(batch(1, FOURTH, 1), tie(2, 1))
    link.connect(sources=[FOURTH.instance])
    for _ in range(3):
        assert link.sends({(THIRD, 1): LACKS}) == [(3, 1, 0)]
        assert link.end.stopped == {THIRD: "origin_gap"}
        link.again()
    link.beats({FOURTH: 1}, [FOURTH.instance], ordinal=link.judged)
    link.sends({(THIRD, 1): LACKS})
    assert link.end.stopped == {THIRD: "expired"}


def test_what_the_destination_gave_itself_is_there() -> None:
    link = Refusing(batch(1, THERE, 1), tie(2, 1))
    link.connect()
    for _ in range(2):
        link.sends({(THIRD, 1): LACKS})
        link.again()
    link.sends({(THIRD, 1): LACKS})
    assert link.end.stopped == {THIRD: "expired"}


def test_after_a_new_disk_of_the_destination_a_tie_waits_again() -> None:
    link = Refusing(batch(1, FOURTH, 1), tie(2, 1))
    link.connect()
    for _ in range(2):
        link.sends({(THIRD, 1): LACKS})
        link.again()
    link.sends({(THIRD, 1): LACKS})
    link.hears(w.LinkEnded(link.end.session, "its disk was replaced"))
    link.tick(HELLO_WAIT_MS)
    link.judged = 0
    link.welcomed({HERE: 0})
    assert link.sends({(THIRD, 1): LACKS}) == [(4, 1, 0), (3, 1, 0)]
    assert link.end.stopped == {THIRD: "origin_gap"}


def test_another_record_that_is_refused_so_never_expires() -> None:
    """What it lacks is before it in its own origin."""
    link = Refusing(batch(1, FOURTH, 1), batch(2, THIRD, 1))
    link.connect()
    for _ in range(3):
        link.sends({(THIRD, 1): LACKS})
        assert link.end.stopped == {THIRD: "origin_gap"}
        link.again()
