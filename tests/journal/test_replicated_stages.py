"""Stages and commits on several instances: whose they are, what waits, what is shown where, and how
often; also whole histories with cuts, by seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.journal import build
from tests.journal.test_stages import messages, part, payloads, stored
from tests.journal.whole import LINK, MINE, Whole, table
from zbroker.checksums import crc32c
from zbroker.ids import Origin
from zbroker.journal.replicated_stages import ReplicatedStages
from zbroker.journal.stages import Stage, StageKey, Stages
from zbroker.log import records, references
from zbroker.log.format import (
    FLAG_SHOWS,
    FLAG_UNIT,
    KIND_ABORT,
    KIND_NOOP,
    KIND_PUBLISHER,
    KIND_STAGED,
    KIND_TIE,
    STAYS,
    Batch,
    content_column,
)
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns

A, B, C = 0xA, 0xB, 0xC


def open_link(target: Whole, peer: int, number: int) -> None:
    target.hear(LINK, m.OpenLink(1, MINE, peer, number, [".*"], [".*"]))


class Link:
    """What `source` has and `target` lacks, in the order of its log."""

    def __init__(self, source: Whole, target: Whole) -> None:
        self.source, self.target = source, target
        self.named: set[int] = set()
        self.number = target.ordinal  # above those of the links before it
        open_link(target, source.instance, self.number)

    def send(self, count: int = 1_000) -> list[m.ReceiptItem]:
        """Up to so many batches, in one message; ends with the first one that is refused."""
        vector, found = dict(self.target.core.sessions.origins.vector), []
        before: dict[Origin, int] = {}  # content CRC of the record before
        for batch in stored(self.source):
            origin, last = batch.origin, batch.origin_position + batch.taken - 1
            if batch.kind in STAYS:
                if found and not batch.flags & FLAG_UNIT:
                    found[-1][0].flags &= ~FLAG_UNIT  # it may have been the end of a unit
                continue
            after_crc, before[origin] = before.get(origin), batch.content_crc
            if last <= vector.get(origin, 0):
                continue
            if origin.instance == self.target.instance:
                continue
            if batch.publisher and batch.publisher not in self.named:
                found.append(self._name(batch.publisher))
            found.append(build.sent(batch, vector.get(origin, 0), after_crc))
            vector[origin] = last
            if len(found) >= count and not batch.flags & FLAG_UNIT:
                break
        given = [record for record, _ in found]
        at = self.target.ordinal
        message = m.Replicate(MINE, at, at - 1, given, self.number)
        self.target.hear(LINK, message, [body for _, body in found])
        self.target.ordinal += len(found)
        return [
            item
            for answer in self.target.commit()
            if answer.rid == LINK and isinstance(answer.message, m.JournalReceipt)
            for item in answer.message.items
        ]

    def _name(self, publisher: int) -> tuple[Record, bytes]:
        self.named.add(publisher)
        known = self.source.core.sessions.get(publisher)
        assert known is not None
        body = records.encode(records.PublisherRecord(known.name, known.principal))
        return Record(KIND_PUBLISHER, self.source.instance, 0, 0, 0, 0, publisher), body


def codes(items: list[m.ReceiptItem]) -> set[str]:
    return {item.code for item in items if item.code}


def name_all(source: Whole, target: Whole) -> None:
    """The link that gives single records knows all names that `source` has."""
    for publisher in source.core.sessions.ids():
        target.give(*Link(source, target)._name(publisher))


def all_of(*instances: Whole) -> None:
    """Everything that one has goes to all others."""
    for _ in range(2):
        for source in instances:
            for target in instances:
                if source is not target:
                    assert codes(Link(source, target).send()) == set()


def commits(at: Whole) -> list[Batch]:
    return [batch for batch in stored(at) if batch.flags & FLAG_SHOWS]


# -- parts and commits ----------------------------------------------------------------------------


def test_a_commit_is_shown_on_every_instance_wherever_its_parts_are() -> None:
    """Also where parts and commit arrive at once, and by way of another instance."""
    a, b, c = Whole(A), Whole(B), Whole(C)
    b.publish("p", 1, size=200)
    a.stage("one", b"a", b"b")
    a.stage("two", b"c", topic="u")
    a.stage("one", b"d")
    a.commit_stages("app", 7, two=1, one=3)
    assert codes(Link(a, b).send()) == set()
    b.roll_over()
    assert codes(Link(b, c).send()) == set()
    for each in (b, c):
        assert payloads(each)[-4:] == [b"c", b"a", b"b", b"d"]
        before = table(each.core.sessions)
        each.restart()
        assert table(each.core.sessions) == before
        assert payloads(each)[-4:] == [b"c", b"a", b"b", b"d"]
        assert len(each.core.sessions.stages) == 0
        assert each.commit_stages("app", 7, any=1).already


def test_what_a_commit_holds_has_the_same_crc_everywhere() -> None:
    a, b, c = Whole(A), Whole(B), Whole(C)
    b.publish("p", 1)
    a.stage("one", b"a", b"b")
    a.commit_stages("app", 1, one=2)
    Link(a, b).send()
    b.roll_over()
    Link(b, c).send()
    found = [commits(each)[0] for each in (a, b, c)]
    assert len({batch.content_crc for batch in found}) == 1
    assert len({batch.body_crc for batch in found}) == 3, "their parts are at other places"
    sent = [build.sent(batch, 0) for batch in found]
    assert len({body for _, body in sent}) == 1
    assert {record.crc for record, _ in sent} == {found[0].content_crc}


def test_a_commit_with_a_part_that_is_not_here_waits_with_all_that_follows() -> None:
    a, b = Whole(A), Whole(B)
    a.stage("one", b"a")
    a.stage("one", b"b")
    a.commit_stages("app", 1, one=2)
    a.publish("p", 1)
    found = [batch for batch in stored(a) if batch.kind != KIND_PUBLISHER]
    first, second, commit, after = found
    name_all(a, b)
    b.give(*build.sent(first, 0))
    left_out = b.offer(*build.sent(commit, first.position))  # the second part, by a filter
    assert left_out.code == "stage_unknown"
    message = m.Replicate(MINE, b.ordinal, 0, [build.sent(after, commit.position)[0]], 1)
    b.hear(LINK, message, [bytes(after.body)])
    b.commit()
    assert b.core.refused == 2, "what follows waits"
    assert b.core.sessions.origins.vector[Origin(A, 1)] == first.position
    for batch, before in ((second, first), (commit, second), (after, commit)):
        b.give(*build.sent(batch, before.position))
    assert payloads(b)[:2] == [b"a", b"b"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda said: replace(said, parts=said.parts[:1]),
        lambda said: replace(said, origins=[]),
        lambda said: replace(said, origins=[replace(said.origins[0], instance=B)]),
        lambda said: replace(said, origins=[replace(said.origins[0], stages=2)]),
        lambda said: replace(said, origins=[replace(said.origins[0], parts=-1)]),
        lambda said: replace(said, parts=[replace(said.parts[0], count=0), *said.parts[1:]]),
    ],
)
def test_a_commit_that_does_not_say_what_it_shows_is_refused(wrong: Callable[..., Any]) -> None:
    a, b = Whole(A), Whole(B)
    a.stage("one", b"a")
    a.stage("one", b"b")
    a.commit_stages("app", 1, one=2)
    record, body = build.sent(commits(a)[0], 0)
    said = references.decode(body)
    assert said is not None
    bad = references.encode(wrong(said))
    name_all(a, b)
    for crc, sent in ((crc32c(bad), bad), (record.crc ^ 1, body), (crc32c(b"\xc1"), b"\xc1")):
        one = replace(record, crc=crc, extra=[content_column(crc)])
        assert b.offer(one, sent).code == "bad_field"
    assert commits(b) == []
    b.give(*_parts(a)[0])
    b.give(*_parts(a)[1])
    assert b.offer(replace(record, extra=[content_column(1)]), body).code == "bad_field"
    assert b.offer(replace(record, columns=Columns(time=b"12345678")), body).code == "bad_field"
    b.give(record, body)


def _parts(at: Whole) -> list[tuple[Record, bytes]]:
    return [build.sent(batch, 0) for batch in stored(at) if batch.kind == KIND_STAGED]


def test_a_part_is_never_cut_and_has_a_token() -> None:
    a, b = Whole(A), Whole(B)
    a.stage("one", b"a", b"b")
    a.publish("p", 1)
    [batch] = [batch for batch in stored(a) if batch.kind == KIND_STAGED]
    record, body = build.sent(batch, 0)
    name_all(a, b)
    for wrong in ({"extra": []}, {"flags": FLAG_SHOWS}, {"topics": []}, {"prev": record.seq}):
        assert b.offer(replace(record, **wrong), body).code == "bad_field", wrong
    noop = Record(KIND_NOOP, A, 1, record.position, 0, 0, extra=[content_column(record.crc)])
    b.give(noop, b"")
    assert b.offer(record, body).code == "bad_field"
    assert len(b.core.sessions.stages) == 0


# -- the same messages, staged on two instances ---------------------------------------------------


def test_a_stage_begins_again_where_its_publisher_fails_over_to() -> None:
    """The parts of the other instance are neither its own nor copies of them."""
    a, b = Whole(A), Whole(B)
    a.stage("one", b"a", b"b")
    Link(a, b).send()
    b.hear(b"\0door", m.Open(1, MINE, "task", "alice"), [])
    answers = [s.message for s in b.commit() if isinstance(s.message, m.Opened)]
    assert [(one.seq, one.acked) for one in answers] == [(2, 0)], "it sends all of it again"
    assert part(b, "one", 1, b"a", b"b").duplicate == 0
    assert b.commit_stages("app", 1, one=2).count == 2
    assert payloads(b) == [b"a", b"b"]
    assert b.core.sessions.stages.get(StageKey(Origin(A, 1), "alice", "one")) is not None
    all_of(a, b)
    assert payloads(a) == payloads(b) == [b"a", b"b"]
    before = table(b.core.sessions)
    b.restart()
    assert table(b.core.sessions) == before


def test_a_stage_that_was_aborted_elsewhere_is_not_missed() -> None:
    """Its publisher failed over and back: each instance has a stage of its own."""
    a, b = Whole(A), Whole(B)
    b.stage("one", b"a")
    b.abort_stages("one")
    a.stage("one", b"a")
    all_of(a, b)
    assert KIND_TIE not in {batch.kind for batch in [*stored(a), *stored(b)]}
    assert a.commit_stages("app", 1, one=1).count == 1
    all_of(a, b)
    assert payloads(b) == [b"a"]


def test_published_messages_are_no_copies_of_staged_ones() -> None:
    """During a cut the sequences that A staged were published on B."""
    a, b = Whole(A), Whole(B)
    a.stage("one", b"a", b"b", name="p")
    b.publish("p", 1, 2)
    all_of(a, b)
    assert payloads(a) == payloads(b) == [b"x" * 10] * 2
    assert a.commit_stages("app", 1, one=2).count == 2
    all_of(a, b)
    assert sorted(payloads(a)) == sorted(payloads(b)) == [b"a", b"b", *[b"x" * 10] * 2]


# -- ends -----------------------------------------------------------------------------------------


def test_an_instance_ends_its_own_stages_only() -> None:
    a, b = Whole(A), Whole(B)
    for each in (a, b):
        each.stage("one", b"a")
    all_of(a, b)
    assert (len(a.core.sessions.stages), len(b.core.sessions.stages)) == (2, 2)
    b.abort_stages("one")
    all_of(a, b)
    left = [StageKey(Origin(A, 1), "alice", "one")]
    assert [one.key for one in a.core.sessions.stages._all()] == left
    forged = records.AbortRecord([("alice", "one")], [Origin(A, 1)])
    end = b.core.sessions.origins.vector[Origin(B, 1)]
    a.give(Record(KIND_ABORT, B, 1, end + 1, end, 0), records.encode(forged))
    a.restart()
    assert [one.key for one in a.core.sessions.stages._all()] == left
    assert b.core.sessions.stages.overdue(0) == b.core.sessions.stages.held_before(99) == []


def test_what_is_staged_elsewhere_takes_nothing_of_what_may_be_staged_here() -> None:
    a, b = Whole(A), Whole(B)
    a.stage("one", b"x" * 60)
    Link(a, b).send()
    stages = b.core.sessions.stages
    assert (stages.bytes, stages.bytes_of("alice")) == (0, 0)
    assert stages.removable(9) == 0, "but it holds the log back"
    b.restart()
    assert b.core.sessions.stages.bytes == 0


# -- a batch of an app on both sides of a cut -----------------------------------------------------


def test_a_batch_that_both_sides_committed_is_a_conflict_and_is_shown_once() -> None:
    a, b = Whole(A), Whole(B)
    for each, data in ((a, b"a"), (b, b"b")):
        each.stage("one", data)
        each.commit_stages("app", 1, one=1)
        each.stage("two", data * 2)
        each.commit_stages("app", 2, two=1)
    all_of(a, b)
    assert (payloads(a), payloads(b)) == ([b"a", b"aa"], [b"b", b"bb"])
    assert (a.core.conflicts, b.core.conflicts) == (2, 2)
    kept = b.core.take_conflicts()
    assert [(one.name, one.seq) for one in kept] == [(f"$staged.app.{A:016x}.1", n) for n in (1, 2)]
    for each in (a, b):
        before = table(each.core.sessions)
        each.restart()
        assert table(each.core.sessions) == before
    a.stage("tri", b"tri")
    a.commit_stages("app", 3, tri=1)
    all_of(a, b)
    assert payloads(b) == [b"b", b"bb", b"tri"]


def test_an_older_batch_that_only_the_other_side_has_is_shown() -> None:
    a, b = Whole(A), Whole(B)
    for each, batch in ((a, 6), (b, 7)):
        each.stage("one", b"%d" % batch)
        each.commit_stages("app", batch, one=1)
    all_of(a, b)
    assert sorted(payloads(a)) == sorted(payloads(b)) == [b"6", b"7"]
    last = b.core.sessions.stages.last("alice", "app")
    assert last is not None
    assert (last.batch, last.earlier) == (7, [6])


# -- whole histories ------------------------------------------------------------------------------

STEPS = 50
SEEDS = range(40)
SEEDS_OF_BUG = 300


class Cluster:
    """One seed: three instances, links that break anywhere, one publisher that moves between them.

    shown: payloads of each commit, by app and batch; each is of one instance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.all = [Whole(A), Whole(B), Whole(C)]
        self.numbers = 0
        self.open: dict[tuple[int, str], int] = {}
        self.shown: dict[tuple[str, int], list[bytes]] = {}
        self.staged: dict[tuple[int, str], list[bytes]] = {}

    def run(self) -> None:
        steps = [self.stage] * 8 + [self.commit] * 4 + [self.link] * 8
        steps += [self.abort, self.restart, self.snapshot, self.generation]
        for _ in range(STEPS):
            self.rng.choice(steps)()
        for _ in range(3):
            for source in self.all:
                for target in self.all:
                    if source is not target:
                        assert codes(Link(source, target).send()) == set()
        self.compare()
        for at in self.all:
            at.restart()
        self.compare()

    def pick(self) -> Whole:
        return self.rng.choice(self.all)

    def stage(self) -> None:
        at, self.numbers = self.pick(), self.numbers + 1
        token = f"s{self.rng.randrange(4)}.{self.open.get((at.instance, 's'), 0)}"
        data = [b"%d.%d" % (self.numbers, n) for n in range(self.rng.randint(1, 3))]
        at.stage(token, *data, name=f"task{self.rng.randrange(2)}")
        self.staged.setdefault((at.instance, token), []).extend(data)

    def commit(self) -> None:
        at = self.pick()
        mine = sorted(token for instance, token in self.staged if instance == at.instance)
        if not mine:
            return
        token, self.numbers = self.rng.choice(mine), self.numbers + 1
        data = self.staged.pop((at.instance, token))
        app = f"app{self.rng.randrange(2)}"
        done = at.commit_stages(app, self.numbers, **{token: len(data)})
        assert (done.code, done.count) == ("", len(data))
        self.shown[app, self.numbers] = data
        self._over(at)

    def abort(self) -> None:
        at = self.pick()
        for token in sorted(token for instance, token in self.staged if instance == at.instance):
            at.abort_stages(token)
            del self.staged[at.instance, token]
        self._over(at)

    def _over(self, at: Whole) -> None:
        """Its next tokens are new ones; those that are open go on to be committed."""
        key = at.instance, "s"
        self.open[key] = self.open.get(key, 0) + 1

    def link(self) -> None:
        source, target = self.rng.sample(self.all, 2)
        Link(source, target).send(self.rng.choice((1, 3, 1_000)))

    def restart(self) -> None:
        at = self.pick()
        if at.core.generation == 1:
            before = table(at.core.sessions)
            at.restart()
            assert table(at.core.sessions) == before

    def snapshot(self) -> None:
        at = self.pick()
        at.roll_over()
        at.state()

    def generation(self) -> None:
        if self.rng.random() < 0.3:
            self.pick().core.generation += 1

    def compare(self) -> None:
        wanted = sorted(payload for data in self.shown.values() for payload in data)
        runs = sorted(self.shown.values())
        waiting = sorted(payload for data in self.staged.values() for payload in data)
        for at in self.all:
            assert sorted(payloads(at)) == wanted, "each is shown once"
            found: dict[int, list[bytes]] = {}
            for batch, _, payload in messages(at.log, at.core.persisted):
                found.setdefault(batch.offset, []).append(payload)
            here: list[list[bytes]] = []
            for data in runs:
                here += [data] if data in _slices(found, data) else []
            assert here == runs, "a commit is one run, in its order"
            open_ = at.core.sessions.stages._all()
            assert sum(stage.messages for stage in open_) == len(waiting)


def _slices(found: dict[int, list[bytes]], data: list[bytes]) -> list[list[bytes]]:
    flat = [payload for payloads_ in found.values() for payload in payloads_]
    return [flat[n : n + len(data)] for n, payload in enumerate(flat) if payload == data[0]]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_instance_shows_each_commit_once_and_keeps_what_waits(seed: int) -> None:
    Cluster(seed).run()


def _get_by_token(self: Stages, key: StageKey) -> Stage | None:
    found = self._stages.get(self._owned(key.principal, key.token), {})
    return next(iter(found.values()), None)


def _commit_as_it_is(self: ReplicatedStages, record: Record, body: Any) -> None:
    self._put(record, body)


#: owner, method, and what is done instead
BUGS: Final[dict[str, tuple[type, str, Callable[..., Any]]]] = {
    "a stage is named by its token alone": (Stages, "get", _get_by_token),
    "a commit keeps the places of its origin": (ReplicatedStages, "_commit", _commit_as_it_is),
    "an abort of another instance is not read": (Stages, "fold_abort", lambda *given: None),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BUGS[bug])
    for seed in range(SEEDS_OF_BUG):
        try:
            Cluster(seed).run()
        except (AssertionError, LookupError):
            return
    pytest.fail(f"{bug!r} was not found within {SEEDS_OF_BUG} seeds")


def test_a_commit_waits_for_one_that_may_come_back() -> None:
    """Else the same app and batch could be committed twice, on both sides of a lost tail."""
    whole = Whole()
    whole.stage("t1", b"a")
    waits = [True]
    whole.core.commits_wait = lambda: waits[0]
    assert whole.commit_stages("app", 1, t1=1).code == "not_ready"
    waits[0] = False
    assert whole.commit_stages("app", 1, t1=1).code == ""
    waits[0] = True
    assert whole.commit_stages("app", 1, t1=1).already, "it is here"
