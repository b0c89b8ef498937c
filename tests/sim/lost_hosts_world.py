"""Instances whose disks are lost and begin empty, while retention removes what all of them hold.

Programs without a publish store are among the publishers: such a one begins where the instance says
that its log ends, so an empty instance must not let it in before it knows what the others hold.
Every acknowledgement waits for all destinations here: an instance that is one of every other
knows of each message that was acknowledged, once it is open. Such programs begin there.

Safety: nothing acknowledged is lost, or taken for something else, while one disk is left.
Liveness: all come to hold the same of each origin, from where their logs begin on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.sim import lost_hosts_bugs
from tests.sim.disk import SimDisk
from tests.sim.many_world import HEAL_MS, Instance, InstanceJournal, ManyWorld, Publisher
from tests.sim.two_nodes import Held, Message, Violation, messages
from zbroker.ids import Origin
from zbroker.journal.core import JournalCore
from zbroker.journal.retention import Kept, RemovalLimits
from zbroker.journal.segment_removal import remove_through
from zbroker.log.cover import tied_runs
from zbroker.log.format import KIND_PUBLISH
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.replication.core import ReplicationCore
from zbroker.replication.log_port import LinkLog
from zbroker.wire import internal as m

SKIP_AFTER_MS: Final = 20_000  # of the end: then a person gives up what nobody has


class MemoryPublisher(Publisher):
    """A program without a publish store: after a restart it knows only what a logon says, and
    publishes nothing before one. life: each has other messages."""

    knows = False
    life = 1

    def restart(self) -> None:
        if not self.unacked:
            self.leave()
            self.sequence = self.discarded = 0
            self.knows = False
            self.life += 1

    def opened(self, answer: m.Opened) -> None:
        super().opened(answer)
        self.knows = True
        self.discarded = max(self.discarded, answer.acked)


class LosingJournal(InstanceJournal):
    """Its log is held for the destinations, as the config does it."""

    def plant_core(self, core: JournalCore) -> None:
        super().plant_core(core)
        core.retention.log_start._readers["replication"] = None
        bugs = lost_hosts_bugs.JOURNALS | lost_hosts_bugs.WRITTEN_JOURNALS
        if self.world.bug in bugs:
            bugs[self.world.bug](core)


class LosingInstance(Instance):
    """removed: messages that retention removed here since the disk is there; removed_once: ever."""

    world: LostHostsWorld
    journal_of = LosingJournal

    def __init__(self, world: LostHostsWorld, name: str, number: int) -> None:
        super().__init__(world, name, number)
        self.removed: set[Message] = set()
        self.removed_once: set[Message] = set()
        self._removed_in_image: set[Message] = set()

    def open(self, publisher: Publisher) -> None:
        if not isinstance(publisher, MemoryPublisher) or self.world.may_go(publisher, self):
            super().open(publisher)

    def keep_image(self) -> None:
        super().keep_image()
        if self.journal is not None:
            self._removed_in_image = set(self.removed)

    def restore(self, *, empty: bool) -> None:
        if empty or self._image is not None:
            self.removed = set() if empty else set(self._removed_in_image)
        super().restore(empty=empty)

    def lose_disk(self, *, new_id: bool) -> None:
        """The host burns; another one takes its name."""
        others = [one for one in self.world.instances.values() if one is not self]
        before = self.durable()
        if not all(one.journal is not None and one.journal.core.first.is_open for one in others):
            return  # one that is whole stays
        self.held_once |= before.messages
        self.kill_journal(power=False)
        self.kill_replication()
        self.kill_delivery()
        self.replace_disk(SimDisk(self.rng))
        self.removed = set()
        if new_id:
            self.id, self._image = self.id + 0x10, None  # the copy of the disk is another instance
        self.world.events.append("host replaced" if new_id else "new disk")
        self.world.note_lost(before)
        self.start()

    def kill_journal(self, *, power: bool) -> None:
        self.held()  # the world hears where its messages are, also of those that nobody asked for
        super().kill_journal(power=power)

    def remove_old(self) -> None:
        """Segments that nothing needs go, as retention has it."""
        node = self.journal
        if node is None or node.core._committing or node.core._raising is not None:
            return
        core, commit = node.core, node.core.commit
        with self.undisturbed_disk():
            log = Log(disk=self.disk)
            ends = [*(one.position for one in log.starts), commit.persisted][1:]
            segments = [
                Kept(one.serial, one.position, end, 1)
                for one, end in zip(log.starts, ends, strict=True)
            ]
            limits = RemovalLimits(commit.serial - 1, commit.state_serial, commit.serial)
            plan = core.retention.log_start.plan(segments, limits)
            if not plan.segments or plan.log_start > commit.persisted:
                return
            before = set(self.held())
            self.held_once |= before
            core.retention.log_start.raise_to(plan)
            commit.log_start = plan.log_start
            last = plan.segments[-1].serial
            node.writer.keep_from(last + 1)
            remove_through(SegmentPlaces(self.disk, None), last)
            core.retention.log_start.gone(last)
            self._held, self._read_to = {}, 0
            gone = before - set(self.held())
            self.removed |= gone
            self.removed_once |= gone
            self.world.events.append("removed")

    @property
    def was_set_back(self) -> bool:
        """Whether messages are missing that it has had, and that retention has not removed."""
        return bool(self.held_once - self.held().keys() - self.removed_once)

    @property
    def missing(self) -> dict[Origin, int]:
        """What its log says that it does not have."""
        assert self.journal is not None
        return self.journal.core.commit.sessions.missing.below()


class LostHostsWorld(ManyWorld):
    """One seed's history."""

    instance_of = LosingInstance
    written = False  # a history that is not drawn

    def __init__(self, seed: int, bug: str = "") -> None:
        super().__init__(seed, bug, Random(seed).choice((2, 3, 3, 4)))
        self.sync_needed = len(self.instances)
        self.publishers += [MemoryPublisher(f"m{n}", True) for n in range(self.rng.choice((1, 2)))]
        self.skips = 0
        self.places: dict[Message, dict[Origin, int]] = {}  # that a log had it under, ever

    def note_given(self, where: str, found: dict[Message, Held]) -> None:
        super().note_given(where, found)
        for message, held in found.items():
            self.places.setdefault(message, {})[held.origin] = held.position

    def plant_replication(self, core: ReplicationCore, log: LinkLog) -> None:
        super().plant_replication(core, log)
        bugs = lost_hosts_bugs.WRITTEN_DOWN | lost_hosts_bugs.TIES | lost_hosts_bugs.ASKING
        if self.bug in bugs:
            bugs[self.bug](core)

    def step(self) -> None:
        instance: Any = self.rng.choice(list(self.instances.values()))
        memory = [one for one in self.publishers if isinstance(one, MemoryPublisher)]
        program = self.rng.choice(memory)
        acts: list[tuple[int, Callable[[], object]]] = [
            (20, super().step),
            (3, lambda: self.new_segment(instance)),
            (4, instance.remove_old),
            (2, lambda: instance.lose_disk(new_id=self.rng.random() < 0.6)),
            (3, program.restart),
            (4, lambda: self.fail_over(program)),
        ]
        weights = [weight for weight, _ in acts]
        self.rng.choices(acts, weights)[0][1]()

    def may_go(self, program: MemoryPublisher, to: LosingInstance) -> bool:
        """It begins where all that was acknowledged is known; if that is nowhere, it stays at one
        instance. A disk that was set back has to have all of its messages again."""
        knows = [
            name for name in self.instances
            if all(name in other.destinations or other.name == name
                   for other in self.instances.values())
        ]  # fmt: skip
        if self.written:
            return True
        if not knows and to.name != min(self.instances):
            return False
        if program.knows:
            return True
        return (not knows or to.name in knows) and not to.was_set_back

    def publish(self, publisher: Publisher) -> None:
        if not isinstance(publisher, MemoryPublisher) or publisher.knows:
            super().publish(publisher)

    def payload_of(self, publisher: Publisher) -> bytes:
        life = publisher.life if isinstance(publisher, MemoryPublisher) else 1
        return super().payload_of(publisher) + b".%d" % life

    def new_segment(self, instance: Instance) -> None:
        if instance.journal is not None and instance.journal.core.first.is_open:
            instance.journal.core.raise_generation()

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        self.at.after(SKIP_AFTER_MS, self.give_up)
        super().heal()

    def give_up(self) -> None:
        """A person skips what no other instance has sent."""
        for instance in self.instances.values():
            if instance.replication is None:
                continue
            for link in instance.replication.core.outgoing.values():
                origins = [*link.selection.missing] if link.state == "sending" else []
                self.skips += len(origins)
                for effect in link.skip(origins):
                    instance.replication._say_on(effect)
        self.at.after(HEAL_MS // 30, self.give_up)

    def _rests(self) -> bool:
        if any(publisher.unacked for publisher in self.publishers):
            return False
        found: Any = self.instances.values()
        if not all(one.journal and one.journal.core.first.is_open for one in found):
            return False
        return not any(self.lacks(one, other) for one in found for other in found)

    def lacks(self, one: Any, other: Any) -> list[Message]:
        """What `one` should have of what the other has: of a message with several origins nothing,
        if any of them is in what `one` says that it does not have."""
        held, below = one.held(), one.missing
        ties = other.journal.core.commit.sessions.origins.ties
        declared = {
            (run.publisher, sequence) for run in tied_runs(below, ties)
            for sequence in range(run.first, run.last + 1)
        }  # fmt: skip
        return [
            message for message in other.held()
            if message not in held and message not in one.removed and message not in declared
            and not self._declares(one, message)
        ]  # fmt: skip

    def _declares(self, one: Any, message: Message) -> bool:
        """Whether `one` says that it does not have it, under one of the names that it ever had. So
        it takes it for a duplicate, also where another instance takes it as a new one later."""
        below, places = one.missing, self.places.get(message, {})
        return any(at <= below.get(origin, 0) for origin, at in places.items())

    def verdict(self) -> None:
        found: Any = list(self.instances.values())
        every: dict[Message, bytes] = {}
        removed = set[Message]()
        for instance in found:
            removed |= instance.removed_once
            for message, at in instance.held().items():
                payload = every.setdefault(message, at.payload)
                self.demand(payload == at.payload, f"{message} differs at {instance.name}")
            self._check_order(instance)
            self.check_missing(instance)
        for publisher in self.publishers:
            for sequence, payload in publisher.acked.items():
                message = publisher.id, sequence
                if message in self.lost or (message not in every and message in removed):
                    continue
                self.demand(message in every, f"{publisher.name} {sequence} was lost")
                self.demand(every[message] == payload, f"{publisher.name} {sequence} is another")

    def _check_order(self, instance: Instance) -> None:
        """Each origin in its order, from where the log has it."""
        seen: dict[Origin, int] = {}
        for batch in instance.batches():
            self.demand(
                batch.origin_position > seen.get(batch.origin, 0),
                f"{instance.name}: {batch.origin} order",
            )
            seen[batch.origin] = batch.origin_position + batch.taken - 1
            if batch.kind == KIND_PUBLISH:
                self.demand(bool(messages(batch)), "an empty batch")

    def check_missing(self, instance: Instance) -> None:
        """It declares nothing missing that it has, which others would not send, nor readers get."""
        assert instance.journal is not None
        held = instance.held().items()
        for row in instance.journal.core.commit.sessions.missing.rows():
            found = [
                message for message, at in held
                if at.origin == row.origin and row.first <= at.position <= row.last
            ]  # fmt: skip
            self.demand(not found, f"{instance.name}: {found[:3]} are here, and missing by {row}")

    def acknowledged(
        self, instance: Instance, publisher: Publisher, sequence: int, need: int
    ) -> None:
        """As many hold it as the rule says, or begin after it: then they counted it before."""
        message = publisher.id, sequence
        found: Any = self.instances
        others = [found[name] for name in instance.destinations]
        everyone: Any = [instance, *others]
        counts = [
            one.name for one in everyone
            if one.journal is None or message in one.held() or message in one.held_once
            or self._declares(one, message)
        ]  # fmt: skip
        self.demand(
            len(counts) > need, f"{message} acknowledged at {instance.name}, held by {counts}"
        )


__all__ = ["LosingInstance", "LostHostsWorld", "MemoryPublisher", "Violation"]
