"""A record that a destination refuses for good is given up: the sending end of a link, and the
journal over there, both as they ship."""

from __future__ import annotations

from typing import Any

from tests.journal.linked import LINK, LINK_NUMBER, MINE, P, commit, make, open_link
from tests.replication.build import HERE, THIRD, Link, batch
from zbroker.engine.effects import Note
from zbroker.ids import Origin
from zbroker.journal.group_commit import GroupCommit
from zbroker.log.format import KIND_ORIGIN, KIND_PUBLISH, KIND_TIE, Batch
from zbroker.log.reader import Cursor
from zbroker.replication.durability import DestinationRule, Durability
from zbroker.replication.effects import FindStart, LinkBlock, SayOn
from zbroker.replication.link_changes import LinkChanges
from zbroker.replication.outgoing_link import AGAIN_MS
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.replicas import ChangeLink, LinkChanged, SkipMissing

NAMES = {P: ("p", "")}
LOG = 4  # batches of one message


def log(origin: Origin = HERE) -> list[Batch]:
    found = [batch(position, origin) for position in range(1, LOG + 1)]
    for one in found:
        one.publisher = P
    return found


def with_a_secret() -> list[Batch]:
    """The third batch has a topic that is not allowed there."""
    found = log()
    found[2].topics = ["secret"]
    return found


def with_a_tie() -> list[Batch]:
    """The third record is about a message that this log has under another origin no more."""
    found = log(THIRD)
    found[2].kind = KIND_TIE
    return found


class Pair:
    """A link, and the journal that its destination has; what is said goes over at once."""

    def __init__(self, log: list[Batch]) -> None:
        self.link, self.journal, self.log = Link(), make(), log
        self.origin = log[0].origin
        open_link(self.journal, topics=["t"])
        durability = Durability([DestinationRule("there", sync=False)], 0, 0)
        self.changes = LinkChanges({"there": self.link.end}, durability)
        self.link.connect()

    @property
    def position(self) -> int:
        """Up to where the destination has what is sent to it."""
        return self.journal.sessions.origins.high(self.origin)

    def send(self) -> list[Batch]:
        """What is in the log and goes; what the other log gets of it."""
        end = self.link.end
        read = end.next_read(1 << 40)
        assert read is not None, "it does not read now"
        block = LinkBlock(read, self.log, Cursor(1, 0, LOG + 1))
        effects, _ = end.read(block, NAMES)
        stored: list[Batch] = []
        for effect in effects:
            if isinstance(effect, SayOn) and isinstance(effect.message, w.SendUnits):
                stored += self._judged(effect.message, list(effect.bodies))
        return stored

    def _judged(self, sent: w.SendUnits, bodies: list[Any]) -> list[Batch]:
        replicate = m.Replicate(MINE, sent.ordinal, 0, sent.records, LINK_NUMBER)
        self.journal.receive(LINK, codec.to_journal(codec.encode(replicate)), bodies)
        stored, items = commit(self.journal)
        through = sent.ordinal + len(sent.records) - 1
        refused = [w.LinkItem(i.ordinal, i.code, i.reason) for i in items if i.code]
        self.link.receipt(through, *refused, since=sent.ordinal - 1)
        return stored

    def again(self) -> None:
        """The link begins to read where the destination is."""
        (find,) = (one for one in self.link.tick(AGAIN_MS) if isinstance(one, FindStart))
        self.link.begins(find)

    def skip(self, *, dry_run: bool = False) -> tuple[list[Any], LinkChanged]:
        ask = ChangeLink(1, "skip", "there", dry_run=dry_run)
        effects, changed = self.changes.change(ask, self.link.now_ms)
        return list(effects), changed

    def hears_of_it(self, effects: list[Any]) -> list[Batch]:
        """The destination takes the range that was given up for missing, and says so."""
        (said,) = (one.message for one in effects if isinstance(one, SayOn))
        assert isinstance(said, w.SkipRange)
        origin = said.instance, said.generation
        skip = SkipMissing(MINE, LINK_NUMBER, *origin, said.first, said.last)
        self.journal.receive(LINK, codec.to_journal(codec.encode(skip)), [])
        stored, _ = commit(self.journal)
        self.link.beats({self.origin: self.position})
        return stored


def sequences(batches: list[Batch]) -> list[int]:
    return [one.sequence for one in batches if one.kind == KIND_PUBLISH]


def missing(journal: GroupCommit) -> list[tuple[int, int, str]]:
    return [(row.first, row.last, row.why) for row in journal.sessions.missing.rows()]


def refused() -> Pair:
    """The origin has stopped at the third record."""
    pair = Pair(with_a_secret())
    assert sequences(pair.send()) == [1, 2]
    assert pair.link.end.stopped == {HERE: "not_entitled"}, "not what the later ones met"
    return pair


def test_an_origin_stops_at_a_refused_record_and_nothing_after_it_is_stored() -> None:
    pair = refused()
    assert pair.position == 2
    pair.again()
    assert sequences(pair.send()) == []
    assert pair.position == 2, "the fourth would make the third one look like a duplicate"


def test_what_is_given_up_is_listed_there_and_the_origin_goes_on_after_it() -> None:
    pair = refused()
    effects, changed = pair.skip()
    assert changed.code == ""
    assert [one.name for one in effects if isinstance(one, Note)] == ["replication.skip"]
    assert [one.kind for one in pair.hears_of_it(effects)] == [KIND_ORIGIN]
    assert missing(pair.journal) == [(3, 3, "skipped")]
    pair.again()
    assert sequences(pair.send()) == [4]
    assert (pair.position, dict(pair.link.end.stopped)) == (4, {})
    assert pair.link.end.selection.skippable == {}


def test_a_dry_run_gives_nothing_up() -> None:
    pair = refused()
    effects, changed = pair.skip(dry_run=True)
    assert (effects, changed.code) == ([], "")
    assert "3 to 3" in changed.text
    assert missing(pair.journal) == []


def test_a_skip_that_comes_twice_is_one() -> None:
    pair = refused()
    effects, _ = pair.skip()
    pair.hears_of_it(effects)
    assert pair.hears_of_it(effects) == []
    assert missing(pair.journal) == [(3, 3, "skipped")]


def test_a_tie_of_messages_that_are_in_no_log_is_given_up() -> None:
    """They were removed here, and that is declared there: the destination never gets them."""
    pair = Pair(with_a_tie())
    assert sequences(pair.send()) == [1, 2]
    assert pair.link.end.stopped == {THIRD: "origin_gap"}, "they may come by another link"
    assert pair.skip()[1].code == "not_found"
    pair.again()
    pair.send()
    assert pair.link.end.stopped == {THIRD: "expired"}
    effects, changed = pair.skip()
    assert changed.code == ""
    pair.hears_of_it(effects)
    assert missing(pair.journal) == [(3, 3, "skipped")]
    pair.again()
    assert sequences(pair.send()) == [4]
    assert (pair.position, dict(pair.link.end.stopped)) == (4, {})
