"""Peers that are not waited for: in the log, in snapshots, until they answer."""

from __future__ import annotations

import random

from tests.journal import build
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, Start
from zbroker.engine.contract import Now
from zbroker.journal.core import JournalSettings
from zbroker.journal.events import PeersAnswered
from zbroker.journal.forgotten_peers import ForgottenPeers, ForgottenRow
from zbroker.journal.start_question import PeerAnswer
from zbroker.limits import BEAT_MS
from zbroker.log.format import KIND_CLOSED, KIND_FORGOTTEN
from zbroker.wire import internal as m
from zbroker.wire.replicas import AskOrigins, BeginFresh, ForgetPeer, OriginRows, PeerForgotten

LINK, MINE = b"\0link", 77


class Process(JournalProcess):
    """A journal whose peer b never answers, unless a test does it."""

    now_ms = 0

    def now(self) -> Now:
        return Now(self.now_ms, 1_700_000_000_000_000_000 + self.now_ms * 1_000_000)

    def pass_time(self) -> None:
        for _ in range(12):
            self.now_ms += BEAT_MS
            self.turn()
        self.commit()

    def answers(self, asked_in: int) -> None:
        self._turn.hear(PeersAnswered([PeerAnswer("b", {}, 0, asked_in)]))

    @property
    def older(self) -> int:
        return len(self.core.commit.sessions.origins.open_generations()) - 1


def start(disk: SimDisk) -> Process:
    begin = Start(build.Clock(), build.SEGMENT_BYTES, lambda: 5)
    made = Process(disk, JournalSettings(build.INSTANCE, MINE, peers=("b",)), begin)
    made.hear(LINK, m.Hello("replication", 1))
    made.hear(LINK, BeginFresh(MINE))
    made.pass_time()
    return made


def forget(process: Process) -> PeerForgotten:
    process.hear(LINK, ForgetPeer(1, MINE, "b"))
    [said] = [a.message for a in process.commit() if isinstance(a.message, PeerForgotten)]
    return said


def kinds(process: Process) -> list[int]:
    found = [getattr(item, "kind", 0) for item in build.read_all(process.disk, 1 << 40)]
    return [kind for kind in found if kind in (KIND_CLOSED, KIND_FORGOTTEN)]


def again(process: Process) -> Process:
    disk = process.disk
    assert isinstance(disk, SimDisk)
    disk.crash()
    return start(disk)


def test_generations_wait_for_a_peer_until_it_is_forgotten() -> None:
    process = again(start(SimDisk(random.Random(1))))
    assert process.older == 2
    assert forget(process).code == ""
    process.pass_time()
    assert process.older == 0
    assert kinds(process) == [KIND_FORGOTTEN, KIND_CLOSED, KIND_CLOSED]
    forget(process)
    assert kinds(process).count(KIND_FORGOTTEN) == 1


def test_a_restart_remembers_it_also_by_its_snapshot() -> None:
    process = start(SimDisk(random.Random(1)))
    forget(process)
    for _ in range(3):
        process = again(process)
        process.pass_time()
        assert process.older == 0


def test_it_ends_when_the_peer_answers() -> None:
    process = start(SimDisk(random.Random(1)))
    process.answers(process.core.commit.generation)
    forget(process)  # what it answered before that does not count
    process.pass_time()
    assert process.core.commit.sessions.forgotten_peers.names == {"b"}
    process.answers(process.core.commit.generation)
    process.pass_time()
    assert process.core.commit.sessions.forgotten_peers.names == set()
    process = again(process)
    assert process.older == 1


def test_nothing_is_closed_by_the_word_of_a_peer_that_fills() -> None:
    """It has a new disk, and gets back from others what they hold of this instance."""
    process = again(start(SimDisk(random.Random(1))))
    answer = PeerAnswer("b", {}, 0, process.core.commit.generation)
    process._turn.hear(PeersAnswered([answer], filling=["b"]))
    process.pass_time()
    assert process.older == 2
    process._turn.hear(PeersAnswered([answer]))
    process.pass_time()
    assert process.older == 0


def test_nothing_is_forgotten_before_a_start_is_decided() -> None:
    begin = Start(build.Clock(), build.SEGMENT_BYTES, lambda: 5)
    disk = SimDisk(random.Random(1))
    process = Process(disk, JournalSettings(build.INSTANCE, MINE, peers=("b",)), begin)
    process.hear(LINK, m.Hello("replication", 1))
    process.core.commit.decided = True  # and its records are not placed yet
    process.hear(LINK, ForgetPeer(1, MINE, "b"))
    process.core.commit.group(1)
    [said] = [answer.message for answer in process.core.commit.synced(1)][:1]
    assert isinstance(said, PeerForgotten)
    assert said.code == "not_ready"


def test_rows_of_a_snapshot_come_to_the_same() -> None:
    peers = ForgottenPeers()
    peers.fold_row(ForgottenRow("c"))
    peers.fold_row(ForgottenRow("b"))
    assert list(peers.rows()) == [ForgottenRow("b"), ForgottenRow("c")]


def test_a_journal_says_when_it_began() -> None:
    """Of two starts of one instance the later one sends: see zbroker.replication.sources."""
    process = start(SimDisk(random.Random(1)))
    process.hear(LINK, AskOrigins(3, MINE))
    [rows] = [a.message for a in process.commit() if isinstance(a.message, OriginRows)]
    assert rows.started_ns == process.now().wall_ns - process.now_ms * 1_000_000 + BEAT_MS * 10**6


def test_commits_do_not_wait_for_what_a_forgotten_peer_has_beyond_an_end() -> None:
    """It does not come by itself: it is a fork."""
    process = again(start(SimDisk(random.Random(1))))
    here = process.core.origin.generation
    older = [one for one in process.core.commit.sessions.origins.open_generations() if one < here]
    holds = PeersAnswered([PeerAnswer("b", dict.fromkeys(older, 1_000), 0, here)])
    process._turn.hear(holds)
    assert process.core._commits_wait()
    forgotten = again(process)
    forget(forgotten)
    forgotten.pass_time()
    assert forgotten.older == 0
    forgotten._turn.hear(holds)
    assert not forgotten.core._commits_wait()
