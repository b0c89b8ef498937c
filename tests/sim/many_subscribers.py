"""Subscribers of the simulated instances: the delivery core and the client's core that ship.

A subscriber fails over to any instance, in the middle of a replay and live, by its connection or
as a program that starts again with a stored vector. Whatever happens to the instances: it sees each
message that it should exactly once; a fully durable one sees nothing that few instances hold.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from tests.sim.delivery_process import KEY, DiskReader
from tests.sim.lives import ListenerLife
from tests.sim.net import Pipe
from tests.sim.ports import Ordered
from tests.sim.two_nodes import Message
from zbroker.blocks.read_request import Read
from zbroker.client.effects import Connect, Connected, GetToken, Lost, MessagesArrived, NewToken
from zbroker.client.effects import SendCommand as Command
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import End, Feed, FeedBatch
from zbroker.delivery.contract import CloseFiles, Effect, FindPassed, PlanRanges
from zbroker.delivery.core import DeliveryCore, DeliverySettings
from zbroker.delivery.ports import BlocksPort, PlansPort
from zbroker.engine.contract import Now
from zbroker.engine.effects import ForgetBlocks
from zbroker.ids import EPOCH, NOW, Origin, format_bookmark, format_vector
from zbroker.log.reader import Log
from zbroker.recording import Recording
from zbroker.wire import codec, token
from zbroker.wire import messages as m

if TYPE_CHECKING:
    from tests.sim.many_world import Instance, ManyWorld

CREDIT = 2_000
WAIT_S = 1.0  # for what is not here yet; then another instance is tried
PATIENCE_MS = 4_000  # of a program whose subscription does not begin


def delivery_of(name: str) -> str:
    """Where an instance listens for subscribers."""
    return f"tcp-delivery-{name}"


class InstanceDelivery(ListenerLife):
    """The delivery process of one instance."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance, delivery_of(instance.name), every_write=True)
        world = self.world
        settings = DeliverySettings(
            KEY, 100, next(world.incarnations), Recording([]), replicated=instance.needed > 0
        )
        self.core = DeliveryCore(settings)
        self._plans = PlansPort(lambda: Log(disk=instance.disk), instance.clock)  # type: ignore[arg-type]
        self._log = BlocksPort(lambda: DiskReader(instance.disk))
        world.plant_delivery(self.core)
        judged = Ordered(self.core, lambda wrong: world.demand(False, wrong))
        sources = [self.journal, self.clients, self._plans, self.marks]
        effects = Read, *get_args(Effect)
        performers = self.performers(
            effects,
            {
                Read: self._log.read, PlanRanges: self._plans.begin,
                FindPassed: self._plans.begin, ForgetBlocks: self._forget,
                CloseFiles: self._log.close_files,
            },
        )  # fmt: skip
        self.begin(judged, sources, effects, performers)

    def kill(self) -> None:
        self.instance.kill_delivery()

    def _forget(self, effect: ForgetBlocks) -> None:
        self._log.forget(effect)
        self._plans.forget()


class Subscriber:
    """One program. seen: how often each message was handed out to it.

    not_wanted: what was in the log before its start. at: where it is, or tries to be.
    """

    def __init__(self, world: ManyWorld, number: int) -> None:
        rng = world.rng
        self.world, self.name = world, f"s{number}"
        self.seen: Counter[Message] = Counter()
        self.not_wanted: set[Message] = set()
        self.fully = rng.random() < 0.3
        self.bookmark = rng.choice((EPOCH, EPOCH, NOW))
        self.begun = self.bookmark == EPOCH
        self.at: Instance | None = None
        self._again: set[Message] = set()  # see ManyWorld.may_come_again
        self.failovers = 0
        self._core: SubscriberCore | None = None
        self._pipe: Pipe | None = None
        self._sessions = 0
        self._feed = self._made(self.bookmark)
        self._live_ms = 0

    def _made(self, bookmark: str) -> Feed:
        delivery = "fully_durable" if self.fully else "persisted"
        options = m.Options(wait_s=WAIT_S, delivery=delivery)
        return Feed(m.Subscribe("", "t", bookmark=bookmark, options=options, credit=CREDIT))

    # -- where it is --------------------------------------------------------------------------

    def fail_over(self, instance: Instance, *, restarts: bool = False) -> None:
        """Goes on there, also where it is. restarts: it is a new program, with a stored vector."""
        self._leave()
        self.failovers += 1
        vector = ""
        if restarts or self._feed.error is not None:
            self.read()
            vector = format_vector(self._feed.passed)
            self._feed = self._made(vector or self.bookmark)
        goes_on = self.begun or self._feed.accepted or vector
        if not goes_on and instance.journal is not None:
            self._feed = self._made(self._begin(sorted(instance.held())))
        self.at, self._live_ms = instance, self.world.at.now_ms
        core = self._core = SubscriberCore(self.world.rng.random)
        core.add(self._feed, self._now.mono_ms, CREDIT)
        self._perform(core.handle(self._token(instance), self._now))

    def _begin(self, held: list[Message]) -> str:
        """Now, or after some message."""
        rng = self.world.rng
        return format_bookmark(*rng.choice(held)) if held and rng.random() < 0.5 else NOW

    def _leave(self) -> None:
        if self._pipe is not None:
            self.world.net.close(self._pipe)
        self._pipe = self._core = self.at = None

    def _token(self, instance: Instance) -> NewToken:
        self._sessions += 1
        said = token.Token(self.name, "", "i", self._sessions, 1 << 40)
        return NewToken(token.make(KEY, said), Origin(instance.id, 0), self._sessions)

    @property
    def _now(self) -> Now:
        return Now(self.world.at.now_ms, 0)

    def _perform(self, effects: list[Any]) -> None:
        core, at = self._core, self.at
        for effect in effects:
            if self._core is not core or at is None:
                return
            if isinstance(effect, Connect):
                self._connect(at)
            elif isinstance(effect, Command):
                assert self._pipe is not None
                self.world.net.send(self._pipe, codec.encode(effect.command))
            else:
                assert isinstance(effect, GetToken)

    def _connect(self, at: Instance) -> None:
        if self._pipe is not None:
            self.world.net.close(self._pipe)
        core = self._core

        def hear(event: Any) -> None:
            if self._core is core and self._pipe is pipe and core is not None:
                self._perform(core.handle(event, self._now))

        def arrived(frame: tuple[bytes, bytes | None]) -> None:
            if self._pipe is not pipe:
                return
            answer = codec.ANSWERS.decode(frame[0])
            if isinstance(answer, m.Msg):
                assert frame[1] is not None
                hear(MessagesArrived(answer, bytes(frame[1])))
            else:
                self._begins(answer)
                hear(answer)

        pipe = Pipe(delivery_of(at.name), arrived, lambda: hear(Lost()), lambda: hear(Connected()))
        self._pipe = self.world.net.dealer(pipe)

    def _begins(self, answer: Any) -> None:
        """What was in the log before the place where it begins first it does not want."""
        if self.at is not None and isinstance(answer, m.Ack) and answer.position:
            self._again = self.world.may_come_again(self.at)
        at, known = self.at, self._feed.accepted
        if self.begun or known or not isinstance(answer, m.Ack) or not answer.position:
            return
        assert at is not None
        self.begun = at.journal is not None  # else nobody can tell
        self.not_wanted = at.before(answer.position)

    # -- what it does -------------------------------------------------------------------------

    def step(self) -> None:
        """Time passes; it may read; it goes elsewhere if it has to wait for too long."""
        core, rng = self._core, self.world.rng
        if core is None or self._feed.error is not None or self._waits_too_long():
            self.fail_over(rng.choice(list(self.world.instances.values())))
            return
        self._perform(core.tick(self._now, drained=True))
        if rng.random() < 0.7:
            self.read()

    def _waits_too_long(self) -> bool:
        if self._feed.state.value == "live":
            self._live_ms = self.world.at.now_ms
        return self.world.at.now_ms - self._live_ms > PATIENCE_MS

    def read(self) -> None:
        """The program takes what came in."""
        feed = self._feed
        while feed.inbox:
            item, effects = feed.hand_out(self._now.mono_ms)
            if isinstance(item, FeedBatch):
                batch = item.messages
                for sequence in batch.sequences:
                    self._see((batch.head.publisher, sequence))
            if isinstance(item, End):
                break
            self._give_back(effects)
        self._give_back(feed.asked(self._now.mono_ms))

    def _give_back(self, effects: list[Any]) -> None:
        """Credit, if it is still connected."""
        if self._pipe is not None:
            self._perform(effects)

    def _see(self, message: Message) -> None:
        world = self.world
        self.seen[message] += 1
        where = self.at.name if self.at is not None else "-"
        if self.fully:
            world.demand(world.is_replicated(message), f"{self.name} sees {message} too early")
        if message not in world.misplaced:  # else it is a new one, with another origin
            once, wanted = self.seen[message] == 1, message not in self.not_wanted
            once = once or message in self._again
            world.demand(once, f"{self.name} sees {message} twice, at {where}")
            world.demand(wanted, f"{self.name} sees {message}: it is too old")

    def lacks(self, held: set[Message]) -> set[Message]:
        """What it should have seen and did not. Its vector may name positions that only one disk
        had, and that are gone with it: they are not given again."""
        if not self.begun:
            return set()
        return held - self.not_wanted - self.seen.keys()
