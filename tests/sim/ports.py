"""Ports of simulated processes: sources and performers over the simulated net, disk and scheduler.

A simulated process is the core that ships, the Turn that ships, a plan, and these. Limits are drawn
again for each turn, and the process may die before and after each effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from tests.sim.net import Net, Pipe
from zbroker.engine.contract import Limit, Ready, TurnPlan
from zbroker.engine.effects import JOURNAL, WATERMARKS, Follow, Reconnect, Say, Send, ToPeer
from zbroker.engine.events import Commands, Gone
from zbroker.journal.effects import PublishWatermarks
from zbroker.server.peers import Received
from zbroker.wire import codec

if TYPE_CHECKING:
    from zbroker.engine.contract import Core, Now

#: what the publisher of watermarks is sent
SUBSCRIBE, FOLLOW, FOLLOW_WRITES = b"beats", b"commits", b"commits and writes"
#: how much a source has in a turn, and how many blocks are read; 0: drawn again
DRAWN = (1, 2, 100, 0)
IDLE_TURNS = 8  # in a row have one check: half of all turns and more do nothing


class Killed(Exception):
    """The process died here."""


class Mailbox:
    """A source of what arrives one by one."""

    woken: Callable[[], None] | None = None  # called when something arrives

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.drained = True

    def put(self, event: Any) -> None:
        self.waiting.append(event)
        self.arrived()

    def arrived(self) -> None:
        if self.woken is not None:
            self.woken()

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        for _ in range(limit.count):
            if not self.waiting:
                break
            yield self.waiting.popleft()
        self.drained = not self.waiting

    def next_wake_ms(self) -> int | None:
        return 0 if self.waiting else None


class JournalLink(Mailbox):
    """The twin of zbroker.server.ports.JournalPort. Of watermarks only the newest is there."""

    def __init__(
        self, net: Net, journal: str, watermarks: str, *, every_write: bool = False
    ) -> None:
        super().__init__()
        self._net, self._addresses = net, (journal, watermarks)
        self._follow = FOLLOW_WRITES if every_write else FOLLOW
        self._newest: Any = None
        self._following = False
        self._dealer = self._open_journal()
        self._watermarks = self._open_watermarks()

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        yield from super().events(ready, limit)
        newest = self._newest
        if newest is not None and not self.waiting:  # answers that came before it come before it
            self._newest = None
            yield codec.WATERMARKS.decode(newest)

    def next_wake_ms(self) -> int | None:
        return 0 if self.waiting or self._newest is not None else None

    def say(self, effect: Say) -> None:
        frame = codec.encode(effect.message), [bytes(body) for body in effect.bodies]
        self._net.send(self._dealer, frame)

    def follow(self, effect: Follow) -> None:
        self._following = effect.on
        self._renew()

    def reconnect(self, effect: Reconnect) -> None:
        if effect.link == JOURNAL:
            self._net.close(self._dealer)
            self.waiting.clear()
            self._dealer = self._open_journal()
        else:
            assert effect.link == WATERMARKS
            self._renew()

    def _renew(self) -> None:
        self._net.close(self._watermarks)
        self._newest = None
        self._watermarks = self._open_watermarks()

    def _open_journal(self) -> Pipe:
        def arrived(frame: bytes) -> None:
            if dealer is self._dealer:
                self.put(codec.FROM_JOURNAL.decode(frame))

        dealer = Pipe(self._addresses[0], arrived)
        return self._net.dealer(dealer)

    def _open_watermarks(self) -> Pipe:
        def arrived(frame: bytes) -> None:
            if watermarks is self._watermarks:
                self._newest = frame
                self.arrived()

        def connected() -> None:
            self._net.send(watermarks, self._follow if self._following else SUBSCRIBE)

        watermarks = Pipe(self._addresses[1], arrived, on_connected=connected)
        return self._net.dealer(watermarks)

    def close(self) -> None:
        """The process is dead."""
        self._net.close(self._dealer)
        self._net.close(self._watermarks)


class WatermarksPublisher:
    """The twin of zbroker.journal.ports.WatermarksPort. subscribed: called for each new reader."""

    def __init__(self, net: Net, address: str, subscribed: Callable[[], None]) -> None:
        self._followers: dict[bytes, bytes] = {}  # and what they follow
        self._subscribed = subscribed
        self.listener = net.bind(address, self._asked)

    def _asked(self, rid: bytes, asked: bytes) -> None:
        if asked != SUBSCRIBE:
            self._followers[rid] = asked
        self._subscribed()

    def readers(self, effect: PublishWatermarks) -> list[bytes]:
        """To which these watermarks go."""
        followers, pipes = self._followers, self.listener.pipes
        if effect.of_write:
            return [rid for rid in pipes if followers.get(rid) == FOLLOW_WRITES]
        return [rid for rid in pipes if rid in followers or not effect.of_commit]


class Listener(Mailbox):
    """The twin of CommandsPort and PublicListener of zbroker.server: clients may be gone."""

    def __init__(self, net: Net, address: str) -> None:
        super().__init__()
        self._net = net
        self._left: list[bytes] = []
        self._listener = net.bind(
            address, lambda rid, frame: self.put(self.received(rid, frame)), self._leaves
        )

    def _leaves(self, rid: bytes) -> None:
        self._left.append(rid)
        self.arrived()

    def received(self, rid: bytes, frame: Any) -> Received:
        """One command as the core takes it."""
        return Received(rid, [frame])

    def events(self, ready: Ready, limit: Limit) -> Iterator[Commands | Gone]:
        left = len(self._left)
        burst = list(super().events(ready, limit))
        if burst:
            yield Commands(burst)
        if self.drained and left:
            gone, self._left = self._left[:left], self._left[left:]
            yield from map(Gone, gone)

    def next_wake_ms(self) -> int | None:
        return 0 if self._left else super().next_wake_ms()

    def sent(self, send: Send) -> bool:
        """False if the peer is not connected any more."""
        return self._net.answer(self._listener, send.rid, (send.header, send.body))

    def send(self, effect: Send) -> Gone | None:
        return None if self.sent(effect) else Gone(effect.rid)

    def close(self) -> None:
        """The process is dead."""
        self._net.die(self._listener)


def draw(plan: TurnPlan, rng: Random) -> None:
    """The limits of the next turn."""
    drawn = rng.getrandbits  # `choice` takes twice as long, and most draws are these
    for _, limit in plan.sources:
        while not (count := DRAWN[drawn(2)]):
            pass
        limit.count = count
    while not (count := DRAWN[drawn(2)]):
        pass
    plan.reads_max = count


def mortal(
    performers: Mapping[type, Callable[[Any], Any]],
    point: Callable[[str], None],
    name: Callable[[Any], str] = lambda effect: type(effect).__name__,
) -> dict[type, Callable[[Any], Any]]:
    """The same performers; `point` is called before and after each effect, and may end the process.

    It is given the name of that boundary, such as "after:Sync".
    """

    def between(do: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def perform(effect: Any) -> Any:
            called = name(effect)
            point(f"before:{called}")
            event = do(effect)
            point(f"after:{called}")
            return event

        return perform

    return {kind: between(do) for kind, do in performers.items()}


class Ordered:
    """A core, and whether the turn keeps the order rules with it (see zbroker.engine.turn).

    wrong: called with what is wrong.
    """

    def __init__(self, core: Core[Any, Any], wrong: Callable[[str], Any]) -> None:
        self._core, self._wrong = core, wrong
        self._waiting: deque[Any] = deque()  # effects that were decided and not performed
        self._gone: set[bytes] = set()  # peers that were not reached meanwhile
        self._asked: Any = None  # what was to be read when nothing had happened since
        self._unchecked = 0  # turns; IDLE_TURNS if one of them was not idle

    def handle(self, event: Any, now: Now) -> Any:
        self._nothing_waits()
        self._asked = None
        self._unchecked = IDLE_TURNS
        self._waiting.extend(effects := self._core.handle(event, now))
        return effects

    def tick(self, now: Now, *, drained: bool) -> Any:
        self._nothing_waits()
        self._asked = None
        effects = self._core.tick(now, drained=drained)
        if effects:
            self._unchecked = IDLE_TURNS
            self._waiting.extend(effects)
        return effects

    def check(self) -> None:
        """After each turn: asserts what is always true of the core, unless it was idle."""
        self._unchecked += 1
        if self._unchecked >= IDLE_TURNS:
            self._unchecked = 0
            self._core.check()

    def next_read(self) -> Any:
        self._asked = self._core.next_read()
        return self._asked

    def next_wake_ms(self) -> int | None:
        return self._core.next_wake_ms()

    def performers(
        self, performers: Mapping[type, Callable[[Any], Any]]
    ) -> dict[type, Callable[[Any], Any]]:
        """The same, watched."""

        def watched(do: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def perform(effect: Any) -> Any:
                self._performed(effect)
                return do(effect)

            return perform

        return {kind: watched(do) for kind, do in performers.items()}

    def _performed(self, effect: Any) -> None:
        if effect is self._asked:
            self._asked = None
            return
        while self._waiting and self._waiting[0] is not effect:
            if not isinstance(self._waiting.popleft(), ToPeer):
                self._wrong(f"{effect} is performed before what was decided earlier")
        if not self._waiting:
            self._wrong(f"{effect} was not decided, or is read too late")
        self._waiting.popleft()

    def _nothing_waits(self) -> None:
        """But for what was to go to a peer that is gone."""
        while self._waiting:
            effect = self._waiting.popleft()
            if not isinstance(effect, ToPeer):
                self._wrong(f"the core is called while {effect} waits")
