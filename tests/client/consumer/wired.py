"""A core of a consumer, a listener that answers at once, and a program that takes when it likes."""

from __future__ import annotations

from tests.client.consumer.listener_model import HERE, QueueListener
from tests.client.times import at
from zbroker.client.connection import Phase
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.settlement import ACK, EXTEND, Verb
from zbroker.client.effects import Connect, Connected, Lost, MessagesArrived, NewToken, SendCommand
from zbroker.wire import queue_messages as q

__all__ = ["ACK", "EXTEND", "HERE", "Verb", "Wired", "ends", "the"]


class Wired:
    """`up`: what the core sent and the listener has not read. Time stands still unless passed."""

    def __init__(self, listener=None, *, heartbeat_s=None, jitter=lambda: 1.0, **wishes):
        self.listener = listener or QueueListener()
        self.reported = 0
        command = q.Consume("", "work", **{"credit": 1_000, **wishes})
        self.core = ConsumerCore(command, self, jitter, heartbeat_s, self._resubscribed)
        self.peer = object()
        self.up = []
        self.perform(self.core.handle(NewToken("token", HERE, 1), at(self.now)))

    def _resubscribed(self):
        self.reported += 1

    def ack(self, message):
        self.settle(ACK, (message,))

    def settle(self, verb, messages):
        """As a line does it, for `message.ack()`."""
        self.core.settle(verb, messages, self.now)

    @property
    def now(self):
        return self.listener.now

    def perform(self, effects):
        for effect in effects:
            if isinstance(effect, Connect):
                self.listener.lose(self.peer)
                self.peer, self.up = object(), []
            else:
                assert isinstance(effect, SendCommand)
                self.up.append(effect.command)

    # -- the wire -----------------------------------------------------------------------------

    def send(self):
        """What piled up goes out."""
        self.perform(self.core.tick(at(self.now), drained=False))

    def answer(self):
        """The listener reads one command."""
        if self.up:
            self.listener.handle(self.peer, self.up.pop(0))

    def take(self):
        """The core reads one answer."""
        if self.listener.down:
            peer, answer, body = self.listener.down.pop(0)
            if peer is not self.peer:
                return
            if isinstance(answer, q.Job):
                self.perform(self.core.handle(MessagesArrived(answer, body), at(self.now)))
            else:
                self.perform(self.core.handle(answer, at(self.now)))

    def connect(self):
        """The time for it comes, and the socket has a connection."""
        for _ in range(3):
            if self.core.state is Phase.DOWN:
                self.pass_time(max(0, self.core.next_wake_ms() - self.now))
        if self.core.state is Phase.CONNECTING:
            self.perform(self.core.handle(Connected(), at(self.now)))

    def pass_time(self, ms):
        self.listener.pass_time(ms)
        self.perform(self.core.tick(at(self.now), drained=True))

    def lose(self):
        self.listener.lose(self.peer)
        self.up.clear()
        self.perform(self.core.handle(Lost(), at(self.now)))

    def talk(self, *, commit=True):
        """Everything that is under way arrives, and is answered."""
        for _ in range(100):
            self.send()
            if not self.up and not self.listener.down and not (commit and self.listener.pending):
                return
            while self.up:
                self.answer()
            if commit:
                self.listener.commit()
            while self.listener.down:
                self.take()
        raise AssertionError("it does not come to an end")

    # -- for tests ----------------------------------------------------------------------------

    def live(self, messages=0):
        """Begun, with so many messages published and offered."""
        self.connect()
        self.talk()
        assert self.core.live
        for _ in range(messages):
            self.listener.publish()
        self.listener.offer(messages)
        self.talk()
        self.listener.commands.clear()
        return self

    def again(self):
        """The connection is lost and made again; gives the command that it is asked for with."""
        self.listener.commands.clear()
        self.lose()
        self.connect()
        self.talk()
        return next(each for each in self.listener.commands if isinstance(each, q.Consume))

    def out(self, most=None):
        """Messages are handed out."""
        messages, effects = self.core.hand_out(most, self.now)
        self.perform(effects)
        return messages

    def asked(self, kind):
        """The commands of one kind that the listener got."""
        return [each for each in self.listener.commands if type(each) is kind]


def the(items):
    """The only one of them."""
    (one,) = items
    return one


def ends(*runs):
    return [end for run in runs for end in run]
