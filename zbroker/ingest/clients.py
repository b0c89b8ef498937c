"""The connections of publishers: their state, their names, and their delivery workers. Pure.

    (unknown) --logon--> opening --Opened--> live --logoff, silence, replaced--> ended

A name belongs to one connection. A new logon takes it over when it comes from the same client
instance, or when the old connection is gone, as it is after two silent heartbeats; else
`name_in_use` (seed 002: two clients with one name are an error).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final, Literal
from zlib import crc32

from msgspec import Struct, field

from zbroker.access.core import Permit
from zbroker.config import REPLICATION, Config, listen_endpoints
from zbroker.engine.effects import LoggedOff, LoggedOn
from zbroker.errors import ClientError
from zbroker.heartbeats import ListenerHeartbeats, Pulse, QuietMs
from zbroker.ingest.chain import Chain, PrevTracker
from zbroker.limits import HEARTBEAT_MS
from zbroker.wire.internal import OpenSession
from zbroker.wire.messages import Ack, Heartbeat
from zbroker.wire.surveys import AskClients, ClientRow, Peers


class ClientConnection(Struct):
    """One connection that logged on, or is about to."""

    rid: bytes
    name: str
    instance: str
    cid: str | None
    pulse: Pulse
    principal: str = ""
    key: str = ""  # the CURVE key of its connection
    permit: Permit | None = None  # to publish; None: everything
    state: Literal["opening", "live", "ended"] = "opening"
    open_cid: int = 0
    worker: int = 0  # of delivery, whose endpoint it got
    publisher: int = 0
    session: int = 0
    found: int = 0  # the sequence that was durable at the logon
    logged: int = 0  # the highest sequence that the log had at the logon
    acked: int = 0  # highest sequence that is settled; where not everything is recorded, in this
    recorded: int = 0  # session. Highest one of these that is in the log
    messages: int = 0  # taken in this session
    window_used: int = 0  # bytes forwarded and not receipted
    last_ordinal: int = 0  # of the newest batch forwarded
    used: PrevTracker = field(default_factory=PrevTracker)
    ack_interval_ms: int = 0  # of merged acks; 0: as soon as there is something to tell
    ack_sent_ms: int | None = None
    acks: list[Ack] = field(default_factory=list)  # that wait for the interval
    flushes: list[tuple[int, str | None]] = field(default_factory=list)  # (ordinal waited for, cid)
    chain: Chain | None = None  # where not everything is recorded, once it is live

    @property
    def heartbeat_s(self) -> float:
        """The interval of its heartbeats."""
        return (self.pulse.interval_ms or HEARTBEAT_MS) / 1_000


class ClientRegistry:
    """Connections by routing id and by name."""

    def __init__(self, workers: int = 1, quiet_ms: QuietMs | None = None) -> None:
        self.heartbeats = ListenerHeartbeats(quiet_ms)
        self._spread = Spread(workers)
        self.unknown: Sequence[str] = ()  # other listeners; until they are known no client logs on
        self.by_rid: dict[bytes, ClientConnection] = {}
        self.by_name: dict[str, ClientConnection] = {}
        self.by_open: dict[int, ClientConnection] = {}
        self._principals: Counter[str] = Counter()  # connections of each
        self._next_open = 1
        self.has_moved = False  # sessions have begun or ended since `moved`
        self._left: list[bytes] = []  # connections whose session is over, for the listener
        self._came: list[bytes] = []

    def __len__(self) -> int:
        return len(self.by_rid)

    def holder(self, name: str, instance: str, principal: str) -> ClientConnection | None:
        """The connection that keeps `name` from being taken over by `instance` of `principal`."""
        old = self.by_name.get(name)
        same = old is not None and (old.instance, old.principal) == (instance, principal)
        return None if same else old

    def check_limits(self, rid: bytes, principal: str, most: int, most_of_one: int) -> None:
        """Raises: ClientError not_ready, too_many, if one more may not log on."""
        if self.unknown:
            reason = f"this instance is starting: {', '.join(self.unknown)} cannot be reached yet"
            raise ClientError("not_ready", reason, "log on again")
        if rid in self.by_rid:
            return
        if len(self.by_rid) >= most:
            raise ClientError("too_many", f"{len(self.by_rid)} clients are logged on already")
        if principal and self._principals[principal] >= most_of_one:
            text = f"{self._principals[principal]} clients of {principal!r} are logged on already"
            raise ClientError("too_many", text)

    def heard(self, client: ClientConnection, command: object, now_ms: int) -> None:
        """A command came, which may ask for other heartbeats."""
        if isinstance(command, Heartbeat):
            self.heartbeats.heard(client.pulse, now_ms, command.heartbeat_s)
        else:
            client.pulse.heard_ms = now_ms

    def beats(self, now_ms: int, *, drained: bool) -> tuple[list[ClientConnection], list[bytes]]:
        """The silent clients, and the routing ids that get a heartbeat now."""
        pulses = ((rid, client.pulse) for rid, client in self.by_rid.items())
        silent, due = self.heartbeats.tick(now_ms, pulses, drained=drained)
        return [self.by_rid[rid] for rid in silent], due

    def add(self, client: ClientConnection) -> ClientConnection | None:
        """Enters a new connection under its name; returns the one it replaces."""
        previous = self.by_rid.get(client.rid)
        client.worker = previous.worker if previous is not None else self._spread.join(client.name)
        if previous is not None:
            self._forget(previous)
        replaced = self.by_name.get(client.name)
        client.open_cid = self._next_open
        self._next_open += 1
        self._principals[client.principal] += 1
        self.by_rid[client.rid] = self.by_name[client.name] = self.by_open[client.open_cid] = client
        return replaced

    def opened(self, client: ClientConnection) -> None:
        """Its session is open."""
        client.state, self.has_moved = "live", True
        self._came.append(client.rid)

    def moved(self) -> list[LoggedOff | LoggedOn]:
        """Departures first: a peer may have come back under its id."""
        effects: list[LoggedOff | LoggedOn] = [LoggedOff(rid) for rid in self._left]
        effects += (LoggedOn(rid) for rid in dict.fromkeys(self._came) if self._is_live(rid))
        self._left.clear()
        self._came.clear()
        self.has_moved = False
        return effects

    def _is_live(self, rid: bytes) -> bool:
        client = self.by_rid.get(rid)
        return client is not None and client.state == "live"

    def sessions(self) -> list[OpenSession]:
        """Those that are open."""
        live = [client for client in self.by_name.values() if client.state == "live"]
        return [OpenSession(client.name, client.principal, client.session) for client in live]

    def remove(self, client: ClientConnection) -> None:
        """Forgets a connection."""
        if self.by_rid.get(client.rid) is client:
            self._spread.leave(client.worker)
        self._forget(client)

    def _forget(self, client: ClientConnection) -> None:
        client.state, self.has_moved = "ended", True
        self._left.append(client.rid)
        if self.by_rid.get(client.rid) is client:
            del self.by_rid[client.rid]
            self._principals[client.principal] -= 1
            if not self._principals[client.principal]:
                del self._principals[client.principal]
        if self.by_name.get(client.name) is client:
            del self.by_name[client.name]
        self.by_open.pop(client.open_cid, None)

    def check(self) -> None:
        """Asserts what is always true."""
        assert sum(self._spread.connections) == len(self.by_rid) == self._principals.total()
        for rid, client in self.by_rid.items():
            assert client.rid == rid
        for name, client in self.by_name.items():
            assert client.name == name
            assert self.by_rid.get(client.rid) is client


class Spread:
    """How many connections each delivery worker has; workers count from 0.

    A connection keeps its worker as long as it lives. The workers get as many connections each;
    among those with the fewest the client's name decides, so that connections that come by turns,
    a publisher, a subscriber, a publisher, do not put all subscribers in one place.
    """

    def __init__(self, workers: int) -> None:
        self.connections = [0] * workers

    def join(self, name: str) -> int:
        """The worker for a new connection of the client `name`."""
        fewest = min(self.connections)
        free = [worker for worker, count in enumerate(self.connections) if count == fewest]
        worker = free[crc32(name.encode()) % len(free)]
        self.connections[worker] += 1
        return worker

    def leave(self, worker: int) -> None:
        """A connection is over."""
        self.connections[worker] -= 1


def endpoints_for(worker: int, workers: Sequence[str], known: Mapping[str, str]) -> dict[str, str]:
    """The `known` endpoints for a logon: of the delivery `workers` one, as "delivery".

    While its worker has not started, so that its endpoint is not known, it is that of another one.
    """
    theirs = {name: url for name, url in known.items() if name != REPLICATION}
    others = {name: url for name, url in theirs.items() if name not in ("ingest", *workers)}
    found = [known[name] for name in (workers[worker], *workers) if name in known]
    return {"delivery": found[0], **others} if found else others


def missing(config: Config, known: Mapping[str, str]) -> list[str]:
    """The other listeners for clients that are not `known` yet."""
    theirs = ("ingest", REPLICATION)
    return [name for name in listen_endpoints(config) if name not in theirs and name not in known]


ROWS_MAX: Final = 1_000  # of one answer: a turn has to stay short


def client_rows(
    clients: ClientRegistry, ask: AskClients, peers: Peers, now_ms: int
) -> tuple[list[ClientRow], int]:
    """The connections that `ask` is about, by name; how many were left out. `now_ms`: monotonic."""
    known = clients.by_name
    found = [name for name in (ask.client,) if name in known] if ask.client else list(known)
    first = nsmallest(min(ask.limit, ROWS_MAX), found)
    return [_row(known[name], peers, now_ms) for name in first], len(found) - len(first)


def _row(one: ClientConnection, peers: Peers, now_ms: int) -> ClientRow:
    address, since_ms = peers(one.rid)
    return ClientRow(
        one.name, one.principal, one.instance, address,
        None if since_ms is None else now_ms - since_ms, one.session, one.publisher,
        one.acked, one.window_used, one.messages, 0, one.heartbeat_s,
    )  # fmt: skip
