"""Three to five instances with a queue of all of them, and workers whose sessions commit.

The world of owners_world.py: links are cut, processes die at any effect, the power fails, messages
change their owners. In it workers take what an instance gives them, stage results there and commit.
One goes to another instance while its own is there, which hands its session over; or when that is
down, and the other one has all of its log: then its session is forced to begin there.

Safety: on every instance a transaction is there as a whole, or not at all; one that was answered
holds, on as many destinations as the rule asks for; one of which its worker heard otherwise is
nowhere; no job has two results; a session begins where it was last, or where the log there says
that it was handed over to, if it was never forced. Liveness: in the end all instances have the same
transactions.

Nobody takes over messages of an instance that is there: a job may be done twice then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import msgspec
from pyroaring import BitMap64

from tests.sim import sessions_bugs
from tests.sim.many_publishers import Publisher
from tests.sim.many_world import Instance, ManyWorld
from tests.sim.owners_process import QUEUE, queues_of
from tests.sim.owners_workers import Worker, message_of
from tests.sim.owners_world import OwnersInstance, OwnersWorld, _gone_of
from tests.sim.seeds import plant
from tests.sim.transactions_workers import AGAIN, SessionLink
from tests.sim.two_nodes import Message, messages
from zbroker.checksums import crc32c
from zbroker.log.format import FLAG_UNIT, KIND_OUTCOMES, KIND_PUBLISH, KIND_TRANSACTION, Batch
from zbroker.log.records import TRANSACTION, TransactionRecord, ends_of
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire import messages as wm
from zbroker.wire import queue_messages as q
from zbroker.wire import transactions as t

RESULTS: Final = "done"  # their topic
PATIENCE_MS = 1_500  # for the answer to a commit


class Key(NamedTuple):
    """A transaction."""

    session: str
    epoch: int
    number: int


class StagingPublisher(Publisher):
    """What a worker stages at one instance. token: of its transaction."""

    token = ""


@dataclass
class Attempt:
    """One transaction of a worker. takes: payloads of jobs, by position at `at`. cid: of its commit
    while that is not answered; sent_ms: when it was sent first."""

    key: Key
    at: SessionsInstance
    takes: dict[int, bytes]
    messages: int
    cid: str = ""
    sent_ms: int | None = None
    again_ms: int = 0


def ends_of_takes(attempt: Attempt, holder: str, generation: int) -> list[t.Accepted]:
    """What a command takes for it."""
    return [t.Accepted(QUEUE, holder, generation, ends_of(BitMap64(attempt.takes)))]


@dataclass
class Seen:
    """What the log of an instance says of transactions, up to a position. epochs: the highest in
    which each session began; homes: where that was, or where it was handed over to. took: the
    instances that say a message is done."""

    position: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    homes: dict[str, int] = field(default_factory=dict)
    jobs: dict[Key, frozenset[Message]] = field(default_factory=dict)
    took: dict[Message, set[int]] = field(default_factory=dict)


class SessionsInstance(OwnersInstance):
    """An instance at which workers stage what they make."""

    world: SessionsWorld

    def send(self, publisher: Publisher) -> None:
        if not isinstance(publisher, StagingPublisher):
            super().send(publisher)
            return
        while self.journal is not None and publisher.sent < len(publisher.unacked):
            most = self.rng.choice((1, 2))
            run = publisher.unacked[publisher.sent : publisher.sent + most]
            body = msgspec.msgpack.encode([payload for _, payload in run])
            entry = m.Entry(
                publisher.id, publisher.session, run[0][0], len(run), publisher.chain, crc32c(body),
                None, [RESULTS], stage=publisher.token,
            )  # fmt: skip
            self.append(publisher, entry, body)

    def start(self) -> None:
        journal, queues = self.journal, self.queues
        super().start()
        if self.journal is not None and self.journal is not journal:
            plant(sessions_bugs.JOURNAL, self.world.bug, self.journal.core)
        if self.queues is not None and self.queues is not queues:
            plant(self.world.queues_bugs, self.world.bug, self.queues.core)

    def kill_journal(self, *, power: bool) -> None:
        self.world.look_at(self)
        super().kill_journal(power=power)
        for worker in self.world.committers:
            worker.unstaged(self)


class Committer(Worker):
    """A worker with a session. home: where that began last."""

    world: SessionsWorld
    principal = ""

    def __init__(self, world: SessionsWorld, number: int) -> None:
        super().__init__(world, number)
        self.link = SessionLink(self, f"s{number}")
        self.home: SessionsInstance | None = None
        self.attempt: Attempt | None = None
        self._publisher = StagingPublisher("", says_prev=True)
        self._epoch = self._numbers = 0
        self._generation = 1
        self.backlog, self.filter = max(3, self.backlog), None

    # -- where it is --------------------------------------------------------------------------

    def go(self, instance: Any) -> None:
        moves = instance is not None and self.home not in (None, instance)
        if moves and not self.world.hands_over():
            if not self.world.may_leave(self.home, instance):
                return
            self.link.force = True
            self.world.forced.add(self.link.session)
            self.world.events.append("session forced")
        if instance is not self.at:
            self.link.close()
            self._roll_back()
            self.unstaged(None)
        if instance is not None:
            self.link.address = queues_of(instance.name)
        super().go(instance)
        self.carried.clear()  # it says no more of what it held elsewhere

    def unstaged(self, instance: SessionsInstance | None) -> None:
        """What was not durable there never is."""
        if instance in (None, self._publisher.at):
            self._publisher.leave()

    def _frame(self, pipe: Any, frame: tuple[bytes, bytes | None]) -> None:
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, frame[0])
        if isinstance(answer, wm.Ack) and answer.cid == "logon" and answer.origin is not None:
            self._generation = answer.origin[1]
        super()._frame(pipe, frame)

    # -- its session --------------------------------------------------------------------------

    def attached(self, answer: t.SessionAttached) -> None:
        """What was under way is over: it holds, or does not."""
        assert self.at is not None
        if self.home not in (None, self.at) and not self.link.force:
            self.world.events.append("session handed over")
        self.home, self.link.force = self.at, False  # type: ignore[assignment]
        attempt = self.attempt
        if attempt is not None and attempt.key.epoch != answer.epoch:
            holds = attempt.key[1:] == (answer.committed, answer.number)
            if attempt.sent_ms is not None and not holds and not self.link.goes_on:
                self.world.events.append("found unknown")
                self.attempt = None
                return
            if attempt.sent_ms is not None:
                self.world.events.append("found committed" if holds else "found aborted")
            self._ended(attempt, committed=holds)

    def answered(self, answer: Any) -> None:
        """Something about a commit, or about all of the connection."""
        attempt = self.attempt
        if isinstance(answer, wm.Error) and answer.cid is None:
            self.link.close()
        elif attempt is None or not attempt.cid or answer.cid != attempt.cid:
            return
        elif isinstance(answer, t.TransactionCommitted):
            self.world.committed(attempt)
            self._ended(attempt, committed=True)
        elif answer.code in AGAIN:
            attempt.cid, attempt.again_ms = "", self.world.at.now_ms + 100
        else:
            self._ended(attempt, committed=False)

    def fenced(self) -> None:
        """No other program has its session, so this is wrong."""
        self.world.demand(False, f"{self.link.session} is fenced by no one")

    def _roll_back(self) -> None:
        if self.attempt is not None and self.attempt.sent_ms is None:
            self._ended(self.attempt, committed=False)

    def _ended(self, attempt: Attempt, *, committed: bool) -> None:
        self.attempt = None
        self.world.heard[attempt.key] = committed
        if attempt.at is not self.at:
            return
        mine = [at for at in attempt.takes if at in self.held]
        if committed:
            for at in mine:
                del self.held[at]
            self.world.done(attempt.at, [*attempt.takes.values()])
        elif mine and self._live:
            self._settle(q.Release(), [], mine)

    # -- transactions -------------------------------------------------------------------------

    def act(self) -> None:
        roll = self.world.rng.random()
        if self.at is None:
            return
        if roll < 0.08:
            self.link.close()
        elif roll < 0.14:
            self._roll_back()
        elif self.link.attached is None:
            self.link.need()
        elif self.attempt is None and self.held and self._live:
            self._begin(self.link.attached)

    def _begin(self, attached: t.SessionAttached) -> None:
        rng, here = self.world.rng, self.at
        assert isinstance(here, SessionsInstance)
        if attached.epoch != self._epoch:
            self._epoch, self._numbers = attached.epoch, 0
        self._numbers += 1
        key = Key(self.link.session, attached.epoch, self._numbers)
        takes = {at: self.held[at] for at in rng.sample(sorted(self.held), min(3, len(self.held)))}
        results = [
            msgspec.json.encode({"tx": key, "job": message_of(job)}) for job in takes.values()
        ]
        self.attempt = Attempt(key, here, takes, len(results))
        if self._publisher.at is not here:
            self._publisher = StagingPublisher(f"{self.name}.{self.world.cid()}", says_prev=True)
            here.open(self._publisher)
        publisher = self._publisher
        publisher.token = f"{attached.stage}{key.number}"
        for payload in results:
            publisher.sequence += 1
            publisher.unacked.append((publisher.sequence, payload))
        if publisher.session:
            here.send(publisher)

    def _turn(self) -> None:
        super()._turn()
        attempt, now_ms = self.attempt, self.world.at.now_ms
        if not self.alive or attempt is None or self.at is None:
            return
        if self.link.attached is None:
            self.link.need()
        elif attempt.cid:
            assert attempt.sent_ms is not None
            if now_ms - attempt.sent_ms > PATIENCE_MS:
                self.link.close()
        elif attempt.sent_ms is None and self._publisher.at is not attempt.at:
            self._ended(attempt, committed=False)  # the journal died with what was under way
        elif not self._publisher.unacked and now_ms >= attempt.again_ms:
            self._commit(attempt)

    def _commit(self, attempt: Attempt) -> None:
        accepts = ends_of_takes(attempt, self._sid, self._generation)
        attempt.cid, attempt.sent_ms = self.world.cid(), self.world.at.now_ms
        self.link.send(t.CommitTransaction(*attempt.key, attempt.messages, accepts, attempt.cid))

    def die(self) -> None:
        self.link.close()
        self.alive = False
        super().go(None)


class SessionsWorld(OwnersWorld):
    """One seed's history. heard: what workers heard of transactions."""

    instance_of = SessionsInstance
    committer_type = Committer
    queues_bugs = sessions_bugs.QUEUES
    instances: dict[str, SessionsInstance]  # type: ignore[assignment]

    def __init__(self, seed: int, bug: str = "") -> None:
        self.committers: list[Committer] = []
        self.heard: dict[Key, bool] = {}
        self.forced: set[str] = set()  # sessions that were, once
        self.seen: dict[str, Seen] = {}
        self.judge = SimpleNamespace(asks={})
        super().__init__(seed, bug)
        self.locals.homes = []
        self.filters.on = False
        self.committers = [self.committer_type(self, 50 + n) for n in range(self.rng.randint(1, 3))]
        plain = self.workers[: self.rng.choice((0, 0, 1))]
        for worker in self.workers[len(plain) :]:
            worker.die()
        self.workers = [*plain, *self.committers]

    def step(self) -> None:
        super().step()
        rng = self.rng
        publisher = rng.choice(self.publishers)
        if publisher.at is None:
            self.fail_over(publisher)
        elif rng.random() < 0.4:
            self.publish(publisher)
        for committer in self.committers:
            if committer.at is None:
                committer.go(rng.choice([*self.instances.values()]))
            elif rng.random() < 0.5:
                committer.act()

    def _take_over(self) -> None:
        """See above."""

    def acknowledged(
        self, instance: Instance, publisher: Publisher, sequence: int, need: int
    ) -> None:
        if not isinstance(publisher, StagingPublisher):
            super().acknowledged(instance, publisher, sequence, need)

    def hands_over(self) -> bool:
        """Whether a session is asked for that another instance has, which goes on."""
        return self.rng.random() < 0.7

    def may_leave(self, home: SessionsInstance | None, to: SessionsInstance) -> bool:
        """Whether an instance has all of the log of another one, which dies then."""
        if home is None or home.journal is None or to.journal is None:
            return False
        written = home.journal.core.commit.sessions.origins.vector
        durable, _ = to.journal.core.commit.durable_origins
        if any(durable.get(origin, 0) < position for origin, position in written.items()):
            return False
        home.kill_queues()
        home.kill_journal(power=self.rng.random() < 0.5)
        return True

    # -- what is seen -------------------------------------------------------------------------

    def look_at(self, instance: SessionsInstance) -> Seen:
        """Reads what became durable there: no part of a transaction without the rest."""
        self.look()
        seen = self.seen.setdefault(instance.name, Seen())
        shown: list[dict[str, Any]] = []
        batches = instance.batches(seen.position)
        for at, batch in enumerate(batches):
            seen.position = batch.end_position
            if batch.kind == KIND_PUBLISH and batch.topics == [RESULTS]:
                shown += [msgspec.json.decode(held.payload) for _, held in messages(batch)]
            elif shown:
                record = self.record_of(batch)
                text = f"{instance.name} shows {shown[0]} without its record"
                self.demand(record is not None, text)
                assert record is not None
                self._transaction(instance, seen, batches, at, shown, record)
                shown = []
            if batch.kind == KIND_TRANSACTION:
                self._epoch(instance, seen, batch)
            elif batch.kind == KIND_OUTCOMES:
                for name in _gone_of(bytes(batch.body)):
                    seen.took.setdefault(self._names[name], set()).add(batch.origin_instance)
        self.demand(not shown, f"{instance.name} shows a part: {shown[:1]}")
        return seen

    def record_of(self, batch: Batch) -> TransactionRecord | None:
        """What a record says that is right after messages that were shown."""
        return TRANSACTION.decode(bytes(batch.body)) if batch.kind == KIND_TRANSACTION else None

    def _epoch(self, instance: SessionsInstance, seen: Seen, batch: Batch) -> None:
        """An instance begins and commits by all that was in its log then."""
        record = TRANSACTION.decode(bytes(batch.body))
        before = seen.epochs.get(record.session, 0)
        if batch.origin_instance == instance.id:
            right = record.epoch == before if record.number else record.epoch > before
            self.demand(right, f"{instance.name} writes {record} after epoch {before}")
            home = seen.homes.get(record.session, instance.id)
            may = home == instance.id or (record.session in self.forced and not record.to)
            self.demand(may, f"{instance.name} writes {record}, which is at {home:x}")
        if not record.number and record.epoch > before:
            seen.epochs[record.session] = record.epoch
            seen.homes[record.session] = record.to or batch.origin_instance
            if record.to:
                self.events.append("hand-over written")

    def _transaction(
        self, instance: SessionsInstance, seen: Seen, batches: list[Batch], at: int,
        shown: list[dict[str, Any]], record: TransactionRecord,
    ) -> None:  # fmt: skip
        key = Key(record.session, record.epoch, record.number)
        made = {(one["job"][0], one["job"][1]) for one in shown}
        right = {tuple(one["tx"]) for one in shown} == {key} and len(shown) == record.messages
        self.demand(right, f"{instance.name}: {key} of {record.messages} shows {shown}")
        self.demand(len(made) == len(shown), f"{instance.name}: {key} has two results of one job")
        self.demand(key not in seen.jobs, f"{instance.name} has {key} twice")
        gone: set[Message] = set()
        by = batches[at].origin_instance
        while batches[at].flags & FLAG_UNIT:
            at += 1
            if batches[at].kind == KIND_OUTCOMES:
                gone |= {self._names[name] for name in _gone_of(bytes(batches[at].body))}
        gone |= self.taken_from(key, seen, by, made - gone)
        self.demand(gone == made, f"{instance.name}: {key} took {gone} and made results of {made}")
        seen.jobs[key] = frozenset(made)

    def taken_from(
        self, key: Key, seen: Seen, instance: int, missing: set[Message]
    ) -> set[Message]:
        """What another instance had taken before a transaction of this one could."""
        return set()

    def committed(self, attempt: Attempt) -> None:
        """A worker hears that it holds."""
        here, key = attempt.at, attempt.key
        self.demand(key in self.look_at(here).jobs, f"{key} is answered, and not at {here.name}")
        others = [self.instances[name] for name in here.destinations]
        have = [o.name for o in others if o.journal is None or key in self.look_at(o).jobs]
        self.demand(len(have) >= here.needed, f"{key} is answered, and at {have} alone")

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        committers, self.committers = self.committers, []
        super().heal()
        self.committers = committers

    def verdict(self) -> None:
        ManyWorld.verdict(self)
        first, *others = (self.look_at(one).jobs for one in self.instances.values())
        for other in others:
            self.demand(other == first, f"transactions differ: {other.keys() ^ first.keys()}")
        results: dict[Message, Key] = {}
        for key, jobs in first.items():
            for job in jobs:
                before = results.setdefault(job, key)
                once = before == key or len(self.accepted[job]) > 1
                self.demand(once, f"{job} has results of {before} and of {key}")
        for key, holds in self.heard.items():
            self.demand((key in first) == holds, f"{key} was said to be committed: {holds}")
