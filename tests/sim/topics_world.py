"""Instances in a mesh, one of which gets some topics only, or some messages by their content: a
copy for an audit, or a peer.

What it gets changes in the middle, at one source after the other; or one of them passes on what the
others hold, and only that one sends there. Messages of both topics, wanted ones and others, are in
one batch. The copy may be set back to an old disk, or get a new one.

Safety: what is acknowledged is at the copy, too, if the topics of the link want it. Liveness: the
others come to hold the same, whatever the copy lacks; the copy has of each origin what its topics
want, from where its row begins, and nothing that no list of topics ever wanted.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tests.sim import many_generations, topics_bugs
from tests.sim.many_journal import InstanceJournal
from tests.sim.many_publishers import Publisher
from tests.sim.many_world import Instance, ManyWorld
from tests.sim.two_nodes import Message, messages
from zbroker.ids import Origin
from zbroker.journal.core import JournalCore
from zbroker.limits import U63_MAX
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.log.format import KIND_PUBLISH, KIND_TIE
from zbroker.replication.core import ReplicationCore
from zbroker.replication.log_port import LinkLog
from zbroker.wire.messages import Columns
from zbroker.wire.replicas import Replicated

LISTS: Final = (LinkTopics(["t"]), LinkTopics(["t"]), LinkTopics(["u"]), EVERYTHING)
SOME, OTHERS = "/n % 5 < 2", "/n % 5 != 1 AND /by != 'p1'"
FILTERS: Final = (
    LinkTopics([], SOME), LinkTopics(["t"], SOME), LinkTopics([], OTHERS), LinkTopics(["u"]),
    EVERYTHING,
)  # fmt: skip


def topic_of(sequence: int) -> str:
    """Of a message."""
    return "u" if sequence % 3 == 0 else "t"


def wants(topics: LinkTopics, message: Message, publishers: Sequence[Publisher]) -> bool:
    """The rules of the filters above, by other words than theirs."""
    publisher, sequence = message
    if not topics(topic_of(sequence)):
        return False
    if topics.filter == SOME:
        return sequence % 5 in (0, 1)
    by = next(one.name for one in publishers if one.id == publisher)
    return topics.filter != OTHERS or (sequence % 5 != 1 and by != "p1")


class TopicsJournal(InstanceJournal):
    """Bugs of its own."""

    def plant_core(self, core: JournalCore) -> None:
        super().plant_core(core)
        if self.world.bug in topics_bugs.JOURNALS:
            topics_bugs.JOURNALS[self.world.bug](core)


class TopicsInstance(Instance):
    """sends: the topics that the copy gets from here. counted: those of the newest mark."""

    journal_of = TopicsJournal
    world: Any

    def __init__(self, world: ManyWorld, name: str, number: int) -> None:
        super().__init__(world, name, number)
        self.sends = self.counted = EVERYTHING

    def topics_for(self, destination: str) -> LinkTopics:
        return self.sends if destination == self.world.copy.name else EVERYTHING

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(self.destinations)

    @property
    def needed(self) -> int:
        """All of them, or none: a number of them needs the same topics."""
        return len(self.destinations) if self.world.sync_needed else 0

    def restore(self, *, empty: bool) -> None:
        self.world.note_gaps()
        super().restore(empty=empty)

    def replicated(self, said: Replicated, *, to_all: bool) -> None:
        self.world.note_gaps()
        assert self.replication is not None
        rules = self.replication.core.settings.destinations
        of_copy = (rule.topics for rule in rules if rule.name == self.world.copy.name)
        self.counted = next(of_copy, self.counted)
        super().replicated(said, to_all=to_all)


class TopicsWorld(ManyWorld):
    """One seed's history."""

    instance_of = TopicsInstance
    instances: Any

    def __init__(self, seed: int, bug: str = "") -> None:
        self.gaps: dict[Origin, int] = {}  # their ends, as the copy knew them
        self.lists = FILTERS if seed % 4 in (1, 2) else LISTS  # with both numbers of instances
        super().__init__(seed, bug, instances=3 + seed % 2)
        self.subscribers = []
        self.victim = self.copy
        self.changes = self.rng.random() < 0.5
        first = self.rng.choice(self.lists[:2])
        self.wanted_once = {first}
        for source in self.wholes:
            source.sends = source.counted = first
        if not self.changes and self.rng.random() < 0.5:  # after a change it would need a skip
            for other in self.wholes[1:]:
                other.destinations.remove(self.copy.name)
            self.copy.destinations = self.copy.destinations[:1]  # both ways, or what it lost stays

    def _wire(self) -> None:
        names = list(self.instances)
        self.copy = self.instances[names[-1]]
        for name in names:
            self.instances[name].destinations = [other for other in names if other != name]
        if self.rng.random() < 0.3:
            self.copy.destinations = []

    @property
    def wholes(self) -> list[TopicsInstance]:
        """All but the copy."""
        return [one for one in self.instances.values() if one is not self.copy]

    def plant_replication(self, core: ReplicationCore, log: LinkLog) -> None:
        if self.bug in topics_bugs.LINKS:
            for link in core.outgoing.values():
                topics_bugs.LINKS[self.bug](link)
        else:
            super().plant_replication(core, log)

    def payload_of(self, publisher: Publisher) -> bytes:
        return msgspec.json.encode({"n": publisher.sequence, "by": publisher.name})

    def wants(self, topics: LinkTopics, message: Message) -> bool:
        """Whether it goes to the copy under these."""
        return wants(topics, message, self.publishers)

    def topics_of(self, sequences: list[int]) -> tuple[list[str], Columns | None]:
        names = [topic_of(sequence) for sequence in sequences]
        topics = list(dict.fromkeys(names))
        if len(topics) == 1:
            return topics, None
        return topics, Columns(index=array("H", map(topics.index, names)).tobytes())

    def fail_over(self, publisher: Publisher) -> None:
        """Never to the copy, which does not know all that a publisher has sent."""
        publisher.leave()
        self.rng.choice(self.wholes).open(publisher)

    def lose_a_tail(self) -> None:
        """The copy gets no messages of its own: see `fail_over`."""

    def note_gaps(self) -> None:
        """What is in a declared gap of the copy, or of a generation that was closed there under
        topics, is counted no more by who has heard of that, also after the disk is set back."""
        if self.copy.journal is None:
            return
        origins = self.copy.journal.core.commit.sessions.origins
        for row in origins.rows():
            origin = Origin(row.instance, row.generation)
            self.gaps[origin] = max(self.gaps.get(origin, 0), row.since)
        self.gaps |= {one.origin: U63_MAX for one in origins.closed if one.digest}

    def step(self) -> None:
        self.note_gaps()
        super().step()
        if self.changes and self.rng.random() < 0.05:
            self.change(self.rng.choice(self.wholes), self.rng.choice(self.lists))

    def change(self, source: TopicsInstance, topics: LinkTopics) -> None:
        """Its config is another one, after a restart of the process."""
        if source.sends != topics:
            by_content = bool(source.sends.filter or topics.filter)
            self.events.append("filter changed" if by_content else "topics changed")
            source.sends = topics
            self.wanted_once.add(topics)
            source.kill_replication()

    def heal(self) -> None:
        final = self.wholes[0].sends
        if self.changes:
            final = self.rng.choice(self.lists)
        for source in self.wholes:
            self.change(source, final)
        super().heal()

    # -- what has to be -----------------------------------------------------------------------

    def acknowledged(
        self, instance: Instance, publisher: Publisher, sequence: int, need: int
    ) -> None:
        assert isinstance(instance, TopicsInstance)
        message = publisher.id, sequence
        here = instance.held().get(message)
        self.demand(here is not None, f"{message} acknowledged, not in {instance.name}")
        assert here is not None
        if not need:
            return
        for name in instance.destinations:
            other = self.instances[name]
            if other.journal is None or message in other.held() or message in other.held_once:
                continue
            left_out = other is self.copy and (
                not self.wants(instance.counted, message)
                or self._is_before(other, here.origin, here.position, instance.counted)
            )
            self.demand(left_out, f"{message} acknowledged at {instance.name}, not in {name}")

    def _is_before(self, copy: Instance, origin: Origin, position: int, topics: LinkTopics) -> bool:
        """Whether it is in the declared gap before these topics."""
        assert copy.journal is not None
        rows = copy.journal.core.commit.sessions.origins
        if (closed := rows.closed.get(origin)) is not None:
            return closed.digest != 0
        row = rows.get(origin)
        since = row.since if row.digest in (0, topics.digest) else 0
        return position < max(since, self.gaps.get(origin, 0))

    def _rests(self) -> bool:
        first, *others = (set(one.held()) for one in self.wholes)
        if any(one.unacked for one in self.publishers) or any(one != first for one in others):
            return False
        return not many_generations.still_open(self) and not self.copy_lacks()

    def copy_lacks(self) -> list[Message]:
        """What it should hold and does not."""
        held, topics = self.copy.held(), self.wholes[0].sends
        rows = self.copy.journal.core.commit.sessions.origins
        lacks = []
        for message, places in self._places().items():
            if message in held or not self.wants(topics, message):
                continue
            known = [(one, at) for one, at in places if one not in rows.closed or not self.changes]
            if any(at >= rows.get(one).since for one, at in known):
                lacks.append(message)
        return lacks

    def _places(self) -> dict[Message, set[tuple[Origin, int]]]:
        """The origins of each message, with its position there."""
        found: dict[Message, set[tuple[Origin, int]]] = {}
        for one in self.wholes:
            for message, held in one.held().items():
                found.setdefault(message, set()).add((held.origin, held.position))
            for batch in one.batches():
                if batch.kind == KIND_TIE:
                    for back in range(batch.count):
                        message = batch.publisher, batch.sequence - back
                        place = batch.origin, batch.origin_position - back
                        found.setdefault(message, set()).add(place)
        return found

    def verdict(self) -> None:
        first, *others = self.wholes
        for publisher in self.publishers:
            for sequence, payload in publisher.acked.items():
                held = first.held().get((publisher.id, sequence))
                self.demand(held is not None, f"{publisher.name} {sequence} was lost")
                assert held is not None
                self.demand(held.payload == payload, f"{publisher.name} {sequence} is another")
        for other in [*others, self.copy]:
            wrong = [k for k, h in other.held().items() if first.held()[k].payload != h.payload]
            self.demand(not wrong, f"{wrong[:3]} differ")
        for batch in self.copy.batches():
            if batch.kind == KIND_PUBLISH:
                for message, _ in messages(batch):
                    ever = any(self.wants(one, message) for one in self.wanted_once)
                    self.demand(ever, f"{message} at {self.copy.name}: it was never wanted")
        for instance in self.instances.values():
            self._check_order(instance)
