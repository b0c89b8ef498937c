"""A connection core with subscriptions on it, and a listener that answers as it is asked."""

from __future__ import annotations

from array import array

from tests.client.times import at
from zbroker.client.effects import Connect, Connected, Lost, MessagesArrived, NewToken, SendCommand
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import End, Feed, FeedBatch, FeedState
from zbroker.ids import NOW, Origin
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.bodies import pack, to_little
from zbroker.wire.messages import Ack, Columns, ListenerLogon, Msg, Options, Subscribe

HERE = Origin(0xAB, 1)
HERE_TEXT = "00000000000000ab.1."


def commands(effects):
    assert all(isinstance(effect, SendCommand) for effect in effects), effects
    return [effect.command for effect in effects]


def the(effects):
    """The only command of them."""
    (command,) = commands(effects)
    return command


def subscribe(bookmark=NOW, *, until=None, credit=1_000, content=None, **options):
    return Subscribe(
        "", "t", bookmark=bookmark, until=until, credit=credit, filter=content,
        options=Options(**options) if options else None,
    )  # fmt: skip


class Wired:
    """`answers`: what each subscription was asked with last, by sid."""

    def __init__(self, *wanted, heartbeat_s=None):
        self.resubscribed = 0
        self.connection = SubscriberCore(lambda: 1.0, heartbeat_s, self._count)
        self.feeds = [Feed(command) for command in wanted]
        self.now = 0
        for feed in self.feeds:
            assert self.connection.add(feed, 0, CREDIT_MAX_BYTES) == []
        assert self.connection.handle(NewToken("token", HERE, 1), at(0)) == [Connect()]

    def _count(self):
        self.resubscribed += 1

    @property
    def feed(self):
        (one,) = self.feeds
        return one

    def handle(self, event):
        return self.connection.handle(event, at(self.now))

    def log_on(self):
        """The logon is answered: the commands that follow."""
        logon = the(self.handle(Connected()))
        assert isinstance(logon, ListenerLogon)
        return commands(self.handle(Ack("processed", logon.cid)))

    def accept(self, command, position=1, credit=None):
        return commands(
            self.handle(
                Ack("processed", command.cid, sid=command.sid, position=position, credit=credit)
            )
        )

    def live(self, position=1):
        """Logs on, and has each subscription accepted; gives the commands that asked for them."""
        asked = self.log_on()
        for command in asked:
            self.accept(command, position)
        assert all(feed.state is FeedState.LIVE for feed in self.feeds)
        return asked

    def lose(self):
        """The connection is lost after a good while, and made again; gives what is asked then."""
        self.now += 5_000
        assert self.handle(Lost()) == [Connect()]
        return self.log_on()

    def send(self, position, count, *, feed=None, seq=None, publisher=1, **more):
        """A batch comes in; gives the effects."""
        first = position if seq is None else seq
        msg = Msg(
            (feed or self.feed).sid, publisher, first, 0, count, position, topic="t", **more
        )  # fmt: skip
        return self.handle(MessagesArrived(msg, pack([b"x"] * count)))

    def scattered(self, positions, *, feed=None, publisher=1):
        """A re-packed batch: what a filter left of consecutive messages."""
        one = feed or self.feed
        offsets = to_little(array("I", [position - positions[0] for position in positions]))
        msg = Msg(
            one.sid, publisher, positions[0], 0, len(positions), positions[0], topic="t",
            columns=Columns(offset=offsets),
        )  # fmt: skip
        return self.handle(MessagesArrived(msg, pack([b"x"] * len(positions))))

    def read(self, feed=None):
        """Everything that waits is handed out: positions, or what ended it."""
        one = feed or self.feed
        out = []
        while one.inbox:
            item, _ = one.hand_out()
            if isinstance(item, FeedBatch):
                out += [message.position for message in item.messages]
            elif isinstance(item, End):
                out.append(item.error.code if item.error else "end")
        return out


def wired(*args, position=1, **options):
    """One subscription, accepted."""
    world = Wired(subscribe(*args, **options))
    asked = world.live(position)
    return world, asked[0]
