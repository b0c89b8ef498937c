"""The world of `tests.sim.world` where one topic of three is not recorded and one by a filter, and
with a delivery room that comes and goes and grants little.

Beside the promises of the other world: what is not recorded is never in the log, everything of it
is acknowledged in its place and named as such, what a session passes on arrives in order and once.
Each message is recorded or not by its own content, in whatever batch it comes and how often.
"""

from __future__ import annotations

from typing import Any

from tests.sim.ingest_process import IngestNode
from tests.sim.net import Pipe
from tests.sim.world import App, ClientNode, Violation, World, _Item
from zbroker.client import effects as ef
from zbroker.config import RecordConfig
from zbroker.delivery.live import Taking
from zbroker.ingest.live import LiveForward, LiveReconnect
from zbroker.recording import Recording
from zbroker.wire import bodies, codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

LIVE = "ipc-live"
RECORDED, UNRECORDED, FILTERED = "t0", "t1", "t2"
FILTER = "MESSAGE_SIZE() % 2 = 0"
CREDIT_BYTES = 60
BEAT_MS = 100


def is_recorded(topic: str, data: bytes) -> bool:
    """What the tables of the world say."""
    return topic == RECORDED or (topic == FILTERED and len(data) % 2 == 0)


class RecordingIngest(IngestNode):
    """ingest with its link to delivery."""

    world: RecordingWorld
    live: Pipe | None = None

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, LiveForward):
                assert self.live is not None
                bodies = [bytes(body) for body in effect.bodies]
                self.world.net.send(self.live, (codec.encode(effect.message), bodies))
            elif isinstance(effect, LiveReconnect):
                if self.live is not None:
                    self.world.net.close(self.live)
                self.live = self.world.net.dealer(Pipe(LIVE, self._on_grant))
            else:
                super().perform([effect])

    def _on_grant(self, frame: bytes) -> None:
        if self.alive:
            self.core.live.on_grant(codec.FROM_LIVE.decode(frame))

    def die(self) -> None:
        super().die()
        if self.live is not None:
            self.world.net.close(self.live)
        self.world.count(self)


class RecordingClient(ClientNode):
    """A client that remembers topics, and looks at the order of its acks."""

    world: RecordingWorld
    newest_ack = 0

    def publish(self, messages: int) -> None:
        """Payloads are numbers with or without a space behind: for the filter."""
        for _ in range(messages):
            topic, number = self._topic(), self.app.sent
            data = b"%d" % number + b" " * self.world.rng.randrange(2)
            self.world.topics[self.app.name, number] = topic
            if not is_recorded(topic, data):
                self.world.live.setdefault(self.app.name, set()).add(number)
            self.inbox.append(_Item(topic, data))
            self.app.sent += 1
        self._pack()

    def _event(self, event: Any) -> None:
        if isinstance(event, m.Ack) and event.cid is None and event.seq is not None:
            if event.seq < self.newest_ack:
                raise Violation(f"{self.app.name}: ack {event.seq} came after {self.newest_ack}")
            self.newest_ack = event.seq
        elif isinstance(event, m.Error):
            self.world.errors.append(event.code)
        super()._event(event)

    def _perform(self, effects: list[Any]) -> None:
        if any(isinstance(effect, ef.Connect | ef.LoggedOn) for effect in effects):
            self.newest_ack = 0
        super()._perform(effects)

    def _learn(self) -> None:
        for sequence in [s for s in self.numbers if s <= self.core.settled]:
            number, known = self.numbers[sequence], self.core.unrecorded
            topic = self.world.topics[self.app.name, number]
            named = topic in known.topics or sequence in known.filtered
            if named != (number in self.world.live.get(self.app.name, ())):
                raise Violation(f"{self.app.name}: misled about {sequence} on {topic}")
        super()._learn()


class DeliveryNode:
    """The delivery process as far as ingest sees it."""

    def __init__(self, world: RecordingWorld) -> None:
        self.world = world
        self.alive = True
        self.taking = Taking(next(world.incarnations))
        self.listener = world.net.bind(LIVE, self._receive)
        self._beat()

    def _receive(self, rid: bytes, frame: tuple[bytes, list[bytes]]) -> None:
        message = codec.TO_LIVE.decode(frame[0])
        if isinstance(message, i.Hello):
            self._say(rid, self.taking.hello(rid, message))
        elif self.taking.takes(rid, message.incarnation, sum(map(len, frame[1]))):
            for entry, body in zip(message.entries, frame[1], strict=True):
                self.world.passed(self, entry, body)
            if self.world.rng.random() < 0.5:
                self._say(rid, self.taking.grant())
        else:
            self._say(rid, self.taking.ask_hello())

    def _say(self, rid: bytes, grant: i.LiveCredit) -> None:
        grant.credit_bytes = min(grant.credit_bytes, CREDIT_BYTES)
        self.world.net.answer(self.listener, rid, codec.encode(grant))

    def _beat(self) -> None:
        if self.alive:
            if self.taking.requester is not None:
                self._say(self.taking.requester, self.taking.grant())
            self.world.at.after(BEAT_MS, self._beat)

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)


class RecordingWorld(World):
    """Some messages are live only."""

    ingest_node = RecordingIngest
    client_node = RecordingClient
    may_keep = False  # what is not recorded may be passed on again
    may_be_by_hand = False
    recording = Recording([RecordConfig(RECORDED), RecordConfig(FILTERED, filter=FILTER)])

    def __init__(self, seed: int, bug: str = "", steps: int = 60, faults: bool = True) -> None:
        self.topics: dict[tuple[str, int], str] = {}
        self.live: dict[str, set[int]] = {}  # what is not recorded, by application
        self.errors: list[str] = []
        self.delivered = self.handed_over = self.dropped = 0
        self._newest: dict[tuple[int, int, int], int] = {}
        self._faulty = faults
        super().__init__(seed, bug, steps)
        self.delivery: DeliveryNode | None = DeliveryNode(self)

    def passed(self, node: DeliveryNode, entry: i.Entry, body: bytes) -> None:
        """A batch arrived at delivery: in order and once within its session."""
        if not node.alive:
            raise Violation("a dead delivery took something")
        key = (entry.publisher, entry.session, node.taking._theirs)
        for topic, data in _messages(entry, body):
            if is_recorded(topic, data):
                raise Violation(f"{data!r} on {topic} is recorded, and was passed on")
        if entry.seq <= self._newest.get(key, 0):
            raise Violation(f"{entry.seq} of {entry.publisher} came again or out of order")
        self._newest[key] = entry.seq + entry.count - 1
        self.delivered += entry.count

    def count(self, node: RecordingIngest) -> None:
        """An ingest ends."""
        self.handed_over += node.core.live.passed
        self.dropped += node.core.live.dropped

    def _step(self) -> None:
        if not self._faulty:
            self.clients[self.rng.choice(self.apps).name].publish(self.rng.choice([1, 3, 10]))
        elif self.rng.random() < 0.04:
            self._kill_delivery()
        else:
            super()._step()

    def _kill_delivery(self) -> None:
        if self.delivery is not None:
            self.faults.append("delivery killed")
            self.delivery.die()
            self.delivery = None
            self.at.after(self.rng.randint(0, 300), self._start_delivery)

    def _start_delivery(self) -> None:
        if self.delivery is None:
            self.delivery = DeliveryNode(self)

    def _heal(self) -> None:
        self._start_delivery()
        super()._heal()

    def _verdict(self) -> None:
        super()._verdict()
        assert isinstance(self.ingest, RecordingIngest)
        self.count(self.ingest)
        if self.delivered > self.handed_over:
            raise Violation("more was delivered than handed over")

    def _compare(self, app: App, numbers: list[int]) -> None:
        live = self.live.get(app.name, set())
        if live & set(numbers):
            raise Violation(f"{app.name}: recorded although it is not: {live & set(numbers)}")
        # what is live only was answered: _verdict found nothing that waits
        app.acked -= live
        app.lost |= live
        super()._compare(app, numbers)


def _messages(entry: i.Entry, body: bytes) -> list[tuple[str, bytes]]:
    """Topic and payload of each message."""
    column = entry.columns.index if entry.columns is not None else None
    index = bodies.indexes(column) if column is not None else bytes(entry.count)
    payloads = bodies.unpack(body, entry.codec, entry.count, 1 << 20)
    return [(entry.topics[at], data) for at, data in zip(index, payloads, strict=True)]
