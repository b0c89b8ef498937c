"""The world of `tests.sim.world` where one topic of three is not recorded and one by a filter, and
with a delivery process that comes and goes and grants little, and a subscriber of everything.

Beside the promises of the other world: what is not recorded is never in the log, everything of it
is acknowledged in its place and named as such, what a session passes on arrives in order and once.
Each message is recorded or not by its own content, in whatever batch it comes and how often.
A subscription gets what is in the log from its start on, once and in order, and nothing that a
power cut could take back; of what is not recorded it gets a part, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tests.sim.delivery_process import DeliveryNode
from tests.sim.ingest_process import IngestProcess
from tests.sim.subscriber import Recorded, SubscriberNode
from tests.sim.world import App, ClientNode, Violation, World, _Item
from zbroker.client import effects as ef
from zbroker.config import RecordConfig
from zbroker.delivery import live
from zbroker.delivery.contract import GrantLive
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RECORDED, UNRECORDED, FILTERED = "t0", "t1", "t2"
FILTER = "MESSAGE_SIZE() % 2 = 0"
CREDIT_BYTES = 60
GRANTS_BYTES = (1, 30, 60)  # taken until more is granted
CATCH_UP_MS = 30_000


def is_recorded(topic: str, data: bytes) -> bool:
    """What the tables of the world say."""
    return topic == RECORDED or (topic == FILTERED and len(data) % 2 == 0)


class RecordingIngest(IngestProcess):
    """ingest, whose messages that are not recorded are counted when it ends."""

    world: RecordingWorld

    def die(self) -> None:
        super().die()
        self.world.count(self)


class RecordingClient(ClientNode):
    """A client that remembers topics, and looks at the order of its acks."""

    world: RecordingWorld
    newest_ack = 0

    def publish(self, messages: int) -> None:
        """Payloads are numbers with or without a space after: for the filter."""
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
        if any(isinstance(effect, ef.Connect | ef.LogonAccepted) for effect in effects):
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


class RecordingWorld(World):
    """Some messages are live only."""

    ingest_process = RecordingIngest
    delivery_node = DeliveryNode
    client_node = RecordingClient
    may_keep = False  # what is not recorded may be passed on again
    may_be_by_hand = False
    recording = Recording([RecordConfig(RECORDED), RecordConfig(FILTERED, filter=FILTER)])

    def __init__(self, seed: int, bug: str = "", steps: int = 60, faults: bool = True) -> None:
        self.topics: dict[tuple[str, int], str] = {}
        self.live: dict[str, set[int]] = {}  # what is not recorded, by application
        self.errors: list[str] = []
        self.delivered = self.handed_over = self.dropped = 0
        self.refused: list[str] = []  # codes that the subscriber got
        self.live_seen = self.deaths = 0
        self._newest: dict[tuple[int, int, bytes], int] = {}
        self._faulty = faults
        super().__init__(seed, bug, steps)
        self.delivery: DeliveryNode | None = self.delivery_node(self)
        self.subscriber = SubscriberNode(self)

    def run(self) -> None:
        with mock.patch.object(live, "GRANT_BYTES", live.GRANT_BYTES):  # changes: see `less`
            super().run()

    def passed(self, node: DeliveryNode, rid: bytes, entry: i.Entry, body: bytes) -> None:
        """A batch arrived at delivery: in order and once within its session."""
        if not node.alive:
            raise Violation("a dead delivery took something")
        key = (entry.publisher, entry.session, rid)
        for number, (topic, data) in enumerate(_messages(entry, body)):
            if is_recorded(topic, data):
                raise Violation(f"{data!r} on {topic} is recorded, and was passed on")
            node.taken.append((entry.publisher, entry.seq + number, topic, data))
        if entry.seq <= self._newest.get(key, 0):
            raise Violation(f"{entry.seq} of {entry.publisher} came again or out of order")
        self._newest[key] = entry.seq + entry.count - 1
        self.delivered += entry.count

    def less(self, effect: GrantLive) -> GrantLive:
        """Little credit, and often another time at which more is given."""
        live.GRANT_BYTES = self.rng.choice(GRANTS_BYTES)  # type: ignore[misc]
        effect.grant.credit_bytes = min(effect.grant.credit_bytes, CREDIT_BYTES)
        return effect

    @contextmanager
    def undisturbed_disk(self) -> Iterator[None]:
        """Steps of a reader are no boundaries at which the journal dies."""
        hook, self.disk.hook = self.disk.hook, lambda _boundary: None
        yield
        self.disk.hook = hook

    def count(self, node: RecordingIngest) -> None:
        """An ingest ends."""
        self.handed_over += node.core.live.passed
        self.dropped += node.core.live.dropped

    def _step(self) -> None:
        if not self._faulty:
            self.clients[self.rng.choice(self.apps).name].publish(self.rng.choice([1, 3, 10]))
        elif self.rng.random() < 0.06:
            self._disturb_delivery()
        else:
            super()._step()

    def _disturb_delivery(self) -> None:
        draw = self.rng.random()
        if draw < 0.4:
            self.kill_delivery()
        elif draw < 0.8:
            self.deaths = self.rng.randint(1, 40)  # it dies at an effect from here on
        else:
            self.faults.append("subscriber cut")
            self.subscriber.connect()

    def kill_delivery(self) -> None:
        """It is started again a while later."""
        if self.delivery is not None:
            self.faults.append("delivery killed")
            self.delivery.die()
            self.delivery = None
            self.at.after(self.rng.randint(0, 300), self._start_delivery)

    def _kill_journal(self, power_cut: bool, node: Any = None) -> None:
        super()._kill_journal(power_cut, node)
        if power_cut:
            self.kill_delivery()

    def _start_delivery(self) -> None:
        if self.delivery is None:
            self.delivery = self.delivery_node(self)

    def _heal(self) -> None:
        self.deaths = 0
        self._start_delivery()
        super()._heal()
        end_ms = self.at.now_ms + CATCH_UP_MS
        while self.at.now_ms < end_ms and not self._caught_up():
            self.at.run_until(self.at.now_ms + 500)

    def _caught_up(self) -> bool:
        newest = self.subscriber.newest
        assert self.journal is not None
        recorded = recorded_of(self.read(self.journal.core.persisted))
        return newest is not None and newest.got == newest.expected(recorded)

    def _verdict(self) -> None:
        super()._verdict()
        self._judge_subscriptions()
        if isinstance(self.ingest, RecordingIngest):  # or it was just asked to stop
            self.count(self.ingest)
        if self.delivered > self.handed_over:
            raise Violation("more was delivered than handed over")

    def _judge_subscriptions(self) -> None:
        assert self.journal is not None
        recorded = recorded_of(self.read(self.journal.core.persisted))
        for one in self.subscriber.subscriptions:
            expected = one.expected(recorded)
            if one.got != expected[: len(one.got)]:
                raise Violation(f"{one}: got {one.got[-3:]}, which is not in the log there")
            passed = iter(one.node.taken)
            if not all(seen in passed for seen in one.live):
                raise Violation(f"{one}: {one.live} came in another order, or twice")
            self.live_seen += len(one.live)
        if not self._caught_up():
            raise Violation(f"{self.subscriber.newest} did not get all of the log after healing")

    def _compare(self, app: App, numbers: list[int]) -> None:
        live = self.live.get(app.name, set())
        if live & set(numbers):
            raise Violation(f"{app.name}: recorded although it is not: {live & set(numbers)}")
        # what is live only was answered: _verdict found nothing that waits
        app.acked -= live
        app.lost |= live
        super()._compare(app, numbers)


def recorded_of(batches: list[Batch]) -> list[Recorded]:
    """What subscribers may see of the log."""
    found: list[Recorded] = []
    for batch in batches:
        if batch.kind != KIND_PUBLISH:
            continue
        column = batch.columns.index if batch.columns is not None else None
        index = bodies.indexes(column) if column is not None else bytes(batch.count)
        payloads = bodies.unpack(bytes(batch.body), None, batch.count, 1 << 20)
        rows = list(zip(index, payloads, strict=True))[batch.skip :]
        found += [
            (batch.position + at, batch.topics[topic], data)
            for at, (topic, data) in enumerate(rows)
        ]
    return found


def _messages(entry: i.Entry, body: bytes) -> list[tuple[str, bytes]]:
    """Topic and payload of each message."""
    column = entry.columns.index if entry.columns is not None else None
    index = bodies.indexes(column) if column is not None else bytes(entry.count)
    payloads = bodies.unpack(body, entry.codec, entry.count, 1 << 20)
    return [(entry.topics[at], data) for at, data in zip(index, payloads, strict=True)]
