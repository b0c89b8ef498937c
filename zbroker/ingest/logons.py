"""How publishers log on: their identity, the name that they take, the answer of the journal. Pure.

    logon --> identity known --> name free --> Open to the journal --Opened--> live
               `-- Verify: a password is checked, which takes 30 ms, beside the turns
                                  `-- while another connection has it, that one is probed

A probe is a heartbeat to the holder of a name: a send that fails shows that its connection is
closed. If PROBES of them could be sent, the name is in use.

A wrong password costs its user, with this key, a wait that doubles; until it is over logons are
refused unchecked. Others who share the key go on: else one of them could keep all of them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from zbroker.access.core import NOT_ACCEPTED, NOT_ACCEPTED_HINT, Access, Permit
from zbroker.access.passwords import UNUSABLE
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer
from zbroker.errors import ClientError
from zbroker.ids import check_client_name
from zbroker.ingest.acks import AckPacer
from zbroker.ingest.chain import Chain
from zbroker.ingest.clients import ClientConnection, ClientRegistry, endpoints_for
from zbroker.ingest.contract import Effect, EndpointsRead, IngestSettings, Verify
from zbroker.ingest.links import AppendLink
from zbroker.ingest.packer import Burst
from zbroker.ingest.publish_commands import Publishing
from zbroker.limits import U63_MAX
from zbroker.server.peers import Received, made_by_zeromq
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import token

TOKEN_LIFE_S: Final = 24 * 3_600
PROBE_MS: Final = 25  # between heartbeats to an old connection that holds a wanted name
PROBES: Final = 8  # all of them could be sent: it lives, the name is in use
VERIFYING_MAX: Final = 16  # each takes a core for 30 ms; more have to log on again
PENALTY_MIN_MS: Final = 500
PENALTY_MAX_MS: Final = 30_000
PENALTIES_MAX: Final = 10_000

Refuse = Callable[[Burst, bytes, ClientError, m.ClientCommand | None], None]


class Who(NamedTuple):
    """The principal of a connection, and its key. Both are empty where security is off."""

    principal: str = ""
    key: str = ""


class Claim(NamedTuple):
    """A logon that waits: for its password to be checked, or for its name to be free."""

    rid: bytes
    logon: m.Logon
    who: Who


class Contest(NamedTuple):
    """A logon that waits until the holder of its name was probed `left` times more."""

    claim: Claim
    holder: ClientConnection
    next_ms: int
    left: int


class Logons:
    """endpoints: of the other listeners. disconnects: how many there were by operators."""

    def __init__(
        self, settings: IngestSettings, clients: ClientRegistry, link: AppendLink,
        publishing: Publishing, pacer: AckPacer, refuse: Refuse,
    ) -> None:  # fmt: skip
        self._settings, self._clients, self._link = settings, clients, link
        self._publishing, self._pacer, self._refuse = publishing, pacer, refuse
        self._identity = Identity(settings.access or Access.off())
        self._contests: list[Contest] = []
        self._everything = settings.recording is None or settings.recording.everything
        self.endpoints: Mapping[str, str] = {}
        self.disconnects = settings.disconnects

    def on_endpoints(self, read: EndpointsRead) -> None:
        """Takes them; until all of them are known no client logs on."""
        self.endpoints, self._clients.unknown = read.endpoints, read.missing

    # -- who it is ----------------------------------------------------------------------------

    def logon(self, burst: Burst, received: Received, logon: m.Logon) -> None:
        """Raises: ClientError."""
        check_client_name(logon.client)
        if not made_by_zeromq(received.rid):
            raise ClientError("bad_field", "leave the routing id of the socket to ZeroMQ")
        if logon.version != m.VERSION:
            reason = f"version {logon.version} was asked, {m.VERSION} is spoken"
            raise ClientError("bad_version", reason)
        who = self._identity.who(received.rid, logon, received.key, burst.now_ms)
        if isinstance(who, Verify):
            burst.effects.append(who)
        else:
            self._enter(burst, Claim(received.rid, logon, who))

    def on_verified(self, burst: Burst, number: int, *, good: bool) -> None:
        """Goes on with a logon whose password was checked."""
        claim = self._identity.judge(number, good=good, now_ms=burst.now_ms)
        if good:
            self._enter_or_refuse(burst, claim)
        else:
            error = ClientError("auth_failed", NOT_ACCEPTED, NOT_ACCEPTED_HINT)
            self._refuse(burst, claim.rid, error, claim.logon)

    def entitle(self, access: Access) -> None:
        """Replaces the access rules."""
        self._identity.access = access

    def check(self, client: ClientConnection) -> None:
        """Whether a client may still be here. Raises: ClientError."""
        self._identity.check(Who(client.principal, client.key), client.name)
        client.permit = self._permit(client.principal)

    def _permit(self, principal: str) -> Permit | None:
        permit = self._identity.access.permit(principal, "publish")
        return None if permit.everything else permit

    # -- whether the name is free -------------------------------------------------------------

    def _enter(self, burst: Burst, claim: Claim) -> None:
        """Opens a session as soon as the name is free. Raises: ClientError."""
        rid, logon, who = claim
        self._check_token(logon, who)
        limits = self._settings.limits
        self._clients.check_limits(rid, who.principal, limits.clients, limits.clients_per_principal)
        holder = self._clients.holder(logon.client, logon.instance, who.principal)
        if holder is not None and holder.rid != rid:
            self._probe(burst, Contest(claim, holder, burst.now_ms, PROBES))
        else:
            self._admit(burst, claim)

    def _enter_or_refuse(self, burst: Burst, claim: Claim) -> None:
        try:
            self._identity.check(claim.who, claim.logon.client)
            self._enter(burst, claim)
        except ClientError as error:
            self._refuse(burst, claim.rid, error, claim.logon)

    def _probe(self, burst: Burst, contest: Contest) -> None:
        """Sends the holder a heartbeat: if it cannot be sent, the holder is gone."""
        next_ms, left = burst.now_ms + PROBE_MS, contest.left - 1
        self._contests.append(contest._replace(next_ms=next_ms, left=left))
        burst.effects.append(Answer(contest.holder.rid, m.Heartbeat()))

    def settle_contested(self, burst: Burst) -> None:
        """Admits logons whose name is free now; the holders of others are probed again."""
        waiting, self._contests = self._contests, []
        for contest in waiting:
            claim = contest.claim
            if self._clients.by_name.get(claim.logon.client) is not contest.holder:
                self._enter_or_refuse(burst, claim)
            elif burst.now_ms < contest.next_ms:
                self._contests.append(contest)
            elif contest.left:
                self._probe(burst, contest)
            else:
                reason = f"another connection publishes as {claim.logon.client!r}"
                self._refuse(burst, claim.rid, ClientError("name_in_use", reason), claim.logon)

    def next_wake_ms(self) -> int | None:
        """When a holder is to be probed again."""
        return min((contest.next_ms for contest in self._contests), default=None)

    # -- its session --------------------------------------------------------------------------

    def _admit(self, burst: Burst, claim: Claim) -> None:
        clients, (rid, logon, who) = self._clients, claim
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
        client.found, client.logged = opened.acked, opened.seq
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
            missing=opened.missing or None,
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


class Identity:
    """The access rules, and claims whose password is being checked."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._claims: dict[int, Claim] = {}
        self._last = 0
        self._penalties: dict[tuple[str, str], tuple[int, int]] = {}  # until when, how long it was

    def who(self, rid: bytes, logon: m.Logon, key: str, now_ms: int) -> Who | Verify:
        """The identity of a connection that logs on, or a password to be checked first.

        Raises: ClientError auth_failed, not_entitled, too_many.
        """
        given = logon.credentials or {}
        user, password = given.get("user"), given.get("password")
        known = user is None or user in self.access.principals_of(key)
        if password is not None and now_ms < self._penalties.get((key, user or ""), (0, 0))[0]:
            raise ClientError("auth_failed", "too many wrong passwords: wait, then try again")
        if known or password is None or not self.access.principals_of(key):
            principal = self.access.identify(key, user)
            hashed = self.access.password_of(principal)
            if not hashed:
                self.access.check_name(principal, logon.client)
                return Who(principal, key)
        else:  # it has to take as long as for a user who exists
            principal, hashed = "", UNUSABLE
        if password is None:
            raise ClientError("auth_failed", NOT_ACCEPTED, NOT_ACCEPTED_HINT)
        return self._verify(Claim(rid, logon, Who(principal, key)), password, hashed)

    def _verify(self, claim: Claim, password: str, hashed: str) -> Verify:
        if any(other.rid == claim.rid for other in self._claims.values()):
            raise ClientError("too_many", "a password of this connection is being looked at")
        if len(self._claims) >= VERIFYING_MAX:
            raise ClientError("too_many", f"{VERIFYING_MAX} passwords are being looked at")
        self._last += 1
        self._claims[self._last] = claim
        return Verify(self._last, password, hashed)

    def judge(self, number: int, *, good: bool, now_ms: int) -> Claim:
        """Returns the logon whose password was checked. A wrong one costs a wait."""
        claim = self._claims.pop(number)
        key = claim.who.key, (claim.logon.credentials or {}).get("user", "")
        _, before_ms = self._penalties.pop(key, (0, 0))
        if not good:
            wait_ms = min(max(2 * before_ms, PENALTY_MIN_MS), PENALTY_MAX_MS)
            if len(self._penalties) >= PENALTIES_MAX:
                del self._penalties[next(iter(self._penalties))]
            self._penalties[key] = (now_ms + wait_ms, wait_ms)
        return claim

    def check(self, who: Who, name: str) -> None:
        """Raises: ClientError, unless `who` may still be here under `name`."""
        if not self.access.holds(who.principal, who.key):
            raise ClientError("auth_failed", "this key is not yours any more")
        self.access.check_name(who.principal, name)
