"""Instances that reboot each day, with one of them away for weeks, or for good.

What is in a reboot's memory is gone, so each start asks its peers; with one of them away it begins
a generation. None of what follows may grow with the days: rows, statements, vectors, snapshots and
what a start reads. Bookmarks and offsets of days before stay good.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.many_world import Instance, ManyWorld
from tests.sim.two_nodes import Message, NoIndex, messages
from zbroker.admin.link_alarms import OPEN_GENERATIONS_MAX
from zbroker.engine.effects import JOURNAL, Say
from zbroker.ids import Origin
from zbroker.journal.effects import Where
from zbroker.journal.locate_vector import Cover, Vectors
from zbroker.journal.lookup import Lookup
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Log
from zbroker.wire.replicas import ForgetPeer

DAY_S = 86_400
AWAY_DAYS = 30
HERE_DAYS = 5
DAY_MS = 4_000  # that are simulated of each day: longer than a start waits for answers
IDLE_MS = 40  # from a turn of a journal to the next, if nothing waits
BOOKMARK_DAYS = 7  # one is taken in each week


class Bookmark(NamedTuple):
    """A subscriber that left: what it had seen, by its vector; and a local offset of that day."""

    vector: dict[Origin, int]
    seen: frozenset[Message]
    instance: str
    generation: int
    position: int  # of a message in the log of that instance
    message: Message


class Sizes(NamedTuple):
    """What may not grow."""

    rows: int
    said: int  # rows and closed generations of a statement
    vector: int
    read: int  # batches that a start reads


class RebootsWorld(ManyWorld):
    """Three instances, all of which send to each other. away: one is away for 30 days at a time;
    else that one never comes back after its first absence began."""

    def __init__(self, seed: int, bug: str = "", *, comes_back: bool = True) -> None:
        super().__init__(seed, bug, instances=3)
        names = list(self.instances)
        for name, instance in self.instances.items():
            instance.destinations = sorted(set(names) - {name})
        self.comes_back = comes_back
        self.absent = self.rng.choice(names)
        self.bookmarks: list[Bookmark] = []
        self.forgot: set[str] = set()  # those that were told that the absent one is gone for good
        self.most = Sizes(0, 0, 0, 0)
        self.day = 0

    def run_days(self, days: int) -> None:
        """So many days; then all that come back are there, and what was promised is looked at."""
        for instance in self.instances.values():
            instance.start()
        self.pass_time(DAY_MS)
        for day in range(days):
            self.day = day
            self.one_day()
        if self.comes_back:
            self.heal()
            self.verdict()
        for name in self.present():
            self.look_at_bookmarks(self.instances[name])

    @property
    def is_away(self) -> bool:
        """Whether the absent instance is away on this day."""
        period = AWAY_DAYS + HERE_DAYS
        here = self.day % period < HERE_DAYS if self.comes_back else self.day < HERE_DAYS
        return not here

    def present(self) -> list[str]:
        """The instances that run today."""
        gone = {self.absent} if self.is_away and not self.comes_back else set()
        return [name for name in self.instances if name not in gone]

    def one_day(self) -> None:
        """Everyone reboots and publishes; a subscriber leaves now and then."""
        for name, instance in self.instances.items():
            instance.skew_s += DAY_S
            away = self.is_away and name == self.absent
            if away or self.rng.random() < 0.9:
                instance.kill_journal(power=True)
                instance.kill_replication()
            if not away:
                instance.start()
            if instance.journal is not None:
                instance.journal.idle_ms = IDLE_MS
        up = [name for name in self.instances if self.instances[name].journal is not None]
        for publisher in self.publishers:
            publisher.leave()
            self.instances[self.rng.choice(up)].open(publisher)
        for _ in range(4):
            self.pass_time(DAY_MS // 4)
            for publisher in self.publishers:
                self.publish(publisher)
        if not self.comes_back:
            self.forget_at_the_alarm(up)
        self.measure([self.instances[name] for name in up])
        if self.day % BOOKMARK_DAYS == 0:
            self.take_bookmark(self.instances[self.rng.choice(up)])

    def pass_time(self, ms: int) -> None:
        """A process that died at a fault begins again."""
        self.at.run_until(self.at.now_ms + ms)

    def forget_at_the_alarm(self, up: list[str]) -> None:
        """As a person does, when the alarm names the host: once, and a restart remembers it."""
        for name in up:
            replication, journal = self.instances[name].replication, self.instances[name].journal
            assert replication is not None
            assert journal is not None
            if name in self.forgot or replication.core.own.open_generations < OPEN_GENERATIONS_MAX:
                continue
            self.forgot.add(name)
            incarnation = journal.core.commit.settings.incarnation
            replication.journal.say(Say(JOURNAL, ForgetPeer(1 << 40, incarnation, self.absent)))
            self.pass_time(DAY_MS // 4)

    # -- what may not grow --------------------------------------------------------------------

    def measure(self, up: list[Instance]) -> None:
        """Notes the most of each that was seen."""
        for instance in up:
            assert instance.journal is not None
            assert instance.replication is not None
            origins = instance.journal.core.commit.sessions.origins
            said = instance.replication.core.own.statement()
            found = Sizes(
                len(origins.open_rows), len(said.rows) + len(said.closed),
                len(origins.closed.compact(origins.messages)), instance.journal.fold.batches,
            )  # fmt: skip
            self.most = Sizes(*map(max, self.most, found))

    # -- bookmarks ----------------------------------------------------------------------------

    def take_bookmark(self, instance: Instance) -> None:
        """A subscriber that has read all of this log leaves."""
        journal = instance.journal
        assert journal is not None
        commit, held = journal.core.commit, instance.held()
        if commit.next_position != commit.persisted or not held:
            return
        origins = commit.sessions.origins
        batch = next(b for b in reversed(instance.batches()) if b.kind == KIND_PUBLISH)
        message = messages(batch)[0][0]
        generation = origins.history.of(batch.position)
        vector = origins.closed.compact(origins.messages)
        self.bookmarks.append(
            Bookmark(
                vector, frozenset(held), instance.name, generation, batch.position, message,
            )
        )  # fmt: skip

    def look_at_bookmarks(self, instance: Instance) -> None:
        """Each subscriber goes on here: it gets what it has not seen, once."""
        assert instance.journal is not None
        with instance.undisturbed_disk():
            log = Log(disk=instance.disk)
            sessions = instance.journal.core.commit.sessions
            commit = instance.journal.core.commit
            find = Vectors(Lookup(log, NoIndex(), sessions)).find  # type: ignore[arg-type]
            where = Where(instance.id, commit.generation, commit.log_start, commit.persisted)
            held = set(instance.held())
            batches = [b for b in instance.batches() if b.kind == KIND_PUBLISH]
            for mark in self.bookmarks:
                at = find(mark.vector, where, end=False)
                cover = Cover(sessions.origins.closed.fill(mark.vector), sessions.origins.ties)
                got = set(_left(batches, at, cover))
                day = f"{instance.name}: a bookmark of {mark.instance}.{mark.generation}"
                self.demand(not got & mark.seen, f"{day} gets {len(got & mark.seen)} again")
                self.demand(got | mark.seen >= held, f"{day} does not get all")
                if mark.instance == instance.name:
                    self._check_offset(log.history.end(mark.generation), batches, mark)

    def _check_offset(self, end: int, batches: list[Batch], mark: Bookmark) -> None:
        """As of a checkpoint: the position is good below `end`, and means the same message."""
        self.demand(mark.position < end, "an offset is not good any more")
        batch = next(b for b in batches if b.position <= mark.position < b.end_position)
        self.demand(messages(batch)[0][0] == mark.message, "an offset means another message")


def _left(batches: list[Batch], start: int, cover: Cover) -> Iterator[Message]:
    for batch in batches:
        for first, last in cover.left(batch) if batch.end_position > start else ():
            for sequence in range(first, last + 1):
                if batch.position + sequence - batch.sequence >= start:
                    yield batch.publisher, sequence
