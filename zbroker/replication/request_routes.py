"""The ways of requests between the queues of instances. Pure.

    AskTransfer of the queues here --> Want on the link with the owner, else on every link
    Want for this instance -----------> TransferRequest to the queues here
    Want for another one, once -------> on, in the same manner, while hops are left

    AskHandOver of the queues here ----> WantSession on the link with the instance
    WantSession of an instance that this log goes to --> HandOverRequest to the queues here

Only an instance whose log comes here as a whole may ask: what becomes of a granted message comes
back with that, and one that may bring some topics only moves no messages of others. Nothing is kept
for later: an instance that gets nothing asks again.
A session is handed over by a record, so its own rule is that this log goes to the one that asks:
else the session would be at neither of them.
Source: requirement 000, "Replicated Queues"; the design of ownership, "Transfer".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from zbroker.engine.effects import Answer, Tell
from zbroker.replication.contract import (
    NAMES_LEVEL,
    REQUESTS_LEVEL,
    SESSIONS_LEVEL,
    ReplicationSettings,
)
from zbroker.replication.effects import Effect, SayOn
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.sources import Sources
from zbroker.wire import owner_requests as o
from zbroker.wire.replication import (
    INSTANCE_MAX,
    WANT_HOPS_MAX,
    WANT_MAX,
    WANT_NAMES_MAX,
    Request,
    Want,
    WantSession,
    wrong_names,
)

SEEN_MAX: Final = 10_000  # requests of others that are known again
A_BEAT: Final = 1_000  # requests of one instance between two beats; more are dropped


class Way(NamedTuple):
    """A link on which an instance hears a request: of the two, the one that this log goes out on,
    by name; else one that it comes in on, by connection. level: the feature level there."""

    session: int
    level: int
    link: str = ""
    rid: bytes = b""

    def say(self, want: Request) -> list[Effect]:
        """Sends what is known there of a request."""
        if isinstance(want, WantSession):
            if self.level < SESSIONS_LEVEL:
                return []
        else:
            if want.where and self.level < NAMES_LEVEL:
                want = replace(want, where=[], most=0)
            if not want.count and not want.where:
                return []
        message = replace(want, session=self.session)
        return [SayOn(self.link, message) if self.link else Answer(self.rid, message)]


class RequestRoutes:
    """Passes on who asks for what. rid: of the queues here; none was heard of yet: b""."""

    def __init__(
        self, settings: ReplicationSettings, outgoing: Mapping[str, OutgoingLink], sources: Sources
    ) -> None:
        self._settings, self._outgoing, self._sources = settings, outgoing, sources
        self.rid = b""
        self._number = 0  # of the newest request of this instance
        self._seen: dict[tuple[int, int, int], None] = {}  # oldest first
        self._heard: Counter[int] = Counter()  # since the last beat

    def ask(self, ask: o.AskTransfer | o.AskHandOver) -> list[Effect]:
        """The queues here could take messages of another instance, or one of its sessions."""
        if isinstance(ask, o.AskHandOver):
            way = self._ways()[0].get(ask.owner)
            wanted = WantSession(0, ask.principal, ask.session, ask.epoch, ask.holder)
            return [] if way is None else way.say(wanted)
        self._number += 1
        mine = self._settings
        want = Want(
            0, ask.queue, ask.owner, ask.name, mine.instance, mine.incarnation, self._number,
            min(ask.count, WANT_MAX), WANT_HOPS_MAX, ask.where, min(ask.most, WANT_NAMES_MAX),
        )  # fmt: skip
        return [*self._on(want, but=())]

    def heard(self, peer: int, want: Request) -> list[Effect]:
        """An instance says it on one of the links with it."""
        self._heard[peer] += 1
        if not self._may_ask(peer) or self._heard[peer] > A_BEAT:
            return []
        if isinstance(want, WantSession):
            return self._session_wanted(peer, want)
        if not 0 < want.asker <= INSTANCE_MAX or wrong_names(want.where):
            return []
        key = want.asker, want.begun, want.number
        mine = self._settings
        if key in self._seen or want.asker == mine.instance:
            return []
        self._seen[key] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if want.owner == mine.instance or (not want.owner and want.name == mine.name):
            wanted = o.TransferRequest(want.queue, want.asker, want.count, want.where, want.most)
            return [Tell(self.rid, wanted)] if self.rid else []
        if not want.hops:
            return []
        return [*self._on(replace(want, hops=want.hops - 1), but=(peer, want.asker))]

    def _session_wanted(self, peer: int, want: WantSession) -> list[Effect]:
        links = self._outgoing.values()
        reached = any(link.is_up and link.peer.instance == peer for link in links)
        if not reached or not self.rid:
            return []
        said = o.HandOverRequest(peer, want.principal, want.name, want.epoch, want.holder)
        return [Tell(self.rid, said)]

    def beat(self) -> None:
        """Some time has passed."""
        self._heard.clear()

    def _may_ask(self, peer: int) -> bool:
        links = self._sources.links.values()
        return any(
            link.instance == peer and link.welcomed and link.brings_everything for link in links
        )

    def _on(self, want: Want, but: Iterable[int]) -> Iterator[Effect]:
        ways, names = self._ways()
        owner = want.owner or names.get(want.name, 0)
        to = (owner,) if owner in ways else ways.keys() - set(but)
        return (effect for instance in sorted(to) for effect in ways[instance].say(want))

    def _ways(self) -> tuple[dict[int, Way], dict[str, int]]:
        """By instance; and the instances that are known by name."""
        ways: dict[int, Way] = {}
        names: dict[str, int] = {}
        for source in self._sources.links.values():
            if source.welcomed and source.feature_level >= REQUESTS_LEVEL:
                ways[source.instance] = Way(source.session, source.feature_level, rid=source.rid)
                names[source.name] = source.instance
        for name, link in self._outgoing.items():
            if link.is_up and link.feature_level >= REQUESTS_LEVEL:
                ways[link.peer.instance] = Way(link.session, link.feature_level, link=name)
                names[name] = link.peer.instance
        return ways, names
