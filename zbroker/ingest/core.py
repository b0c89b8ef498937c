"""ingest's decisions: whose publishes are taken, how they are packed and acknowledged. Pure.

    handle(event)   bursts of commands, the journal's answers, grants, passwords, questions
    tick            heartbeats, contested names, the links, what clients with full queues are owed

What a failure means: what does not reach the journal is kept in the link and sent again; a refused
batch is answered with its code, and what follows it is refused too; a client that does not come
back loses only its place, never what was acknowledged as persisted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from zbroker.cpus import ANY_CPU
from zbroker.engine import effects as e
from zbroker.engine import events as ev
from zbroker.engine.contract import Now
from zbroker.errors import TEMPORARY, ClientError
from zbroker.heartbeats import QuietMs
from zbroker.ingest import clients
from zbroker.ingest import contract as ie
from zbroker.ingest.acks import AckPacer
from zbroker.ingest.chain import RUNS_MAX
from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.ingest.contract import Effect, IngestSettings
from zbroker.ingest.drain import Drain
from zbroker.ingest.links import AppendLink, LiveLink
from zbroker.ingest.lock_step import LockStep
from zbroker.ingest.logons import Logons, taken_over
from zbroker.ingest.owed_answers import OWED_MAX, OwedAnswers
from zbroker.ingest.packer import Burst
from zbroker.ingest.publish_commands import Publishing
from zbroker.ingest.replication_gate import Settled
from zbroker.ingest.stage_commits import StageCommits
from zbroker.limits import FRAMES_MAX
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import surveys as s
from zbroker.wire.exchange_messages import ExchangeRows
from zbroker.wire.full_queues import FullQueues
from zbroker.wire.replicas import Replicated
from zbroker.wire.stages import AbortStaged, CommitStaged, StagesDone
from zbroker.wire.surveys import CODES, RefusalLog, command_text, stranger

CLIENTS: Final = "clients"  # the source that the gate is about
SPIN_FOR_RECEIPT: Final = 4  # times as long while an acknowledgement is due: a sync and two hops
STOP_WAIT_MS: Final = 3_000  # for receipts of what was accepted before the stop


class IngestCore:
    """See zbroker.engine.contract.Core."""

    def __init__(
        self, settings: IngestSettings, quiet_ms: QuietMs | None = None,
        peers: s.Peers = s.unknown, here: Callable[[], int] = lambda: ANY_CPU,
    ) -> None:  # fmt: skip
        """quiet_ms: see ListenerHeartbeats. peers: the address of a connection, and since when.
        here: the CPU on which this runs just now."""
        recording = settings.recording
        self._everything = recording is None or recording.everything
        self.clients = ClientRegistry(len(settings.workers), quiet_ms)
        self.link = AppendLink(
            settings.incarnation, self.clients.sessions, replicated=settings.replicated
        )
        self.live = LiveLink(settings.incarnation, settings.live)
        self.errors: Counter[str] = Counter()
        self.refusals = RefusalLog(settings.incarnation)
        self._publishing = Publishing(
            settings.limits, self.link, self.live, None if self._everything else recording
        )
        self._committing = StageCommits(self.link)
        self._pacer = AckPacer(self.clients)
        self._logons = Logons(
            settings, self.clients, self.link, self._publishing, self._pacer, self._refuse
        )
        self._owed = OwedAnswers()
        self._drain = Drain()
        self._settings, self._peers = settings, peers
        self._lock_step = LockStep()
        self._open, self._spin_us = True, 0  # the gate and the pace as they are
        self._in_step, self._here = False, here
        self._ready = False
        self._stop_ms: int | None = None  # when it ends at the latest
        self._now = Now(0, 0)
        self._handlers = self._events()

    def _events(self) -> dict[type, Callable[[Any], Sequence[Effect]]]:
        return {
            ev.Commands: self._commands,
            ev.Asked: self._asked,
            ev.Gone: lambda event: self._gone(event.rid),
            ev.Full: self._full,
            ev.RulesChanged: self._rules_changed,
            ev.Unauthenticated: self._unauthenticated,
            ev.StopAsked: self._stop_asked,
            ie.Verified: self._verified,
            ie.Granted: lambda event: self.live.on_grant(event.grant, event.worker),
            ie.EndpointsRead: self._endpoints_read,
            Replicated: self._replicated,
            i.Welcome: self._welcome,
            i.Watermarks: self._watermarks,
            ExchangeRows: lambda event: self._publishing.routing.learn(event),
            FullQueues: self._full_queues,
            i.UnknownRequester: lambda _: self.link.on_unknown(self._now.mono_ms),
            i.Opened: self._opened,
            i.JournalReceipt: self._receipt,
            StagesDone: self._stages_done,
        }

    def handle(self, event: object, now: Now) -> Sequence[Effect]:
        """What follows at once."""
        self._now = now
        effects = self._handlers[type(event)](event)
        if self._owed.clients:
            effects = self._without_held(effects)
        return [*effects, *self.clients.moved()] if self.clients.has_moved else effects

    # -- clients' commands --------------------------------------------------------------------

    def _commands(self, commands: ev.Commands) -> list[Effect]:
        """Handles them in order, and forwards what they make in one append."""
        burst, before = Burst(self._now.mono_ms), self._publishing.messages
        outstanding = self.link.bytes > 0
        for received in commands.received:
            self._one(burst, received)
        for rid in list(burst.runs):
            self._end_run(burst, rid)
        if taken := self._publishing.messages - before:
            self._lock_step.published(taken, self._now.wall_ns, outstanding=outstanding)
        return self._forwarded(burst)

    def _forwarded(self, burst: Burst) -> list[Effect]:
        return [*self._pacer.pace(burst.effects), *self.link.flush(), *self.live.flush()]

    def _one(self, burst: Burst, received: Received) -> None:
        frames = received.frames
        command: m.ClientCommand | None = None
        try:
            if received.over or len(frames) > 2:
                reason = (
                    f"a command has a header and at most one body, not over {FRAMES_MAX} frames"
                )
                raise ClientError("bad_frame", reason)
            command = codec.decode(codec.INGEST, frames[0])
            self._command(burst, received, command)
        except ClientError as error:
            cid = codec.cid_of(frames[0]) if command is None else None
            self._refuse(burst, received.rid, error, command, cid, received.key)

    def _command(self, burst: Burst, received: Received, command: m.ClientCommand) -> None:
        client = self.clients.by_rid.get(received.rid)
        if client is not None:
            if client.key != received.key:
                raise ClientError("auth_failed", "this connection was logged on with another key")
            self.clients.heard(client, command, burst.now_ms)
        if isinstance(command, m.Logon):
            self._drain.check()
            self._logons.logon(burst, received, command)
            return
        if client is None:
            raise ClientError("not_logged_on", "this connection has no session here")
        body = received.frames[1] if len(received.frames) > 1 else None
        if isinstance(command, m.Publish):
            self._publishing.publish(burst, client, command, body)
        else:
            self._of_session(burst, client, command, body)

    def _of_session(
        self, burst: Burst, client: ClientConnection, command: m.ClientCommand, body: bytes | None
    ) -> None:
        if isinstance(command, CommitStaged | AbortStaged):
            self._end_run(burst, client.rid)
            burst.effects += self._committing.ask(client, command, body)
        elif isinstance(command, m.Flush):
            self._publishing.flush(burst, client, command, self._durability)
        elif isinstance(command, m.Logoff):
            self._end_run(burst, client.rid)
            burst.effects.append(e.Answer(client.rid, m.Ack("processed", command.cid)))
            self._end(burst, client)

    def _refuse(
        self, burst: Burst, rid: bytes, error: ClientError, command: m.ClientCommand | None = None,
        cid: str | None = None, key: str = "",
    ) -> None:  # fmt: skip
        self.errors[error.code] += 1
        client = self.clients.by_rid.get(rid)
        if error.code in CODES:  # for the audit log
            who = client.principal if client is not None else stranger(key)
            what = "stay logged on" if command is None else command_text(command)
            self.refusals.add(rid, who, what, error.code)
        seq = command.seq if isinstance(command, m.Publish) else None
        if command is not None:
            cid = getattr(command, "cid", None)
        if rid in burst.runs:
            self._end_run(burst, rid)
        answer = m.Error(error.code, error.reason, error.hint, cid, seq=seq)
        if error.code == "sequence_gap" and client is not None and client.chain is not None:
            answer.high = client.chain.handled
        burst.effects.append(e.Answer(rid, answer))
        if client is not None and isinstance(command, m.Publish):
            self._refused_publish(burst, client, command, error.code)

    def _refused_publish(
        self, burst: Burst, client: ClientConnection, publish: m.Publish, code: str
    ) -> None:
        """A refused batch that is sent again keeps its place in the session; others never come."""
        last = publish.seq + (publish.count or 1) - 1
        if code not in TEMPORARY and code != "sequence_gap":
            client.used.drop(publish.seq, last)
            return
        client.used.use(publish.seq, last)
        if len(client.used) > RUNS_MAX:
            reason = f"{RUNS_MAX} batches, with gaps between them, were refused: log on again"
            burst.effects.append(e.Answer(client.rid, m.Error("session_ended", reason)))
            self._end(burst, client)

    def _end_run(self, burst: Burst, rid: bytes) -> None:
        client = self.clients.by_rid.get(rid)
        if client is not None:
            self._publishing.end_run(burst, client)

    def _end(self, burst: Burst, client: ClientConnection) -> None:
        self.clients.remove(client)
        if client.session:
            burst.effects += self.link.close(client.name, client.session)

    # -- who may be here ----------------------------------------------------------------------

    def _verified(self, verified: ie.Verified) -> Sequence[Effect]:
        burst = Burst(self._now.mono_ms)
        self._logons.on_verified(burst, verified.number, good=verified.good)
        return burst.effects

    def _endpoints_read(self, read: ie.EndpointsRead) -> Sequence[Effect]:
        self._logons.on_endpoints(read)
        return ()

    def _rules_changed(self, changed: ev.RulesChanged) -> Sequence[Effect]:
        """Ends the sessions of clients that may not be here any more."""
        self._logons.entitle(changed.access)
        burst = Burst(self._now.mono_ms)
        for client in list(self.clients.by_rid.values()):
            self._end_run(burst, client.rid)
            try:
                self._logons.check(client)
            except ClientError as error:
                self._refuse(burst, client.rid, error)
                self._end(burst, client)
        return self._forwarded(burst)

    def _unauthenticated(self, event: ev.Unauthenticated) -> Sequence[Effect]:
        self.refusals.add(b"", stranger(event.key), "connect", "auth_failed", event.host)
        return ()

    def _asked(self, asked: ev.Asked) -> Sequence[Effect]:
        """A question of the admin process."""
        rid, ask = asked.rid, asked.question
        if isinstance(ask, s.AskClients):
            rows = clients.client_rows(self.clients, ask, self._peers, self._now.mono_ms)
            return [e.Tell(rid, s.Clients(ask.cid, *rows))]
        if isinstance(ask, s.AskRefusals):
            return [e.Tell(rid, self.refusals.report(ask, self._peers))]
        if isinstance(ask, s.DrainIngest):
            return self._drained(rid, ask)
        return self._disconnect(rid, ask)

    def _drained(self, rid: bytes, ask: s.DrainIngest) -> Sequence[Effect]:
        """A planned hand-over takes its next step."""
        burst = Burst(self._now.mono_ms)
        gone: list[ClientConnection] = []
        if self._drain.step(ask.what, burst.now_ms) and self._drain.state == "left":
            gone = list(self.clients.by_rid.values())
        for client in gone:
            self._end_run(burst, client.rid)
            reason = "this instance is drained: publishers go on at another one"
            burst.effects.append(e.Answer(client.rid, m.Error("not_logged_on", reason)))
            self._end(burst, client)
        said = s.IngestDrained(ask.cid, self._drain.state, self._unsettled, len(gone))
        return [*self._forwarded(burst), e.Tell(rid, said)]

    @property
    def _unsettled(self) -> int:
        """Bytes that were accepted and are not acknowledged; more than 0 if there are any."""
        return self.link.bytes or int(self.link.gate.holds)

    def _disconnect(self, rid: bytes, ask: s.Disconnect) -> Sequence[Effect]:
        """Acknowledgements of what the client published before go nowhere: it hears of that, which
        is in the log or on its way there, at its next logon."""
        self._logons.disconnects = max(self._logons.disconnects, ask.number)
        client = self.clients.by_name.get(ask.client)
        if client is None:
            return [e.Tell(rid, s.Disconnected(ask.cid, 0))]
        error = m.Error("session_ended", s.DISCONNECTED, "ask whoever operates this broker")
        return [
            e.Answer(client.rid, error), *self._gone(client.rid),
            e.NoteDisconnected(ask.client, 1), e.Tell(rid, s.Disconnected(ask.cid, 1)),
        ]  # fmt: skip

    # -- the journal's answers ----------------------------------------------------------------

    def _welcome(self, welcome: i.Welcome) -> Sequence[Effect]:
        """The link is up: outstanding batches are sent again, ended sessions get an error."""
        forwarded = self.link.on_welcome(welcome, self._publishing.routing.welcome)
        if forwarded is None:
            return ()
        effects: list[Effect] = []
        for name in welcome.ended:
            client = self.clients.by_name.get(name)
            if client is not None and client.state == "live":
                self.clients.remove(client)
                effects.append(e.Answer(client.rid, taken_over(client)))
        effects += forwarded
        if not self._ready:
            self._ready = True
            effects.append(e.Ready())
        return effects

    def _watermarks(self, said: i.Watermarks) -> Sequence[Effect]:
        effects = self.link.on_watermarks(said, self._now.mono_ms)
        return [*effects, *self._publishing.routing.watermarks(said)] if self.link.up else effects

    def _full_queues(self, said: FullQueues) -> Sequence[Effect]:
        """Which queues take no more."""
        self._publishing.full.learn(said, self._now.mono_ms)
        return ()

    def _opened(self, opened: i.Opened) -> Sequence[Effect]:
        if opened.code:
            self.errors[opened.code] += 1
        return self._logons.on_opened(opened, self._now)

    def _receipt(self, receipt: i.JournalReceipt) -> Sequence[Effect]:
        """Settles batches: one merged ack per client, refusals alone and in their place."""
        return self._settle(self.link.on_receipt(receipt))

    def _replicated(self, said: Replicated) -> Sequence[Effect]:
        """More is durable at enough destinations."""
        gate = self.link.gate
        if not gate.moved(said):
            return ()
        effects = [*self._settle(gate.receipts([]))]
        for done in gate.commits():
            effects += self._committing.done(done)
        return effects

    def _stages_done(self, done: StagesDone) -> Sequence[Effect]:
        gate = self.link.gate
        if not gate.on or done.code or done.topics is not None or not done.position:
            return self._committing.done(done)
        answered = gate.commit(done, done.position + done.count - 1)
        return [effect for one in answered for effect in self._committing.done(one)]

    def _settle(self, settled: list[Settled]) -> Sequence[Effect]:
        if settled:
            self._lock_step.acknowledged(self._now.wall_ns)
        answers = self._publishing.acks.settle(settled, self._durability)
        for answer in answers:
            if isinstance(answer.message, m.Error):
                self.errors[answer.message.code] += 1
        return self._pacer.pace([*answers])

    @property
    def _durability(self) -> str | None:
        if self.link.gate.needed:
            return "replicated"
        return self.link.welcome.durability if self.link.welcome is not None else None

    # -- peers and time -----------------------------------------------------------------------

    def _gone(self, rid: bytes) -> Sequence[Effect]:
        """A peer cannot be reached any more."""
        burst = Burst(self._now.mono_ms)
        self._owed.forget(rid)
        client = self.clients.by_rid.get(rid)
        if client is not None:
            self._end(burst, client)
        self._logons.settle_contested(burst)
        return burst.effects

    def _full(self, full: ev.Full) -> Sequence[Effect]:
        assert isinstance(full.effect, e.Answer)
        self._owed.put(full.effect, self._now.mono_ms)
        return ()

    def _without_held(self, effects: Sequence[Effect]) -> list[Effect]:
        """Answers to a client wait until it was sent what it is owed; if that becomes too much, its
        session ends: its client logs on again, and hears there what is persisted."""
        left = self._owed.hold_back(effects)
        for rid in self._owed.too_slow():
            reason = f"{OWED_MAX} answers to this connection were not read"
            self._owed.end(rid, m.Error("not_logged_on", reason, "log on again"))
            client = self.clients.by_rid.get(rid)
            if client is not None:
                burst = Burst(self._now.mono_ms)
                self._end(burst, client)
                left += burst.effects
        return left

    def _stop_asked(self, _event: ev.StopAsked) -> Sequence[Effect]:
        self._stop_ms = self._now.mono_ms + STOP_WAIT_MS
        return ()

    def tick(self, now: Now, *, drained: bool) -> Sequence[Effect]:
        """All that is to be done now. drained: this turn has read all that clients sent."""
        self._now = now
        owed = self._owed.due(now.mono_ms)
        burst = Burst(now.mono_ms)
        effects = burst.effects
        silent, due = self.clients.beats(now.mono_ms, drained=drained)
        for client in silent:
            self._end(burst, client)
            error = m.Error("not_logged_on", "nothing was heard for two heartbeats")
            effects.append(e.Answer(client.rid, error))
        effects += [e.Answer(rid, m.Heartbeat()) for rid in due]
        effects += self._pacer.due(now.mono_ms)
        self._logons.settle_contested(burst)
        effects += self.link.tick(now.mono_ms)
        self._publishing.full.tick(now.mono_ms)
        if not self._everything:
            effects += self.live.tick(now.mono_ms)
        if owed or self._owed.clients:
            effects = [*owed, *self._without_held(effects)]
        if self.clients.has_moved:
            effects += self.clients.moved()
        effects += self._turned()
        return effects

    def _turned(self) -> list[Effect]:
        """Whether clients are read, and how long it is looked before sleeping, where that changed;
        the end, once all that was accepted is settled."""
        effects: list[Effect] = []
        stopping = self._stop_ms is not None
        self._drain.tick(self._now.mono_ms)
        opens = not (stopping or self._drain.held) and not (self.link.up and self.link.full)
        if opens is not self._open:
            self._open = opens
            effects.append(e.Gate(CLIENTS, opens))
        spin_us = self._settings.spin_us if self._lock_step.lasts else 0
        if (spin_us > 0) is not self._in_step:
            self._in_step = spin_us > 0
            self.link.cpu = cpu = self._here() if self._in_step else ANY_CPU
            effects.append(e.RunOn(cpu))
        if self._unsettled:
            spin_us *= SPIN_FOR_RECEIPT
        if spin_us != self._spin_us:
            self._spin_us = spin_us
            effects.append(e.Pace(spin_us))
        if self._stop_ms is not None and (
            not self._unsettled or self._now.mono_ms >= self._stop_ms
        ):
            effects.append(e.Exit())
        return effects

    def next_read(self) -> None:
        """It reads nothing of the log."""

    def next_wake_ms(self) -> int | None:
        """When the next tick has something to do."""
        least = self.link.next_wake_ms()
        live_ms = None if self._everything else self.live.next_wake_ms()
        for wake_ms in (
            self.clients.heartbeats.due_ms, self._pacer.next_wake_ms(), self._owed.next_wake_ms,
            self._logons.next_wake_ms(), live_ms, self._stop_ms, self._drain.next_wake_ms(),
            self._publishing.full.next_wake_ms(),
        ):  # fmt: skip
            if wake_ms is not None and (least is None or wake_ms < least):
                least = wake_ms
        return least

    def stats(self) -> dict[str, int | float | str]:
        """What the process reports."""
        errors = {f"error_{code}": count for code, count in self.errors.items()}
        return {
            "clients": len(self.clients), "messages": self._publishing.messages,
            "errors": self.errors.total(), "drain": self._drain.state,
            "journal": "up" if self.link.up else "down", **self._publishing.numbers(), **errors,
        }  # fmt: skip

    def check(self) -> None:
        """Asserts what is always true."""
        self.link.check()
        self.clients.check()
        self.live.check()
        self._publishing.acks.check(self.clients.by_rid.values())
