"""What transactions promise, on top of what queues do.

the log    each commit is one unit: the messages, its record, letters of what it rejected, what it
           took from queues; what it made is of just what it took, and that was in its queue until
           then; what it rejected is just what was asked for, and has one letter each
epochs     rise; a commit is of the newest one of its session, and numbers rise in it
answers    committed: it is durable, as a whole. Refused: it is not in the log, and never will
           be. Attached: what the log says of the last commit is what is answered
stages     what waits for a commit in the journal is what the log says
the end    each job that a transaction took has its result, once, and never comes again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyroaring import BitMap64

from tests.sim.queues_journal import INSTANCE
from tests.sim.queues_judge import Judge, Message, Ref, _messages
from tests.sim.transactions_journal import PRINCIPAL, TransactionsJournal, is_commit
from zbroker.engine.effects import Send
from zbroker.errors import TEMPORARY
from zbroker.ids import Origin, publisher_id
from zbroker.journal.own_publishers import transactions_name
from zbroker.journal.stages import token_of
from zbroker.log import records as r
from zbroker.log import references
from zbroker.log.format import (
    FLAG_UNIT,
    KIND_ABORT,
    KIND_QUEUE,
    KIND_STAGED,
    KIND_TRANSACTION,
)
from zbroker.log.format import Batch as LogBatch
from zbroker.transaction_tokens import stages_in, stages_of
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import transactions as t

if TYPE_CHECKING:
    from tests.sim.queues_process import ProcessNode
    from tests.sim.transactions_world import TransactionsWorld

SHOWN_BY = publisher_id(transactions_name(Origin(INSTANCE, 1)))


class Key(NamedTuple):
    """A transaction."""

    session: str
    epoch: int
    number: int


class Job(NamedTuple):
    """A message in one life of a queue."""

    queue: str
    life: int
    position: int


@dataclass
class Row:
    """What the durable log says of a session."""

    epoch: int = 0
    committed: int = 0
    number: int = 0
    position: int = 0
    messages: int = 0
    holder: str = ""


@dataclass
class Tries:
    """Commands to commit one transaction that processes took, and those that were refused."""

    taken: int = 0
    refused: int = 0


class Taken(NamedTuple):
    """The jobs that left their queues with a transaction. rejected: those of them that are dead."""

    jobs: set[Job]
    rejected: set[Job]


class Landed(NamedTuple):
    """A transaction in the log. position: of the first of its messages, 0 without any."""

    position: int
    messages: int
    taken: Taken


class TransactionsJudge(Judge):
    """Sees everything. landed: all transactions of the log. by: of each job, who took it."""

    world: TransactionsWorld
    shows = frozenset({KIND_TRANSACTION})  # kinds of records of what is shown
    takes: tuple[type, ...] = (t.CommitTransaction,)  # commands that take jobs

    def __init__(self, world: TransactionsWorld) -> None:
        super().__init__(world)
        self.landed: dict[Key, Landed] = {}
        self.by: dict[Job, Key] = {}
        self._rows: dict[str, Row] = {}
        self._tries: dict[Key, Tries] = {}
        self._stages: dict[str, int] = {}  # by token: messages that wait
        self._unit_now = (0, 0)  # of the transaction whose parts follow
        self._shown = 0  # sequence of the last message that a transaction showed
        #: cids of a session that a process has not answered
        self._attaching: dict[tuple[int, str], list[str]] = {}
        self._contested: set[str] = set()  # of those, the ones beside others
        self._rejects: dict[Key, set[tuple[str, int]]] = {}  # that were asked for
        self._in_unit = False  # the record that is looked at is of a transaction
        self.refused: set[tuple[int, int]] = set()  # units, for good, if the refusal arrives

    # -- the log ------------------------------------------------------------------------------

    def _other(self, batches: list[LogBatch], at: int) -> None:
        batch = batches[at]
        if batch.kind == KIND_TRANSACTION:
            record = r.TRANSACTION.decode(batch.body)
            self._unit(record, letters=self.has_letters(batches, at))
            self._unit_now = record.by, record.unit
            self.demand(record.principal == PRINCIPAL, "a session of", record.principal)
            row = self._rows.setdefault(record.session, Row())
            if record.number:
                self._committed(row, record, batches, at)
            else:
                self._began(row, record)
        elif batch.kind == KIND_STAGED:
            token = token_of(batch)
            self._stages[token] = self._stages.get(token, 0) + batch.taken
        elif batch.kind == KIND_ABORT:
            for _, token in r.ABORT.decode(batch.body).stages:
                if self.stays(token):
                    continue
                self.checks["aged"] += self._stages.pop(token, 0) > 0

    def has_letters(self, batches: list[LogBatch], at: int) -> bool:
        """The unit of the record of a transaction has dead letters: these have an order of their
        own."""
        return bool(batches[at].flags & FLAG_UNIT) and self._letters(batches[at + 1])

    def _unit(self, record: Any, *, letters: bool = False) -> None:
        """The queues of a transaction have a record each."""
        unit = record.by, record.unit
        self._in_unit = unit == self._unit_now
        if unit in self.refused:  # it lands once, after whatever was sent after it
            self.refused.discard(unit)
            self.checks["refused, and landed"] += 1
        elif not self._in_unit:
            super()._unit(record, letters=letters)

    def _buried(self, ref: Ref, where: BitMap64, why: str, letters: LogBatch | None) -> None:
        if not self._in_unit:  # else that was looked at with its record
            super()._buried(ref, where, why, letters)

    def _letters(self, batch: LogBatch) -> bool:
        return super()._letters(batch) and batch.publisher != SHOWN_BY

    def _returned(self, ref: Ref, where: BitMap64) -> None:
        super()._returned(ref, where)
        for position in where:  # another transaction may take it
            self.by.pop(Job(ref.name, ref.life, position), None)

    def _published(self, batch: LogBatch, after: LogBatch | None) -> None:
        if not is_commit(batch):
            super()._published(batch, after)
            return
        unit = after is not None and after.kind in self.shows and batch.flags & FLAG_UNIT
        self.demand(unit, "messages were shown without the record of their transaction")
        self.demand(batch.publisher == SHOWN_BY, "messages of a transaction are", batch.publisher)
        self.demand(batch.sequence == self._shown + 1, "a sequence of transactions is missing")
        self._shown += batch.taken
        record = references.decode(batch.body)
        assert record is not None, "the world has no damage"
        waiting = sum(self._stages.pop(token, 0) for token in record.stages)
        self.demand(waiting == batch.taken, "shown are", batch.taken, "and staged were", waiting)
        for part in self.world.log.parts(batch):
            super()._published(part, None)

    def _began(self, row: Row, record: r.TransactionRecord) -> None:
        name, epoch = record.session, record.epoch
        self.demand(epoch > row.epoch, name, "began in epoch", epoch, "after", row.epoch)
        row.epoch, row.holder = epoch, record.holder
        old, kept = stages_of(name), stages_in(name, epoch)
        for token in [*self._stages]:
            ends = token.startswith(old) and not token.startswith(kept)
            if ends and not self.stays(token):
                del self._stages[token]
                self.checks["fenced stage"] += 1

    def stays(self, _token: str) -> bool:
        """Whether what is staged stays, whatever session begins."""
        return False

    def _committed(
        self, row: Row, record: r.TransactionRecord, batches: list[LogBatch], at: int
    ) -> None:
        key = Key(record.session, record.epoch, record.number)
        self.demand(key.epoch == row.epoch, key, "landed in epoch", row.epoch)
        last = row.committed, row.number
        self.demand((key.epoch, key.number) > last, key, "landed after", last)
        tries = self._tries.get(key, Tries())
        self.demand(tries.taken > tries.refused, key, "landed, and was answered otherwise:", tries)
        shown, position = self._results(key, record, batches[at - 1] if at else None)
        taken = self._taken(key, batches, at)
        made = {job[:2] for job in shown}
        took = {(job.queue, job.position) for job in taken.jobs - taken.rejected}
        bare = not record.messages  # else there is a result for each
        self.demand(bare or made == took, key, "made results of", made, "and took", took)
        for job in taken.jobs:
            before = self.by.setdefault(job, key)
            self.demand(before == key, job, "was taken by", before, "and by", key)
        self.as_was_asked(key, taken.rejected)
        row.committed, row.number = key.epoch, key.number
        row.position, row.messages = position, record.messages
        self.landed[key] = Landed(position, record.messages, taken)
        self.checks["committed"] += 1
        self.checks["two queues"] += len({job.queue for job in taken.jobs}) > 1

    def as_was_asked(self, key: Key, rejected: set[Job]) -> None:
        """What it rejects is what its program said."""
        asked = self._rejects.get(key, set())
        found = {(job.queue, job.position) for job in rejected}
        self.demand(found == asked, key, "rejects", found, "and was asked for", asked)

    def _results(
        self, key: Key, record: r.TransactionRecord | r.BranchRecord, before: LogBatch | None
    ) -> tuple[set[tuple[str, int]], int]:
        """The jobs of which it shows results, and where the first of its messages is."""
        joined = before is not None and bool(before.flags & FLAG_UNIT)
        self.demand(joined == bool(record.messages), key, "has", record.messages, "messages")
        if before is None or not record.messages:
            return set(), 0
        self.demand(is_commit(before), key, "has no messages before it")
        shows = references.decode(before.body)
        token = f"{stages_in(key.session, key.epoch)}{key.number}"
        right = shows is not None and set(shows.stages) == {token}
        self.demand(right and before.taken == record.messages, key, "shows", shows)
        jobs = []
        for part in self.world.log.parts(before):
            for message in _messages(part):
                self.demand(message.content["tx"] == [*key], key, "shows", message)
                jobs += [tuple(job) for job in message.content["jobs"]]
        self.demand(len(set(jobs)) == len(jobs), key, "has two results of one job:", jobs)
        return set(jobs), before.position

    def _taken(self, key: Key, batches: list[LogBatch], at: int) -> Taken:
        """What left queues with it; all of it was there until now. Each that was rejected has its
        letter in the unit, where its queue has a topic for these."""
        letters: list[dict[str, Any]] = []
        data: list[bytes] = []
        if self.has_letters(batches, at):
            at += 1
            batch = batches[at]
            assert batch.columns is not None
            letters = msgspec.msgpack.decode(batch.columns.headers or b"\x90")
            data = msgspec.msgpack.decode(batch.body)
        said = self._said(
            key,
            batches,
            at,
            lambda fact: isinstance(fact, r.MessagesGone) and fact.why in ("acked", "rejected"),
        )
        rejected = {job for job, fact in said.items() if fact.why == "rejected"}
        buried = [job for job in rejected if self._has_letters(job)]
        texts = {(one["zb-queue"], one["zb-position"]): one["zb-text"] for one in letters}
        expected = {(job.queue, job.position): f"bad {job.position}" for job in buried}
        self.demand(texts == expected, key, "has letters", texts, "and not", expected)
        self.demand(len(letters) == len(texts), key, "has two letters of a job:", letters)
        for one, payload in zip(letters, data, strict=True):
            right = payload == self.messages[one["zb-position"]].data
            self.demand(right and one["zb-reason"] == "rejected", key, "has a wrong letter", one)
        self.checks["letters of a transaction"] += len(letters)
        self.checks["rejected without a topic"] += len(rejected) - len(buried)
        return Taken({*said}, rejected)

    def _has_letters(self, job: Job) -> bool:
        """Its queue has a topic for them; a queue that is over has none, and no messages."""
        ref = self.refs.get(job.queue)
        return ref is not None and ref.life == job.life and bool(ref.config.dead_letter)

    def _said(
        self, key: Key, batches: list[LogBatch], at: int, is_right: Callable[[r.AnyFact], bool]
    ) -> dict[Job, Any]:
        """What the facts after a record are about, each with its fact; all of it was there until
        now."""
        found: dict[Job, Any] = {}
        while batches[at].flags & FLAG_UNIT:
            at += 1
            self.demand(batches[at].kind == KIND_QUEUE, key, "has a part of kind", batches[at].kind)
            record = r.QUEUE.decode(batches[at].body)
            self.demand((record.by, record.unit) == self._unit_now, key, "has a part of another")
            ref = self.refs.get(record.queue)
            for fact in record.facts:
                self.demand(is_right(fact), key, "has another fact:", fact)
                where = r.unpack_positions(fact.where)  # type: ignore[union-attr]
                if ref is not None and ref.life == record.life and not ref.ended:
                    lost = where - ref.here
                    self.demand(not lost, key, "took from", ref.name, "what was gone:", list(lost))
                jobs = {Job(record.queue, record.life, position) for position in where}
                self.demand(jobs.isdisjoint(found), key, "takes twice", jobs)
                found |= dict.fromkeys(jobs, fact)
        return found

    # -- commands and answers -----------------------------------------------------------------

    def commanded(self, process: ProcessNode, received: Any) -> None:
        super().commanded(process, received)
        command: Any = codec.decode(codec.QUEUES, received.frames[0])
        if isinstance(command, t.AttachSession):
            by = process.incarnation, command.session
            open_ones = self._attaching.setdefault(by, [])
            open_ones.append(command.cid or "")
            if len(open_ones) > 1:
                self._contested |= {*open_ones}
        elif isinstance(command, self.takes):
            key = Key(command.session, command.epoch, command.number)
            self._tries.setdefault(key, Tries()).taken += 1
            self._rejects[key] = {
                (one.queue, at) for one in command.rejects for at in r.of_ends(one.ends)
            }
            for why, said in (("acked", command.accepts), ("rejected", command.rejects)):
                for one in said:
                    ref = self.ref(process.running(one.queue))
                    if ref is not None:
                        self._asked_for(ref, r.of_ends(one.ends), why)

    def _asked_for(self, ref: Ref, where: BitMap64, why: str) -> None:
        ref.asked[why] = ref.asked.get(why, BitMap64()) | where
        for position in where:  # if it is refused they may go to others at once
            self._leases.pop((ref.name, position), None)

    def answered(self, process: ProcessNode, send: Send) -> None:
        super().answered(process, send)
        answer: Any = codec.decode(codec.QUEUES_ANSWERS, send.header)
        command = self.asks.get(getattr(answer, "cid", None) or "")
        if isinstance(command, t.AttachSession):
            self._attaching[process.incarnation, command.session].remove(command.cid or "")
            self._attached(command, answer)
        elif isinstance(command, t.CommitTransaction):
            key = Key(command.session, command.epoch, command.number)
            if isinstance(answer, m.Error):
                self._refused(key, answer.code)
            else:
                self._answered_committed(key, command, answer)

    def _attached(self, command: t.AttachSession, answer: Any) -> None:
        contested = command.cid in self._contested
        if isinstance(answer, m.Error):
            self.checks[f"attach {answer.code}"] += 1
            fenced = answer.code == "session_fenced"
            row = self._rows.get(command.session, Row())
            taken = command.again and row.holder != command.holder
            self.demand(contested or taken or not fenced, "fenced by no one:", command)
            return
        row = self._rows.get(command.session, Row())
        self.demand(answer.epoch <= row.epoch, "attached in an epoch that is not in the log")
        said = answer.committed, answer.number, answer.position, answer.messages
        known = row.committed, row.number, row.position, row.messages
        self.demand(said == known, command.session, "committed", known, "last, and is told", said)
        stage = stages_in(command.session, answer.epoch)
        self.demand(answer.stage == stage, "its stage is", answer.stage)
        self.checks["attached"] += 1
        self.checks["told of a commit"] += bool(answer.number)

    def _refused(self, key: Key, code: str) -> None:
        self._tries[key].refused += 1
        self.checks["refused for now" if code in TEMPORARY else f"refused {code}"] += 1
        tries = self._tries[key]
        wrong = tries.refused == tries.taken and key in self.landed
        self.demand(not wrong, key, "is answered", code, "and in the log")

    def _answered_committed(self, key: Key, command: t.CommitTransaction, answer: Any) -> None:
        landed = self.landed.get(key)
        self.demand(landed is not None, key, "is answered, and not in the log")
        assert landed is not None
        jobs, rejected = landed.taken
        said = answer.position, answer.messages, answer.accepted, answer.rejected
        known = landed.position, landed.messages, len(jobs), len(rejected)
        self.demand(said == known, key, "is answered", said, "and not", known)
        asked = {
            (one.queue, at)
            for one in (*command.accepts, *command.rejects)
            for at in r.of_ends(one.ends)
        }
        took = {(job.queue, job.position) for job in jobs}
        self.demand(asked == took, key, "took", took, "and not", asked)
        self.done(key)
        self.checks["answered"] += 1

    def done(self, key: Key) -> None:
        """Somebody was told that it holds: what it took is never sent again."""
        for job in self.landed[key].taken.jobs:
            ref = self.refs.get(job.queue)
            if ref is not None and ref.life == job.life and job.position not in ref.requeued:
                ref.done.add(job.position)

    # -- the journal --------------------------------------------------------------------------

    def compare_stages(self, journal: TransactionsJournal) -> None:
        """What waits there for a commit is what the log says."""
        found: dict[str, int] = {}
        for row in journal.core.commit.sessions.stages.rows():
            self.demand(row.principal == PRINCIPAL, "a stage of", row.principal)
            count = sum(part.count for part in row.parts)
            found[row.token] = found.get(row.token, 0) + count
        self.demand(found == self._stages, "staged are", found, "and not", self._stages)

    def removing(self, log_start: int) -> None:
        super().removing(log_start)
        log = self.world.log
        for batch in log.batches[log.at(log_start) :]:
            if is_commit(batch):
                parts = references.decode(batch.body)
                assert parts is not None, "its body is its own"
                oldest = min(part.position for part in parts.parts)
                self.demand(oldest >= log_start, "a commit loses what it shows:", batch.position)

    # -- the end ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Nothing waits for a commit."""
        return not self._stages

    def verdict(self, process: ProcessNode) -> None:
        super().verdict(process)
        self.demand(not self._stages, "nothing waits for a commit any more:", self._stages)
        results = self._jobs_with_results()
        done = {  # in some life of its queue
            job[:1] + job[2:]
            for job, key in self.by.items()
            if job not in self.landed[key].taken.rejected
        }
        for job, key in self.by.items():
            made = results.get(job[:1] + job[2:], 0)
            dead = job in self.landed[key].taken.rejected
            bare = dead or not self.landed[key].messages
            self.demand(made or bare, job, "has no result")
            wrong = made and dead and job[:1] + job[2:] not in done
            self.demand(not wrong, job, "was rejected, and has a result")
        for ref in self.refs.values():
            if ref.ended or not self.world.is_work(ref):
                continue
            for position, why in ref.why.items():
                by = self.by.get(Job(ref.name, ref.life, position))
                self.demand(
                    by is None or why in ("acked", "rejected"), position, "is", why, "taken by", by
                )
                alone = self.world.pure and why in ("acked", "rejected")
                alone = alone and position not in ref.requeued
                self.demand(not alone or by is not None, position, "is gone without a result")

    def _jobs_with_results(self) -> dict[tuple[Any, ...], int]:
        found: dict[tuple[Any, ...], int] = {}
        for message in self.messages.values():
            for job in _jobs(message):
                found[job] = found.get(job, 0) + 1
        return found


def _jobs(message: Message) -> list[tuple[Any, ...]]:
    return [tuple(job) for job in msgspec.json.decode(message.data).get("jobs", ())]
