"""Where messages that are published to an exchange go, by what the journal says of exchanges. Pure.

Each message is routed once, when it is taken; its batch carries the routes, and every instance goes
by them. The rows of exchanges are here before the first publisher is logged on: they are asked for
before its session is. Changes come while publishes do; how far they have come is said to the
journal, which says it to those who wait for a binding to count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from zbroker.engine.effects import JOURNAL, Say
from zbroker.errors import ClientError
from zbroker.exchanges.exchange_follower import ExchangeFollower
from zbroker.exchanges.route_column import encode
from zbroker.exchanges.router import Headers, QueueSet, Router, numbered
from zbroker.wire import bodies
from zbroker.wire.exchange_messages import ExchangeRows, ExchangesUsed
from zbroker.wire.internal import Watermarks
from zbroker.wire.messages import Publish

NOWHERE: Final[QueueSet] = frozenset()


class Routed(NamedTuple):
    """Where the messages of a publish go. found: of each message its queues. single: of a message
    that is not packed; None: of an ordinary topic. column: of packed ones; b"" likewise."""

    found: Sequence[QueueSet] = ()
    single: QueueSet | None = None
    column: bytes = b""


ORDINARY: Final = Routed()


def returned(publish: Publish, routed: Routed) -> list[tuple[int, int]]:
    """Runs of sequences of a mandatory publish that go to no queue: first and last of each."""
    if not publish.mandatory:
        return []
    count = publish.count or 1
    if not routed.found:  # there is no exchange of that name
        return [(publish.seq, publish.seq + count - 1)]
    runs, at = [], publish.seq
    for is_lost, group in groupby(routed.found, key=NOWHERE.__eq__):
        end = at + sum(1 for _ in group)
        if is_lost:
            runs.append((at, end - 1))
        at = end
    return runs


class Routing:
    """routed, unroutable: messages to exchanges, and those of them that go to no queue."""

    def __init__(self) -> None:
        self.router = Router()
        self.routed = self.unroutable = 0
        self._follower = ExchangeFollower()
        self._journal = 0

    # -- what the journal says ----------------------------------------------------------------

    def welcome(self, journal: int) -> Say:
        """A journal listens: it is asked for everything."""
        self._journal = journal
        return Say(JOURNAL, self._follower.welcome(journal))

    def watermarks(self, said: Watermarks) -> list[Say]:
        """Asks for what has changed."""
        ask = self._follower.watermarks(said)
        return [] if ask is None else [Say(JOURNAL, ask)]

    def learn(self, said: ExchangeRows) -> list[Say]:
        """Routes by this from now on, and says so."""
        changes = self._follower.learn(said)
        if said.whole:
            self.router = Router()
        self.router.apply(changes, self._follower.table.version)
        return [Say(JOURNAL, ExchangesUsed(self._journal, said.position))]

    # -- what clients publish -----------------------------------------------------------------

    def route(self, publish: Publish) -> Routed:
        """Where the messages of a checked publish go.

        Raises: ClientError not_ready; bad_field for an internal exchange, and for headers that
        cannot be read; too_many, if they go to more queues than one batch may name.
        """
        if not self._follower.known:
            raise ClientError("not_ready", "this instance has not read its exchanges yet")
        router, topics = self.router, publish.topics
        if topics is not None:
            if not any(topic in router for topic in topics):
                return ORDINARY
            found = self._of_many(publish, topics)
        elif publish.topic is None or publish.topic not in router:
            return ORDINARY
        else:
            found = self._of_one(publish, publish.topic)
        if publish.count is None:
            return Routed(found, found[0])
        return Routed(found, column=encode(numbered(found)))

    def _of_one(self, publish: Publish, topic: str) -> list[QueueSet]:
        router = self.router
        router.check_publish(topic)
        with_headers = router.asks_headers(topic)
        if publish.count is None:
            headers: Sequence[Headers | None] | None = None
            if with_headers and publish.headers is not None:
                headers = [{name: bodies.scalar(raw) for name, raw in publish.headers.items()}]
            return router.find(topic, [publish.key], headers)
        return router.find(topic, *_columns(publish, publish.count, with_headers=with_headers))

    def _of_many(self, publish: Publish, topics: Sequence[str]) -> list[QueueSet]:
        assert publish.count is not None, "several topics are those of packed messages"
        router, count = self.router, publish.count
        index = bodies.topic_indexes(publish.columns, count)
        exchanges = {number for number, topic in enumerate(topics) if topic in router}
        with_headers = any(router.asks_headers(topics[number]) for number in exchanges)
        keys, headers = _columns(publish, count, with_headers=with_headers)
        found = [NOWHERE] * count
        for number in exchanges:
            router.check_publish(topics[number])
            at = [place for place, one in enumerate(index) if one == number]
            picked = None if headers is None else [headers[place] for place in at]
            queues = router.find(topics[number], [keys[place] for place in at], picked)
            for place, each in zip(at, queues, strict=True):
                found[place] = each
        return found

    def count(self, routed: Routed) -> None:
        """They are taken."""
        self.routed += len(routed.found)
        self.unroutable += routed.found.count(NOWHERE)


def _columns(
    publish: Publish, count: int, *, with_headers: bool
) -> tuple[Sequence[bytes | None], Sequence[Headers | None] | None]:
    columns = publish.columns
    keys: Sequence[bytes | None] = [None] * count
    if columns is None:
        return keys, None
    if columns.keys is not None:
        keys = bodies.keys(columns.keys, count)
    if not with_headers or columns.headers is None:
        return keys, None
    return keys, bodies.headers(columns.headers, count)
