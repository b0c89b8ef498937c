"""The journal decides here: when a group is committed, what is answered, what is removed. Pure.

    handle(event)   messages of other processes; the steps of a commit; ends of work beside the log
    tick            what is due between two commits; then the next commit begins, if anything waits

One commit after the other, so that no write, no removal and no look for space is beside a sync:

    idle --Reserve--> reserving --Reserved--> writing --Written--> syncing --Synced--> idle
                         +---- nothing to write: answers leave at once ----------------^

Receipts, answers to logons and watermarks leave with Synced: what they promise is durable then. A
failed write or sync ends the process: nothing was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zbroker.engine import effects as e
from zbroker.engine import events as ee
from zbroker.engine.contract import Now
from zbroker.ids import Origin
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.effects import Effect
from zbroker.journal.first_start import WAIT_MS, FirstPhase, FirstStart
from zbroker.journal.generation_closer import GenerationCloser
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.later_generations import believed
from zbroker.journal.peers_ahead import PeersAhead
from zbroker.journal.retention import RetentionRequests, RetentionSettings
from zbroker.journal.sessions import Sessions
from zbroker.journal.start_question import UNPROVED, PeerAnswer, StartQuestion
from zbroker.limits import BEAT_MS
from zbroker.log import records
from zbroker.log.format import KIND_FORGOTTEN
from zbroker.log.generations import drawn
from zbroker.wire import internal as m
from zbroker.wire.replicas import (
    AskFirstStart,
    BeginFresh,
    FirstStartRow,
    FollowLog,
    ForgetPeer,
    PeerHolds,
)

__all__ = ["JournalCore", "JournalSettings", "LogEnd", "RetentionSettings"]

Effects = Sequence[Effect]


class JournalCore:
    """See zbroker.engine.contract.Core."""

    def __init__(
        self,
        settings: JournalSettings,
        retention: RetentionSettings,
        sessions: Sessions,
        end: LogEnd,
    ) -> None:
        commit = GroupCommit(settings, sessions, end)
        if end.state_serial < end.serial != 1:
            commit.want_state()  # the last process ended before the one of this segment was whole
        self.commit, self.retention = commit, RetentionRequests(commit, retention)
        self.question = StartQuestion(settings.peers, end.proof)
        self.first = FirstStart(settings.peers, opened=end.opened, empty=commit.sessions.is_empty)
        self._first_said = FirstPhase.OPEN
        self._patience_ms: int | None = None  # when it is said that peers do not answer
        self.closing = GenerationCloser(settings.peers)
        self._ahead = PeersAhead(settings.instance)
        self._note_copied()
        commit.commits_wait = self._commits_wait
        self._gate()
        self._group: je.WriteGroup | None = None  # that is being written or synced
        self._committing = self._ready = self._stopping = False
        self._keeping = False  # conflicts
        self._reserved_state = True
        self._space_due = False
        self._raising: int | None = None  # a generation above it is to begin before the next group
        self._begins = 0  # its number
        self._no_space_to_raise = False  # until the next beat
        self._groups = self._bytes = self._beat_ms = 0
        self._now = Now(0, 0)
        self._requests: dict[type, Callable[[bytes, Any], Effects]] = {
            m.Hello: self._hello,
            m.Locate: self._locate,
            m.Holds: self._holds,
            PeerHolds: self._peer_holds,
            AskFirstStart: self._first_start,
            FollowLog: self._follow_log,
            BeginFresh: self._begin_fresh,
            ForgetPeer: self._forget,
            **dict.fromkeys(self.retention.requests, self._ask),
        }
        self._handlers: dict[type, Callable[[Any], Effects]] = {
            ev.Requested: self._requested,
            ev.Subscribed: lambda _: [commit.watermarks()],
            ev.Reserved: self._reserved,
            ev.Written: self._written,
            ee.Synced: self._synced,
            ev.SpaceFound: self._space_found,
            ev.GenerationBegun: self._generation_begun,
            ev.PeersAnswered: self._peers_answered,
            ev.ConflictsKept: self._conflicts_kept,
            ev.SegmentsMeasured: self.retention.measured,
            ev.Unlinked: self.retention.unlinked,
            ev.NotUnlinked: lambda event: self.retention.not_unlinked(event, self._now),
            ev.CopyRetired: lambda event: [e.Answer(event.rid, event.done)],
            ev.IndexRebuilt: self.retention.rebuilt,
            ee.Gone: self._gone,
            ee.StopAsked: self._stop,
        }

    def handle(self, event: object, now: Now) -> Effects:
        """What follows at once. Raises: Bug."""
        self._now = now
        return self._handlers[type(event)](event)

    # -- messages of other processes ----------------------------------------------------------

    def _requested(self, event: ev.Requested) -> Effects:
        handlers, commit, effects = self._requests, self.commit, list[Effect]()
        for one in event.messages:
            handler = handlers.get(type(one.message))
            if not commit.knows(one.rid) and type(one.message) is not m.Hello:
                effects.append(e.Answer(one.rid, m.UnknownRequester()))
            elif handler is None:
                effects += commit.receive(*one)
            else:
                effects += handler(one.rid, one.message)
        return effects

    def _hello(self, rid: bytes, hello: m.Hello) -> Effects:
        self.retention.log_start.hello(hello.process)
        return self.commit.receive(rid, hello, [])

    def _locate(self, rid: bytes, ask: m.Locate) -> Effects:
        commit, closed = self.commit, self.commit.sessions.origins.closed
        if commit.settings.peers:
            origins, here = commit.sessions.origins, commit.generation
            point = commit.sessions.named.vector_named(ask.value)
            if later := commit.later.reader(point, origins, here, self._now):
                self._decided(self.question.read(later, here))
        reached, messages = commit.durable_origins
        where = je.Where(
            commit.settings.instance, commit.generation, commit.log_start, commit.persisted,
            commit.fenced or self._may_return() or closed.is_taking, reached, messages,
            replicates=bool(commit.settings.peers), coming=self._ahead.beyond(reached, closed),
            believed=believed(self._now.wall_ns),
        )  # fmt: skip
        return [je.LocatePoint(rid, ask, where)]

    def _holds(self, rid: bytes, holds: m.Holds) -> Effects:
        if holds.incarnation == self.commit.settings.incarnation:
            self.retention.holds(rid, holds)
        return ()

    def _ask(self, rid: bytes, ask: m.JournalRequest) -> Effects:
        if ask.incarnation != self.commit.settings.incarnation:
            return ()
        return self.retention.ask(rid, ask, self._now)

    def _gone(self, event: ee.Gone) -> Effects:
        self.commit.gone(event.rid)
        return ()

    # -- one commit ---------------------------------------------------------------------------

    def _reserved(self, event: ev.Reserved) -> Effects:
        commit = self.commit
        commit.accepting, commit.left_bytes = event.accepting, event.bytes
        # a part of a snapshot for which nothing was reserved waits: SpaceFound may just have come
        commit.state_fits = event.state_fits and self._reserved_state
        self._group = group = commit.group(self._now.wall_ns)
        if group is None:
            self._committing = False
            return commit.synced(commit.written)
        return [group]

    def _written(self, event: ev.Written) -> Effects:
        group, commit = self._group, self.commit
        assert group is not None, "written is what was decided before"
        commit.written_to(group.end, event.serial)
        sync = e.Sync(group.end)
        if self.retention.log_start.eager(sendable=commit.sendable == commit.written):
            return [commit.watermarks(of_write=True), sync]
        return [sync]

    def _synced(self, event: ee.Synced) -> Effects:
        group, self._group, self._committing = self._group, None, False
        assert group is not None
        assert event.position == group.end
        self._groups += 1
        self._bytes += sum(batch.body_length for batch in group.batches)
        answers = self.commit.synced(event.position)
        if self.commit.began_with_state and self.first.follow():
            self._gate()
        return [*answers, je.IndexGroup(group.batches, self.commit.serial)]

    # -- what a turn led to -------------------------------------------------------------------

    def tick(self, now: Now, *, drained: bool) -> Effects:
        """The beat, if it is time; then what must not be beside a commit, and the next commit."""
        self._now = now
        effects: list[Effect] = []
        if not self._ready:
            self._ready, self.commit.started_ns = True, now.wall_ns
            effects.append(e.Ready())
        if now.mono_ms >= self._beat_ms:
            self._beat_ms = now.mono_ms + BEAT_MS
            effects += self._beat()
        effects += self.commit.cpu.moves()
        effects += self._look_at_first_start(now)
        if self.question.open and self.first.phase is not FirstPhase.ASKING:
            self._decided(self.question.tick(now.mono_ms))
        if not self._committing and not self._stopping:
            effects += self._between_commits(now)
        return effects

    def _beat(self) -> Effects:
        self._space_due = self.retention.due = True
        self.commit.cpu.beat()
        self._no_space_to_raise = False
        effects: list[Effect] = [*self.commit.beat(), je.Maintain()]
        if not self._keeping and (conflicts := self.commit.take_conflicts()):
            self._keeping = True
            effects.append(je.KeepConflicts(conflicts))
        self._note_copied()
        self._close_generations()
        return effects

    def _note_copied(self) -> None:
        """Vectors leave out a generation once the record that closed it is on another host."""
        sessions = self.commit.sessions
        copied = self.closing.copied(sessions.forgotten_peers.names)
        sessions.origins.closed.copied(sessions.origins.instance, copied)

    def _close_generations(self) -> None:
        """Those of which no peer can bring more; the records travel like others."""
        commit, origins = self.commit, self.commit.sessions.origins
        if (
            not commit.settings.peers
            or commit.fenced
            or not commit.accepting
            or self._raising is not None
        ):
            return
        forgotten = commit.sessions.forgotten_peers.names
        for peer in [one for one in forgotten if self.closing.has_answered(one, 1)]:
            back = records.ForgottenRecord(peer, forgotten=False)
            commit.append_control(KIND_FORGOTTEN, records.encode(back))
        rows, closed = origins.open_generations(), origins.closed.generations_of(origins.instance)
        for each in self.closing.closable(commit.generation, rows, closed, forgotten):
            commit.close_generation(each)

    # -- a new generation ---------------------------------------------------------------------

    def raise_generation(self, known: int = 0) -> None:
        """Before the next record a generation begins, with a number above `known` and all here."""
        self._raising = max(known, self._raising or 0)

    def _peers_answered(self, event: ev.PeersAnswered) -> Effects:
        if not self.first.is_open:
            for answer in event.answers:
                rows, filling = event.rows.get(answer.peer, {}), answer.peer in event.filling
                self.first.heard(answer.peer, rows, filling=filling)
        for peer, rows in event.rows.items():
            self._ahead.heard(peer, rows)
        high = self.commit.sessions.origins.high(self.origin)
        self._decided(self.question.heard(event.answers, self.origin, high))
        # one that fills has less than it will have: nothing is closed by its word
        self.closing.heard(one for one in event.answers if one.peer not in event.filling)
        return ()

    def _peer_holds(self, _rid: bytes, said: PeerHolds) -> Effects:
        if said.incarnation != self.commit.settings.incarnation:
            return ()
        rows = {Origin(r.instance, r.generation): r.position for r in said.rows if not r.digest}
        whole = None if said.whole is None else dict(said.whole)
        later = self.commit.later.peer(said.later, self.commit.sessions.origins)
        answer = PeerAnswer(said.peer, dict(said.generations), later, said.asked_in, whole)
        filling = [said.peer] if said.filling else []
        return self._peers_answered(ev.PeersAnswered([answer], {said.peer: rows}, filling))

    # -- a first start ------------------------------------------------------------------------

    def _gate(self) -> None:
        """What may be placed, and whether publishers may log on."""
        commit, first, undecided = self.commit, self.first, self.question.open
        commit.decided = not undecided and first.places
        commit.fenced = undecided or not first.is_open
        commit.waits = first.text(commit.sessions.origins.high)
        commit.takes_state, commit.fills = first.takes_state, first.fills
        commit.awaits = first.awaits

    def _look_at_first_start(self, now: Now) -> Effects:
        first, commit = self.first, self.commit
        if first.is_open and self._first_said is FirstPhase.OPEN:
            return ()
        if first.tick(now.mono_ms, commit.sessions.origins.high) or not first.is_open:
            self._gate()
        if self._patience_ms is None:
            self._patience_ms = now.mono_ms + WAIT_MS
        late = first.phase is FirstPhase.ASKING and now.mono_ms >= self._patience_ms
        if first.phase is self._first_said or (first.phase is FirstPhase.ASKING and not late):
            return ()
        self._first_said = first.phase
        if first.is_open:
            commit.want_state()  # which says that the log was open
        text = commit.waits or (
            "the log begins as a new one: nothing of other instances comes first" if first.fresh
            else "the log has what other instances held; publishers may log on"
        )  # fmt: skip
        values = {"phase": first.phase.value}
        return [e.Note("journal.first_start", text, "warning" if late else "info", values)]

    def _first_start(self, rid: bytes, ask: AskFirstStart) -> Effects:
        commit, first = self.commit, self.first
        if ask.incarnation != commit.settings.incarnation:
            return ()
        row = FirstStartRow(
            ask.cid, first.phase.value, sorted(first.missing),
            first.text(commit.sessions.origins.high), commit.states.bytes,
            commit.sessions.ranges_missing(), first.awaits,
        )  # fmt: skip
        return [e.Answer(rid, row)]

    def _follow_log(self, _rid: bytes, said: FollowLog) -> Effects:
        if said.incarnation == self.commit.settings.incarnation and self.first.follow():
            self._gate()
        return ()

    def _begin_fresh(self, _rid: bytes, said: BeginFresh) -> Effects:
        if said.incarnation == self.commit.settings.incarnation and self.first.begin_fresh():
            self._gate()
        return ()

    def _forget(self, rid: bytes, ask: ForgetPeer) -> Effects:
        if ask.incarnation == self.commit.settings.incarnation:
            self.closing.forget(ask.peer)
            self._ahead.forget(ask.peer)
        return self.commit.receive(rid, ask, [])

    def _decided(self, raises: bool) -> None:
        if raises:
            self.raise_generation(self.question.highest)
        self._gate()

    def _returning(self) -> bool:
        """Peers hold records of older generations that are not back yet. Those beyond the end of a
        closed one do not come by themselves."""
        if not self.commit.settings.peers:
            return False
        origins, here = self.commit.sessions.origins, self.origin
        vector = origins.open_vector.items()
        high = {o.generation: at for o, at in vector if o.instance == here.instance}
        back = self.question.returning(high, here.generation)
        return any(Origin(here.instance, one) not in origins.closed for one in back)

    def _may_return(self) -> bool:
        """The same, or a peer has not said what it holds since this generation began."""
        forgotten = self.commit.sessions.forgotten_peers.names
        silent = not self.closing.have_answered(self.commit.generation, forgotten)
        return silent or self._returning()

    def _commits_wait(self) -> bool:
        """A commit of the same app and batch may be among what peers hold, and comes back."""
        return self.question.unheard(self._now.mono_ms) or self._returning()

    @property
    def _may_raise(self) -> bool:
        return self._raising is not None and not self._no_space_to_raise

    @property
    def _may_commit(self) -> bool:
        return self._raising is None and self.commit.backlog > 0 and not self.question.open

    def _begin_generation(self, now: Now) -> Effects:
        commit, known = self.commit, self._raising or 0
        ours = (
            o.generation for o in commit.sessions.origins.vector if o.instance == self.origin[0]
        )
        chance = commit.settings.incarnation  # two copies of one log may both have a wrong clock
        number = drawn(now.wall_ns, known, commit.generation, *ours, chance=lambda: chance)
        self._begins = number
        return [je.BeginGeneration(number)]

    def _generation_begun(self, event: ev.GenerationBegun) -> Effects:
        if not event.serial:
            self._no_space_to_raise = True
            return ()
        self._raising = None
        before, commit = self.commit.generation, self.commit
        commit.begin_generation(self._begins, event.serial)
        text = (
            f"generation {commit.generation} begins at position {commit.written}, after "
            f"{before}: {self.question.why}; what peers hold of that one comes back from them"
        )
        values = {"generation": commit.generation, "position": commit.written}
        note = e.Note("journal.generation_raised", text, values=values)
        if self.question.why == UNPROVED:
            note.level = "info"  # each reboot is such a start
        return [note, commit.watermarks(), commit.watermarks(of_commit=True)]

    # -- between two commits ------------------------------------------------------------------

    def _between_commits(self, now: Now) -> Effects:
        if self._may_raise:
            return self._begin_generation(now)
        effects: list[Effect] = []
        if self._space_due:
            self._space_due = False
            effects.append(je.LookForSpace())
        if self.retention.due:
            effects += self.retention.step(now)
        if self._may_commit:
            self._committing, self._reserved_state = True, self.commit.state_fits
            effects.append(je.Reserve(self.commit.next_group_bytes()))
        return effects

    def next_read(self) -> None:
        """It reads nothing of the log by itself."""

    def next_wake_ms(self) -> int | None:
        """At once if something waits for a commit, else at the next beat."""
        if self._committing or self._stopping or not (self._may_raise or self._may_commit):
            due = (self.question.due_ms, self.first.due_ms, self._beat_ms)
            return min(ms for ms in due if ms is not None)
        return 0

    # -- beside the log -----------------------------------------------------------------------

    def _space_found(self, event: ev.SpaceFound) -> Effects:
        self.commit.accepting, self.commit.state_fits = event.accepting, event.state_fits
        return ()

    def _conflicts_kept(self, event: ev.ConflictsKept) -> Effects:
        self._keeping = False
        if not event.failed:
            return ()
        text = f"{event.failed}; batches that came twice with another content are counted only"
        return [e.Note("journal.conflict_not_kept", text, values={"reason": event.failed})]

    def _stop(self, _event: ee.StopAsked) -> Effects:
        """What waits for a commit was not acknowledged: its sender sends it to the next journal."""
        self._stopping = True
        return [e.Exit()]

    # -- for people, and for threads that read the log ----------------------------------------

    @property
    def origin(self) -> Origin:
        """The origin of what this journal writes."""
        return Origin(self.commit.settings.instance, self.commit.generation)

    @property
    def persisted(self) -> int:
        """Everything below is durable and known to be."""
        return self.commit.persisted

    def stats(self) -> dict[str, int | float | str]:
        """What `status` shows of the log."""
        commit = self.commit
        branches = commit.sessions.transactions.branches.numbers()
        return {
            "first_position": commit.log_start,
            "written": commit.written,
            "persisted": commit.persisted,
            "generation": commit.generation,
            "durability": commit.settings.durability,
            "stated": commit.state_serial,
            "messages": commit.messages,
            "publishers": len(commit.sessions),
            "duplicates": commit.duplicates,
            "refused": commit.refused,
            "conflicts": commit.conflicts,
            "groups": self._groups,
            "bytes_written": self._bytes,
            "removing": len(self.retention.log_start.going),
            "first_start": self.first.phase.value,
            "missing_ranges": len(commit.sessions.missing),
            "branches_prepared": branches.prepared,
            "branches_decided": branches.decided,
            "branches_since_s": branches.since_ns // 1_000_000_000,
        }

    def check(self) -> None:
        """Asserts what is always true."""
        self.commit.check()
        self.retention.log_start.check()
        assert self._group is None or self._committing
