"""A link with topics: what goes, what is covered, whose rows count, and when topics change."""

from __future__ import annotations

from array import array

from tests.replication.build import HERE, THERE, THIRD, Link, batch, records, units
from zbroker.ids import Origin
from zbroker.link_topics import LinkTopics
from zbroker.log import records as control
from zbroker.log.format import KIND_CLOSED, KIND_ORIGIN, KIND_STAGED, KIND_TIE, Batch
from zbroker.log.reader import Gap
from zbroker.replication.effects import FindStart, Note, SayOn
from zbroker.replication.link_selection import KEEP_BYTES
from zbroker.replication.outgoing_link import HELLO_WAIT_MS, SILENCE_MS
from zbroker.wire import bodies
from zbroker.wire import replication as w
from zbroker.wire.internal import Covered
from zbroker.wire.messages import Columns
from zbroker.wire.replication import OriginPosition

TRADES = LinkTopics(["trades"])
ORDERS = LinkTopics(["orders"])
MINE = OriginPosition(*HERE, 0, ORDERS.digest)


def order(position: int, origin: Origin = HERE, at: int = 0, **more: int) -> Batch:
    return batch(position, origin, at, topic="orders", **more)


def trade(position: int, origin: Origin = HERE, at: int = 0, **more: int) -> Batch:
    return batch(position, origin, at, topic="trades", **more)


def row(origin: Origin, position: int, topics: LinkTopics = ORDERS, **more: int) -> OriginPosition:
    return OriginPosition(*origin, position, topics.digest, **more)


class Filtered(Link):
    """Orders only."""

    def __init__(self) -> None:
        super().__init__(ORDERS)

    def holds(self, *rows: OriginPosition, sources: tuple[int, ...] = ()) -> list[Note]:
        """The destination is there with these rows; it reads from position 1."""
        self.tick()
        said = w.Statement(*THERE, 1, self.counter, [*rows], [*sources])
        effects = self.hears(w.LinkWelcome(self.end.session, 2, "there", "g", said, 1 << 20))
        (find,) = (one for one in effects if isinstance(one, FindStart))
        self.find = find
        before = len(self.effects)
        self.begins(find)
        return [one for one in self.effects[before:] if isinstance(one, Note)]

    def says(self, *rows: OriginPosition) -> None:
        """It says that these have changed."""
        self.counter += 1
        said = w.Statement(*THERE, 1, self.counter, [*rows])
        self.hears(w.LinkBeat(self.end.session, said))


def covered(sent: list[w.SendUnits]) -> list[Covered]:
    return [one for message in sent for one in message.covered]


def test_the_hello_names_the_topics() -> None:
    _, said = Link(ORDERS).tick()
    assert isinstance(said, SayOn)
    assert isinstance(said.message, w.LinkHello)
    assert (said.message.digest, said.message.topics) == (ORDERS.digest, ["orders"])


def test_a_release_that_does_not_know_topics_gets_nothing() -> None:
    """It would count the records as everything."""
    link = Filtered()
    link.tick()
    said = w.Statement(*THERE, 1, 1, [])
    link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    assert (link.end.state, link.end.refusal is not None) == ("down", True)


def test_after_is_the_wanted_record_before() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(order(1), trade(2), trade(3), order(4))
    assert records(sent) == [(1, 1, 0), (1, 4, 1)]
    assert covered(sent) == []


def test_what_is_left_out_is_covered_after_what_is_sent() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(order(1), trade(2), trade(3))
    assert (records(sent), covered(sent)) == ([(1, 1, 0)], [Covered(*HERE, 1, 3)])
    assert covered(link.reads(trade(4))) == [Covered(*HERE, 1, 4)]


def test_what_is_not_wanted_holds_no_mark() -> None:
    link = Filtered()
    link.holds()
    link.reads(trade(1), order(2), trade(3))
    assert link.end.mark == 2
    link.receipt(2)
    assert link.end.mark == 4


def test_a_destination_that_is_at_what_was_left_out_goes_on() -> None:
    link = Filtered()
    link.holds(row(HERE, 3))
    assert records(link.reads(order(1), trade(2), trade(3), order(4))) == [(1, 4, 1)]


def test_the_record_before_is_compared_if_it_was_read() -> None:
    link = Filtered()
    link.holds(row(HERE, 2))
    first = order(1)
    (sent,) = link.reads(first, trade(2), order(3))
    assert sent.records[-1].after_crc == first.body_crc


def test_a_row_where_no_record_ends_is_of_another_history() -> None:
    link = Filtered()
    link.holds(row(HERE, 3))
    assert records(link.reads(order(1), order(5))) == []
    assert link.end.stopped == {HERE: "fork"}


def test_a_destination_within_a_cut_batch_gets_the_rest() -> None:
    """After a crash it has the newest part that it stored, not what was covered after that."""
    link = Filtered()
    link.holds(row(HERE, 1))
    sent = link.reads(order(1), trade(2), order(3))
    assert records(sent) == [(1, 3, 1)]


def test_a_row_may_end_within_a_batch_at_a_part_of_other_topics() -> None:
    """As after a change of topics: the part there was wanted then."""
    link = Filtered()
    mixed = batch(1, count=3)
    mixed.topics = ["orders", "trades"]
    mixed.columns = Columns(index=array("H", [0, 1, 0]).tobytes())
    mixed.body = bodies.pack([b"o", b"t", b"o"])
    link.holds(row(HERE, 2, TRADES))
    assert records(link.reads(mixed)) == [(1, 3, 1)]
    assert link.end.stopped == {}


# -- rows of other topics -------------------------------------------------------------------------


def test_own_records_go_on_where_the_row_of_other_topics_is() -> None:
    link = Filtered()
    (note,) = link.holds(row(HERE, 2, TRADES))
    assert note.name == "replication.topics_changed"
    (changed,) = covered(units(link.effects))
    assert changed == Covered(*HERE, 2, 2)
    assert records(link.reads(order(1), trade(2), order(3))) == [(1, 3, 1)]


def test_a_row_of_other_topics_does_not_move_the_mark() -> None:
    link = Filtered()
    link.holds(row(HERE, 2, TRADES))
    link.reads(order(1), trade(2))
    assert link.end.mark == 0
    link.says(row(HERE, 2, begins=3))
    assert link.end.mark == 3


def test_a_change_that_was_not_heard_is_said_again() -> None:
    link = Filtered()
    link.holds(row(HERE, 2, TRADES))
    assert covered(units(link.tick(500))) == [Covered(*HERE, 2, 2)]
    link.says(row(HERE, 2, begins=3))
    assert covered(units(link.tick(500))) == []


def test_a_third_instance_under_other_topics_does_not_go_and_holds_the_mark() -> None:
    link = Filtered()
    link.holds(row(THIRD, 9, TRADES))
    assert link.end.stopped == {THIRD: "digest_differs"}
    assert records(link.reads(order(1, THIRD, 8), order(2, THIRD, 10), order(3))) == [(1, 3, 0)]
    assert link.end.mark == 1


def test_it_goes_once_the_destination_takes_it_under_these_topics() -> None:
    link = Filtered()
    link.holds(row(THIRD, 9, TRADES))
    link.says(row(THIRD, 9))
    assert any(isinstance(one, FindStart) for one in link.tick())


def test_a_row_of_everything_has_what_any_topics_want() -> None:
    link = Filtered()
    link.holds(row(THIRD, 9, LinkTopics()))
    link.reads(order(1, THIRD, 9))
    assert link.end.mark == 2


def test_a_person_may_have_an_origin_taken_from_here() -> None:
    link = Filtered()
    link.holds(row(THIRD, 9, TRADES))
    assert link.end.selection.skippable == {THIRD: (10, 9)}
    (said,) = link.end.skip([THIRD])
    assert isinstance(said, SayOn)
    assert said.message == w.SkipRange(link.end.session, *THIRD, 10, 9)


# -- copies under topics --------------------------------------------------------------------------


def test_a_copy_under_topics_is_not_passed_on_as_whole() -> None:
    link = Link()
    link.own.raised(THIRD, 9, ORDERS.digest)
    link.connect()
    assert records(link.reads(order(1, THIRD, 9), order(2))) == [(1, 2, 0)]
    assert link.end.stopped == {THIRD: "digest_differs"}
    assert link.end.mark == 1


def test_a_copy_whose_receipt_did_not_come_yet_is_not_passed_on_as_whole() -> None:
    """The log says under which topics it takes an origin, and is read before that is confirmed."""
    link = Link()
    link.connect()
    said = batch(1, kind=KIND_ORIGIN, topic="")
    said.body = control.encode(control.OriginRecord(*THIRD, ORDERS.digest))
    assert records(link.reads(said, order(2, THIRD, 9))) == []
    assert link.end.stopped == {THIRD: "digest_differs"}
    link.own.raised(THIRD, 9, ORDERS.digest)
    link.beats({})
    assert link.end.next_read(10) is None, "it begins again: the journal has said something else"


def test_an_origin_of_which_the_journal_said_nothing_yet_does_not_go() -> None:
    link = Link()
    link.tick()
    said = w.Statement(*THERE, 1, 1, [])
    effects = link.hears(w.LinkWelcome(link.end.session, 2, "there", "g", said, 1 << 20))
    (find,) = (one for one in effects if isinstance(one, FindStart))
    link.begins(find, {THIRD: (8, 1)})
    assert records(link.reads(order(1, THIRD, 9))) == []
    assert link.end.stopped == {THIRD: "digest_differs"}


def test_a_closed_copy_under_topics_is_not_passed_on_as_whole() -> None:
    link = Link()
    closed = w.ClosedGeneration(*THIRD, 9, ORDERS.digest)
    link.own.begin(HERE.generation, 1, [], [closed])
    link.connect()
    assert records(link.reads(order(1, THIRD, 9))) == []
    assert link.end.stopped == {THIRD: "digest_differs"}


def test_a_copy_under_the_same_topics_is_passed_on() -> None:
    """Its rows may be at what other links have covered, where no record ends here."""
    link = Filtered()
    link.own.raised(THIRD, 9, ORDERS.digest)
    link.holds(row(THIRD, 8))
    assert records(link.reads(order(1, THIRD, 7), order(2, THIRD, 9))) == [(3, 9, 7)]


def test_a_copy_that_begins_later_is_passed_on_from_there() -> None:
    link = Link()
    link.own.begin(HERE.generation, 1, [OriginPosition(*THIRD, 9, 0, 8)])
    link.connect()
    assert records(link.reads(order(1, THIRD, 5), order(2, THIRD, 9))) == []
    assert link.end.stopped == {THIRD: "expired"}
    assert link.end.selection.skippable == {THIRD: (1, 7)}


def test_what_the_destination_gave_itself_comes_back_whole() -> None:
    link = Filtered()
    older = Origin(THERE.instance, THERE.generation - 1)
    link.own.raised(older, 9, 0)
    link.holds(OriginPosition(*older, 7))
    assert records(link.reads(trade(1, older, 7), trade(2, older, 8))) == [(2, 8, 7)]


# -- other kinds ----------------------------------------------------------------------------------


def test_ties_go_with_their_messages() -> None:
    link = Filtered()
    link.holds()
    tied = order(1, kind=KIND_TIE), trade(2, kind=KIND_TIE), batch(3, kind=KIND_TIE, topic="")
    assert records(link.reads(*tied)) == [(1, 1, 0), (1, 3, 1)]


def test_staged_parts_are_left_out() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(order(1, kind=KIND_STAGED))
    assert (records(sent), covered(sent)) == ([], [Covered(*HERE, 0, 1)])
    read = link.end.next_read(10)
    assert read is not None
    assert not read.stored, "commits come as the messages that they show"


def test_a_generation_is_covered_to_its_end_before_it_is_closed() -> None:
    link = Filtered()
    older = Origin(HERE.instance, HERE.generation - 1)
    link.holds()
    closes = batch(3, kind=KIND_CLOSED, topic="")
    closes.body = control.encode(control.ClosedRecord(older.generation, 2))
    first, second = link.reads(order(1, older, 1), trade(2, older, 2), closes)
    assert (records([first]), covered([first])) == ([(1, 1, 0)], [Covered(*older, 1, 2)])
    assert records([second]) == [(1, 3, 0)]


def test_a_generation_of_which_nothing_is_wanted_delays_no_newer_one() -> None:
    link = Filtered()
    older = Origin(HERE.instance, HERE.generation - 1)
    link.holds()
    sent = link.reads(trade(1, older, 1), order(2, HERE, 1))
    assert (records(sent), covered(sent)) == ([(1, 1, 0)], [Covered(*older, 0, 1)])
    assert link.end.stopped == {}


def test_damage_is_not_covered() -> None:
    link = Filtered()
    link.holds()
    sent = link.reads(Gap(1, 3, "damaged body"), trade(3))
    assert (records(sent), covered(sent)) == ([], [])
    assert link.end.stopped == {HERE: "gap"}


def test_what_another_instance_sends_is_not_covered_from_here() -> None:
    link = Filtered()
    link.holds(sources=(THIRD.instance,))
    assert covered(link.reads(order(1, THIRD, 8), trade(2, THIRD, 9))) == []


# -- what a crash of the destination takes back ---------------------------------------------------


def test_the_log_is_kept_for_what_the_destination_may_forget() -> None:
    link = Filtered()
    link.holds()
    link.reads(order(1))
    link.receipt(2)
    link.reads(trade(2))
    link.reads(trade(3))
    assert (link.end.mark, link.end.needs) == (4, 2)
    link.says(row(HERE, 3))
    assert link.end.needs == 4


def test_it_is_kept_while_the_link_is_down() -> None:
    """The destination may have crashed."""
    link = Filtered()
    link.holds()
    link.reads(order(1))
    link.receipt(2)
    link.reads(trade(2))
    link.tick(SILENCE_MS + 1)
    assert (link.end.state, link.end.mark, link.end.needs) == ("down", 3, 2)
    link.tick(HELLO_WAIT_MS)
    link.holds(row(HERE, 2))
    link.reads(order(1), trade(2))
    assert link.end.needs == 3


def test_a_row_says_how_much_of_it_is_safe() -> None:
    link = Filtered()
    link.holds(row(HERE, 3, kept=1))
    assert link.find.held == {HERE: 1}
    link.reads(order(1), trade(2), trade(3))
    assert (link.end.mark, link.end.needs) == (4, 2)


def test_the_destination_is_asked_to_keep_it_after_some_bytes() -> None:
    link = Filtered()
    link.holds()
    large = trade(2)
    large.body_length = KEEP_BYTES
    link.reads(trade(1))
    (said,) = covered(link.reads(large))
    assert said == Covered(*HERE, 0, 2, keep=True)
    assert covered(link.reads(trade(3))) == [Covered(*HERE, 0, 3)]
