"""Two instances in one world: journal cores on simulated disks, records handed over by the test.

One seed decides everything: who publishes where and fails over when, what is cut into which
batches, when links break, what crashes at which step of its disk, when an old copy of a disk comes
back, when segments go. The journal process is the one that ships; links do what replication will
do.

Afterwards the world heals and must converge: both logs hold the same messages, each once, with the
same content and every origin in its order; each subscriber, whatever its way between the instances,
has seen each message once; a purge by vector means the same messages on both.

Simplifications: a node takes publishes only after it has spoken to the other one since its start (a
restored disk cannot know by itself that it is old); where not even the other one can know, because
it holds nothing of the lost end, whoever restored the disk says so; and bodies travel without loss
while a link is; a link that breaks forgets what was under way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from tests.sim.disk import SimCrash, SimDisk
from tests.sim.journal_process import SimNote
from tests.sim.two_nodes import (
    START_NS,
    App,
    Clock,
    Held,
    LinkBroken,
    LinkTo,
    Message,
    Node,
    Planted,
    Reader,
    Violation,
    messages,
)
from zbroker.ids import Origin, format_vector, parse_vector
from zbroker.journal import snapshot
from zbroker.journal.fold import LogFold
from zbroker.journal.holes import Run
from zbroker.journal.locate_vector import Cover, Vector
from zbroker.journal.origins import OriginRow, Tie
from zbroker.journal.sessions import PublisherRow, Sessions
from zbroker.log import records
from zbroker.log.format import (
    FLAG_LATE,
    KIND_PUBLISH,
    KIND_PUBLISHER,
    KIND_PURGE,
    KIND_STATE,
    KIND_TIE,
    Batch,
)

HEAL_ROUNDS = 400


class Image(NamedTuple):
    """A copy of a disk, and what was on it."""

    disk: SimDisk
    vector: Vector
    gone: tuple[Batch, ...]  # removed before


class TwoWorld:
    """One seed's history."""

    def __init__(self, seed: int, bug: str = "", steps: int = 90) -> None:
        self.rng = Random(seed)
        self.bug, self.steps = bug, steps
        self.instances = {"a": 0xA, "b": 0xB}
        self.disks = {name: SimDisk(self.rng) for name in self.instances}
        self.notes = {name: SimNote() for name in self.instances}
        self.skews = {name: self.rng.choice((0, 0, -5, 3_600)) for name in self.instances}
        self.now_s = 0
        self.numbers = 0
        self.nodes: dict[str, Node | None] = dict.fromkeys(self.instances)
        self.links: dict[str, LinkTo | None] = dict.fromkeys(self.instances)  # by target
        self.images: dict[str, Image | None] = dict.fromkeys(self.instances)
        self.gone: dict[str, list[Batch]] = {name: [] for name in self.instances}
        self.lost: set[Message] = set()
        self.doubtful: set[Message] = set()
        self.restored = self.removed = 0
        self.apps = [App(f"p{n}", self.rng.random() < 0.7) for n in range(self.rng.randint(1, 2))]
        self.readers = [Reader() for _ in range(2)]
        self.faults: list[str] = []
        self.healing = False

    def demand(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Violation(otherwise)

    def salt(self) -> int:
        return self.rng.getrandbits(64)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def wall_ns(self, name: str) -> int:
        return START_NS + (self.now_s + self.skews[name]) * 1_000_000_000

    def clock(self, name: str) -> Clock:
        return Clock(lambda: self.wall_ns(name), lambda: self.now_s * 1_000)

    # -- a history --

    def run(self) -> None:
        """Safety with faults, then liveness without, then the verdict."""
        with Planted(self.bug):
            for _ in range(self.steps):
                self.now_s += 1
                self.guarded(self.step)
            self.heal()
            self.verdict()

    def guarded(self, act: Callable[[], None]) -> None:
        """A crash in the middle of something ends the node that it happens to."""
        try:
            act()
        except SimCrash as crash:
            self.crash(str(crash), power=self.rng.random() < 0.5)

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], object]]] = [
            (28, lambda: self.publish(self.rng.choice(self.apps))),
            (10, lambda: self.fail_over(self.rng.choice(self.apps))),
            (22, lambda: self.replicate(self.pick(), self.rng.choice((1, 3, 20)))),
            (6, lambda: self.unlink(self.pick())),
            (12, lambda: self.read(self.rng.choice(self.readers))),
            (5, lambda: self.crash_soon(self.pick())),
            (3, lambda: self.crash(self.pick(), power=self.rng.random() < 0.5)),
            (4, lambda: self.back_up_or_restore(self.pick())),
            (3, lambda: self.purge(self.pick())),
            (2, lambda: self.state(self.pick())),
            (8, lambda: self.remove(self.pick())),
            (2, lambda: self.full(self.pick())),
        ]
        weights = [weight for weight, _ in acts]
        self.rng.choices(acts, weights)[0][1]()
        for name in self.instances:
            if self.nodes[name] is None and self.rng.random() < 0.3:
                self.start(name)
            node = self.nodes[name]
            if node is not None and self.rng.random() < 0.8:
                node.commit()

    def pick(self) -> str:
        return self.rng.choice(list(self.instances))

    @staticmethod
    def other(name: str) -> str:
        return "b" if name == "a" else "a"

    # -- what happens --

    def start(self, name: str) -> None:
        self.nodes[name] = Node(self, name)

    def publish(self, app: App) -> None:
        for _ in range(self.rng.choice((1, 1, 3, 6))):
            app.sequence += self.rng.choice((1, 1, 1, 1, 2)) if not app.unacked else 1
            payload = f"{app.name}.{app.sequence}".encode() * self.rng.choice((1, 1, 8))
            app.unacked.append((app.sequence, payload))
        if app.node is not None:
            app.node.send(app)

    def fail_over(self, app: App) -> None:
        """Logs on anywhere: also where it is, also where there is no one."""
        node = self.nodes[self.pick()]
        app.leave()
        if node is not None:
            node.open(app)
            node.commit()
            if app.node is not None:
                app.node.send(app)

    def replicate(self, target: str, count: int) -> int:
        node, source = self.nodes[target], self.nodes[self.other(target)]
        if node is None or source is None:
            return 0
        link = self.links[target]
        try:
            if link is None:
                node.commit()
                source.commit()
                link = self.links[target] = LinkTo(source, node)
            return link.step(count)
        except LinkBroken:
            self.links[target] = None
            return 1

    def unlink(self, target: str) -> None:
        """The link breaks."""
        self.links[target] = None

    def read(self, reader: Reader) -> None:
        """Goes on where it is, or by its vector somewhere else; takes a part of what there is."""
        if reader.node is None or self.rng.random() < 0.4:
            reader.leave()
            node = self.nodes[self.pick()]
            if node is None:
                return
            self.resume(reader, node)
        if reader.node is not None:
            self.take(reader, self.rng.choice((1, 2, 5, 1_000)))

    def take(self, reader: Reader, count: int) -> None:
        """Reads up to `count` batches from where the reader is."""
        node, cover = reader.node, reader.cover
        assert node is not None
        assert cover is not None
        for batch in node.batches(reader.position)[:count]:
            if batch.kind == KIND_PUBLISH:
                left = sequences(cover.left(batch))
                for message, _ in messages(batch):
                    if message[1] in left:
                        reader.seen[message] = reader.seen.get(message, 0) + 1
            advance(reader.vector, batch)
            reader.position = batch.end_position

    def resume(self, reader: Reader, node: Node) -> None:
        origins = node.core.commit.sessions.origins
        value = format_vector(reader.vector) or "0"
        found = node.locator.locate(1, value, node.where())
        reader.pending = found.code
        if found.code == "":
            reader.node, reader.position = node, found.position
            reader.cover = Cover(dict(reader.vector), list(origins.ties))
        elif found.code != "bookmark_pending":
            unknown = found.code == "bookmark_not_found" and not self.healing
            self.demand(unknown, f"{value}: {found.code}, {found.reason}")

    def crash_soon(self, name: str) -> None:
        left = self.rng.randint(1, 60)

        def hook(_boundary: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.disks[name].hook = _nothing
                raise SimCrash(name)

        self.disks[name].hook = hook

    def crash(self, name: str, power: bool) -> None:
        node, self.nodes[name] = self.nodes[name], None
        self.faults.append("power cut" if power else "crash")
        self.disks[name].hook = _nothing
        self.disks[name].power_cut() if power else self.disks[name].crash()
        if power:
            self.notes[name] = SimNote()
        self.links = dict.fromkeys(self.instances)
        for app in self.apps:
            if node is None or app.node is node:
                app.leave()
        for reader in self.readers:
            if node is None or reader.node is node:
                reader.leave()

    def back_up_or_restore(self, name: str) -> None:
        """Keeps a copy of a disk, or puts the one that was kept in place of it."""
        image = self.images[name]
        node, other = self.nodes[name], self.nodes[self.other(name)]
        if node is None or other is None or not (node.met and other.met):
            return
        node.commit()
        if image is None:
            self.disks[name].settle()
            copied = _copied(self.disks[name], self.rng)
            self.images[name] = Image(copied, dict(node.vector), tuple(self.gone[name]))
            return
        if self.rng.random() < 0.5:
            self._restore(name, image)

    def _restore(self, name: str, image: Image) -> None:
        for disk in self.disks.values():
            disk.hook = _nothing  # who compares must not be interrupted
        before, node, other = self.held(name), self.nodes[name], self.nodes[self.other(name)]
        assert node is not None
        assert other is not None
        here, end = node.here, node.vector.get(node.here, 0)
        proved = other.vector.get(here, 0)
        reboots = self.rng.random() < 0.8
        self.crash(name, power=reboots)
        self.faults.append("old disk")
        self.disks[name] = _copied(image.disk, self.rng)
        self.images[name] = None
        self.gone[name] = list(image.gone)
        self.start(name)
        node = self.nodes[name]
        if reboots and proved <= image.vector.get(here, 0) < end:
            node.raise_generation()  # type: ignore[union-attr] # who restored it has to say so
        kept = self.held(name).keys() | self.held(self.other(name)).keys()
        self.lost |= before.keys() - kept
        # that it had these, too, no one knows any more: who saw them here sees them there again
        self.doubtful |= {k for k, h in before.items() if h.origin == here and h.position > proved}

    def purge(self, name: str) -> None:
        node = self.nodes[name]
        if node is not None and node.met:
            node.purge(f"q{self.number()}")

    def state(self, name: str) -> None:
        node = self.nodes[name]
        if node is not None:
            node.core.commit.want_state()

    def full(self, name: str) -> None:
        node = self.nodes[name]
        if node is not None:
            node.fill_disk()

    def remove(self, name: str) -> None:
        """The oldest segment goes if no one needs it and a snapshot is in a newer one."""
        node, other = self.nodes[name], self.nodes[self.other(name)]
        if node is None or other is None:
            return
        starts = node.log.starts
        oldest = starts[0].serial
        if len(starts) < 2 or not oldest < node.core.commit.state_serial <= node.writer.serial:
            return
        node.disk.hook = _nothing  # what a crash in the middle of this does is tested elsewhere
        batches = [b for b in node.batches() if b.position < starts[1].position]
        if starts[1].position > node.core.persisted or not self._unneeded(name, batches):
            return
        if node.remove(oldest):
            self.gone[name] += batches
            self.removed += 1

    def _unneeded(self, name: str, batches: list[Batch]) -> bool:
        other = self.nodes[self.other(name)]
        assert other is not None
        vectors = [dict(other.vector)]
        vectors += [image.vector for image in self.images.values() if image is not None]
        held = [b for b in batches if b.kind not in (KIND_STATE, KIND_PUBLISHER)]
        if not all(_below(batch, vector) for batch in held for vector in vectors):
            return False
        wanted = [b for b in batches if b.kind == KIND_PUBLISH]
        return all(_below(batch, reader.vector) for batch in wanted for reader in self.readers)

    # -- the end --

    def heal(self) -> None:
        """Everybody is up and stays up; all that waits goes its way."""
        self.healing = True
        for name in self.instances:
            self.disks[name].hook = _nothing
            if self.nodes[name] is None:
                self.start(name)
        for node in self.nodes.values():
            assert node is not None
            node.port.space_is = None
        self.links = dict.fromkeys(self.instances)
        for app in self.apps:
            app.leave()
        self.converge()
        for app in self.apps:
            self.publish(app)
            self._settle(app)
        self.converge()
        for reader in self.readers:
            for node in self.nodes.values():
                assert node is not None
                reader.leave()
                self.resume(reader, node)
                self.demand(reader.node is not None, f"a vector is pending: {reader.pending}")
                self.take(reader, 1 << 30)

    def _settle(self, app: App) -> None:
        for _ in range(HEAL_ROUNDS):
            if app.node is None:
                self.fail_over(app)
            self._progress()
            if not app.unacked:
                return
        raise Violation(f"{app.name} waits for {app.unacked[:2]}")

    def converge(self) -> None:
        for _ in range(HEAL_ROUNDS):
            if not self._progress():
                return
        raise Violation("the links do not come to rest")

    def _progress(self) -> int:
        sent = 0
        for name in self.instances:
            sent += self.replicate(name, 1_000)
            for node in self.nodes.values():
                assert node is not None
                node.commit()
        return sent + any(not node.met for node in self.nodes.values() if node is not None)

    def held(self, name: str) -> dict[Message, Held]:
        """All messages of one log, removed ones too; each is there once."""
        node = self.nodes[name]
        assert node is not None
        found: dict[Message, Held] = {}
        for batch in [*self.gone[name], *node.batches()]:
            if batch.kind == KIND_PUBLISH:
                for message, held in messages(batch):
                    self.demand(message not in found, f"{name} holds {message} twice")
                    found[message] = held
        return found

    def verdict(self) -> None:
        held = {name: self.held(name) for name in self.instances}
        a, b = held["a"], held["b"]
        self.demand(a.keys() == b.keys(), f"only one holds {sorted(a.keys() ^ b.keys())[:5]}")
        wrong = [message for message in a if a[message].payload != b[message].payload]
        self.demand(not wrong, f"{wrong[:5]} differ")
        for app in self.apps:
            missing = {(app.id, s) for s in app.acked} - a.keys() - self.lost
            self.demand(not missing, f"acknowledged and lost: {sorted(missing)[:5]}")
        for name in self.instances:
            self._check_order(name)
            self._check_folds(name)
        for reader in self.readers:
            unseen = a.keys() - reader.seen.keys()
            self.demand(not unseen, f"a reader never saw {sorted(unseen)[:5]}")
            twice = {k for k, n in reader.seen.items() if n > 1} - self.lost - self.doubtful
            twice -= self._sent_again()
            self.demand(not twice, f"a reader saw twice: {sorted(twice)[:5]}")
        self._check_purges()

    def _sent_again(self) -> set[Message]:
        """To an instance that had lost them, and did not know who holds them."""
        found: set[Message] = set()
        for name, node in self.nodes.items():
            assert node is not None
            origins = {message: held.origin for message, held in self.held(name).items()}
            for tie in node.core.commit.sessions.origins.ties:
                for sequence in range(tie.first, tie.last + 1):
                    message = (tie.publisher, sequence)
                    if origins[message].instance == tie.instance:
                        found.add(message)
        return found

    def _check_order(self, name: str) -> None:
        """Each origin in its order; each publisher in its order but for what is flagged late."""
        node = self.nodes[name]
        assert node is not None
        seen: Vector = {}
        highs: dict[int, int] = {}
        for batch in [*self.gone[name], *node.batches()]:
            origin = Origin(batch.origin_instance, batch.origin_generation)
            last = batch.origin_position + batch.taken - 1
            self.demand(
                batch.origin_position > seen.get(origin, 0), f"{name}: {origin} out of order"
            )
            seen[origin] = last
            if batch.kind == KIND_PUBLISH:
                late = batch.sequence <= highs.get(batch.publisher, 0)
                self.demand(late == bool(batch.flags & FLAG_LATE), f"{name}: wrongly flagged late")
                if not late:
                    highs[batch.publisher] = batch.sequence + batch.taken - 1

    def _check_folds(self, name: str) -> None:
        """From every snapshot, and from the oldest batch, folds come to one table: the core's.

        But for session numbers that were given since and not used, and for what a peer has covered
        without a record, of which only snapshots know.
        """
        node = self.nodes[name]
        assert node is not None
        batches = node.batches()
        complete = {
            body.through
            for batch in batches
            if batch.kind == KIND_STATE and (body := snapshot.decode(batch.body)) and body.last
        }
        starts = {batch.position for batch in batches} & complete
        if not self.gone[name]:
            starts.add(1)
        tables = []
        for start in sorted(starts):
            fold = LogFold(self.instances[name])
            for batch in batches:
                if batch.position >= start:
                    fold(batch, 1)
            tables.append(table(fold.sessions))
            self.demand(tables[-1] == tables[0], f"{name}: folded from {start} it differs")
        for one in tables[:1]:
            live = table(node.core.commit.sessions)
            self.demand(used(one) == used(live), f"{name}: folded it differs from the core's")

    def _check_purges(self) -> None:
        """Each stays where it was written; its vector means the same messages on both."""
        logs = {name: [*self.gone[name], *_up(node).batches()] for name, node in self.nodes.items()}
        purges = [b.body for log in logs.values() for b in log if b.kind == KIND_PURGE]
        for purge in map(records.PURGE.decode, purges):
            vector = parse_vector(purge.vector)
            first, second = (
                covered(Cover(vector, _up(self.nodes[name]).core.commit.sessions.origins.ties), log)
                for name, log in logs.items()
            )
            self.demand(first == second, f"{purge.queue}: a purge means different messages")
        names = [records.PURGE.decode(body).queue for body in purges]
        self.demand(len(names) == len(set(names)), "a purge is in both logs")


def _up(node: Node | None) -> Node:
    assert node is not None
    return node


def advance(vector: Vector, batch: Batch) -> None:
    """`vector` covers this batch from now on, too: a reader of a log takes them in order."""
    if batch.kind in (KIND_PUBLISH, KIND_TIE):
        last = batch.origin_position + batch.taken - 1
        vector[batch.origin] = max(vector.get(batch.origin, 0), last)


def sequences(runs: list[Run]) -> set[int]:
    """All of some runs."""
    return {sequence for first, last in runs for sequence in range(first, last + 1)}


def covered(cover: Cover, batches: list[Batch]) -> set[Message]:
    """What a vector covers of a log."""
    found: set[Message] = set()
    for batch in batches:
        if batch.kind == KIND_PUBLISH:
            left = sequences(cover.left(batch))
            found |= {message for message, _ in messages(batch) if message[1] not in left}
    return found


class Table(NamedTuple):
    """What a snapshot would tell."""

    publishers: dict[int, PublisherRow]
    origins: list[OriginRow]
    ties: list[Tie]


def table(sessions: Sessions) -> Table:
    rows = {row.id: copy.deepcopy(row) for row in sessions.rows(sessions.ids())}
    rising = sorted(sessions.origins.rows(), key=lambda row: (row.instance, row.generation))
    # where segments begin, and generations without a record, are of segments and not of state
    origins = [
        msgspec.structs.replace(row, begun=0, stored_begun=0) for row in rising if row.position
    ]
    return Table(rows, origins, list(sessions.origins.ties))


def used(whole: Table) -> Table:
    """Without session numbers that may only have been given, and without what was covered."""
    rows = {
        key: msgspec.structs.replace(row, session=0, newest=0)
        for key, row in whole.publishers.items()
    }
    origins = [
        msgspec.structs.replace(row, position=row.crc_at) for row in whole.origins if row.crc_at
    ]
    return whole._replace(publishers=rows, origins=origins)


def _below(batch: Batch, vector: Vector) -> bool:
    origin = Origin(batch.origin_instance, batch.origin_generation)
    return batch.origin_position + batch.taken - 1 <= vector.get(origin, 0)


def _copied(disk: SimDisk, rng: Random) -> SimDisk:
    hook, disk.hook, own = disk.hook, _nothing, disk.rng
    disk.rng = Random(0)
    try:
        made = copy.deepcopy(disk)
    finally:
        disk.hook, disk.rng = hook, own
    made.rng, made.hook = rng, _nothing
    made.crash()
    return made


def _nothing(_boundary: str) -> None:
    pass
