"""Two to five instances in one world: journal and replication processes that ship, on simulated
disks and a simulated network.

One seed decides everything: which instances send to which, who publishes where and fails over when,
what is cut in one direction or in both, which process dies at which effect, where the power fails.

Safety: what a publisher was told is durable, is durable at as many destinations as the rule asks
for, in that moment. Liveness: when faults end, all instances hold the same messages, each once,
with the same content and every origin in its order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any

import msgspec

from tests.sim import many_bugs, many_generations
from tests.sim.disk import SimCrash, SimDisk
from tests.sim.journal_process import SimNote
from tests.sim.many_disks import DiskContent, content_of
from tests.sim.many_journal import INGEST, InstanceJournal
from tests.sim.many_publishers import Publisher, Sent
from tests.sim.many_subscribers import InstanceDelivery, Subscriber
from tests.sim.net import Net, Scheduler
from tests.sim.replication_process import ReplicationNode
from tests.sim.two_nodes import (
    START_NS,
    Clock,
    Held,
    Message,
    Violation,
    messages,
)
from zbroker.checksums import crc32c
from zbroker.delivery.core import DeliveryCore
from zbroker.engine.effects import Note
from zbroker.ids import Origin
from zbroker.ingest.replication_gate import Outstanding, ReplicationGate, Settled
from zbroker.journal import events as ev
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log
from zbroker.replication.core import ReplicationCore
from zbroker.replication.effects import MarkSubscribed
from zbroker.replication.log_port import LinkLog
from zbroker.wire import internal as m
from zbroker.wire.messages import Columns
from zbroker.wire.replicas import Replicated

NAMES = "abcde"
RUN_MS = 8_000
HEAL_MS = 60_000


class Instance:
    """One instance: its disk, its processes, the publishers that are logged on."""

    journal_of: type[InstanceJournal] = InstanceJournal

    def __init__(self, world: ManyWorld, name: str, number: int) -> None:
        self.world, self.name, self.id = world, name, number
        self.disk = SimDisk(world.rng)
        self.skew_s = world.rng.choice((0, 0, -5, 3_600))
        self.destinations: list[str] = []
        self.journal: InstanceJournal | None = None
        self.replication: ReplicationNode | None = None
        self.delivery: InstanceDelivery | None = None
        self._said: Replicated | None = None  # by the replication process that runs
        self.note = SimNote()  # in the memory of the host
        self.deaths = 0
        self.gate = ReplicationGate(on=False)
        self.disk_nearly_full = False
        self._ordinals: dict[int, Sent] = {}
        self._opens: dict[int, Publisher] = {}
        self._next, self._receipted = count(1), 0
        self._held: dict[Message, Held] = {}
        self._read_to = 0
        self.clock = Clock(self.wall_ns, lambda: world.at.now_ms)
        self._image: SimDisk | None = None
        self._lives = 0  # that the disk began since that copy was made
        self.former_life = False  # the disk is of another one than it had before it came back
        self._copies_former = False  # so is the copy
        self.held_once: set[Message] = set()  # by disks that this host has no more

    def topics_for(self, destination: str) -> LinkTopics:
        """What a destination gets."""
        return EVERYTHING

    @property
    def peers(self) -> tuple[str, ...]:
        """Those with a link to it, or from it."""
        others = self.world.instances.items()
        sources = (name for name, other in others if self.name in other.destinations)
        return tuple(sorted({*self.destinations, *sources}))

    # what a JournalNode takes its world for

    @property
    def rng(self) -> Random:
        return self.world.rng

    @property
    def at(self) -> Scheduler:
        return self.world.at

    @property
    def net(self) -> Net:
        return self.world.net

    @property
    def incarnations(self) -> Iterator[int]:
        return self.world.incarnations

    @property
    def bug(self) -> str:
        return self.world.bug

    receipt_loss = 0.05

    def salt(self) -> int:
        return self.rng.getrandbits(64)

    def wall_ns(self) -> int:
        return START_NS + self.skew_s * 1_000_000_000 + self.at.now_ms * 1_000_000

    def crashed(self, _node: object) -> None:
        self.kill_journal(power=self.rng.random() < 0.3)

    @contextmanager
    def undisturbed_disk(self) -> Iterator[None]:
        hook, self.disk.hook = self.disk.hook, _nothing
        try:
            yield
        finally:
            self.disk.hook = hook

    # -- processes ----------------------------------------------------------------------------

    def start(self) -> None:
        if self.journal is None:
            with self.undisturbed_disk():
                self.journal = self.journal_of(self)
            self._next, self._receipted = count(1), 0
            self.gate = ReplicationGate(on=self.needed > 0)
            self.gate.journal_begins(self.journal.core.commit.settings.incarnation)
        if self.replication is None:
            self.deaths = 0
            self.replication = ReplicationNode(self)
        if self.delivery is None:
            self.delivery = InstanceDelivery(self)
            if self._said is not None:
                self.delivery.marked(self._said, to_all=True)

    def kill_journal(self, *, power: bool) -> None:
        node, self.journal = self.journal, None
        if node is None:
            return
        node.die()
        self.disk.hook = _nothing
        if power:
            self.kill_replication()
            self.kill_delivery()
            self.disk.power_cut()
            self.note = SimNote()
        else:
            self.disk.crash()
        self._held, self._read_to = {}, 0
        self._ordinals.clear()
        self._opens.clear()
        self.gate = ReplicationGate(on=True)
        for publisher in self.world.publishers:
            if publisher.at is self:
                publisher.leave()
        self.world.events.append("power cut" if power else "journal killed")

    def kill_replication(self) -> None:
        node, self.replication, self._said = self.replication, None, None
        if node is not None:
            node.die()
            self.world.events.append("replication killed")

    def kill_delivery(self) -> None:
        node, self.delivery = self.delivery, None
        if node is not None:
            node.die()
            self.world.events.append("delivery killed")

    def die_soon(self) -> None:
        """At an operation of the disk, or at an effect of the replication process."""
        if self.rng.random() < 0.5:
            self.deaths = self.rng.randint(1, 200)
            return
        self.disk.hook = _Countdown(self.rng.randint(1, 80))

    def fill_disk(self) -> None:
        """Records are refused from now on, or taken again."""
        self.disk_nearly_full = not self.disk_nearly_full

    def keep_image(self) -> None:
        """A copy of the disk as it is now."""
        if self.journal is not None:
            self.disk.settle()
            self._image, self._lives = copied(self.disk, self.rng), 0
            self._copies_former = self.former_life

    def restore(self, *, empty: bool) -> None:
        """The host is set back to that copy, or has a new disk."""
        image = None if empty else self._image
        if image is None and not empty:
            return
        former = self._lives > 0 or self._copies_former
        self.former_life, self._lives = former and not empty, self._lives + 1
        before = self.durable()
        self.held_once |= before.messages
        self.kill_journal(power=False)
        self.kill_replication()
        self.kill_delivery()
        self.replace_disk(SimDisk(self.rng) if image is None else copied(image, self.rng))
        self.world.events.append("new disk" if empty else "old disk")
        self.start()
        self.world.note_lost(before)

    def replace_disk(self, disk: SimDisk) -> None:
        """The host starts with another one, and with empty memory: not within the same second, by
        which two generations are told apart if neither knows of the other."""
        self.disk, self.note = disk, SimNote()
        self.skew_s += 1

    def durable(self) -> DiskContent:
        """What its disk holds, also while it is down."""
        with self.undisturbed_disk():
            return content_of(self.disk, self.journal.core.persisted if self.journal else 1 << 40)

    # -- publishers ---------------------------------------------------------------------------

    def _say(self, message: Any, bodies: list[bytes] | None = None) -> None:
        assert self.journal is not None
        self.journal.inbox.put(ev.Incoming(INGEST, message, list(bodies or [])))

    def open(self, publisher: Publisher) -> None:
        if self.journal is None:
            return
        cid = next(self.world.incarnations)
        publisher.at, publisher.session, self._opens[cid] = self, 0, publisher
        incarnation = self.journal.core.commit.settings.incarnation
        self._say(m.Open(cid, incarnation, publisher.name, ""))

    def send(self, publisher: Publisher) -> None:
        """What the publisher has not sent in this session, in batches of its mood."""
        rng = self.rng
        if self.journal is None:
            return
        while publisher.session and publisher.sent < len(publisher.unacked):
            run = publisher.unacked[publisher.sent : publisher.sent + rng.choice((1, 2, 3, 5))]
            run = [item for n, item in enumerate(run) if item[0] == run[0][0] + n]
            body = msgspec.msgpack.encode([payload for _, payload in run])
            first, last = run[0][0], run[-1][0]
            prev = publisher.chain if publisher.says_prev else publisher.used.before(first)
            publisher.used.use(first, last)
            topics, columns = self.world.topics_of([sequence for sequence, _ in run])
            entry = m.Entry(
                publisher.id, publisher.session, first, len(run), prev, crc32c(body), None, topics,
                columns=columns,
            )  # fmt: skip
            self.append(publisher, entry, body)

    def append(self, publisher: Publisher, entry: m.Entry, body: bytes) -> None:
        """Sends the journal what its publisher sent next."""
        assert self.journal is not None
        ordinal, last = next(self._next), entry.seq + entry.count - 1
        self._ordinals[ordinal] = Sent(publisher, publisher.session, last)
        incarnation = self.journal.core.commit.settings.incarnation
        self._say(m.Append(incarnation, ordinal, ordinal - 1, [entry]), [body])
        publisher.chain = last
        publisher.sent += entry.count

    def answered(self, message: Any) -> None:
        if isinstance(message, m.Opened):
            publisher = self._opens.pop(message.cid)
            if publisher.at is self and message.code:
                publisher.leave()
            elif publisher.at is self:
                publisher.opened(message)
                self.send(publisher)
        elif isinstance(message, m.JournalReceipt):
            known = [item for item in message.items if item.ordinal in self._ordinals]
            fresh = [item for item in known if item.ordinal > self._receipted]
            self._receipted = max([self._receipted, *(item.ordinal for item in fresh)])
            empty = m.Entry(0, 0, 0, 0, None, 0, None, [])
            self._answer(
                self.gate.receipts([(Outstanding(i.ordinal, empty, b""), i) for i in fresh])
            )

    def mark_subscribed(self) -> None:
        """A process of this instance wants to know that."""
        if self.replication is not None:
            self.replication.answers.put(MarkSubscribed())

    def replicated(self, said: Replicated, *, to_all: bool) -> None:
        """The replication process says how far enough destinations are: see PublishMark."""
        self._said = said
        if self.delivery is not None:
            self.delivery.marked(said, to_all=to_all)
        if self.gate.moved(said):
            self._answer(self.gate.receipts([]))

    def _answer(self, settled: list[Settled]) -> None:
        """What ingest tells publishers."""
        for out, item in settled:
            sent = self._ordinals.pop(out.ordinal)
            publisher = sent.publisher
            if publisher.at is not self or publisher.session != sent.session:
                continue
            if item.code:
                publisher.leave()
                continue
            for sequence in publisher.settle(sent.last):
                self.world.acknowledged(self, publisher, sequence, self.needed)

    def replication_says(self, answer: Any) -> None:
        """To the queues process, which not every world has."""

    @property
    def needed(self) -> int:
        """How many destinations an acknowledgement waits for."""
        return min(self.world.sync_needed, len(self.destinations))

    # -- the log ------------------------------------------------------------------------------

    def held(self) -> dict[Message, Held]:
        """All durable messages of the log."""
        for batch in self.batches(self._read_to):
            self._read_to = batch.end_position
            if batch.kind == KIND_PUBLISH:
                found = dict(messages(batch))
                for message, held in found.items():
                    self.world.demand(message not in self._held, f"{self.name}: {message} twice")
                    self._held[message] = held
                self.world.note_given(self.name, found)
        return self._held

    def before(self, position: int) -> set[Message]:
        """What its log holds before a position."""
        return {
            message for batch in self.batches() if batch.kind == KIND_PUBLISH
            for n, (message, _) in enumerate(messages(batch)) if batch.position + n < position
        }  # fmt: skip

    def batches(self, start: int = 0) -> list[Batch]:
        """Everything durable, with bodies."""
        journal = self.journal
        if journal is None or start >= journal.core.persisted:
            return []
        with self.undisturbed_disk():
            log = Log(disk=self.disk)
            cursor, found = log.seek(max(start, log.first_position)), []
            while cursor.position < journal.core.persisted:
                items, cursor = log.read(cursor, journal.core.persisted, 1 << 20)
                for item in items:
                    self.world.demand(not isinstance(item, Gap), f"{item} in an undamaged log")
                    assert isinstance(item, Batch)
                    found.append(item)
        return found


class _Countdown:
    def __init__(self, left: int) -> None:
        self._left = left

    def __call__(self, name: str) -> None:
        self._left -= 1
        if self._left <= 0:
            raise SimCrash(name)


def _nothing(_boundary: str) -> None:
    pass


def _incarnations(seed: int) -> Iterator[int]:
    """By chance, as those of processes are: generations that do not get the time as their number
    get one by the incarnation, and small ones would be the time of the next seconds."""
    rng = Random(f"incarnations {seed}")  # not that of the history, which stays as it is
    while True:
        yield rng.getrandbits(62) + 1


def copied(disk: SimDisk, rng: Random) -> SimDisk:
    """Another disk with the same content."""
    hook, disk.hook, own = disk.hook, _nothing, disk.rng
    disk.rng = Random(0)
    try:
        made = copy.deepcopy(disk)
    finally:
        disk.hook, disk.rng = hook, own
    made.rng, made.hook = rng, _nothing
    made.crash()
    return made


class ManyWorld:
    """One seed's history."""

    instance_of: type[Instance] = Instance

    def __init__(self, seed: int, bug: str = "", instances: int = 0) -> None:
        self.rng = Random(seed)
        self.bug = bug
        self.at = Scheduler(self.rng)
        self.net = Net(self.at)
        self.incarnations = _incarnations(seed)
        self.events: list[str] = []
        self.notes: list[str] = []
        self.cuts: set[tuple[str, str]] = set()
        self.lost: set[Message] = set()  # with the disks that had them
        self.misplaced: set[Message] = set()  # those, or that one of their origins is known no more
        #: that a disk held which was set back, and that their program will send again
        self._sent_again: set[tuple[Message, Origin]] = set()
        self._given: dict[tuple[Origin, int], Message] = {}
        names = NAMES[: instances or self.rng.choice((2, 3, 3, 4, 5))]
        self.instances = {
            name: self.instance_of(self, name, 0xA0 + n) for n, name in enumerate(names)
        }
        self._wire()
        self.sync_needed = self.rng.choice((0, 1, 1, 2))
        self.victim = self.rng.choice(list(self.instances.values()))  # of disks that are set back
        self.publishers = [
            Publisher(f"p{n}", self.rng.random() < 0.7) for n in range(self.rng.randint(1, 3))
        ]
        self.subscribers = [Subscriber(self, n) for n in range(self.rng.choice((0, 1, 2)))]

    def _wire(self) -> None:
        """A full mesh, a ring in both directions, or a star: every instance gets everything."""
        names = list(self.instances)
        form = self.rng.choice(("mesh", "mesh", "ring", "star"))
        for n, name in enumerate(names):
            others = [other for other in names if other != name]
            if form == "ring":
                others = list({names[n - 1], names[(n + 1) % len(names)]} - {name})
            elif form == "star" and n:
                others = names[:1]
            self.instances[name].destinations = sorted(others)

    def demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(otherwise)

    def note_lost(self, before: DiskContent) -> None:
        """A disk with this content is gone."""
        left = [one.durable() for one in self.instances.values()]
        self.lost |= before.messages.difference(*(one.messages for one in left))
        nowhere = before.origins.difference(*(one.origins for one in left))
        self.misplaced |= {message for message, _ in nowhere}
        waits = {(p.id, sequence) for p in self.publishers for sequence, _ in p.unacked}
        self._sent_again |= {each for each in before.origins if each[0] in waits}

    def may_come_again(self, at: Instance) -> set[Message]:
        """A disk was set back, nobody had an acknowledgement of these messages on it, and they were
        sent again: a subscriber that saw them by their former names, and begins now where these are
        not known, gets them twice."""
        unknown = self._sent_again - at.durable().origins if self._sent_again else ()
        return {message for message, _ in unknown}

    def note_given(self, where: str, found: dict[Message, Held]) -> None:
        """A position at an origin is that of one message, also after the disk is lost that had it:
        a subscriber may know it."""
        for message, held in found.items():
            first = self._given.setdefault((held.origin, held.position), message)
            place = f"{held.origin}.{held.position}"
            self.demand(first == message, f"{where}: {place} was given twice: {first}, {message}")

    def plant_replication(self, core: ReplicationCore, log: LinkLog) -> None:
        """A bug of the replication process."""
        if self.bug in many_bugs.CORES:
            many_bugs.CORES[self.bug](core)
        elif self.bug in many_bugs.LOGS:
            many_bugs.LOGS[self.bug](log)

    def plant_delivery(self, core: DeliveryCore) -> None:
        """A bug of the delivery process."""
        if self.bug in many_bugs.DELIVERIES:
            many_bugs.DELIVERIES[self.bug](core)

    def noted(self, instance: Instance, note: Note) -> None:
        self.notes.append(f"{instance.name}: {note.name} {note.text}")

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.cuts

    def acknowledged(
        self, instance: Instance, publisher: Publisher, sequence: int, need: int
    ) -> None:
        """A program was told: as many destinations must hold it now, durably, or have held it on a
        disk that was set back since: what the rule counted was true."""
        message = publisher.id, sequence
        self.demand(message in instance.held(), f"{message} acknowledged, not in {instance.name}")
        holders = [
            name for name in instance.destinations
            if self.instances[name].journal is None or message in self.instances[name].held()
            or message in self.instances[name].held_once
        ]  # fmt: skip
        self.demand(
            len(holders) >= need, f"{message} acknowledged at {instance.name}, held by {holders}"
        )

    def is_replicated(self, message: Message) -> bool:
        """As many hold it as an acknowledgement needs, or did on a disk that was set back since."""
        holders = [
            one for one in self.instances.values()
            if one.journal is None or message in one.held() or message in one.held_once
        ]  # fmt: skip
        return len(holders) > min(one.needed for one in self.instances.values())

    # -- a history ----------------------------------------------------------------------------

    def run(self) -> None:
        for instance in self.instances.values():
            instance.start()
        while self.at.now_ms < RUN_MS:
            self.step()
            self.at.run_until(self.at.now_ms + self.rng.choice((1, 5, 20, 100, 400)))
        self.heal()
        self.verdict()

    def step(self) -> None:
        instance = self.rng.choice(list(self.instances.values()))
        publisher = self.rng.choice(self.publishers)
        acts: list[tuple[int, Callable[[], object]]] = [
            (30, lambda: self.publish(publisher)),
            (8, lambda: self.fail_over(publisher)),
            (4, lambda: self.cut()),
            (6, self.cuts.clear),
            (4, instance.die_soon),
            (2, lambda: instance.kill_journal(power=self.rng.random() < 0.5)),
            (2, instance.kill_replication),
            (2, instance.kill_delivery),
            (12, self.move_subscriber),
            (2, lambda: self.state(instance)),
            (3, instance.fill_disk),
            (2, self.victim.keep_image),
            (1, lambda: self.victim.restore(empty=self.rng.random() < 0.3)),
            (1, self.lose_a_tail),
        ]
        weights = [weight for weight, _ in acts]
        self.rng.choices(acts, weights)[0][1]()
        for each in self.instances.values():
            if self.rng.random() < 0.2:
                each.start()
        for one in self.subscribers:
            one.step()

    def move_subscriber(self) -> None:
        """One fails over, to any instance."""
        if self.subscribers:
            one, instance = self.rng.choice(self.subscribers), self.rng.choice(list(self.instances))
            one.fail_over(self.instances[instance], restarts=self.rng.random() < 0.3)

    def publish(self, publisher: Publisher) -> None:
        for _ in range(self.rng.choice((1, 1, 3, 6))):
            gap = self.rng.choice((1, 1, 1, 1, 2)) if not publisher.unacked else 1
            publisher.sequence += gap
            payload = self.payload_of(publisher)
            publisher.unacked.append((publisher.sequence, payload))
        if publisher.at is not None:
            publisher.at.send(publisher)

    def payload_of(self, publisher: Publisher) -> bytes:
        """Of its next message."""
        return f"{publisher.name}.{publisher.sequence}".encode()

    def topics_of(self, sequences: list[int]) -> tuple[list[str], Columns | None]:
        """Of a batch of messages: its topics, and which of them each one has."""
        return ["t"], None

    def fail_over(self, publisher: Publisher) -> None:
        """Logs on anywhere, also where it is."""
        publisher.leave()
        self.rng.choice(list(self.instances.values())).open(publisher)

    def cut(self) -> None:
        a, b = self.rng.sample(list(self.instances), 2)
        self.cuts.add((a, b))
        if self.rng.random() < 0.5:
            self.cuts.add((b, a))

    def lose_a_tail(self) -> None:
        """One host alone gets messages, and subscribers read them there; then it is set back."""
        victim, now_ms = self.victim, self.at.now_ms
        victim.start()
        victim.keep_image()
        others = [name for name in self.instances if name != victim.name]
        self.cuts |= {
            pair for name in others for pair in ((name, victim.name), (victim.name, name))
        }
        publisher = self.rng.choice(self.publishers)
        publisher.leave()
        victim.open(publisher)
        for one in self.subscribers:
            one.fail_over(victim)
        while self.at.now_ms < now_ms + 600:
            self.publish(publisher)
            self.at.run_until(self.at.now_ms + 100)
            for one in self.subscribers:
                one.step()
        if self.rng.random() < 0.7:
            victim.restore(empty=False)
            self.cuts.clear()

    def state(self, instance: Instance) -> None:
        if instance.journal is not None:
            instance.journal.core.commit.want_state()

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything is up and stays up, and whatever waits goes its way."""
        self.cuts.clear()
        for instance in self.instances.values():
            instance.disk.hook = _nothing
            instance.deaths, instance.disk_nearly_full = 0, False
            instance.start()
        end = self.at.now_ms + HEAL_MS
        while self.at.now_ms < end:
            for instance in self.instances.values():
                instance.start()
            for publisher in self.publishers:
                if publisher.at is None:
                    self.fail_over(publisher)
            self.at.run_until(self.at.now_ms + 500)
            for one in self.subscribers:
                one.step()
            if many_generations.has_two_histories(self.victim, self.instances.values()):
                self.events.append("two histories")
                self.victim.restore(empty=True)
            if self._rests():
                return
        waits = {p.name: p.unacked[:2] for p in self.publishers if p.unacked}
        held = set(next(iter(self.instances.values())).held())
        lack: dict[str, Any] = {one.name: sorted(one.lacks(held))[:3] for one in self.subscribers}
        lack |= many_generations.still_open(self)
        raise Violation(f"it does not come to rest: {waits}, {lack}, {self._vectors()}")

    def _rests(self) -> bool:
        if any(publisher.unacked for publisher in self.publishers):
            return False
        first, *others = (set(instance.held()) for instance in self.instances.values())
        equal = all(other == first for other in others)
        served = not any(one.lacks(first) for one in self.subscribers)
        return equal and served and not many_generations.still_open(self)

    def _vectors(self) -> dict[str, Any]:
        return {
            name: {str(o): p for o, p in i.journal.core.commit.sessions.origins.vector.items()}
            for name, i in self.instances.items() if i.journal is not None
        }  # fmt: skip

    def verdict(self) -> None:
        first, *others = self.instances.values()
        for publisher in self.publishers:
            for sequence, payload in publisher.acked.items():
                held = first.held().get((publisher.id, sequence))
                if held is None and (publisher.id, sequence) in self.lost:
                    continue
                self.demand(held is not None, f"{publisher.name} {sequence} was lost")
                assert held is not None
                self.demand(held.payload == payload, f"{publisher.name} {sequence} is another")
        for other in others:
            wrong = [k for k, h in other.held().items() if first.held()[k].payload != h.payload]
            self.demand(not wrong, f"{wrong[:3]} differ")
        for instance in self.instances.values():
            self._check_order(instance)

    def _check_order(self, instance: Instance) -> None:
        """Each origin in its order; each publisher in its order but for what is flagged late."""
        seen: dict[Origin, int] = {}
        highs: dict[int, int] = {}
        for batch in instance.batches():
            last = batch.origin_position + batch.taken - 1
            name = instance.name
            self.demand(
                batch.origin_position > seen.get(batch.origin, 0), f"{name}: {batch.origin} order"
            )
            seen[batch.origin] = last
            if batch.kind == KIND_PUBLISH:
                late = batch.sequence <= highs.get(batch.publisher, 0)
                self.demand(late == bool(batch.flags & FLAG_LATE), f"{name}: wrongly flagged late")
                if not late:
                    highs[batch.publisher] = batch.sequence + batch.taken - 1
