"""Requests about subscriptions that go on, and which of these share a replay. Pure.

A request is sent when all its subscriptions are live, and again after a reconnect until its answer
has come: a request holds once it is answered, and a subscription that is asked for again is
asked for as it was confirmed to be.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zbroker.client.effects import SendCommand, raised
from zbroker.client.subscriber.feed import Feed, FeedState
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, Vector
from zbroker.wire.messages import Ack, Error, Pause, Replace, Resume

REQUESTS_MAX: Final = 1_000  # without an answer, on one connection

Asked = Pause | Resume | Replace


class SubscriptionRequest(Struct, eq=False):
    """One of them. It is done when it has an answer or an error. `cid`: "" while it is not sent."""

    command: Asked
    feeds: list[Feed]
    cid: str = ""
    answer: Ack | None = None
    error: ZBrokerError | None = None
    inner: bool = False  # of the connection itself: repeated by it after each reconnect

    @property
    def done(self) -> bool:
        return self.answer is not None or self.error is not None

    def made(self, cid: str) -> Asked:
        """The command as it is sent now: what its subscriptions are called may have changed."""
        self.cid = cid
        if isinstance(self.command, Replace):
            return replace(self.command, cid=cid, sid=self.feeds[0].sid)
        sids = [feed.sid for feed in self.feeds]
        if isinstance(self.command, Resume):
            return Resume(sids, cid, groups=True)
        return Pause(sids, cid)

    def leave(self, feed: Feed) -> None:
        """One of its subscriptions is over, or gone to another connection."""
        self.without(None if feed.state is FeedState.ENDED else feed)

    def without(self, gone: Feed | None = None) -> None:
        """Leaves out those that ended, and `gone`; with none left there will be no answer.

        To pause or resume what came to its end, while some of it still waits to be read, is done.
        """
        self.feeds = [
            feed for feed in self.feeds if feed is not gone and feed.state is not FeedState.ENDED
        ]
        if self.feeds or self.done:
            return
        if gone is not None or isinstance(self.command, Replace):
            self.error = ZBrokerError("closed", "the subscription has ended")
        else:
            self.answer = Ack("processed")


class SubscriptionRequests:
    """The open ones of a connection, and the groups of subscriptions that share a replay."""

    def __init__(self) -> None:
        self.open: list[SubscriptionRequest] = []
        self.groups: list[list[Feed]] = []
        self._cids: dict[str, SubscriptionRequest] = {}

    def add(self, command: Asked, feeds: Sequence[Feed]) -> SubscriptionRequest:
        """A new one. Raises: ZBrokerError too_many."""
        if len(self.open) >= REQUESTS_MAX:
            raise ZBrokerError("too_many", f"{REQUESTS_MAX} requests without an answer")
        request = SubscriptionRequest(command, list(feeds))
        self.open.append(request)
        return request

    def lost(self) -> None:
        """The connection is gone: an answer that is still read holds no more than what follows."""
        self._cids.clear()

    def again(self, carried: Collection[Feed]) -> None:
        """Another connection: none was sent there. Groups that run are resumed first:
        requests since then that have no answer change that. Those about subscriptions that are
        over, or elsewhere, are not made again.
        """
        asked = [request for request in self.open if not request.inner]
        for request in asked:
            request.cid = ""
            for feed in request.feeds:
                if feed.state is FeedState.ENDED or feed not in carried:
                    request.leave(feed)
        running = ([feed for feed in group if not feed.paused] for group in self.groups)
        self.open = [
            SubscriptionRequest(Resume([]), feeds, inner=True) for feeds in running if feeds
        ]
        self.open += [request for request in asked if not request.done]

    def over(self, error: ZBrokerError | None = None) -> None:
        """The connection has ended: open requests get no answer."""
        for request in self.open:
            if not request.done:
                request.error = error or ZBrokerError("closed", "the subscription has ended")
        self.open, self._cids = [], {}

    def due(self) -> list[SubscriptionRequest]:
        """Those to be sent now."""
        self._forget_done()
        return [
            request
            for request in self.open
            if not request.cid and all(feed.state is FeedState.LIVE for feed in request.feeds)
        ]

    def sent(self, request: SubscriptionRequest, cid: str) -> SendCommand:
        """The effect that sends it."""
        self._cids[cid] = request
        return SendCommand(request.made(cid))

    def ended(self, feed: Feed) -> None:
        """A subscription is over, or gone to another connection."""
        self._leave([feed])
        for request in self.open:
            if feed in request.feeds and not request.cid:
                request.leave(feed)
        self._forget_done()

    # -- answers ------------------------------------------------------------------------------

    def answered(self, ack: Ack, own: Origin) -> None:
        """If that was the answer to one of them, what it asked for holds now."""
        request = self._cids.pop(ack.cid or "", None)
        if request is None:
            return
        request.answer = ack
        feeds = [feed for feed in request.feeds if feed.state is not FeedState.ENDED]
        if isinstance(request.command, Replace):
            for feed in feeds:
                feed.replaced(request.command, ack, own)
        elif isinstance(request.command, Pause):
            self._paused(feeds)
        else:
            # of those that ran already the broker does not speak: nothing changes for them
            slept = [feed for feed in feeds if feed.paused or request.inner]
            self._resumed(slept, ack.groups or [ack.combined or []])
        self._forget_done()

    def refused(self, error: Error) -> bool:
        """True if that was the refusal of one of them; nothing changed then."""
        request = self._cids.pop(error.cid or "", None)
        if request is None:
            return False
        before = len(request.feeds)
        request.without()
        if error.code == "unknown_sid" and len(request.feeds) < before:
            request.cid = ""  # one of them ended while this was on its way: ask for the others
        elif not request.done:
            request.error = raised(error)
            for feed in request.feeds if request.inner else ():
                feed.fail(request.error)  # it would stay paused without a request
        self._forget_done()
        return True

    def _forget_done(self) -> None:
        self.open = [request for request in self.open if not request.done]

    # -- groups -------------------------------------------------------------------------------

    def group_of(self, feed: Feed) -> list[Feed]:
        """Those with which it shares a replay, itself among them; empty if it has its own."""
        return next((group for group in self.groups if feed in group), [])

    def point_of(self, feed: Feed) -> Vector:
        """Where it goes on: the subscriptions of a group must be at the same point.

        That is the lowest of their points. What one of them has already comes again and is dropped.
        """
        points = [one.point() for one in self.group_of(feed)]
        if not points or not all(points):
            return feed.point()
        common = set(points[0]).intersection(*points[1:])
        lowest = {origin: min(point[origin] for point in points) for origin in common}
        return lowest or feed.point()

    def _paused(self, feeds: list[Feed]) -> None:
        for feed in feeds:
            feed.paused = True
        self._leave([feed for feed in feeds if any(f not in feeds for f in self.group_of(feed))])

    def _resumed(self, feeds: list[Feed], groups: list[list[str]]) -> None:
        for feed in feeds:
            feed.paused = False
        self._leave(feeds)
        for sids in groups:
            together = [feed for feed in feeds if feed.sid in sids]
            if len(together) > 1:
                self.groups.append(together)

    def _leave(self, feeds: list[Feed]) -> None:
        left = ([feed for feed in group if feed not in feeds] for group in self.groups)
        self.groups = [group for group in left if len(group) > 1]
