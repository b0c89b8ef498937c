"""`replication fork`: what the journal is asked, the answers, closings with what was taken."""

from __future__ import annotations

import pytest

from tests.replication.build import HERE, THERE, Link, batch, statement
from tests.replication.build import records as records_of
from zbroker.ids import Origin
from zbroker.log import records
from zbroker.log.format import KIND_CLOSED, Batch
from zbroker.replication import forks
from zbroker.replication.effects import FindStart
from zbroker.replication.incoming_link import IncomingLink
from zbroker.replication.records import closing_now
from zbroker.wire import replication as w
from zbroker.wire.replicas import ChangeLink, ForkOrigin, LinkChanged, OriginForked
from zbroker.wire.replication import ClosedGeneration, OriginPosition

OLD = Origin(HERE.instance, 3)
TEXT = f"{OLD.instance:016x}.{OLD.generation}"
JOURNAL = 77


def source(*rows: OriginPosition, closed: int = 0, welcomed: bool = True) -> IncomingLink:
    ends = [ClosedGeneration(*OLD, closed)] if closed else []
    said = w.Statement(THERE.instance, THERE.generation, 1, 1, list(rows), [], ends)
    hello = w.LinkHello(w.PROTOCOL, 1, 5, "there", "g", said)
    link = IncomingLink(b"rid", "", hello, 4, 0)
    link.welcomed = welcomed
    return link


def ask(origin: str = TEXT, link: str = "there", *, dry_run: bool = False) -> ChangeLink:
    return ChangeLink(1, "fork", link, dry_run, origin)


def test_the_journal_is_asked_for_what_the_host_says_that_it_has() -> None:
    for link in (source(OriginPosition(*OLD, 40)), source(closed=40)):
        found = forks.of_host(ask(dry_run=True), [link], [], JOURNAL)
        assert found == ForkOrigin(0, JOURNAL, *OLD, 40, THERE.instance, True)


@pytest.mark.parametrize(
    ("asked", "links", "known", "journal", "code"),
    [
        (ask("x"), [source()], ["there"], JOURNAL, "bad_field"),
        (ask(link="nobody"), [source()], ["there"], JOURNAL, "not_found"),
        (ask(), [], ["there"], JOURNAL, "not_ready"),
        (ask(), [source(welcomed=False)], ["there"], JOURNAL, "not_ready"),
        (ask(), [source(closed=40)], [], 0, "not_ready"),
        (ask(), [source()], [], JOURNAL, "not_found"),
        (ask(), [source(OriginPosition(*OLD, 40, 7))], [], JOURNAL, "not_found"),
    ],
    ids=["no origin", "unknown", "away", "not welcomed", "no journal", "nothing", "some topics"],
)
def test_what_cannot_be_asked_is_refused(
    asked: ChangeLink, links: list[IncomingLink], known: list[str], journal: int, code: str
) -> None:
    found = forks.of_host(asked, links, known, journal)
    assert isinstance(found, LinkChanged)
    assert (found.cid, found.code) == (1, code)


def test_the_answer_says_what_follows() -> None:
    asked = ForkOrigin(9, JOURNAL, *OLD, 40, THERE.instance)
    said = forks.answer(OriginForked(9, end=30), ask(), asked)
    assert (said.cid, said.code) == (1, "")
    assert f"records of {TEXT} from 31 to 40 are taken from there" in said.text
    refused = forks.answer(OriginForked(9, code="bad_field", reason="why"), ask(), asked)
    assert (refused.cid, refused.code, refused.reason) == (1, "bad_field", "why")


# -- the closing record on its way to the host ----------------------------------------------------


def closing(end: int = 30, forked: int = 0) -> Batch:
    made = batch(50, kind=KIND_CLOSED)
    made.body = records.encode(records.ClosedRecord(OLD.generation, end, forked))
    return made


def test_a_closing_goes_with_what_was_taken_since() -> None:
    before = closing()
    after = closing_now(before, {OLD: 40})
    assert records.CLOSED.decode(after.body) == records.ClosedRecord(OLD.generation, 30, 40)
    assert (after.content_crc, after.body_length) == (before.content_crc, len(after.body))
    assert closing_now(after, {OLD: 45}).content_crc == before.content_crc


@pytest.mark.parametrize("made", [closing(), closing(forked=40), closing(end=40)])
def test_one_that_says_all_goes_as_it_is(made: Batch) -> None:
    reach = 30 if made.body == closing().body else 40
    assert closing_now(made, {OLD: reach}) is made
    assert closing_now(made, {}) is made
    made.body = b"\xff"
    assert closing_now(made, {OLD: 90}) is made


# -- the link from the host -----------------------------------------------------------------------


def connected() -> tuple[Link, Origin]:
    """A link to an instance that has closed an older generation of its own at 2."""
    link, origin = Link(), Origin(THERE.instance, 3)
    link.tick()
    said = statement(1, {})
    said.closed = [ClosedGeneration(*origin, 2)]
    effects = link.hears(w.LinkWelcome(link.end.session, 1, "there", "g", said, 1 << 20))
    link.begins(next(one for one in effects if isinstance(one, FindStart)))
    return link, origin


def test_what_was_taken_of_a_closed_generation_is_held() -> None:
    """The log of the host is not kept for it, and the next session goes on there."""
    link, origin = connected()
    log = [batch(position, origin, position) for position in (1, 2, 3)]
    (sent,) = link.reads(*log)
    assert records_of([sent]) == [(origin.instance, 3, 2)]
    assert sent.records[-1].after_crc == log[1].body_crc
    assert link.marks[-1] == 3
    link.receipt(len(sent.records))
    assert link.end.peer.position(origin, 0) == 3
    assert link.marks[-1] == 4


def test_a_refused_record_beyond_the_end_keeps_the_mark() -> None:
    link, origin = connected()
    (sent,) = link.reads(*(batch(position, origin, position) for position in (1, 2, 3)))
    last = len(sent.records)
    link.receipt(last, w.LinkItem(last, "fork", "beyond"))
    assert (link.end.peer.position(origin, 0), link.end.mark) == (2, 3)
