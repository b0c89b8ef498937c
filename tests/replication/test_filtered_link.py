"""A link with a filter: what goes, what holds the mark, and ties, which have no content."""

from __future__ import annotations

from msgspec.structs import replace

from tests.replication.build import HERE, THERE, THIRD, Link, batch, records
from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.link_topics import LinkTopics
from zbroker.log.format import KIND_TIE, Batch
from zbroker.log.reader import Gap
from zbroker.replication.effects import FindStart, Note, SayOn
from zbroker.wire import bodies
from zbroker.wire import replication as w
from zbroker.wire.internal import Covered
from zbroker.wire.replication import OriginPosition

LARGE = LinkTopics(["orders"], "/n > 5")
FOURTH = Origin(4, 8)


def orders(position: int, *numbers: int, origin: Origin = HERE, at: int = 0) -> Batch:
    """A batch of orders with these numbers."""
    made = batch(position, origin, at, count=len(numbers), topic="orders")
    body = bodies.pack([b'{"n": %d}' % n for n in numbers])
    return replace(made, body=body, body_crc=crc32c(body), body_length=len(body))


def tie(position: int, origin: Origin, at: int, topic: str = "orders") -> Batch:
    return batch(position, origin, at, topic=topic, kind=KIND_TIE)


def row(origin: Origin, position: int) -> OriginPosition:
    return OriginPosition(*origin, position, LARGE.digest)


class Filtered(Link):
    """Large orders only."""

    def __init__(self) -> None:
        super().__init__(LARGE)

    def holds(self, *rows: OriginPosition, sources: tuple[int, ...] = ()) -> FindStart:
        """The destination is there with these rows; it reads from position 1."""
        self.tick()
        said = w.Statement(*THERE, 1, self.counter, [*rows], [*sources])
        effects = self.hears(w.LinkWelcome(self.end.session, 2, "there", "g", said, 1 << 20))
        (find,) = (one for one in effects if isinstance(one, FindStart))
        self.begins(find)
        return find

    def says(self, *rows: OriginPosition, sources: tuple[int, ...] = ()) -> list[FindStart]:
        """It says that these have changed; what the link looks for then."""
        self.counter += 1
        said = w.Statement(*THERE, 1, self.counter, [*rows], [*sources])
        self.hears(w.LinkBeat(self.end.session, said))
        found = [one for one in self.tick() if isinstance(one, FindStart)]
        for find in found:
            self.begins(find)
        return found


def covered(sent: list[w.SendUnits]) -> list[Covered]:
    return [one for message in sent for one in message.covered]


def test_the_hello_says_the_filter() -> None:
    link = Link(LinkTopics([], "/n >  5", types=9))
    _, said = link.tick()
    assert isinstance(said, SayOn)
    assert isinstance(said.message, w.LinkHello)
    hello = said.message
    assert (hello.topics, hello.filter, hello.types) == ([], "/n > 5", 9)
    assert hello.digest == LinkTopics([], "/n > 5", 9).digest


def test_what_the_filter_is_false_for_is_covered_and_holds_no_mark() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(orders(1, 1), orders(2, 9), orders(3, 2, 3))
    assert (records(sent), covered(sent)) == ([(1, 2, 0)], [Covered(*HERE, 2, 4)])
    assert link.end.mark == 2
    link.receipt(2)
    assert link.end.mark == 5


def test_messages_of_a_batch_that_are_wanted_go_at_their_places() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(orders(1, 7, 1, 8, 9, 2))
    assert records(sent) == [(1, 1, 0), (1, 3, 1)]
    assert covered(sent) == [Covered(*HERE, 4, 5)]


def test_a_destination_under_another_filter_takes_own_records_from_its_row_on() -> None:
    link = Filtered()
    other = LinkTopics(["orders"], "/n > 6")
    link.holds(OriginPosition(*HERE, 1, other.digest))
    (note,) = (one for one in link.effects if isinstance(one, Note))
    assert (note.name, "orders where /n > 5" in note.text) == ("replication.topics_changed", True)
    assert records(link.reads(orders(1, 9), orders(2, 9))) == [(1, 2, 1)]
    assert link.end.mark == 0, "what its row says does not count before it has the new filter"


def test_a_third_origin_under_another_filter_stops() -> None:
    link = Filtered()
    link.holds(OriginPosition(*THIRD, 1, LinkTopics(["orders"], "/n > 6").digest))
    assert records(link.reads(orders(1, 9, origin=THIRD, at=1))) == []
    assert link.end.stopped == {THIRD: "digest_differs"}


def test_what_the_destination_gave_goes_back_whole() -> None:
    link = Filtered()
    link.holds()
    older = Origin(THERE.instance, THERE.generation - 1)
    tied = tie(2, older, 2)
    assert records(link.reads(orders(1, 1, origin=older, at=1), tied)) == [(2, 1, 0), (2, 2, 1)]


# -- ties -------------------------------------------------------------------------------------


def test_a_tie_waits_for_what_is_before_it() -> None:
    """Its message may be among that, and not be there yet."""
    link = Filtered()
    link.holds()
    newer = orders(4, 9, origin=THIRD, at=2)
    sent = link.reads(orders(1, 9), orders(2, 1), tie(3, THIRD, 1), newer)
    assert (records(sent), covered(sent)) == ([(1, 1, 0)], [Covered(*HERE, 1, 2)])
    assert link.end.stopped == {THIRD: "origin_gap"}
    assert link.end.mark == 1


def test_a_tie_is_left_out_once_the_destination_has_that() -> None:
    link = Filtered()
    link.holds()
    records_then = [orders(1, 9), tie(2, THIRD, 1), orders(3, 9, origin=THIRD, at=2)]
    link.reads(*records_then)
    link.receipt(2)
    assert link.says(row(HERE, 1)), "it reads again"
    sent = link.reads(*records_then)
    assert (records(sent), link.end.stopped) == ([(3, 2, 0)], {})


def test_a_tie_that_comes_last_is_covered() -> None:
    link = Filtered()
    link.holds(row(HERE, 1))
    sent = link.reads(orders(1, 9), tie(2, THIRD, 1))
    assert (records(sent), covered(sent)) == ([], [Covered(*THIRD, 0, 1)])


def test_a_tie_after_what_is_not_wanted_waits_for_nothing() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(orders(1, 1), tie(2, THIRD, 1))
    assert covered(sent) == [Covered(*HERE, 0, 1), Covered(*THIRD, 0, 1)]
    assert link.end.stopped == {}


def test_a_tie_of_other_topics_waits_for_nothing() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(orders(1, 9), tie(2, THIRD, 1, topic="trades"))
    assert covered(sent) == [Covered(*THIRD, 0, 1)]


def test_a_tie_waits_also_for_what_others_send() -> None:
    link = Filtered()
    link.holds(sources=(FOURTH.instance,))
    log = [orders(1, 9, origin=FOURTH, at=1), tie(2, THIRD, 1)]
    assert covered(link.reads(*log)) == []
    assert link.end.stopped == {THIRD: "origin_gap"}
    assert not link.says(row(FOURTH, 0), sources=(FOURTH.instance,))
    assert link.says(row(FOURTH, 1), sources=(FOURTH.instance,))
    assert covered(link.reads(*log)) == [Covered(*THIRD, 0, 1)]


def test_a_tie_of_an_origin_that_another_instance_sends_stops_nothing() -> None:
    link = Filtered()
    link.holds(sources=(THIRD.instance,))
    assert covered(link.reads(orders(1, 9), tie(2, THIRD, 1))) == []
    assert link.end.stopped == {}


def test_a_tie_after_damage_waits_for_the_proof() -> None:
    link = Filtered()
    link.holds(row(THIRD, 1))
    sent = link.reads(Gap(1, 3, "damaged body"), tie(3, THIRD, 2))
    assert covered(sent) == []
    assert THIRD in link.end.stopped


def test_a_newer_generation_waits_for_a_tie_of_the_older_one() -> None:
    """Its first record ends the older one for readers there, and the tie's message may come yet."""
    link = Filtered()
    link.holds()
    newer = Origin(THIRD.instance, THIRD.generation + 1)
    sent = link.reads(orders(1, 9), tie(2, THIRD, 1), orders(3, 9, origin=newer, at=1))
    assert records(sent) == [(1, 1, 0)]
    assert link.end.stopped == {THIRD: "origin_gap", newer: "gap"}
