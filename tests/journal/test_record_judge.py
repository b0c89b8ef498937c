"""Which records of a peer are taken: filters, two histories with one name, units, hostile peers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import msgpack

from tests.journal import build
from tests.journal.linked import (
    HERE,
    LINK,
    LISTENER,
    MINE,
    THERE,
    WALL,
    P,
    commit,
    give,
    make,
    name,
    open_link,
    record,
    shape,
)
from tests.journal.whole import Whole, table
from zbroker.ids import Origin, publisher_id
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.origin_rows import travelling
from zbroker.journal.origins import OriginRow
from zbroker.limits import GROUP_MAX_BYTES, U63_MAX
from zbroker.log import records
from zbroker.log.format import (
    COLUMN_ROUTES,
    FLAG_SHOWS,
    FLAG_UNIT,
    KIND_CLOSED,
    KIND_DEFINITION,
    KIND_NOOP,
    KIND_ORIGIN,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_QUEUE,
    KIND_SHARED_POINT,
    KIND_STATE,
    KIND_TIE,
    OF_ALL_TOPICS,
    STEP_OVER,
    content_column,
)
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.replicas import SkipMissing
from zbroker.wire.replication import OriginPosition

ORIGIN = Origin(THERE, 1)
ORDERS, ALL = 0xABC, 0


@pytest.fixture
def core() -> GroupCommit:
    return make()


def row(core: GroupCommit, origin: Origin = ORIGIN) -> OriginRow:
    [found] = [r for r in core.sessions.origins.rows() if (r.instance, r.generation) == origin]
    return msgspec.structs.replace(found, begun=0, stored=-1, stored_begun=-1)


def codes(items: list[m.ReceiptItem]) -> list[str]:
    return [item.code for item in items]


def test_a_record_whose_routes_cannot_be_is_refused(core: GroupCommit) -> None:
    _, items = give(core, record(1, 2, at=40, extra=[(COLUMN_ROUTES, b"\1\0\1\0")]))
    assert codes(items) == ["bad_field"]
    routes = (COLUMN_ROUTES, b"\0\0\1\0\0\0")  # both go to no queue
    batches, items = give(core, record(1, 2, at=40, extra=[routes]))
    assert codes(items) == [""]
    assert batches[-1].extra == [routes]


def cover(core: GroupCommit, position: int, after: int, link: int = 1, of: Origin = ORIGIN) -> None:
    """The peer has nothing more below `position`; that writes nothing."""
    covered = m.Covered(*of, after, position)
    core.receive(
        LINK, codec.to_journal(codec.encode(m.Replicate(MINE, 1, 0, [], link, [covered]))), []
    )


# -- rows and their filters -------------------------------------------------------------------


def test_a_filtered_row_does_not_swallow_what_another_way_brings(core: GroupCommit) -> None:
    """A sends orders only and says that up to 20 there is nothing more. Its trade 15 comes by way
    of B, which has everything: called a duplicate, it would count as held here."""
    open_link(core, 1, digest=ORDERS)
    open_link(core, 2, peer=7, digest=ALL)
    give(core, record(1, 1, at=12))
    cover(core, 20, after=12)
    [item] = give(core, record(2, 1, at=15, after=12), link=2)[1]
    assert item.code == "digest_differs"
    assert "topics" in item.reason
    assert give(core, record(2, 1, at=21, after=20))[1][0].code == ""


def test_the_filter_of_a_row_is_in_the_log_before_its_first_record(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    batches, _ = give(core, record(1, 1, at=12))
    assert [batch.kind for batch in batches] == [KIND_ORIGIN, KIND_PUBLISH]
    assert records.ORIGIN.decode(batches[0].body) == records.OriginRecord(THERE, 1, ORDERS)
    assert row(core) == OriginRow(THERE, 1, 12, 12, 0, ORDERS, 0, 1, 12)
    batches, _ = give(core, record(2, 1, at=13, after=12))
    assert [batch.kind for batch in batches] == [KIND_PUBLISH]


def test_what_a_peer_has_covered_moves_the_row_and_is_not_in_the_log(core: GroupCommit) -> None:
    give(core, record(1, 1, at=12))
    cover(core, 20, after=12)
    assert core.group(WALL) is None
    assert row(core) == OriginRow(THERE, 1, 20, 12, 0, 0, 0, 1, 12)


@pytest.mark.parametrize(
    ("position", "after", "of", "link"),
    [
        (90, 13, ORIGIN, 1),  # nothing is known of 13
        (90, 11, ORIGIN, 1),  # the sender lacks 12
        (U63_MAX + 1, 12, ORIGIN, 1),
        (11, 12, ORIGIN, 1),
        (90, 12, ORIGIN, 2),
        (90, 1, Origin(HERE, 1), 1),
        (90, 1, Origin(HERE, 3), 1),
    ],
)
def test_a_covered_position_needs_the_chain_and_the_right(
    core: GroupCommit, position: int, after: int, of: Origin, link: int
) -> None:
    give(core, record(1, 1, at=12))
    before = core.sessions.origins.vector
    cover(core, position, after, link, of)
    core.group(WALL)
    assert core.sessions.origins.vector == before


def test_widening_begins_a_declared_gap(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    give(core, record(1, 1, at=12))
    open_link(core, 2, digest=ALL)
    assert codes(give(core, record(1, 1, at=12), link=2)[1]) == ["digest_differs"]
    assert row(core) == OriginRow(THERE, 1, 12, 12, 0, ORDERS, 0, 1, 12), "nothing new came"
    assert codes(give(core, record(2, 1, at=15, after=12), link=2)[1]) == [""]
    assert row(core) == OriginRow(THERE, 1, 15, 15, 0, ALL, 13, 2, 15, mixed=1)


def test_what_other_topics_may_have_left_out_is_not_here_already(core: GroupCommit) -> None:
    """It came by way of B, which sends orders only. The instance itself sends a trade that was
    before them: called a duplicate, it would count as held here."""
    open_link(core, 2, peer=7, digest=ORDERS)
    open_link(core, 3, digest=ALL)
    give(core, record(1, 1, at=12), link=2)
    [item] = give(core, record(5, 1, at=8), link=3)[1]
    assert (item.code, item.reason.count("by itself")) == ("digest_differs", 1)
    two = [record(5, 1, at=8, flags=FLAG_UNIT), record(6, 1, at=9, after=8)]
    assert codes(give(core, *two, link=3)[1]) == ["digest_differs"] * 2
    cover(core, 12, after=12, link=3)
    core.group(WALL)
    assert codes(give(core, record(5, 1, at=8), link=3)[1]) == [""], "it is in a declared gap now"


def test_a_unit_does_not_change_the_topics_of_an_origin_either(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    open_link(core, 2, peer=7, digest=ALL)
    give(core, record(1, 1, at=12))
    two = [record(2, 1, at=13, after=12, flags=FLAG_UNIT), record(3, 1, at=14, after=13)]
    assert codes(give(core, *two, link=2)[1]) == ["digest_differs"] * 2
    assert row(core).digest == ORDERS
    open_link(core, 3, digest=ALL)
    assert codes(give(core, *two, link=3)[1]) == ["", ""], "its own instance does"
    assert (row(core).digest, row(core).since) == (ALL, 13)


def test_only_an_instance_itself_changes_the_topics_of_its_origins(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    open_link(core, 2, peer=7, digest=ALL)
    give(core, record(1, 1, at=12))
    cover(core, 12, after=12, link=2)
    core.group(WALL)
    assert row(core).digest == ORDERS
    open_link(core, 3, digest=ALL)
    cover(core, 12, after=12, link=3)
    core.group(WALL)
    assert row(core) == OriginRow(THERE, 1, 12, 12, 0, ALL, 13, -1, 0, mixed=1)


def test_a_person_has_an_origin_taken_under_the_topics_of_another_link(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    open_link(core, 2, peer=7, digest=ALL)
    give(core, record(1, 1, at=12))
    core.receive(LINK, SkipMissing(MINE, 2, *ORIGIN, 13, 12), [])
    core.group(WALL)
    assert row(core) == OriginRow(THERE, 1, 12, 12, 0, ALL, 13, -1, 0, mixed=1)
    assert codes(give(core, record(2, 1, at=15, after=12), link=2)[1]) == [""]


def test_what_is_kept_of_a_covered_row_is_in_the_log(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    give(core, record(1, 1, at=12))
    keep = m.Covered(*ORIGIN, 12, 20, keep=True)
    core.receive(LINK, m.Replicate(MINE, 1, 0, [], 1, [keep]), [])
    group = core.group(WALL)
    assert group is not None
    (said,) = group.batches
    assert records.ORIGIN.decode(said.body) == records.OriginRecord(THERE, 1, ORDERS, 0, 20)
    assert row(core) == OriginRow(THERE, 1, 20, 12, 0, ORDERS, 0, 1, 12)
    cover(core, 30, after=12)
    core.group(WALL)
    rows, *_ = travelling(core.sessions)
    assert rows == [OriginPosition(*ORIGIN, 30, ORDERS, 0, 20)]
    core.receive(LINK, m.Replicate(MINE, 1, 0, [], 1, [keep]), [])
    assert core.group(WALL) is None, "it is in the log already"


def test_records_of_this_instance_come_back_whole_over_any_link(core: GroupCommit) -> None:
    open_link(core, 1, digest=ORDERS)
    core.generation = 5
    lost = msgspec.structs.replace(record(1, 1, at=12), instance=HERE, generation=1)
    assert codes(give(core, lost)[1]) == [""]
    assert row(core, Origin(HERE, 1)).digest == ALL


def test_the_crc_of_another_record_than_the_newest_here_says_nothing(core: GroupCommit) -> None:
    """The row went on by what topics leave out: the record there is not here."""
    open_link(core, 1, digest=ORDERS)
    give(core, record(1, 1, at=12))
    cover(core, 20, after=12)
    assert codes(give(core, record(2, 1, at=21, after=20, after_crc=999))[1]) == [""]
    assert codes(give(core, record(3, 1, at=22, after=21, after_crc=999))[1]) == ["fork"]


def test_rows_are_the_same_after_a_restart_and_from_a_snapshot() -> None:
    whole = Whole()
    whole.core.sessions.fold_name(P, "p", "")
    whole.hear(LINK, m.OpenLink(1, 77, THERE, 2, [".*"], [".*"], ORDERS))
    for link, one in ((2, record(1, 1, at=12)), (2, record(2, 1, at=14, after=12))):
        whole.hear(LINK, m.Replicate(77, 1, 0, [one], link), [b"body"])
    whole.commit()
    whole.hear(LINK, m.OpenLink(1, 77, THERE, 3, [".*"], [".*"], ALL))
    whole.hear(LINK, m.Replicate(77, 1, 0, [record(3, 1, at=17, after=14)], 3), [b"body"])
    whole.commit()
    expected = OriginRow(THERE, 1, 17, 17, 0, ALL, 15, 3, 17, mixed=1)
    assert row(whole.core) == expected
    origins = table(whole.core.sessions)[1]
    whole.restart()
    assert (row(whole.core), table(whole.core.sessions)[1]) == (expected, origins)
    whole.state()
    whole.restart()
    assert row(whole.core) == expected


# -- one history per name ---------------------------------------------------------------------


def test_a_record_that_became_three_has_one_content(core: GroupCommit) -> None:
    """Its last messages are here with another origin: the newest batch of its origin is a tie."""
    give(core, record(5, 1, at=40, session=4))
    third, fourth = Origin(7, 1), make()
    one = record(1, 5, at=50, session=6, crc=77)
    one.instance = 7
    batches, _ = give(core, one)
    assert [batch.kind for batch in batches] == [KIND_PUBLISH, KIND_TIE]
    assert [batch.content_crc for batch in batches] == [77, 77]
    assert (batches[1].body_crc, batches[1].extra) == (0, [content_column(77)])
    give(fourth, one)
    assert (row(core, third).crc, row(fourth, third).crc) == (77, 77)
    give(fourth, record(5, 1, at=40, session=4))
    assert row(fourth).crc == row(core).crc == 5


def test_a_tie_that_is_passed_on_keeps_the_content(core: GroupCommit) -> None:
    give(core, record(1, 1, at=40, session=4))
    one = record(1, 1, at=50, session=6, crc=77)
    one.instance = 7
    [tie], _ = give(core, one)
    third = make()
    give(third, record(1, 1, at=40, session=4))
    [passed], _ = give(third, build.sent(tie, 0)[0])
    assert (passed.kind, passed.content_crc, row(third, Origin(7, 1)).crc) == (KIND_TIE, 77, 77)


@pytest.mark.parametrize(
    "second",
    [
        record(2, 1, at=41, after=40, after_crc=0xBEEF),  # what follows another record
        record(1, 2, at=40, crc=0xBEEF),  # another record that ends later
        record(1, 1, at=40, crc=0xBEEF),  # another record in its place
    ],
)
def test_two_histories_with_one_name_are_refused_with_both_crcs(
    core: GroupCommit, second: Record
) -> None:
    give(core, record(1, 1, at=40, crc=0xCAFE))
    batches, [item] = give(core, second)
    assert (batches, item.code) == ([], "fork")
    assert "0000beef" in item.reason
    assert "0000cafe" in item.reason
    assert give(core, record(2, 1, at=41, after=40, after_crc=0xCAFE))[1][0].code == ""


def test_a_row_of_before_has_no_crc_and_takes_what_follows(core: GroupCommit) -> None:
    core.sessions.origins.fold_row(OriginRow(THERE, 1, 40, 40))
    assert give(core, record(2, 1, at=41, after=40, after_crc=5))[1][0].code == ""
    assert row(core).crc == 2


def test_a_relay_that_lacks_a_record_passes_nothing_on_behind_it(core: GroupCommit) -> None:
    """Its damaged range held 1 to 50: what it has begins with 51, which it calls the first."""
    give(core, record(1, 20, at=1))
    batches, [item] = give(core, record(51, 1, at=51, after=0, prev=50))
    assert (batches, item.code) == ([], "origin_gap")
    assert "from another peer" in item.reason


def test_a_tie_waits_for_the_messages_that_it_ties(core: GroupCommit) -> None:
    """They come by another link, later: counted before, nobody would bring them."""
    tie = Record(KIND_TIE, THERE, 1, 40, 0, WALL, P, 5, 2, 0, 2, 1)
    assert codes(give(core, tie)[1]) == ["origin_gap"]
    other = record(1, 2, at=1)
    other.instance = 7
    give(core, other)
    assert codes(give(core, tie)[1]) == [""]


# -- units ------------------------------------------------------------------------------------

UNIT = FLAG_UNIT


def unit(*given: Record) -> list[Record]:
    """Chained, as one unit."""
    for before, one in pairwise(given):
        before.flags |= UNIT
        one.after = before.last
    return list(given)


def test_records_of_a_unit_land_together_and_stay_a_unit(core: GroupCommit) -> None:
    fact = Record(KIND_NOOP, THERE, 1, 42, 0, WALL)
    batches, items = give(core, *unit(record(1, 2, at=40), fact, record(3, 1, at=43)))
    assert [batch.flags & UNIT for batch in batches] == [UNIT, UNIT, 0]
    assert [(item.ordinal, item.code) for item in items] == [(1, ""), (2, ""), (3, "")]


@pytest.mark.parametrize(
    "bad", [{"session": -1}, {"kind": KIND_STATE}, {"after": 45}, {"instance": 7}]
)
def test_a_refusal_refuses_the_unit(core: GroupCommit, bad: dict[str, int]) -> None:
    given = unit(record(1, 2, at=40), record(3, 1, at=42), record(4, 1, at=43))
    for key, value in bad.items():
        setattr(given[1], key, value)
    batches, items = give(core, *given)
    assert batches == []
    assert len(set(codes(items))) == 1
    assert items[0].code
    assert core.sessions.origins.vector == {}


def test_names_of_all_records_stand_before_the_unit(core: GroupCommit) -> None:
    for text in ("a", "b"):
        name(core, text)
    first, second = (
        record(1, 1, at=at, publisher=publisher_id(text)) for at, text in ((40, "a"), (41, "b"))
    )
    batches, _ = give(core, *unit(first, second))
    assert [batch.kind for batch in batches] == [
        KIND_PUBLISHER,
        KIND_PUBLISHER,
        KIND_PUBLISH,
        KIND_PUBLISH,
    ]
    assert [batch.flags & UNIT for batch in batches] == [0, 0, UNIT, 0]


def test_a_unit_without_its_end_is_refused(core: GroupCommit) -> None:
    given = unit(record(1, 1, at=40), record(2, 1, at=41))
    given[1].flags |= UNIT
    assert codes(give(core, *given)[1]) == ["bad_field", "bad_field"]


def test_a_unit_whose_pieces_are_many_lands_in_one_group(core: GroupCommit) -> None:
    """Every second message of three publishers is here already: 363 batches of three records."""
    given = []
    for number, text in enumerate("abc"):
        publisher, first = publisher_id(text), 100 * number
        name(core, text)
        for n in range(60):
            seq, at = 2 * n + 2, first + n + 1
            more = {"publisher": publisher, "session": n + 1, "prev": seq - 1}
            give(core, record(seq, 1, at=at, after=core.sessions.origins.high(ORIGIN), **more))
        given.append(record(1, 121, at=1 + 200 * number, publisher=publisher, session=99))
        given[-1].instance = 7
    batches, items = give(core, *unit(*given))
    assert (len(batches), codes(items)) == (363, ["", "", ""])
    assert [batch.flags & UNIT for batch in batches] == [UNIT] * 362 + [0]


def test_a_unit_that_does_not_fit_begins_the_next_group(core: GroupCommit) -> None:
    body = b"x" * (GROUP_MAX_BYTES // 2)
    given = [record(1, 1, at=40), *unit(record(2, 1, at=41), record(3, 1, at=42))]
    given[1].after = 40
    core.receive(LINK, m.Replicate(MINE, 1, 0, given, 1), [body] * 3)
    sizes = []
    while (group := core.group(WALL)) is not None:
        sizes.append(len(group.batches))
    assert sizes == [1, 2]
    too_large = unit(*(record(4 + n, 1, at=43 + n) for n in range(4)))
    too_large[0].after = 42
    core.receive(LINK, m.Replicate(MINE, 4, 0, too_large, 1), [body] * 4)
    commit(core)
    assert core.refused == 4


def test_a_unit_is_judged_by_its_own_records(core: GroupCommit) -> None:
    """The second goes on where the first ends, and what is here of it already is left out."""
    give(core, record(1, 2, at=40))
    batches, items = give(core, *unit(record(1, 2, at=40), record(3, 2, at=42)))
    assert ([batch.flags & UNIT for batch in batches], codes(items)) == ([0], ["", ""])
    assert items[0].duplicate == 2


# -- what a fenced journal writes -------------------------------------------------------------


def test_before_its_generation_is_decided_nothing_is_placed(core: GroupCommit) -> None:
    core.decided, core.fenced = False, True
    batches, [item] = give(core, record(1, 1, at=40))
    assert (batches, item.code) == ([], "not_ready")


def test_the_lost_end_is_no_duplicate_whatever_was_placed_before_it(core: GroupCommit) -> None:
    """It ends at 3 and takes 60 messages of another instance, then hears of its own 4 to 63."""
    core.receive(LISTENER, m.Open(1, MINE, "p", ""), [])
    commit(core)
    entry = m.Entry(P, core.sessions.meet(P).session, 1, 3, 0, 1, None, ["t"])
    core.receive(LISTENER, m.Append(MINE, 1, 0, [entry]), [b"body"])
    commit(core)
    core.fenced = True
    give(core, record(4, 60, at=40))
    lost = record(64, 60, at=4, after=3)
    lost.instance = HERE
    assert give(core, lost)[1][0].code == "origin_ahead"
    core.generation = 2
    batches, [item] = give(core, lost)
    assert (shape(batches), item.code) == ([(KIND_PUBLISH, 64, 0, 0, 4, False)], "")


def test_a_fenced_journal_writes_names_that_records_of_peers_need_and_nothing_else_of_its_own(
    core: GroupCommit,
) -> None:
    core.fenced = True
    core.want_state()
    name(core, "other")
    batches, _ = give(core, record(1, 1, at=40, publisher=publisher_id("other")))
    assert [batch.kind for batch in batches] == [KIND_PUBLISHER, KIND_PUBLISH]


# -- a disk that is nearly full ---------------------------------------------------------------


def test_control_records_of_peers_are_taken_on_a_nearly_full_disk_as_far_as_they_fit(
    core: GroupCommit,
) -> None:
    """They may be what frees it."""
    core.accepting, core.left_bytes = False, 100_000
    fact = Record(KIND_NOOP, THERE, 1, 40, 0, WALL)
    assert codes(give(core, fact)[1]) == [""]
    assert codes(give(core, record(1, 1, at=41, after=40))[1]) == ["disk_full"]
    core.left_bytes = 1_000
    fact.position, fact.after = 41, 40
    assert codes(give(core, fact)[1]) == ["disk_full"]


# -- hostile peers ----------------------------------------------------------------------------

FIELDS = [field.name for field in msgspec.structs.fields(Record)]
WRONG: dict[str, list[Any]] = {
    "type": [None, "x", b"x", 1.5, [], {}, True],
    "number": [-1, 1 << 16, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1],
}


def hostile() -> list[tuple[str, Any]]:
    """Each field of a record, with each wrong value, and records with too few or odd fields."""
    table = [(name, value) for name in FIELDS for values in WRONG.values() for value in values]
    return table + [("short", n) for n in range(len(FIELDS))]


@pytest.mark.parametrize("kind", sorted(OF_ALL_TOPICS))
def test_records_about_all_topics_come_from_peers_that_may_bring_everything(kind: int) -> None:
    core = make()
    one = Record(kind, THERE, 1, 7, 0, WALL)
    open_link(core, 1, topics=["t"])
    assert codes(give(core, one)[1]) == ["not_entitled"]
    open_link(core, 2)
    batches, items = give(core, one, link=2)
    assert (codes(items), [batch.kind for batch in batches]) == ([""], [kind])


@pytest.mark.parametrize(
    "kind",
    [
        KIND_PUBLISH,
        KIND_TIE,
        KIND_NOOP,
        KIND_QUEUE,
        KIND_DEFINITION,
        KIND_SHARED_POINT,
        STEP_OVER | 99,
    ],
)
def test_no_wrong_field_of_a_record_ends_the_journal_or_is_believed(kind: int) -> None:
    """What is taken has a right place in the chain; a record that is right goes on behind it."""
    good = record(4, 1, at=41, after=40)
    for field, value in hostile():
        core = make()
        give(core, record(1, 3, at=38))
        core.receive(LISTENER, m.Open(1, MINE, "p", ""), [])
        commit(core)
        one = msgspec.to_builtins(Record(kind, THERE, 1, 41, 40, WALL, P, 5, 4, 3, 1, topics=["t"]))
        assert isinstance(one, list)
        sent = one[:value] if field == "short" else one
        if field != "short":
            sent[FIELDS.index(field)] = value
        header = msgspec.to_builtins(m.Replicate(MINE, 1, 0, [], 1))
        header["records"] = [sent]
        core.receive(LINK, codec.to_journal(msgpack.encode(header)), [b"body"])
        _, [item] = commit(core)
        own = core.sessions.meet(P)
        assert own.session < 1 << 62
        assert core.sessions.origins.high(Origin(HERE, 1)) == 0, (field, value)
        core.receive(LISTENER, m.Open(2, MINE, "p", ""), [])
        msgpack.encode([effect.message for effect in _effects(core)])
        if item.code:
            assert core.sessions.origins.vector == {ORIGIN: 40}, (field, value, item)
            assert give(core, good)[1][0].code == "", (field, value, item)


def _effects(core: GroupCommit) -> list[Any]:
    core.group(WALL)
    return [one for one in core.synced(core.next_position) if hasattr(one, "message")]


@pytest.mark.parametrize(
    "field", ["records", "link", "covered", "ordinal", "confirmed", "incarnation"]
)
def test_a_message_that_no_process_of_the_broker_sends_is_an_error_of_its_sender(
    field: str,
) -> None:
    header = msgspec.to_builtins(m.Replicate(MINE, 1, 0, [], 1, [m.Covered(1, 1, 1, 1)]))
    header[field] = "x"
    with pytest.raises(msgspec.ValidationError):
        codec.to_journal(msgpack.encode(header))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"instance": HERE, "position": 900}, "origin_ahead"),
        ({"instance": HERE, "generation": 5}, "origin_ahead"),
        ({"position": 0}, "bad_field"),
        ({"flags": FLAG_SHOWS}, "bad_field"),
        ({"flags": FLAG_SHOWS, "kind": KIND_NOOP}, "bad_field"),
        ({"publisher": 123}, "name_missing"),
        ({"topics": []}, "bad_field"),
        ({"topics": ["t", "u"]}, "bad_field"),
        ({"position": U63_MAX, "count": 2}, "bad_field"),
        ({"seq": U63_MAX, "count": 2, "prev": 1}, "bad_field"),
        ({"kind": KIND_ORIGIN}, "bad_field"),
        ({"kind": KIND_QUEUE}, "bad_field"),
        ({"kind": 99}, "unknown_version"),
        ({"kind": KIND_NOOP, "position": 1 << 62, "after": 1 << 61}, "origin_gap"),
        ({"kind": KIND_NOOP, "position": 1 << 62, "after": 3}, "origin_gap"),
    ],
)
def test_a_peer_cannot_say_what_is_not_its_to_say(
    core: GroupCommit, change: dict[str, Any], code: str
) -> None:
    give(core, record(1, 3, at=38))
    one = record(4, 1, at=41, after=40)
    for key, value in change.items():
        setattr(one, key, value)
    batches, [item] = give(core, one)
    assert (batches, item.code) == ([], code)
    assert core.sessions.origins.vector == {ORIGIN: 40}


def test_seventy_failovers_of_one_publisher_stop_nobody(core: GroupCommit) -> None:
    """More holes than are kept: what falls into a lost one is refused, what is behind it comes."""
    name(core, "other")
    for n in range(70):
        give(core, record(10 * n + 10, 1, at=n + 1, after=n, session=10 + n, prev=10 * n + 9))
    assert core.sessions.meet(P).given_up > 0
    late = record(1, 9, at=1, session=5)
    late.instance = 7
    behind = record(1, 1, at=10, after=9, publisher=publisher_id("other"))
    behind.instance = 7
    batches, items = give(core, late, behind)
    assert codes(items) == ["hole_given_up", ""]
    assert [batch.kind for batch in batches] == [KIND_ORIGIN, KIND_PUBLISHER, KIND_PUBLISH]
    assert row(core, Origin(7, 1)).since == 10, "what is before it is not said to be here"


def test_of_a_record_only_what_may_be_here_already_is_refused(core: GroupCommit) -> None:
    give(core, record(1, 2, at=1), record(6, 1, at=3, after=2, session=6, prev=5))
    core.sessions.meet(P).given_up = 1
    late = record(1, 5, at=1, session=5)
    late.instance = 7
    batches, [item] = give(core, late)
    assert [(b.kind, b.sequence) for b in batches[:2]] == [(KIND_TIE, 2), (KIND_PUBLISH, 3)]
    assert (item.code, item.high, batches[2].kind) == ("hole_given_up", 5, KIND_ORIGIN)
    assert row(core, Origin(7, 1)).since == 2


# -- closed generations -----------------------------------------------------------------------


def close(core: GroupCommit, end: int, at: int = 30, after: int = 0) -> m.ReceiptItem:
    """The peer closes its generation 1 in its generation 2."""
    body = records.encode(records.ClosedRecord(1, end))
    said = Record(KIND_CLOSED, THERE, 2, at, after, WALL, crc=at)
    return give(core, said, body=body)[1][0]


def test_a_generation_is_closed_after_all_of_it_is_here(core: GroupCommit) -> None:
    give(core, record(1, 1, at=12))
    item = close(core, 13)
    assert (item.code, "up to 12" in item.reason) == ("origin_gap", True)
    give(core, record(2, 1, at=13, after=12))
    assert close(core, 13).code == ""
    assert ORIGIN in core.sessions.origins.closed
    assert close(core, 13).code == ""  # again


def test_of_a_closed_generation_only_duplicates_come(core: GroupCommit) -> None:
    give(core, record(1, 2, at=12))
    close(core, 13)
    batches, items = give(core, record(1, 2, at=12), record(3, 1, at=14, after=13))
    assert batches == []
    assert [(i.code, i.duplicate) for i in items] == [("", 2), ("fork", 0)]
    assert "closed at 13" in items[1].reason
    cover(core, 20, after=13)
    core.group(WALL)
    assert core.sessions.origins.high(ORIGIN) == 13


def test_the_fast_way_is_closed_with_it(core: GroupCommit) -> None:
    """The next record of the newest origin is hardly looked at."""
    give(core, record(1, 1, at=12))
    give(core, record(2, 1, at=13, after=12))
    close(core, 13)
    assert codes(give(core, record(3, 1, at=14, after=13))[1]) == ["fork"]


def test_a_log_that_has_more_than_the_end_is_another_history(core: GroupCommit) -> None:
    give(core, record(1, 1, at=12))
    item = close(core, 11)
    assert (item.code, "replication fork" in item.reason) == ("fork", True)
    assert ORIGIN in core.sessions.origins.open_rows


def test_a_generation_that_ended_elsewhere_is_another_history(core: GroupCommit) -> None:
    give(core, record(1, 1, at=12))
    assert close(core, 12).code == ""
    assert close(core, 13, at=31, after=30).code == "fork"


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        records.encode(records.ClosedRecord(2, 5)),
        records.encode(records.ClosedRecord(-1, 5)),
        records.encode(records.ClosedRecord(1, -5)),
        records.encode(records.ClosedRecord(1, U63_MAX + 1)),
    ],
)
def test_a_closing_record_that_cannot_be_is_refused(core: GroupCommit, body: bytes) -> None:
    said = Record(KIND_CLOSED, THERE, 2, 30, 0, WALL)
    assert codes(give(core, said, body=body)[1]) == ["bad_field"]


def test_a_closing_record_is_a_unit_by_itself(core: GroupCommit) -> None:
    body = records.encode(records.ClosedRecord(1))
    two = [Record(KIND_CLOSED, THERE, 2, at, at - 1, WALL, flags=FLAG_UNIT) for at in (1, 2)]
    two[1].flags = 0
    assert codes(give(core, *two, body=body)[1]) == ["bad_field", "bad_field"]


def test_a_refused_record_of_a_closed_generation_holds_up_no_newer_one(core: GroupCommit) -> None:
    give(core, record(1, 1, at=12))
    assert codes(give(core, record(3, 1, at=14, after=13))[1]) == ["origin_gap"]
    open_link(core, 2, peer=7)
    give(core, record(2, 1, at=13, after=12), record(3, 1, at=14, after=13), link=2)
    give(core, Record(KIND_CLOSED, THERE, 2, 30, 0, WALL), link=2,
         body=records.encode(records.ClosedRecord(1, 14)))  # fmt: skip
    newer = record(4, 1, at=40)
    newer.generation = 3
    assert codes(give(core, newer)[1]) == [""]
