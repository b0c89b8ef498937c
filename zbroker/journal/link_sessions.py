"""Link sessions: what a peer may bring over one connection, and what was named in it. Pure.

A session has the digest of its filter and a right: patterns of topics and of origins. It ends when
a newer one of the same peer begins, or when the replication process begins again. Its records that
are not placed by then are dropped: an answer that this instance gave about its rows stays true.

Names count within one session, until the log has them: so no name is needed again that a crash took
before its first batch, and none is taken from a peer that brings nothing under it.

The first record of a generation says that nothing more comes of the older ones of its instance
(locate_vector.py), so it must not pass a record that was refused: a nearly full disk takes facts
and no messages, and records on their way may be judged after the reason for a refusal is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from zbroker.errors import ClientError
from zbroker.ids import Origin, check_topic
from zbroker.log.records import PublisherRecord
from zbroker.topics import CACHED_TOPICS_MAX, TopicCache, TopicPattern
from zbroker.wire.internal import LinkOpened, OpenLink

LINK_NAMES_MAX: Final = 100_000  # named in a session and not in the log yet
EVERYTHING: Final = ".*"  # the pattern of a right without bounds
STOPPED_MAX: Final = 1_000  # origins of a session of which a refused record is noted

_OWNED: Final = re.compile(r"\$.*\.([0-9a-f]{16})\.(\d{1,10})")

Refusal = tuple[str, str]  # code, reason; the reason says the way out


class LinkSession:
    """One session. names: those that are not in the log yet. ended: its records are dropped."""

    def __init__(self, ask: OpenLink) -> None:
        """Raises: ClientError bad_filter."""
        self.peer, self.number, self.digest = ask.peer, ask.number, ask.digest
        self.ended = False
        self.names: dict[int, PublisherRecord] = {}
        self._stopped: dict[Origin, int] = {}  # where the newest refused record of each one ends
        self._crowded = False  # there were more than could be noted, until all of these are here
        self._forked: set[Origin] = set()  # these stop nothing: a new generation is their way out
        self._everything = EVERYTHING in ask.topics and EVERYTHING in ask.origins
        self._topics = [TopicPattern(pattern) for pattern in ask.topics]
        self._origins = [TopicPattern(pattern) for pattern in ask.origins]
        self._of_topic: TopicCache[Refusal | None] = TopicCache(self._judge, CACHED_TOPICS_MAX)
        self._instance = -1  # the last one that may be brought: mostly the next one, too

    def refuses_origin(self, instance: int) -> bool:
        """True if the peer may bring nothing of this instance."""
        if instance == self._instance:
            return False
        if not any(may(f"{instance:016x}") for may in self._origins):
            return True
        self._instance = instance
        return False

    def refuses_topics(self, topics: list[str]) -> Refusal | None:
        """Why a record with these topics may not come over this link; None if it may."""
        of_topic = self._of_topic
        for topic in topics:
            if (refusal := of_topic[topic]) is not None:
                return refusal
        return None

    @property
    def brings_everything(self) -> bool:
        """It may bring records of all topics and origins."""
        return self._everything

    def refused(self, origin: Origin, last: int, code: str) -> None:
        """Notes that a record which ends at `last` was not taken."""
        if code == "fork":
            self._forked.add(origin)
            self._stopped.pop(origin, None)
        elif origin in self._forked:
            return  # this record is after the fork
        elif origin in self._stopped or len(self._stopped) < STOPPED_MAX:
            self._stopped[origin] = max(last, self._stopped.get(origin, 0))
        else:
            self._crowded = True

    def skipped(self, origin: Origin, last: int) -> None:
        """Refused records up to there are given up: they stop no newer generation."""
        if self._stopped.get(origin, 0) <= last:
            self._stopped.pop(origin, None)
        self._forked.discard(origin)

    def may_begin(self, origin: Origin, high: Callable[[Origin], int]) -> bool:
        """Whether all that was refused of older generations is here by now. high: up to where.

        An origin that is noted has its older ones noted, too: they came before it.
        """
        if not self._stopped:
            return True
        self._stopped = {one: at for one, at in self._stopped.items() if high(one) < at}
        self._crowded = self._crowded and bool(self._stopped)
        if self._crowded and origin not in self._stopped:
            return False
        return not any(one.precedes(origin) for one in self._stopped)

    def _judge(self, topic: str) -> Refusal | None:
        try:
            check_topic(topic)
        except ClientError as error:
            return "bad_field", error.reason
        if any(may(topic) for may in self._topics):
            return None
        return "not_entitled", f"this peer may not bring {topic!r}; give it that right, or filter"


class LinkSessions:
    """The current session of each peer."""

    def __init__(self) -> None:
        self._of_peer: dict[int, LinkSession] = {}
        self._sessions: dict[int, LinkSession] = {}

    def begin(self) -> None:
        """The replication process begins again."""
        for peer in list(self._of_peer):
            self._end(peer)

    def _end(self, peer: int) -> None:
        old = self._of_peer.pop(peer, None)
        if old is not None:
            old.ended = True
            del self._sessions[old.number]

    def open(self, ask: OpenLink) -> LinkOpened:
        """Begins a session; the older one of this peer ends, also if this one is refused."""
        self._end(ask.peer)
        try:
            if ask.number in self._sessions:
                raise ClientError("bad_field", "the session of another peer has this number")
            link = LinkSession(ask)
        except ClientError as error:
            return LinkOpened(ask.cid, code=error.code, reason=error.reason)
        self._of_peer[ask.peer] = self._sessions[ask.number] = link
        return LinkOpened(ask.cid)

    def get(self, number: int) -> LinkSession | None:
        """The session with this number, if it is the current one of its peer."""
        return self._sessions.get(number)


def owner_of(name: str) -> Origin | None:
    """The origin whose own name this is ("$...<instance>.<generation>"); None of a client's."""
    match = _OWNED.fullmatch(name) if name.startswith("$") else None
    return Origin(int(match[1], 16), int(match[2])) if match is not None else None
