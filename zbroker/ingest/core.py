"""ingest's decisions: who may publish what, how it is packed, and who is told what. No I/O.

One turn takes everything that waited (`turn`), the other events are the journal's answers
(`on_welcome`, `on_opened`, `on_receipt`, `on_marks`), gone peers (`gone`) and time (`tick`). All
return effects in the order in which they must be performed.

Failure of each step: what does not reach the journal is kept in the link and sent again; a refused
batch is answered with its code and what follows it is refused too; a client that does not come back
loses only its place, never what it was told is persisted.
"""

from __future__ import annotations

from collections import Counter

from zbroker.access.core import Access, Permit
from zbroker.errors import TEMPORARY, ClientError
from zbroker.heartbeats import QuietMs
from zbroker.ids import check_client_name
from zbroker.ingest.ack_pacer import AckPacer
from zbroker.ingest.chain import Chain
from zbroker.ingest.clients import Client, Clients
from zbroker.ingest.contests import PROBE_MS, PROBES, Contest, Contests
from zbroker.ingest.effects import Effect, Send, Token, Verify
from zbroker.ingest.identity import Identity, Who
from zbroker.ingest.link import Link
from zbroker.ingest.live import LiveLink
from zbroker.ingest.prev_tracker import RUNS_MAX
from zbroker.ingest.publish_commands import Publishing
from zbroker.ingest.stage_commits import Committing
from zbroker.ingest.turn import Item, Limits, Turn
from zbroker.limits import HEARTBEAT_MS
from zbroker.recording import Recording
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire.refused import CODES, RefusalLog, stranger, told_as
from zbroker.wire.stages import AbortStaged, CommitStaged

__all__ = ["PROBES", "PROBE_MS", "IngestCore", "Item", "Limits"]

_RID_BYTES = 5  # of ids that ZeroMQ gives, which begin with 0; others were chosen by the peer


class IngestCore:
    """The front door's mind."""

    def __init__(
        self,
        limits: Limits,
        incarnation: int,
        recording: Recording | None = None,
        workers: int = 1,
        quiet_ms: QuietMs | None = None,
        access: Access | None = None,
    ) -> None:
        """recording: what is recorded; None: everything. workers: of delivery.

        quiet_ms: see DoorHeartbeats. access: who may do what; None: everybody everything.
        """
        self.limits = limits
        self.link = Link(incarnation)
        self.live = LiveLink(incarnation, workers)
        self.clients = Clients(workers, quiet_ms)
        self.errors: Counter[str] = Counter()
        self.refusals = RefusalLog(incarnation)
        self._identity = Identity(access or Access.off())
        self._everything = recording is None or recording.everything
        self._publishing = Publishing(
            limits, self.link, self.live, None if self._everything else recording
        )
        self.committing = Committing(self.link)
        self._contests = Contests(self.clients)
        self._pacer = AckPacer(self.clients)

    @property
    def messages(self) -> int:
        """How many were taken from publishers."""
        return self._publishing.messages

    def unrecorded(self) -> dict[str, int]:
        """Messages that went to delivery only, how many did not get there, and what filters did."""
        if self._everything:
            return {}
        counts = {"unrecorded": self.live.passed, "live_dropped": self.live.dropped}
        contents = self._publishing.contents
        if contents is not None:
            counts |= {"filtered": contents.filtered, "unreadable": contents.unreadable}
        return counts

    # -- clients' commands --------------------------------------------------------------------

    def turn(self, items: list[Item], now_ms: int) -> list[Effect]:
        """Handles what waited, in order, and forwards what it makes in one append."""
        turn = Turn(now_ms)
        for item in items:
            self._command_or_refuse(turn, item)
        for rid in list(turn.runs):
            self._end_run(turn, rid)
        return [*self._pacer.pace(turn.effects), *self.link.flush(), *self.live.flush()]

    def _command_or_refuse(self, turn: Turn, item: Item) -> None:
        try:
            self._command(turn, item)
        except ClientError as error:
            self._refuse(turn, item, error)

    def _command(self, turn: Turn, item: Item) -> None:
        command = item.command
        if isinstance(command, ClientError):
            raise command
        client = self.clients.by_rid.get(item.rid)
        if client is not None:
            if client.key != item.key:
                raise ClientError("auth_failed", "this connection was logged on with another key")
            self.clients.heard(client, command, turn.now_ms)
        if isinstance(command, m.Publish):
            if client is None:
                raise ClientError("not_logged_on", "this connection has no session here")
            self._publishing.publish(turn, client, command, item.body)
        elif isinstance(command, m.Logon):
            self._logon(turn, item.rid, command, item.key)
        elif client is None:
            raise ClientError("not_logged_on", "this connection has no session here")
        else:
            self._of_session(turn, client, command, item.body)

    def _of_session(
        self, turn: Turn, client: Client, command: m.ClientCommand, body: bytes | None
    ) -> None:
        if isinstance(command, CommitStaged | AbortStaged):
            self._end_run(turn, client.rid)
            turn.effects += self.committing.ask(client, command, body)
        elif isinstance(command, m.Flush):
            self._publishing.flush(turn, client, command, self._durability)
        elif isinstance(command, m.Logoff):
            self._end_run(turn, client.rid)
            turn.effects.append(Send(client.rid, m.Ack("processed", command.cid)))
            self._end(turn, client)

    def _refuse(self, turn: Turn, item: Item, error: ClientError) -> None:
        self.errors[error.code] += 1
        command = item.command
        if error.code in CODES:
            self._note(item, error.code)
        seq = command.seq if isinstance(command, m.Publish) else None
        cid = item.cid if isinstance(command, ClientError) else getattr(command, "cid", None)
        if item.rid in turn.runs:
            self._end_run(turn, item.rid)
        answer = m.Error(error.code, error.reason, error.hint, cid, seq=seq)
        client = self.clients.by_rid.get(item.rid)
        if error.code == "sequence_gap" and client is not None and client.chain is not None:
            answer.high = client.chain.handled
        turn.effects.append(Send(item.rid, answer))
        if client is not None and isinstance(command, m.Publish):
            self._refused_publish(turn, client, command, error.code)

    def _refused_publish(self, turn: Turn, client: Client, publish: m.Publish, code: str) -> None:
        """What comes again has its place in the line of the session; the rest never comes."""
        last = publish.seq + (publish.count or 1) - 1
        if code not in TEMPORARY and code != "sequence_gap":
            client.used.drop(publish.seq, last)
            return
        client.used.use(publish.seq, last)
        if len(client.used) > RUNS_MAX:
            reason = f"{RUNS_MAX} batches, with gaps between them, were refused: log on again"
            turn.effects.append(Send(client.rid, m.Error("session_ended", reason)))
            self._end(turn, client)

    def _note(self, item: Item, code: str) -> None:
        """For the audit log."""
        client, command = self.clients.by_rid.get(item.rid), item.command
        who = client.principal if client is not None else stranger(item.key)
        what = "stay logged on" if isinstance(command, ClientError) else told_as(command)
        self.refusals.add(item.rid, who, what, code)

    def _end_run(self, turn: Turn, rid: bytes) -> None:
        client = self.clients.by_rid.get(rid)
        if client is not None:
            self._publishing.end_run(turn, client)

    # -- logon --------------------------------------------------------------------------------

    def _logon(self, turn: Turn, rid: bytes, logon: m.Logon, key: str) -> None:
        check_client_name(logon.client)
        if len(rid) != _RID_BYTES or rid[0] != 0:
            raise ClientError("bad_field", "leave the routing id of the socket to ZeroMQ")
        if logon.version != m.VERSION:
            raise ClientError(
                "bad_version", f"version {logon.version} was asked, {m.VERSION} is spoken"
            )
        who = self._identity.who(rid, logon, key, turn.now_ms)
        if isinstance(who, Verify):
            turn.effects.append(who)
        else:
            self._enter(turn, rid, logon, who)

    def on_verified(self, number: int, now_ms: int, *, good: bool) -> list[Effect]:
        """A password was looked at: see Verify."""
        turn, claim = Turn(now_ms), self._identity.claim(number)
        try:
            self._identity.judge(claim, good=good, now_ms=now_ms)
            self._enter(turn, claim.rid, claim.logon, claim.who)
        except ClientError as error:
            self._refuse(turn, Item(claim.rid, claim.logon, None), error)
        return turn.effects

    def _enter(self, turn: Turn, rid: bytes, logon: m.Logon, who: Who) -> None:
        """Somebody known wants in: as soon as the name is free."""
        most, most_of_one = self.limits.clients, self.limits.clients_per_principal
        self.clients.check_room(rid, who.principal, most, most_of_one)
        holder = self.clients.holder(logon.client, logon.instance, who.principal)
        if holder is not None and holder.rid != rid:
            self._probe(turn, Contest(rid, logon, who, holder, turn.now_ms, PROBES))
            return
        self._admit(turn, rid, logon, who)

    def _probe(self, turn: Turn, contest: Contest) -> None:
        """A heartbeat to the holder: the loop says `gone` if it cannot be sent."""
        next_ms, left = turn.now_ms + PROBE_MS, contest.left - 1
        self._contests.begin(contest._replace(next_ms=next_ms, left=left))
        turn.effects.append(Send(contest.holder.rid, m.Heartbeat()))

    def _admit(self, turn: Turn, rid: bytes, logon: m.Logon, who: Who) -> None:
        for open_run in {rid, *(c.rid for c in self._named(logon.client))}:
            self._end_run(turn, open_run)
        pulse = self.clients.heartbeats.begin(logon.heartbeat_s, turn.now_ms)
        client = Client(rid, logon.client, logon.instance, logon.cid, pulse, *who)
        client.permit = self._permit(who.principal)
        self._pacer.begin(client, logon.ack_interval_s)
        replaced = self.clients.add(client)
        if replaced is not None and replaced.rid != rid:
            self.clients.remove(replaced)
            self.clients.by_name[client.name] = client
            turn.effects.append(Send(replaced.rid, self._ended(replaced)))
        turn.effects += self.link.open(client.open_cid, client.name, client.principal)

    def _permit(self, principal: str) -> Permit | None:
        permit = self._identity.access.permit(principal, "publish")
        return None if permit.everything else permit

    def entitle(self, access: Access, now_ms: int) -> list[Effect]:
        """The rules have changed: who may not be here any more is told and forgotten."""
        self._identity.access = access
        turn = Turn(now_ms)
        for client in list(self.clients.by_rid.values()):
            self._end_run(turn, client.rid)
            try:
                self._identity.check(Who(client.principal, client.key), client.name)
            except ClientError as error:
                self._refuse(turn, Item(client.rid, error, None), error)
                self._end(turn, client)
            else:
                client.permit = self._permit(client.principal)
        return [*turn.effects, *self.link.flush(), *self.live.flush()]

    def _named(self, name: str) -> list[Client]:
        holder = self.clients.by_name.get(name)
        return [holder] if holder is not None else []

    def _ended(self, client: Client) -> m.Error:
        return m.Error("session_ended", f"another logon as {client.name!r} took this session over")

    def on_opened(self, opened: i.Opened) -> list[Effect]:
        """The journal's answer to a logon goes on to the client."""
        client = self.clients.by_open.get(opened.cid)
        if not self.link.on_opened(opened) or client is None:
            return []
        welcome = self.link.welcome
        if opened.code or welcome is None:
            self.clients.remove(client)
            self.errors[opened.code] += 1
            return [Send(client.rid, m.Error(opened.code, opened.reason, cid=client.cid))]
        client.state = "live"
        client.publisher, client.session = opened.publisher, opened.session
        client.found = opened.acked
        client.used.settled(opened.seq)
        if self._everything:
            client.acked = client.recorded = opened.acked
        else:
            client.chain = Chain(opened.seq, opened.seq)
        limits = self.limits
        answer = m.Ack(
            "processed", client.cid, seq=opened.seq, acked=opened.acked, publisher=opened.publisher,
            session=opened.session, version=m.VERSION, durability=welcome.durability,
            origin=(welcome.instance, welcome.generation), window_bytes=limits.window_bytes,
            max_message_bytes=limits.message_bytes, max_batch_bytes=limits.batch_bytes,
            heartbeat_s=client.heartbeat_s,
            recording=None if self._everything else "some", principal=client.principal or None,
        )  # fmt: skip
        return [Token(client, answer)]

    def _end(self, turn: Turn, client: Client) -> None:
        self.clients.remove(client)
        if client.session:
            turn.effects += self.link.close(client.name, client.session)

    # -- the journal's answers ----------------------------------------------------------------

    def on_welcome(self, welcome: i.Welcome) -> list[Effect]:
        """The link is up: what was outstanding goes out again; ended sessions are told."""
        effects: list[Effect] = []
        for name in welcome.ended:
            client = self.clients.by_name.get(name)
            if client is not None and client.state == "live":
                self.clients.remove(client)
                effects.append(Send(client.rid, self._ended(client)))
        return [*effects, *self.link.on_welcome(welcome)]

    def on_marks(self, marks: i.Watermarks) -> list[Effect]:
        """Another incarnation in the marks means that the journal was restarted."""
        self.link.on_marks(marks.incarnation)
        return []

    def on_receipt(self, receipt: i.JournalReceipt) -> list[Effect]:
        """Settles batches: one merged ack per client, refusals alone and in their place."""
        sends = self._publishing.acks.settle(self.link.on_receipt(receipt), self._durability)
        for send in sends:
            if isinstance(send.message, m.Error):
                self.errors[send.message.code] += 1
        return self._pacer.pace(list(sends))

    @property
    def _durability(self) -> str | None:
        return self.link.welcome.durability if self.link.welcome is not None else None

    # -- time and gone peers ------------------------------------------------------------------

    def gone(self, rid: bytes, now_ms: int) -> list[Effect]:
        """A send to this peer failed: its connection is closed."""
        turn = Turn(now_ms)
        client = self.clients.by_rid.get(rid)
        if client is not None:
            self._end(turn, client)
        self._settle_contested(turn)
        return turn.effects

    def tick(self, now_ms: int, *, drained: bool = True) -> list[Effect]:
        """Heartbeats, silent clients, contested names, and the link to the journal.

        drained: this turn has everything that waited at the door.
        """
        turn = Turn(now_ms)
        silent, due = self.clients.beats(now_ms, drained=drained)
        for client in silent:
            self._end(turn, client)
            turn.effects.append(Send(client.rid, m.Error(
                "not_logged_on", "nothing was heard for two heartbeats"
            )))  # fmt: skip
        turn.effects += [Send(rid, m.Heartbeat()) for rid in due]
        turn.effects += self._pacer.due(now_ms)
        self._settle_contested(turn)
        turn.effects += self.link.tick(now_ms, [] if self.link.up else self._sessions())
        if not self._everything:
            turn.effects += self.live.tick(now_ms)
        return turn.effects

    def _sessions(self) -> list[i.OpenSession]:
        live = [c for c in self.clients.by_name.values() if c.state == "live"]
        return [i.OpenSession(c.name, c.principal, c.session) for c in live]

    def next_wake_ms(self, now_ms: int) -> int:
        """When `tick` has something to do at the latest."""
        wakes = [*self._contests.next_ms(), *self._pacer.wakes()]
        if self.clients.heartbeats.due_ms is not None:
            wakes.append(self.clients.heartbeats.due_ms)
        wakes.append(now_ms + (HEARTBEAT_MS if self.link.up else PROBE_MS))
        return min(wakes)

    def _settle_contested(self, turn: Turn) -> None:
        for contest, free in list(self._contests.due(turn.now_ms)):
            rid, logon = contest.rid, contest.logon
            if free:
                self._enter_or_refuse(turn, contest)
            elif contest.left:
                self._probe(turn, contest)
            else:
                self.errors["name_in_use"] += 1
                reason = f"another connection publishes as {logon.client!r}"
                turn.effects.append(Send(rid, m.Error("name_in_use", reason, cid=logon.cid)))

    def _enter_or_refuse(self, turn: Turn, contest: Contest) -> None:
        try:
            self._identity.check(contest.who, contest.logon.client)
            self._enter(turn, contest.rid, contest.logon, contest.who)
        except ClientError as error:
            self._refuse(turn, Item(contest.rid, contest.logon, None), error)

    def check(self) -> None:
        """Asserts what is always true."""
        self.link.check()
        self.clients.check()
        self.live.check()
        self._publishing.acks.check(self.clients.by_rid.values())
