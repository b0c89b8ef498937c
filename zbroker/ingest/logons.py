"""How publishers log on: who they are, whether the name is free, what the journal answers. Pure.

logon --> identity known --> name free --> Open to the journal --Opened--> live
           `-- a password is looked at      `-- its holder is probed, see contests.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from zbroker.access.core import Access, Permit
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer
from zbroker.errors import ClientError
from zbroker.ids import check_client_name
from zbroker.ingest.acks import AckPacer
from zbroker.ingest.chain import Chain
from zbroker.ingest.clients import ClientConnection, ClientRegistry, endpoints_for
from zbroker.ingest.contract import Effect, EndpointsRead, IngestSettings, Verify
from zbroker.ingest.identity import Identity, Who
from zbroker.ingest.links import AppendLink
from zbroker.ingest.packer import Burst
from zbroker.ingest.publish_commands import Publishing
from zbroker.limits import U63_MAX
from zbroker.server.peers import Received, made_by_zeromq
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import token
from zbroker.wire.messages import Logon

TOKEN_LIFE_S: Final = 24 * 3_600

Refuse = Callable[[Burst, bytes, ClientError, m.ClientCommand | None], None]


class Logons:
    """Of the ingest core. endpoints: of the other listeners. disconnects: by operators, so far."""

    def __init__(
        self, settings: IngestSettings, clients: ClientRegistry, link: AppendLink,
        publishing: Publishing, pacer: AckPacer, refuse: Refuse,
    ) -> None:  # fmt: skip
        self._settings, self._clients, self._link = settings, clients, link
        self._publishing, self._pacer, self._refuse = publishing, pacer, refuse
        self._identity = Identity(settings.access or Access.off())
        self._contests = Contests(clients)
        self._everything = settings.recording is None or settings.recording.everything
        self.endpoints: Mapping[str, str] = {}
        self.disconnects = settings.disconnects

    def on_endpoints(self, read: EndpointsRead) -> None:
        """Until all of them are known nobody logs on."""
        self.endpoints, self._clients.unknown = read.endpoints, read.missing

    # -- who it is ----------------------------------------------------------------------------

    def logon(self, burst: Burst, received: Received, logon: m.Logon) -> None:
        """Raises: ClientError."""
        check_client_name(logon.client)
        if not made_by_zeromq(received.rid):
            raise ClientError("bad_field", "leave the routing id of the socket to ZeroMQ")
        if logon.version != m.VERSION:
            raise ClientError(
                "bad_version", f"version {logon.version} was asked, {m.VERSION} is spoken"
            )
        who = self._identity.who(received.rid, logon, received.key, burst.now_ms)
        if isinstance(who, Verify):
            burst.effects.append(who)
        else:
            self._enter(burst, received.rid, logon, who)

    def on_verified(self, burst: Burst, number: int, *, good: bool) -> None:
        """A password was looked at."""
        claim = self._identity.claim(number)
        try:
            self._identity.judge(claim, good=good, now_ms=burst.now_ms)
            self._enter(burst, claim.rid, claim.logon, claim.who)
        except ClientError as error:
            self._refuse(burst, claim.rid, error, claim.logon)

    def entitle(self, access: Access) -> None:
        """The access rules are these now."""
        self._identity.access = access

    def check(self, client: ClientConnection) -> None:
        """Whether a client may still be here. Raises: ClientError."""
        self._identity.check(Who(client.principal, client.key), client.name)
        client.permit = self._permit(client.principal)

    def _permit(self, principal: str) -> Permit | None:
        permit = self._identity.access.permit(principal, "publish")
        return None if permit.everything else permit

    # -- whether the name is free -------------------------------------------------------------

    def _enter(self, burst: Burst, rid: bytes, logon: m.Logon, who: Who) -> None:
        """Opens a session as soon as the name is free. Raises: ClientError."""
        self._check_token(logon, who)
        limits = self._settings.limits
        self._clients.check_room(rid, who.principal, limits.clients, limits.clients_per_principal)
        holder = self._clients.holder(logon.client, logon.instance, who.principal)
        if holder is not None and holder.rid != rid:
            self._probe(burst, Contest(rid, logon, who, holder, burst.now_ms, PROBES))
            return
        self._admit(burst, rid, logon, who)

    def _probe(self, burst: Burst, contest: Contest) -> None:
        """A heartbeat to the holder: if it cannot be sent, the holder is gone."""
        next_ms, left = burst.now_ms + PROBE_MS, contest.left - 1
        self._contests.begin(contest._replace(next_ms=next_ms, left=left))
        burst.effects.append(Answer(contest.holder.rid, m.Heartbeat()))

    def settle_contested(self, burst: Burst) -> None:
        """Names that are free now, and those whose holder is to be probed again."""
        for contest, free in list(self._contests.due(burst.now_ms)):
            rid, logon = contest.rid, contest.logon
            if free:
                self._enter_or_refuse(burst, contest)
            elif contest.left:
                self._probe(burst, contest)
            else:
                reason = f"another connection publishes as {logon.client!r}"
                self._refuse(burst, rid, ClientError("name_in_use", reason), logon)

    def _enter_or_refuse(self, burst: Burst, contest: Contest) -> None:
        try:
            self._identity.check(contest.who, contest.logon.client)
            self._enter(burst, contest.rid, contest.logon, contest.who)
        except ClientError as error:
            self._refuse(burst, contest.rid, error, contest.logon)

    def next_wake_ms(self) -> int | None:
        """When a holder is to be probed again."""
        return self._contests.next_wake_ms()

    # -- its session --------------------------------------------------------------------------

    def _admit(self, burst: Burst, rid: bytes, logon: m.Logon, who: Who) -> None:
        clients = self._clients
        named = clients.by_name.get(logon.client)
        for before in (clients.by_rid.get(rid), named):
            if before is not None:
                self._publishing.end_run(burst, before)
        pulse = clients.heartbeats.begin(logon.heartbeat_s, burst.now_ms)
        client = ClientConnection(rid, logon.client, logon.instance, logon.cid, pulse, *who)
        client.permit = self._permit(who.principal)
        self._pacer.begin(client, logon.ack_interval_s)
        replaced = clients.add(client)
        if replaced is not None and replaced.rid != rid:
            clients.remove(replaced)
            clients.by_name[client.name] = client
            burst.effects.append(Answer(replaced.rid, taken_over(replaced)))
        burst.effects += self._link.open(client.open_cid, client.name, client.principal)

    def on_opened(self, opened: i.Opened, now: Now) -> list[Effect]:
        """The journal's answer to a logon goes on to the client. Raises: ClientError."""
        clients = self._clients
        client = clients.by_open.get(opened.cid)
        if not self._link.on_opened(opened) or client is None:
            return []
        welcome = self._link.welcome
        if opened.code or welcome is None:
            clients.remove(client)
            return [Answer(client.rid, m.Error(opened.code, opened.reason, cid=client.cid))]
        client.publisher, client.session = opened.publisher, opened.session
        client.found = opened.acked
        client.used.settled(opened.seq)
        clients.opened(client)
        if self._everything:
            client.acked = client.recorded = opened.acked
        else:
            client.chain = Chain(opened.seq, opened.seq)
        limits = self._settings.limits
        answer = m.Ack(
            "processed", client.cid, seq=opened.seq, acked=opened.acked, publisher=opened.publisher,
            session=opened.session, version=m.VERSION, durability=welcome.durability,
            origin=(welcome.instance, welcome.generation), window_bytes=limits.window_bytes,
            max_message_bytes=limits.message_bytes, max_batch_bytes=limits.batch_bytes,
            heartbeat_s=client.heartbeat_s,
            recording=None if self._everything else "some", principal=client.principal or None,
        )  # fmt: skip
        answer.token = self._token(client, now)
        answer.endpoints = endpoints_for(client.worker, self._settings.workers, self.endpoints)
        return [Answer(client.rid, answer)]

    def _token(self, client: ClientConnection, now: Now) -> str:
        said = token.Token(
            client.name, client.principal, client.instance, client.session,
            now.wall_ns // 1_000_000_000 + TOKEN_LIFE_S, client.key, self.disconnects,
        )  # fmt: skip
        return token.make(self._settings.key, said)

    def _check_token(self, logon: m.Logon, who: Who) -> None:
        """Whether a token can be made for it, before it has a session. Raises: ClientError."""
        longest = token.Token(
            logon.client, who.principal, logon.instance, U63_MAX, U63_MAX, who.key, U63_MAX
        )
        token.make(self._settings.key, longest)


def taken_over(client: ClientConnection) -> m.Error:
    """What a client hears whose name another connection has now."""
    return m.Error("session_ended", f"another logon as {client.name!r} took this session over")


PROBE_MS: Final = 25  # between heartbeats to an old connection that holds a wanted name
PROBES: Final = 8  # all of them could be sent: it lives, the name is in use


class Contest(NamedTuple):
    """A logon that waits until the holder of its name is probed `left` times more."""

    rid: bytes
    logon: Logon
    who: Who
    holder: ClientConnection
    next_ms: int
    left: int


class Contests:
    """All that wait."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        self._waiting: list[Contest] = []

    def begin(self, contest: Contest) -> None:
        """It waits; its first probe is to be sent now."""
        self._waiting.append(contest)

    def next_wake_ms(self) -> int | None:
        """When the first of them is to be looked at again."""
        return min((contest.next_ms for contest in self._waiting), default=None)

    def due(self, now_ms: int) -> Iterator[tuple[Contest, bool]]:
        """Those whose name is free, then True; and those to probe again or, `left` 0, to refuse."""
        waiting, self._waiting = self._waiting, []
        for contest in waiting:
            free = self._clients.by_name.get(contest.logon.client) is not contest.holder
            if free or now_ms >= contest.next_ms:
                yield contest, free
            else:
                self._waiting.append(contest)
