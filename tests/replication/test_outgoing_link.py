"""The sending end of a link: what is sent, in which order, and how far the mark goes."""

from __future__ import annotations

from tests.replication.build import (
    HERE,
    NAMES,
    THERE,
    THIRD,
    Link,
    batch,
    records,
    statement,
    units,
)
from tests.replication.test_snapshot_rows import part
from zbroker.ids import Origin
from zbroker.log.format import FLAG_UNIT, KIND_PUBLISHER, KIND_QUEUE, KIND_STATE, KIND_TIE
from zbroker.log.reader import Cursor, Gap
from zbroker.replication.effects import ConnectLink, FindStart, LinkBlock, SayOn, StartFound
from zbroker.replication.outgoing_link import (
    AGAIN_MS,
    HELLO_WAIT_MAX_MS,
    HELLO_WAIT_MS,
    PENDING_MAX,
    SILENCE_MS,
)
from zbroker.wire import replication as w


def test_a_hello_goes_to_a_new_socket_with_all_that_is_held() -> None:
    link = Link()
    link.own.raised(HERE, 9, 0)
    connect, said = link.tick()
    assert isinstance(connect, ConnectLink)
    assert isinstance(said, SayOn)
    assert isinstance(said.message, w.LinkHello)
    assert [row.position for row in said.message.statement.rows] == [9]


def test_each_hello_has_a_higher_session_number() -> None:
    link = Link()
    link.tick()
    first = link.end.session
    link.tick(SILENCE_MS + 1)
    link.tick(HELLO_WAIT_MS)
    assert link.end.session > first


def test_a_destination_that_does_not_answer_is_asked_less_and_less_often() -> None:
    link, waits = Link(), []
    for _ in range(8):
        link.tick(link.end.next_wake_ms() - link.now_ms)
        assert link.end.state == "greeting"
        link.tick(SILENCE_MS + 1)
        waits.append(link.end.next_wake_ms() - link.now_ms)
    assert waits == sorted(waits)
    assert waits[0] == HELLO_WAIT_MS
    assert waits[-1] == HELLO_WAIT_MAX_MS


def test_what_the_destination_lacks_is_sent_in_the_order_of_the_log() -> None:
    link = Link()
    link.connect({HERE: 1})
    sent = link.reads(batch(1), batch(2), batch(3, THIRD, 8), batch(4))
    assert records(sent) == [(1, 2, 1), (3, 8, 0), (1, 4, 2)]


def test_a_publisher_is_named_before_its_first_record_of_a_session() -> None:
    link = Link()
    link.connect()
    (first,) = link.reads(batch(1))
    (second,) = link.reads(batch(2))
    assert [record.kind == KIND_PUBLISHER for record in first.records] == [True, False]
    assert len(second.records) == 1


def test_names_that_are_not_known_are_asked_for_before_anything_is_sent() -> None:
    link = Link()
    link.connect()
    read = link.end.next_read(10)
    assert read is not None
    effects, wanted = link.end.read(LinkBlock(read, [batch(1)], Cursor(1, 0, 2)), {})
    assert (effects, wanted) == ([], {77})
    assert link.end.next_read(10) is None
    assert link.end.go_on(NAMES)
    assert link.end.next_read(10) is not None


def test_own_records_never_go_back_to_their_origin() -> None:
    link = Link()
    link.connect({THERE: 3})
    assert records(link.reads(batch(1, THERE, 3), batch(2, THERE, 4))) == []


def test_a_lost_tail_goes_back_to_its_origin_once_that_is_in_a_new_generation() -> None:
    link = Link()
    link.connect({THERE: 3})
    link.end.peer.generation = THERE.generation + 1
    assert records(link.reads(batch(1, THERE, 3), batch(2, THERE, 4))) == [(2, 4, 3)]


def test_a_third_instance_is_passed_over_while_it_sends_by_itself() -> None:
    link = Link()
    link.connect(sources=[THIRD.instance])
    assert records(link.reads(batch(1, THIRD, 8), batch(2))) == [(1, 2, 0)]
    assert link.end.mark == 1, "the destination lacks it, whoever sends it"


def test_what_was_passed_over_is_sent_when_its_instance_is_silent_there() -> None:
    link = Link()
    link.connect(sources=[THIRD.instance])
    link.reads(batch(1, THIRD, 8), batch(2))
    link.beats({HERE: 2}, ordinal=0)
    assert link.end.next_read(10) is None
    link.receipt(2)
    (find,) = (one for one in link.tick() if isinstance(one, FindStart))
    link.begins(find)
    assert records(link.reads(batch(1, THIRD, 8), batch(2))) == [(3, 8, 0)]


def test_after_names_a_record_that_was_passed_over() -> None:
    """So the destination refuses the next one, and does not miss the one between for ever."""
    link = Link()
    link.connect(sources=[THIRD.instance])
    link.reads(batch(1, THIRD, 8))
    link.end.peer.sources = frozenset()
    assert records(link.reads(batch(2, THIRD, 9))) == [(3, 9, 8)]


def test_a_destination_whose_newest_record_is_another_gets_nothing_of_that_origin() -> None:
    link = Link()
    link.tick()
    said = statement(1, {HERE: 5})
    (find,) = link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    assert isinstance(find, FindStart)
    link.begins(find)
    assert records(link.reads(batch(1), batch(2, HERE, 6))) == []
    assert link.end.stopped == {HERE: "fork"}


def test_a_record_of_which_a_part_is_there_is_sent_whole() -> None:
    """A relay stores what it lacks of a record as a part, and passes that on."""
    link = Link()
    link.connect({HERE: 3})
    assert records(link.reads(batch(1), batch(2, HERE, 2, count=4), batch(6))) == [
        (1, 2, 1), (1, 6, 5),
    ]  # fmt: skip
    assert link.end.stopped == {}


def test_the_mark_is_the_first_record_that_the_destination_lacks() -> None:
    link = Link()
    link.connect({HERE: 1})
    link.reads(batch(1), batch(2), batch(3, THIRD, 8), batch(4))
    assert link.end.mark == 2
    link.receipt(3)  # the name, and two records
    assert link.marks == [1, 2, 4]


def test_a_tie_holds_no_mark() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1, kind=KIND_TIE))
    assert link.end.mark == 2


def test_the_mark_never_goes_back() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.receipt(2)
    link.tick(SILENCE_MS + 1)
    link.tick(HELLO_WAIT_MS)
    link.welcomed({})  # its disk was replaced
    link.reads(batch(1))
    assert link.end.mark == 2


def test_a_refused_record_stops_its_origin_and_no_other() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1), batch(2, THIRD, 8))
    link.receipt(3, w.LinkItem(2, "disk_full", "no space"))
    assert link.end.stopped == {HERE: "disk_full"}
    assert link.end.peer.rows[THIRD].position == 8


def test_a_refused_record_is_sent_again_after_a_while() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.receipt(2, w.LinkItem(2, "disk_full", "no space"))
    link.tick(AGAIN_MS - 1)
    assert link.end.state == "sending"
    (find,) = (one for one in link.tick(1) if isinstance(one, FindStart))
    link.begins(find)
    assert records(link.reads(batch(1))) == [(1, 1, 0)]


def test_a_lost_receipt_ends_the_session() -> None:
    """It may have had a refusal: what it was about must not count as stored."""
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.receipt(3, since=2)
    assert link.end.state == "down"
    assert link.end.peer.rows == {}


def test_a_beat_with_a_receipt_that_did_not_come_ends_the_session() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.beats({}, ordinal=2)
    assert link.end.state == "down"


def test_a_statement_that_comes_late_does_not_take_the_place_of_a_newer_one() -> None:
    link = Link()
    link.connect()
    link.counter = 9
    link.beats({HERE: 7})
    link.counter = 4
    link.beats({HERE: 3})
    assert link.end.peer.rows[HERE].position == 7


def test_nothing_is_read_while_the_credit_is_used_up() -> None:
    link = Link()
    link.connect()
    link.end._credit = 1
    link.reads(batch(1))
    assert link.end.next_read(10) is None
    link.receipt(2)
    assert link.end.next_read(10) is not None


def test_nothing_is_read_while_too_many_records_are_not_sent_from_here() -> None:
    link = Link()
    link.connect(sources=[THIRD.instance])
    link.reads(*(batch(n, THIRD, n) for n in range(1, PENDING_MAX + 1)))
    assert link.end.next_read(1 << 40) is None
    link.beats({THIRD: PENDING_MAX}, [THIRD.instance])
    assert link.end.next_read(1 << 40) is not None


def test_a_unit_is_sent_in_one_message_also_where_a_block_ends_in_it() -> None:
    link = Link()
    link.connect()
    assert link.reads(batch(1, flags=FLAG_UNIT)) == []
    (sent,) = link.reads(batch(2), batch(3))
    assert [record.position for record in sent.records if record.position] == [1, 2, 3]


def test_a_unit_whose_end_stays_here_ends_with_what_is_sent_of_it() -> None:
    """Dead letters and the fact of the queue that made them are a unit; the fact stays."""
    link = Link()
    link.connect()
    fact = batch(3, kind=KIND_QUEUE)
    (sent,) = link.reads(batch(1, flags=FLAG_UNIT), batch(2, flags=FLAG_UNIT), fact, batch(4))
    flags = [(record.position, record.flags) for record in sent.records if record.position]
    assert flags == [(1, FLAG_UNIT), (2, 0), (4, 0)]
    assert sent.records[-1].after == 2, "the fact is nothing that the destination lacks"


def test_nothing_after_a_damaged_range_is_sent_without_proof() -> None:
    link = Link()
    link.connect()
    sent = link.reads(batch(1), Gap(2, 4, "crc"), batch(4, HERE, 4), batch(5, THIRD, 8))
    assert records(sent) == [(1, 1, 0)]
    assert link.end.stopped == {HERE: "gap", THIRD: "gap"}
    link.receipt(2)
    assert link.end.mark == 2, "what the range had may be missing there"


def test_after_a_damaged_range_no_generation_begins_before_the_older_one_is_there() -> None:
    """Its first record would tell readers there that nothing more of the older one comes."""
    older = Origin(HERE.instance, HERE.generation - 1)
    rows = [[*older, 3, 3, 0, 0, 0, 5, 3], [*HERE, 0, 0, 0, 0, 0, -1, 0]]
    state = batch(4, kind=KIND_STATE)
    state.body = part(0, last=True, rows=rows)
    damaged = batch(1, older), Gap(2, 4, "crc"), state, batch(5)
    link = Link()
    link.connect({older: 1})
    assert records(link.reads(*damaged)) == []
    assert link.end.stopped == {HERE: "gap"}
    link = Link()
    link.connect({older: 3})
    assert records(link.reads(*damaged)) == [(1, 5, 0)]


def test_a_generation_that_only_has_what_stays_holds_up_no_newer_one() -> None:
    older = Origin(HERE.instance, HERE.generation - 1)
    state = batch(4, kind=KIND_STATE)
    state.body = part(0, last=True, rows=[[*older, 1, 0, 0, 0, 0, -1, 0]])
    link = Link()
    link.connect()
    assert records(link.reads(Gap(1, 4, "crc"), state, batch(5))) == [(1, 5, 0)]


def test_no_generation_begins_while_an_older_one_was_passed_over() -> None:
    """Its instance fell silent there while names of a block were asked for."""
    link = Link()
    link.connect(sources=[THIRD.instance])
    link.reads(batch(1, THIRD, 8))
    read = link.end.next_read(10)
    assert read is not None
    newer = batch(2, Origin(THIRD.instance, THIRD.generation + 1), 9)
    assert link.end.read(LinkBlock(read, [newer], Cursor(1, 0, 3)), {}) == ([], {77})
    link.beats({}, ordinal=0)
    assert records(units(link.end.go_on(NAMES))) == []
    (find,) = (one for one in link.tick() if isinstance(one, FindStart))
    link.begins(find)
    assert records(link.reads(batch(1, THIRD, 8), newer)) == [(3, 8, 0), (3, 9, 0)]


def test_a_generation_begins_behind_a_fork() -> None:
    """It is the way out."""
    newer = Origin(HERE.instance, HERE.generation + 1)
    link = Link()
    link.connect({HERE: 5})
    assert records(link.reads(batch(1), batch(2, HERE, 6), batch(3, newer))) == [(1, 3, 0)]
    assert link.end.stopped == {HERE: "fork"}


def test_silence_ends_the_session() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.tick(SILENCE_MS + 1)
    assert link.end.state == "down"
    assert link.end.next_read(10) is None


def test_messages_of_an_older_session_are_dropped() -> None:
    link = Link()
    link.connect()
    link.reads(batch(1))
    link.hears(w.LinkReceipt(link.end.session - 1, 0, 2))
    assert link.end.mark == 1


# -- closed generations -----------------------------------------------------------------------

OLDER = Origin(HERE.instance, 4)


def closes(link: Link, end: int, generation: int = 4) -> list[FindStart]:
    """The destination says that this generation ended there."""
    link.tick()
    said = statement(1, {HERE: 3})
    said.closed = [w.ClosedGeneration(HERE.instance, generation, end)]
    effects = link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    return [effect for effect in effects if isinstance(effect, FindStart)]


def test_a_closed_generation_is_not_sent_again() -> None:
    link = Link()
    [find] = closes(link, 9)
    assert find.held == {OLDER: 9, HERE: 3}
    link.begins(find)
    assert link.reads(batch(1, OLDER, at=9)) == []
    assert link.marks[-1] == 2


def test_what_is_beyond_its_end_is_sent_and_refused_there() -> None:
    link = Link()
    link.begins(closes(link, 9)[0])
    assert records(link.reads(batch(1, OLDER, at=9), batch(2, OLDER, at=10))) == [(1, 10, 9)]


def test_one_that_both_ends_have_closed_long_ago_is_there() -> None:
    link = Link()
    link.own.begin(HERE.generation, 1, [], [w.ClosedGeneration(*OLDER, 9)])
    link.tick()
    said = statement(1, {})
    numbers = range(100, 100 + w.CLOSED_SAID_MAX)
    said.closed = [w.ClosedGeneration(HERE.instance, one, 5) for one in numbers]
    effects = link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    (find,) = (effect for effect in effects if isinstance(effect, FindStart))
    assert find.held[OLDER] == 9
    link.begins(find)
    assert link.reads(batch(1, OLDER, at=9)) == []


def test_a_closed_generation_that_was_removed_as_a_whole_is_given_up_by_a_person() -> None:
    """It had control records alone; the record that closed it is refused without them."""
    link = Link()
    link.own.begin(HERE.generation, 1, [], [w.ClosedGeneration(*OLDER, 6)])
    link.tick()
    welcome = w.LinkWelcome(link.end.session, 1, "there", "g", statement(1, {}), 1 << 20)
    (find,) = (one for one in link.hears(welcome) if isinstance(one, FindStart))
    link.begins(find, removed={OLDER: 6})
    assert link.end.stopped == {OLDER: "expired"}
    assert link.end.selection.skippable == {OLDER: (1, 6)}
    assert link.end.selection.lacks == [HERE.instance]
    assert link.reads(batch(1)) == [], "what is newer waits for that"


def test_a_new_generation_asks_again_what_the_destination_has() -> None:
    link = Link()
    link.connect()
    assert link.end.asked_in == HERE.generation
    link.own.begin(HERE.generation + 1, 1, [])
    session = link.end.session
    link.end.ask_again(link.now_ms)
    assert link.end.state == "down"
    link.tick()
    assert (link.end.state, link.end.session > session) == ("greeting", True)
    assert link.end.asked_in == HERE.generation + 1


def test_a_log_without_its_first_control_records_gives_its_state() -> None:
    """No message is missing, and yet what comes later would be refused for what came before."""
    link = Link()
    link.tick()
    said = statement(1, {})
    welcome = w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20, True)
    (find,) = link.hears(welcome)
    assert isinstance(find, FindStart)
    old = Origin(HERE.instance, HERE.generation - 1)
    start = StartFound("there", find.session, Cursor(1, 0, 4), {}, {}, {old: 2})
    assert not link.end.found(start)
    assert link.end.state == "stating"
    assert link.end.selection.lacks == [HERE.instance]
    assert not link.end.selection.missing, "nobody has to give them up"


def test_what_is_lacking_is_said_until_the_destination_has_it() -> None:
    old = Origin(THIRD.instance, THIRD.generation - 1)
    link = Link()
    link.tick()
    said = statement(1, {HERE: 1})
    (find,) = link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    assert isinstance(find, FindStart)
    link.end.found(StartFound("there", find.session, Cursor(1, 0, 4), {}, {}, {old: 2}))
    assert link.end.selection.lacks == [THIRD.instance]
    link.counter = 1
    link.beats({old: 2})
    assert link.end.selection.lacks == []
