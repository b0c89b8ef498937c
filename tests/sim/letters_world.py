"""The transactions world, where dead letters go to exchanges, and queues are bound to these.

    routes    a letter goes to the queues that a slow reading of the log gives for it: of the rows
              of one moment between the decision, when all was known that had been answered, and
              the record of its unit
    once      a message that is given up has its letter then, and not again
    rounds    no letter goes to a queue that gave it up by itself, since somebody rejected it last;
              its header says just these queues
    queues    a bound queue has what the routes in the log name, whatever dies

Exchanges and bindings change all the time; messages are given up for any reason, also in
transactions. Planted bugs (letters_bugs) prove that the world can fail.
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec
from pyroaring import BitMap64

from tests.exchanges.naive_world import NaiveWorld
from tests.sim import letters_bugs
from tests.sim.queues_clients import Want, payload
from tests.sim.queues_journal import LISTENER
from tests.sim.queues_judge import Message, Ref
from tests.sim.queues_process import ProcessNode
from tests.sim.queues_world import DEAD
from tests.sim.seeds import plant
from tests.sim.transactions_journal import TransactionsJournal, is_commit
from tests.sim.transactions_judge import Key, Row, TransactionsJudge
from tests.sim.transactions_workers import Worker
from tests.sim.transactions_world import DONE, JOBS, TransactionsWorld
from zbroker.config import QueueConfig
from zbroker.exchanges import BoundQueue
from zbroker.exchanges import Row as ExchangeTableRow
from zbroker.exchanges.exchange_rows import rows_of
from zbroker.exchanges.route_column import decode
from zbroker.log import records as r
from zbroker.log.format import COLUMN_ROUTES, KIND_EXCHANGE, KIND_QUEUE
from zbroker.log.format import Batch as LogBatch
from zbroker.log.queue_records import QueueDeclaration
from zbroker.queues.core import QueuesCore
from zbroker.queues.queue_state import GIVEN_UP, QueueState
from zbroker.wire import bodies, codec
from zbroker.wire import exchange_surveys as x
from zbroker.wire import messages as m
from zbroker.wire import queue_surveys as s
from zbroker.wire import transactions as t
from zbroker.wire.exchange_messages import ExchangesUsed

LETTERS, OTHERS = "dlx", "alt"  # exchanges
KINDS: Final = ("topic", "topic", "direct", "fanout", "headers")
KEYS: Final = (None, b"a.x", b"a.y", b"b.x")
PATTERNS: Final = ("#", "#", "*.x", "a.*", "a.x", "b.x")
REASONS: Final = ("rejected", "max_deliveries", "max_cancels", "time_limit", "max_length")
SAID: Final = {"rejected", "forced"}  # reasons of somebody, not of the queue
LEASED: Final[dict[str, Any]] = {"lease": 400, "max_per_subscription": 10}
GIVES_UP: Final[list[dict[str, Any]]] = [
    {"expiration": 400}, {"expiration": 1_500}, {"max_deliveries": 1}, {"max_deliveries": 2},
    {"max_cancels": 1}, {"max_length": 2}, {}, {"dead_letter_key": "a.y", "max_deliveries": 2},
    {"dead_letter_key": "b.x", "expiration": 700},
]  # fmt: skip
BOUND: Final = ("b0", "b1", "b2")
MESSAGES_MAX: Final = 300  # with more of them nothing is rejected any more

Life = tuple[str, int]  # of a queue


class GivenUp(NamedTuple):
    """What a letter is of. before: the queue and the position that the message had there."""

    queue: str
    position: int
    reason: str


class LettersJudge(TransactionsJudge):
    """Reads rows and routes by itself. routes: of each message its queues."""

    world: LettersWorld

    def __init__(self, world: TransactionsWorld) -> None:
        super().__init__(world)
        self.routes: dict[int, set[BoundQueue]] = {}
        self._headers: dict[int, dict[str, Any]] = {}
        self._keys: dict[int, bytes | None] = {}
        self._of: dict[int, GivenUp] = {}  # letters
        self._records: list[list[ExchangeTableRow]] = []  # of exchanges
        self._read: dict[int, NaiveWorld] = {}  # what so many records say
        self._sure = 0  # so many records the process knows for certain
        self._decided: dict[tuple[int, str, int, int], int] = {}  # the same, when it gave up
        self._committing: dict[tuple[int, Key], int] = {}  # the same of a transaction
        self._key_now = Key("", 0, 0)
        self._bound: dict[Life, BoundQueue] = {}
        self._settings: dict[Life, QueueConfig] = {}

    # -- the log ------------------------------------------------------------------------------

    def _other(self, batches: list[LogBatch], at: int) -> None:
        if batches[at].kind == KIND_EXCHANGE:
            self._records.append(rows_of(batches[at].body))
            self.checks["changes"] += 1
        super()._other(batches, at)

    def _committed(
        self, row: Row, record: r.TransactionRecord, batches: list[LogBatch], at: int
    ) -> None:
        self._key_now = Key(record.session, record.epoch, record.number)
        super()._committed(row, record, batches, at)

    def _wired(self, record: r.DefinitionRecord, position: int) -> None:
        life = record.name, record.life
        if record.routes is not None:
            self._bound[life] = BoundQueue(record.name, QueueDeclaration(*record.routes))
        super()._wired(record, position)
        if record.definition is not None:
            self._settings[life] = msgspec.convert(record.definition, QueueConfig)

    def enters(self, ref: Ref, message: Message) -> bool:
        if not ref.config.bound:
            return super().enters(ref, message)
        return self._bound[ref.name, ref.life] in self.routes.get(message.position, ())

    def _published(self, batch: LogBatch, after: LogBatch | None) -> None:
        if not is_commit(batch):
            self._look(batch, after)
        super()._published(batch, after)

    def _look(self, batch: LogBatch, after: LogBatch | None) -> None:
        """What its columns say; of letters also whether that is right."""
        columns = batch.columns or m.Columns()
        none: list[Any] = [None] * batch.count
        keys = bodies.keys(columns.keys, batch.count) if columns.keys else none
        headers = msgspec.msgpack.decode(columns.headers) if columns.headers else none
        said = dict(batch.extra).get(COLUMN_ROUTES)
        routes = decode(said, batch.count) if said else None
        for at in range(batch.skip, batch.count - batch.cut):
            position = batch.position + at - batch.skip
            self._keys[position], self._headers[position] = keys[at], headers[at] or {}
            self.routes[position] = set(routes.queues_of(at)) if routes is not None else set()
            self.checks["routed"] += bool(self.routes[position])
        if self._letters(batch) and after is not None and after.kind == KIND_QUEUE:
            self._judge(batch, r.QUEUE.decode(after.body))

    # -- letters ------------------------------------------------------------------------------

    def _judge(self, batch: LogBatch, record: r.QueueRecord) -> None:
        """Letters of a unit: they were routed in one moment."""
        index = [0] * batch.count
        if batch.columns is not None and batch.columns.index is not None:
            index = [*bodies.indexes(batch.columns.index)]
        in_transaction = (record.by, record.unit) == self._unit_now
        least, asked = len(self._records), []
        for at in range(batch.count):
            position = batch.position + at
            found, life = self._what_of(position, record)
            if in_transaction:
                sure = self._committing.get((record.by, self._key_now), 0)
            else:
                sure = self._decided[record.by, *life, found.position]
            least = min(least, sure)
            topic = batch.topics[index[at]]
            config = self._settings[life]
            self.demand(topic == config.dead_letter, found, "has its letter in", topic)
            key = config.dead_letter_key.encode() or self._keys[found.position]
            self.demand(self._keys[position] == key, found, "has key", self._keys[position])
            asked.append((position, topic, key, self._passed(position, found)))
        moments = range(least, len(self._records) + 1)
        fits = any(self._fits(self._meaning(count), asked) for count in moments)
        wrong = [
            (self._of[position], key, self.routes[position], self._expected(moments[0], one))
            for one in asked for position, _, key, _ in [one]
        ]  # fmt: skip
        self.demand(fits, "letters, their keys, routes, and what they should be:", wrong)
        self.checks["letters judged"] += len(asked)
        self.checks["letters of a change"] += len(moments) > 1

    def _what_of(self, position: int, record: r.QueueRecord) -> tuple[GivenUp, Life]:
        header = self._headers[position]
        found = GivenUp(header["zb-queue"], header["zb-position"], header["zb-reason"])
        self._of[position] = found
        self.checks[f"letter {found.reason}"] += 1
        name = found.queue
        life = record.life if name == record.queue else self.refs[name].life
        return found, (name, life)

    def _passed(self, position: int, found: GivenUp) -> set[str]:
        """Queues that gave it up by themselves, as the letters before it say; so must it."""
        passed, one = list[str](), found
        while one.reason not in SAID:
            passed.append(one.queue)
            if one.position not in self._of:
                break
            one = self._of[one.position]
        header = self._headers[position].get("zb-passed")
        said = set(header.split("\n")) if header is not None else set()
        self.demand(said == set(passed), found, "says that it passed", said, "and not", passed)
        for queue in self.routes[position]:
            self.demand(queue.name not in passed, found, "comes back to", queue)
        self.checks["rounds"] += len(passed) > 1
        return set(passed)

    def _meaning(self, count: int) -> NaiveWorld:
        if count not in self._read:
            rows = [row for record in self._records[:count] for row in record]
            self._read[count] = NaiveWorld(rows)
        return self._read[count]

    def _fits(self, world: NaiveWorld, asked: list[Any]) -> bool:
        return all(self.routes[one[0]] == self._routed(world, one) for one in asked)

    def _expected(self, count: int, one: Any) -> set[BoundQueue]:
        return self._routed(self._meaning(count), one)

    def _routed(self, world: NaiveWorld, one: Any) -> set[BoundQueue]:
        position, topic, key, passed = one
        found = world.route(topic, key, self._headers[position])
        return {queue for queue in found if queue.name not in passed}

    def _fact(self, ref: Ref, fact: r.AnyFact, before: LogBatch | None) -> None:
        if isinstance(fact, r.MessagesGone) and fact.why in GIVEN_UP:
            again = r.unpack_positions(fact.where) - ref.here
            self.demand(not again, ref.name, "gives up", fact, "what is not there:", list(again))
        super()._fact(ref, fact, before)

    def _gone(self, ref: Ref, where: Any, why: str) -> None:
        if why != "max_length":
            super()._gone(ref, where, why)
            return
        self.demand(ref.config.max_length, ref.name, "has no limit, and drops", list(where))
        self.checks[why] += len(where)
        ref.dead |= where
        self._out(ref, where, why)

    # -- the process --------------------------------------------------------------------------

    def watch_core(self, core: Any) -> None:
        """A process that begins: it asks for all that is durable now."""
        self._sure = len(self._records)
        begin, by = core._dead_letters.begin, core.manager.commits.incarnation

        def begins(one: QueueState) -> None:
            for outcome, _ in one.entries:
                for position in outcome.positions if outcome.letter else ():
                    key = by, one.name, one.definition.declaration, position
                    self._decided[key] = self._sure
            begin(one)

        core._dead_letters.begin = begins

    def commanded(self, process: ProcessNode, received: Any) -> None:
        super().commanded(process, received)
        command: Any = codec.decode(codec.QUEUES, received.frames[0])
        if isinstance(command, t.CommitTransaction):
            key = Key(command.session, command.epoch, command.number)
            self._committing.setdefault((process.incarnation, key), self._sure)

    def reported(self, question: Any, answer: Any) -> None:
        """A change that was answered counts."""
        super().reported(question, answer)
        changes = isinstance(question, x.ChangeExchange | x.ChangeBinding)
        if not changes or answer.code:
            return
        if answer.count:
            self._sure = max(self._sure, self._place(question))
            self.checks[f"{question.what} answered"] += 1

    def _place(self, question: Any) -> int:
        """Behind the newest record about this exchange; all before it were known, too."""
        found = [
            number + 1 for number, rows in enumerate(self._records)
            for row in rows if _is_about(row, question)
        ]  # fmt: skip
        self.demand(found, question, "is answered, and not in the log")
        return found[-1]

    @property
    def newest(self) -> NaiveWorld:
        """What all of the log says."""
        return self._meaning(len(self._records))


def _is_about(row: Any, question: Any) -> bool:
    if isinstance(question, x.ChangeExchange):
        over = question.what == "delete"
        named = getattr(row, "name", "") == question.exchange
        return named and hasattr(row, "definition") and (row.definition is None) == over
    binding, bound = getattr(row, "binding", None), question.what == "bind"
    asked = question.exchange, question.queue, question.key
    return (
        binding is not None
        and (binding.exchange, binding.queue, binding.key) == asked
        and row.bound == bound
    )


class LettersJournal(TransactionsJournal):
    """ingest routes by what is durable, a moment later."""

    world: LettersWorld

    def _take_published(self) -> None:
        super()._take_published()
        commit = self.core.commit
        if commit.persisted > commit.routed and self.world.rng.random() < 0.3:
            used = ExchangesUsed(commit.settings.incarnation, commit.persisted)
            self.hear(LISTENER, used)


class LettersWorker(Worker):
    """A program that rejects much, as long as there are not too many messages: each may come back
    in several queues."""

    world: LettersWorld

    def _some_jobs(self) -> tuple[list[tuple[Want, BitMap64]], list[tuple[Want, BitMap64]]]:
        takes, rejects = super()._some_jobs()
        if not self.world.healing and len(self.world.judge.messages) < MESSAGES_MAX:
            return ([], [*takes, *rejects]) if self.world.rng.random() < 0.3 else (takes, rejects)
        both: dict[int, tuple[Want, BitMap64]] = {}
        for want, many in (*takes, *rejects):
            both[id(want)] = want, many | both.get(id(want), (want, BitMap64()))[1]
        return [*both.values()], []


class LettersWorld(TransactionsWorld):
    """One simulated history."""

    worker_type = LettersWorker

    judge_type = LettersJudge
    journal_type = LettersJournal
    judge: LettersJudge

    def run(self) -> None:
        with ExitStack() as patches:
            if self.bug in letters_bugs.PATCHES:
                where, name, value = letters_bugs.PATCHES[self.bug]
                patches.enter_context(mock.patch.object(where, name, value))
            super().run()

    def _first_queues(self) -> list[QueueConfig]:
        rng = self.rng
        self.pure, self.chained = rng.random() < 0.3, False
        self.kind = rng.choice(KINDS)
        gives_up = [
            {**JOBS[rng.choice(("plain", "short", "group"))], **rng.choice(GIVES_UP)}
            for _ in range(2)
        ]
        bound = [
            QueueConfig(name, bound=True, dead_letter=LETTERS, **LEASED, **rng.choice(GIVES_UP))
            for name in BOUND
        ]
        return [
            *(
                QueueConfig(name, topic=topic, dead_letter=LETTERS, **each)
                for name, topic, each in zip(("jobs", "more"), ("t0", "t1"), gives_up, strict=True)
            ),
            *bound[: rng.randint(1, 3)],
            QueueConfig(DONE, topic=DONE, lease=400),
            QueueConfig(DEAD, topic=LETTERS, lease=400),
        ]

    def core_of(self, settings: Any, manager: Any) -> QueuesCore:
        core = super().core_of(settings, manager)
        self.judge.watch_core(core)
        return core

    def plant_queues(self, core: QueuesCore) -> None:
        plant(letters_bugs.QUEUES, self.bug, core)

    def _publish(self) -> None:
        rng = self.rng
        if self.journal is None or self.disk_full:
            return
        many = rng.choice((1, 1, 3))
        payloads = [payload(self._published + at, rng) for at in range(many)]
        self._published += many
        columns = m.Columns(keys=codec.encode([rng.choice(KEYS) for _ in payloads]))
        topics = rng.choice((["t0"], ["t1"], ["t0", "t1"]))
        if len(topics) > 1:
            columns.index = bodies.to_little(array("H", (rng.randrange(2) for _ in payloads)))
        self.journal.publish(topics, payloads, columns)

    # -- exchanges and bindings ---------------------------------------------------------------

    def _step(self) -> None:
        if self.rng.random() < 0.5 and self.process is not None:
            self._wire()
        super()._step()

    def _wire(self) -> None:
        """An operator declares, binds, unbinds, deletes."""
        rng, newest = self.rng, self.judge.newest
        missing = [name for name in (LETTERS, OTHERS) if newest.definition(name) is None]
        bound = newest.bound(LETTERS) + newest.bound(OTHERS)
        roll = rng.random()
        if missing and roll < 0.6:
            self._declare(rng.choice(missing))
        elif bound and roll < 0.05 + 0.04 * len(bound):
            one = rng.choice(bound)
            arguments = {
                name: value for name, value in one.arguments.items() if name != "x-match"
            }  # fmt: skip
            change = x.ChangeBinding(0, "unbind", one.queue, one.exchange, one.key, arguments)
            self.admin.ask(change)
        elif roll > 0.96 and not missing:
            self.admin.ask(x.ChangeExchange(0, "delete", rng.choice((LETTERS, OTHERS))))
        else:
            self._bind()

    def _declare(self, name: str) -> None:
        kind, alternate = ("fanout", "") if name == OTHERS else (self.kind, OTHERS)
        self.admin.ask(x.ChangeExchange(0, "declare", name, kind, alternate))

    def _bind(self) -> None:
        rng = self.rng
        queues = [name for name, ref in self.judge.refs.items() if ref.config.bound]
        if not queues:
            return
        exchange = OTHERS if rng.random() < 0.25 else LETTERS
        key, arguments = rng.choice(PATTERNS), dict[str, Any]()
        if exchange == LETTERS and self.kind == "headers":
            key, arguments = "", {"zb-reason": rng.choice(REASONS)}
        change = x.ChangeBinding(0, "bind", rng.choice(queues), exchange, key, arguments)
        self.admin.ask(change)

    def _define(self) -> None:
        """An operator makes bound queues, and deletes them."""
        alive = {name for name, ref in self.judge.refs.items() if not ref.ended}
        if "own0" not in alive:
            table = {"bound": True, "dead_letter": LETTERS, "lease": "400ms", "max_deliveries": 2}
            self.admin.ask(s.Define(0, "create", "own0", table))
        else:
            self.admin.ask(s.Define(0, "delete", "own0"))
