"""The journal's decisions in the order of its turn: one commit at a time, and what is beside it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.journal import build
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, SimNote, Start
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer, Exit, Note, Ready, Sync
from zbroker.engine.events import Gone, StopAsked, Synced
from zbroker.ids import Origin
from zbroker.journal import effects as je
from zbroker.journal.closed_generations import ClosedRow
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.end_note import GroupEnd, Proof
from zbroker.journal.events import (
    ConflictsKept,
    GenerationBegun,
    Incoming,
    PeersAnswered,
    Requested,
    Reserved,
    SpaceFound,
    Subscribed,
    Written,
)
from zbroker.journal.sessions import Sessions
from zbroker.journal.start_question import ANSWER_MS, UNPROVED, PeerAnswer
from zbroker.limits import BEAT_MS, STATE_BODY_BYTES, U63_MAX
from zbroker.log.format import KIND_POINT, KIND_STATE, crc32c
from zbroker.wire import internal as m
from zbroker.wire.replicas import PeerHolds

MINE, RID, READER, LINKS = 77, b"\0ingest", b"\0delivery", b"\0replication"
BODY = b"\x91\xc4\x01a"
PROCESS = Reserved(True, True, U63_MAX)


class Steps:
    """A core without performers: the test gives the answers."""

    def __init__(
        self, serial: int = 1, peers: tuple[str, ...] = (),
        proved: Proof = Proof.PROVED, sessions: Sessions | None = None,
    ) -> None:  # fmt: skip
        settings = JournalSettings(9, MINE, peers=peers)
        end = LogEnd(1, 1, 0, 1, serial, serial, proved)
        self.core = JournalCore(
            settings,
            RetentionSettings(("delivery", "replication"), 0),
            Sessions() if sessions is None else sessions,
            end,
        )
        self.now_ms = 0
        self.session = self.ordinal = 0
        self.tick()
        self.hear(Requested([Incoming(RID, m.Hello("ingest", 1), [])]))
        self.hear(Requested([Incoming(READER, m.Hello("delivery", 1), [])]))
        self.hear(Requested([Incoming(LINKS, m.Hello("replication", 1), [])]))
        self.hear(Requested([Incoming(RID, m.Open(1, MINE, "p", ""), [])]))
        if self.core.question.open:
            return
        self.tick()
        [opened] = [each.message for each in self.hear(PROCESS) if isinstance(each, Answer)]
        assert isinstance(opened, m.Opened)
        self.opened = opened

    def hear(self, event: object) -> list[Any]:
        effects = list(self.core.handle(event, Now(self.now_ms, 1_000)))
        self.core.check()
        return effects

    def tick(self, now_ms: int | None = None) -> list[Any]:
        self.now_ms = self.now_ms if now_ms is None else now_ms
        effects = list(self.core.tick(Now(self.now_ms, 1_000), drained=True))
        self.core.check()
        return effects

    def append(self, count: int = 1) -> None:
        """A batch of so many messages waits."""
        first = self.ordinal + 1
        entry = m.Entry(
            self.opened.publisher, self.opened.session, first, count, None, crc32c(BODY), None,
            ["t"],
        )  # fmt: skip
        append = m.Append(MINE, first, self.ordinal, [entry])
        assert self.hear(Requested([Incoming(RID, append, [BODY])])) == []
        self.ordinal += count

    def holds(self, *, eager: bool, rid: bytes = READER) -> None:
        holds = m.Holds(MINE, 1, U63_MAX, eager=eager)
        assert self.hear(Requested([Incoming(rid, holds, [])])) == []


def kinds(effects: list[Any]) -> list[type]:
    return [type(effect) for effect in effects]


def test_a_commit_is_reserved_written_synced_and_then_answered() -> None:
    at = Steps()
    at.append()
    [reserve] = at.tick()
    assert isinstance(reserve, je.Reserve)
    [group] = at.hear(PROCESS)
    assert isinstance(group, je.WriteGroup)
    assert at.hear(Written(1)) == [Sync(group.end)]
    effects = at.hear(Synced(group.end))
    assert kinds(effects) == [Answer, je.PublishWatermarks, je.IndexGroup]
    assert effects[0].message.items == [m.ReceiptItem(1, 2, 1)]
    assert effects[2] == je.IndexGroup(group.batches, 1)


def test_watermarks_name_the_segment_that_holds_what_was_written() -> None:
    """Readers look for no newer segment below `written`."""
    at = Steps()
    at.append()
    at.tick()
    [group, *_] = at.hear(PROCESS)
    at.hear(Written(2))
    said = [
        effect.message
        for effect in at.hear(Synced(group.end))
        if isinstance(effect, je.PublishWatermarks)
    ]
    assert [(one.written, one.serial) for one in said] == [(group.end, 2)]


def test_nothing_else_is_begun_while_a_sync_runs() -> None:
    """A look for space beside a slow sync once ended the journal: the writer took it for failed."""
    at = Steps()
    at.append()
    at.tick()
    [group, *_] = at.hear(PROCESS)
    at.hear(Written(1))
    at.append()
    at.holds(eager=False)
    beside = at.tick(BEAT_MS)
    assert kinds(beside) == [je.PublishWatermarks, je.Maintain]
    assert at.core.next_wake_ms() == 2 * BEAT_MS, "it sleeps although a batch waits"
    at.hear(Synced(group.end))
    assert at.core.next_wake_ms() == 0
    assert kinds(at.tick()) == [je.LookForSpace, je.Reserve]


def test_whoever_speaks_without_a_hello_that_counts_is_told() -> None:
    """The late Hello of a dead ingest was once taken for the newer one's: nobody could publish."""
    at = Steps()
    late, again = b"\0late", b"\0again"
    at.hear(Requested([Incoming(late, m.Hello("ingest", 2), [])]))
    entry = m.Entry(1, at.opened.session, 1, 1, 0, 0, None, ["t"])
    asks = [m.Append(MINE, 1, 0, [entry]), m.Confirm(MINE, 0), m.Open(2, MINE, "q", "")]
    for ask in asks:
        bodies = [BODY] if ask is asks[0] else []
        assert at.hear(Requested([Incoming(RID, ask, bodies)])) == [
            Answer(RID, m.UnknownRequester())
        ]
    assert at.core.commit.backlog == 0
    [welcome] = at.hear(Requested([Incoming(again, m.Hello("ingest", 1, number=2), [])]))
    assert isinstance(welcome.message, m.Welcome)
    assert at.hear(Requested([Incoming(again, asks[0], [BODY])])) == []
    assert at.core.commit.backlog == 1


def test_written_is_announced_before_the_sync_when_a_reader_wants_that() -> None:
    at = Steps()
    at.holds(eager=True)
    at.append()
    at.tick()
    [group, *_] = at.hear(PROCESS)
    early, sync = at.hear(Written(1))
    assert (early.message.written, early.message.persisted) == (group.end, 1)
    assert sync == Sync(group.end)


@pytest.mark.parametrize("control", [False, True])
def test_links_send_messages_before_they_are_durable_and_nothing_else(*, control: bool) -> None:
    """A power cut may lose it here. A message comes back as one of an older generation; a hand-over
    of a queue would have been believed there."""
    at = Steps()
    at.holds(eager=True, rid=LINKS)
    for first in (True, False):
        at.append()
        if control and not first:
            at.core.commit.append_control(KIND_POINT, b"body")
        at.tick()
        [group, *_] = at.hear(PROCESS)
        *early, sync = at.hear(Written(1))
        assert sync == Sync(group.end)
        sent = not first and not control  # the first group names the publisher
        assert [one.message.sendable for one in early] == ([group.end] if sent else [])
        assert all(one.of_write for one in early)
        if first:
            at.hear(Synced(group.end))
    [durable] = [one for one in at.hear(Synced(group.end)) if isinstance(one, je.PublishWatermarks)]
    assert durable.message.sendable == durable.message.persisted == group.end


def test_what_writes_nothing_is_answered_without_a_sync() -> None:
    at = Steps()
    at.hear(Requested([Incoming(RID, m.Open(2, MINE, "q", ""), [])]))
    at.tick()
    assert kinds(at.hear(PROCESS)) == [Answer]
    assert at.core.next_wake_ms() == BEAT_MS


def test_a_full_disk_refuses_publishers_at_once() -> None:
    at = Steps()
    at.append()
    at.tick()
    [receipt] = at.hear(Reserved(False, True, 0))
    assert [item.code for item in receipt.message.items] == ["disk_full"]


def test_a_group_has_no_part_of_a_snapshot_that_was_not_reserved() -> None:
    """Space may come back between the two: the group would be larger than its place."""
    at = Steps()
    at.hear(SpaceFound(False, False))
    at.core.commit.want_state()
    at.append()
    [reserve] = at.tick()
    assert reserve.bytes < STATE_BODY_BYTES
    at.hear(SpaceFound(True, True))
    [group, *_] = at.hear(PROCESS)
    assert KIND_STATE not in [batch.kind for batch in group.batches]
    at.hear(Written(1))
    at.hear(Synced(group.end))
    at.hear(SpaceFound(True, True))
    [reserve] = at.tick()
    assert reserve.bytes > STATE_BODY_BYTES
    [group, *_] = at.hear(PROCESS)
    assert KIND_STATE in [batch.kind for batch in group.batches]


def test_a_new_segment_gets_a_snapshot() -> None:
    at = Steps()
    at.append()
    at.tick()
    [group, *_] = at.hear(PROCESS)
    at.hear(Written(2))
    at.hear(Synced(group.end))
    at.tick()
    [group, *_] = at.hear(PROCESS)
    assert [batch.kind for batch in group.batches] == [KIND_STATE]
    at.hear(Written(2))
    at.hear(Synced(group.end))
    assert at.core.stats()["stated"] == 2


def test_watermarks_are_there_at_once_for_a_reader_that_subscribes() -> None:
    [watermarks] = Steps().hear(Subscribed())
    assert watermarks.message.persisted == 1


def test_conflicts_are_kept_one_time_after_the_other() -> None:
    at = Steps()
    given = [["a"], ["b"]]
    at.core.commit.take_conflicts = lambda: given.pop(0) if given else []  # type: ignore
    assert je.KeepConflicts(["a"]) in at.tick(BEAT_MS)  # type: ignore[list-item]
    assert je.KeepConflicts not in kinds(at.tick(2 * BEAT_MS))
    [note] = at.hear(ConflictsKept("no space"))
    assert (type(note), note.name) == (Note, "journal.conflict_not_kept")
    assert je.KeepConflicts(["b"]) in at.tick(3 * BEAT_MS)  # type: ignore[list-item]


def test_a_process_that_is_gone_is_answered_no_more() -> None:
    at = Steps()
    at.append()
    at.hear(Gone(RID))
    at.tick()
    [group, *_] = at.hear(PROCESS)
    at.hear(Written(1))
    assert kinds(at.hear(Synced(group.end))) == [je.PublishWatermarks, je.IndexGroup]


def test_it_is_ready_once_and_ends_when_it_is_asked_to() -> None:
    core = JournalCore(
        JournalSettings(9, MINE), RetentionSettings(()), Sessions(), LogEnd(1, 1, 0, 1, 1, 0)
    )  # fmt: skip
    assert kinds(list(core.tick(Now(0, 0), drained=True)))[0] is Ready
    assert Ready not in kinds(list(core.tick(Now(BEAT_MS, 0), drained=True)))
    at = Steps()
    at.append()
    assert at.hear(StopAsked()) == [Exit()]
    assert at.tick() == [], "nothing is begun any more"


@pytest.mark.parametrize("lies", [False, True])
def test_what_is_acknowledged_outlives_a_power_cut(*, lies: bool) -> None:
    """The rig runs the turn that ships; with a disk that syncs nothing it finds the loss."""
    lost = 0
    for seed in range(20):
        disk = SimDisk(random.Random(seed))
        start = Start(
            build.Clock(), build.SEGMENT_BYTES, random.Random(seed).getrandbits(64).__int__
        )
        process = JournalProcess(disk, JournalSettings(build.INSTANCE, MINE), start)
        process.port.lies = lies
        process.hear(RID, m.Hello("ingest", 1))
        process.hear(RID, m.Open(1, MINE, "p", ""))
        [opened] = [a.message for a in process.commit() if isinstance(a.message, m.Opened)]
        high = 0
        for ordinal in range(1, 6):
            entry = m.Entry(
                opened.publisher, opened.session, ordinal, 1, None, crc32c(BODY), None, ["t"]
            )  # fmt: skip
            process.hear(RID, m.Append(MINE, ordinal, ordinal - 1, [entry]), [BODY])
            for answer in process.commit():
                items = getattr(answer.message, "items", [])
                high = max([high, *(item.high for item in items)])
        assert high == 5
        disk.power_cut()
        again = JournalProcess(disk, JournalSettings(build.INSTANCE, MINE + 1), start)
        known = again.core.commit.sessions.get(opened.publisher)
        lost += known is None or known.high < high
    assert (lost > 0) is lies


# -- a new generation -------------------------------------------------------------------------


def begun(at: Steps, known: int = 0) -> int:
    """The generation that begins, with the answers of a log that can."""
    at.core.raise_generation(known)
    [begin] = at.tick()
    assert isinstance(begin, je.BeginGeneration)
    effects = at.hear(GenerationBegun(2))
    assert kinds(effects) == [Note, je.PublishWatermarks, je.PublishWatermarks]
    return begin.generation


def test_a_generation_begins_before_what_waits_and_readers_are_told() -> None:
    at = Steps()
    at.append()
    number = begun(at)
    [marks] = at.hear(Subscribed())
    assert (marks.message.generation, marks.message.raised) == (number, [(number, 1)])
    assert kinds(at.tick()) == [je.Reserve]
    [group, *_] = at.hear(PROCESS)
    assert {batch.origin_generation for batch in group.batches} == {number}


def test_a_generation_waits_for_the_sync_of_what_is_being_written() -> None:
    at = Steps()
    at.append()
    at.tick()
    [group, *_] = at.hear(PROCESS)
    at.core.raise_generation()
    at.hear(Written(1))
    assert at.tick() == []
    at.hear(Synced(group.end))
    assert kinds(at.tick()) == [je.BeginGeneration]


@pytest.mark.parametrize("known", [0, 5, 4_000_000_000])
def test_its_number_is_above_all_that_are_known_here_and_elsewhere(known: int) -> None:
    """A clock in the past once gave a lower one: then nothing tells the histories apart."""
    at = Steps()
    at.core.commit.sessions.origins.meet([(900, 1)])
    assert begun(at, known) > max(known, 900)


def test_a_generation_waits_for_space_and_nothing_is_placed_meanwhile() -> None:
    at = Steps()
    at.append()
    at.core.raise_generation()
    assert kinds(at.tick()) == [je.BeginGeneration]
    assert at.hear(GenerationBegun(0)) == []
    assert at.tick() == []
    assert at.core.next_wake_ms() == BEAT_MS, "it would spin"
    assert kinds(at.tick(BEAT_MS))[-1] is je.BeginGeneration


def test_a_new_generation_gets_a_snapshot() -> None:
    at = Steps()
    begun(at)
    at.tick()
    [group, *_] = at.hear(PROCESS)
    assert [batch.kind for batch in group.batches] == [KIND_STATE]


# -- a start with peers -----------------------------------------------------------------------


def undecided() -> Steps:
    return Steps(peers=("b",), proved=Proof.UNKNOWN)


def test_until_it_is_decided_nothing_is_placed_and_what_came_waits() -> None:
    """A position that a peer has under another record would make that one a duplicate."""
    at = undecided()
    assert at.tick() == []
    assert at.core.next_wake_ms() == BEAT_MS
    assert at.hear(PeersAnswered([PeerAnswer("b", {1: 0})])) == []
    assert at.core.next_wake_ms() == 0
    assert kinds(at.tick())[-1] is je.BeginGeneration
    [note, *_] = at.hear(GenerationBegun(2))
    assert (note.level, UNPROVED in note.text) == ("info", True), "each reboot is such a start"
    assert je.Reserve in kinds(at.tick())


def test_a_peer_that_is_away_costs_a_generation_and_no_more_time() -> None:
    at = undecided()
    for now_ms in range(BEAT_MS, ANSWER_MS, BEAT_MS):
        assert je.Reserve not in kinds(at.tick(now_ms))
    assert kinds(at.tick(ANSWER_MS))[-1] is je.BeginGeneration
    [note, *_] = at.hear(GenerationBegun(2))
    assert "no answer of b" in note.text
    assert je.Reserve in kinds(at.tick())


def test_a_peer_that_knows_more_has_a_generation_begun_before_the_next_record() -> None:
    at = Steps(peers=("b",))
    at.append()
    at.hear(PeersAnswered([PeerAnswer("b", {1: 900}, 7_000)]))
    [begin] = at.tick()
    assert isinstance(begin, je.BeginGeneration)
    assert begin.generation > 7_000
    at.hear(GenerationBegun(2))
    at.hear(PeersAnswered([PeerAnswer("b", {1: 900}, 7_000)]))
    assert kinds(at.tick()) == [je.Reserve], "it has begun"


def process(disk: SimDisk, note: SimNote) -> JournalProcess:
    start = Start(build.Clock(), build.SEGMENT_BYTES, lambda: 5, note=note)
    return JournalProcess(disk, JournalSettings(build.INSTANCE, MINE, peers=("b",)), start)


@pytest.mark.parametrize("forgotten", [False, True])
def test_vectors_name_a_closed_generation_until_a_peer_has_the_record(*, forgotten: bool) -> None:
    sessions = Sessions(9)
    sessions.origins.fold_closed_row(ClosedRow(9, 1, 7, 2, 12, 7, 7, 0, 7, 0))
    sessions.forgotten_peers.names |= {"b"} if forgotten else set()
    at = Steps(peers=("b",), sessions=sessions)
    older = Origin(9, 1)

    def named() -> bool:
        at.tick(at.now_ms + BEAT_MS)
        at.hear(PROCESS)
        return older in sessions.origins.closed.compact({older: 7, Origin(9, 2): 12})

    assert named() is not forgotten
    for position, known in ((11, forgotten), (12, True)):
        said = PeerHolds(MINE, "b", [(2, position)], asked_in=1)
        at.hear(Requested([Incoming(READER, said, [])]))
        assert named() is not known, position


def noted() -> tuple[SimDisk, SimNote]:
    """A log of some groups, and what the memory of its host says of it."""
    disk, note = SimDisk(random.Random(1)), SimNote()
    first = process(disk, note)
    assert first.core.question.open, "an empty memory proves nothing"
    first.hear(RID, m.Hello("ingest", 1))
    first._turn.hear(PeersAnswered([PeerAnswer("b", {})]))
    first.turn()
    first.taken()
    first.hear(RID, m.Open(1, MINE, "p", ""))
    publish(first, 1)
    return disk, note


def publish(to: JournalProcess, seq: int) -> None:
    [opened] = [a.message for a in to.commit() if isinstance(a.message, m.Opened)]
    entry = m.Entry(opened.publisher, opened.session, seq, 1, None, crc32c(BODY), None, ["t"])
    to.hear(RID, m.Append(MINE, seq, seq - 1, [entry]), [BODY])
    to.commit()


def test_after_a_kill_no_peer_is_asked() -> None:
    disk, note = noted()
    disk.crash()
    again = process(disk, note)
    assert not again.core.question.open
    begun = again.recovered.generation
    again._turn.hear(PeersAnswered([PeerAnswer("b", {begun: 1})]))
    again.commit()
    assert again.core.origin.generation == begun, "nothing was lost"


def test_a_kill_between_a_group_and_its_note_asks_nobody_either() -> None:
    disk, note = noted()
    disk.crash()
    before = process(disk, SimNote()).recovered.before
    assert before != (0, 0)
    disk.crash()
    note.before = GroupEnd(*before)
    assert not process(disk, note).core.question.open


def test_after_a_reboot_a_generation_begins_although_all_peers_confirm_the_end() -> None:
    disk, _ = noted()
    disk.crash()
    again = process(disk, SimNote())
    before = again.recovered.generation
    again._turn.hear(PeersAnswered([PeerAnswer("b", {before: 1})]))
    again.turn()
    assert again.core.origin.generation > before


def test_after_a_reboot_and_on_a_disk_that_was_set_back_peers_are_asked() -> None:
    disk, note = noted()
    disk.crash()
    assert process(disk, SimNote()).core.question.open
    assert note.before is not None
    note.before = note.before._replace(position=note.before.position + 1)
    disk.crash()
    assert process(disk, note).core.question.open
