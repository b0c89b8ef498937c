"""Workers with sessions, the queues that they take from, and one log: transactions.

The world of queues_world.py, with its faults, and in it workers (transactions_workers.py) that take
jobs from one or two queues, stage results, reject some jobs, and commit; transactions_judge.py says
what is promised. Each has a session with a stable name. It dies and comes back, or hangs while
another one attaches its session; it loses connections with a commit under way; commits are refused,
for now and for good; what is staged ends by age. A journal begins with its newest state snapshot.
In some histories other consumers acknowledge and reject jobs beside them.

Bugs (`TransactionsWorld(seed, bug)`): transactions_bugs.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pyroaring import BitMap64

from tests.sim import transactions_bugs
from tests.sim.queues_clients import Client, Want
from tests.sim.queues_judge import Ref
from tests.sim.queues_world import DEAD, SCALED, World
from tests.sim.seeds import plant
from tests.sim.transactions_journal import Ingest, ShowingLog, TransactionsJournal
from tests.sim.transactions_judge import TransactionsJudge
from tests.sim.transactions_workers import Worker
from zbroker.config import QueueConfig
from zbroker.journal import stages
from zbroker.journal.core import JournalCore
from zbroker.queues.core import QueuesCore
from zbroker.queues.registry import QueueRegistry
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import queue_messages as q

DONE = "done"  # the queue of results, and their topic
_JOBS: dict[str, dict[str, Any]] = {
    "plain": {"max_per_subscription": 0},
    "short": {"lease": 200},
    "filter": {"filter": "/p > 0", "lease": 500},
    "priority": {"priority": "/p", "max_per_subscription": 0},
    "group": {"group_key": "/g", "retry_delay": [0, 120]},
    "limits": {"max_deliveries": 6, "dead_letter": DEAD},
    "strict": {"leasing": "strict", "max_backlog": 12},
    "buried": {"dead_letter": DEAD},
    "expiring": {"expiration": 1_500, "dead_letter": DEAD},
}
#: queues that workers take from
JOBS = {name: {"lease": 400, "max_per_subscription": 10, **given} for name, given in _JOBS.items()}
TRANSACTION_MS = 700
SESSIONS = 3


class TransactionsWorld(World):
    """One simulated history. pure: jobs leave their queues by transactions alone."""

    pool = JOBS
    scaled: ClassVar = [*SCALED, (stages, "TRANSACTION_MS", TRANSACTION_MS)]
    judge_type = TransactionsJudge
    log_type = ShowingLog
    journal_type = TransactionsJournal
    worker_type = Worker
    judge: TransactionsJudge
    log: ShowingLog

    def __init__(self, seed: int, bug: str = "", steps: int = 70) -> None:
        self.ingest = Ingest(self)
        self.dies_at_commit = False  # the journal, with the receipt of one
        super().__init__(seed, bug, steps)

    def _first_queues(self) -> list[QueueConfig]:
        rng = self.rng
        self.pure = rng.random() < 0.5
        self.chained = rng.random() < 0.3  # results of the first queue are jobs of the second
        one, two = (JOBS[name] for name in rng.choices(list(JOBS), k=2))
        return [
            QueueConfig("jobs", **{"topic": "t0", **one}),
            QueueConfig("more", **{"topic": "t1", **two}),
            QueueConfig(DONE, topic=DONE, lease=400),
            QueueConfig(DEAD, lease=400),
        ]

    def core_of(self, settings: ListenerSettings, manager: QueueRegistry) -> QueuesCore:
        core = QueuesCore(settings, manager)
        self.plant_queues(core)
        return core

    def plant_queues(self, core: QueuesCore) -> None:
        """The planted bug, if it is one of the process."""
        plant(transactions_bugs.QUEUES, self.bug, core)

    def plant_journal(self, core: JournalCore) -> None:
        """The planted bug, if it is one of the journal."""
        plant(transactions_bugs.JOURNAL, self.bug, core)

    def is_work(self, ref: Ref) -> bool:
        """Whether workers take from a queue."""
        return ref.name not in (DONE, DEAD)

    def topic_of_results(self, takes: list[tuple[Want, BitMap64]]) -> str:
        """Where the results of these jobs go."""
        first = {want.command.queue for want, _ in takes} == {"jobs"}
        return "t1" if self.chained and first and not self.healing else DONE

    # -- who is there -------------------------------------------------------------------------

    @property
    def _workers(self) -> list[Worker]:
        return [client for client in self.clients if isinstance(client, Worker)]

    def _work(self) -> list[str]:
        """The queues that workers take from."""
        return [name for name in self._names() if name not in (DONE, DEAD)]

    def _new_client(self) -> None:
        workers = self._workers
        living = {worker.link.session for worker in workers}
        free = [name for name in (f"s{at}" for at in range(SESSIONS)) if name not in living]
        if free and (self.rng.random() < 0.8 or not workers):
            self._new_worker(self.rng.choice(free))
            return
        client = Client(self, f"c-{self.cid()}")
        client.diligent = self.thrifty
        self.clients.append(client)
        for _ in range(self.rng.randint(1, 2)):
            self._want(client, self.rng.choice(self._names()))

    def _new_worker(self, session: str) -> Worker:
        worker = self.worker_type(self, f"w-{self.cid()}", session)
        worker.diligent = self.thrifty or self.healing
        self.clients.append(worker)
        for queue in self.rng.sample(self._work(), min(2, len(self._work()))):
            self._want(worker, queue)
        return worker

    def _want(self, client: Client, queue: str) -> None:
        """Workers do jobs; jobs are left to them where that is promised."""
        work = queue not in (DONE, DEAD)
        if isinstance(client, Worker) and not work:
            return
        if work and self.pure and not isinstance(client, Worker):
            queue = DONE
        if all(want.command.queue != queue or not want.wanted for want in client.wants):
            super()._want(client, queue)

    def replace(self, worker: Worker) -> None:
        """A worker ends; another life of it begins if there is none."""
        worker.die()
        if worker in self.clients:
            self.clients.remove(worker)
        if all(other.link.session != worker.link.session for other in self._workers):
            self._new_worker(worker.link.session)

    # -- faults -------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.rng.random() < 0.75:
            super()._fault()
        elif self._workers:
            self.rng.choice((self._hang, self._restart, self._set_back, self._kill_at_commit))()

    def _hang(self) -> None:
        """A worker hangs, and another one attaches its session; or it goes on."""
        worker = self.rng.choice(self._workers)
        worker.frozen = not worker.frozen
        if worker.frozen:
            self.faults.append("worker hangs")
            self._new_worker(worker.link.session).link.need()

    def _restart(self) -> None:
        """A worker dies, whatever it is at, and is back at once."""
        self.faults.append("worker restarted")
        self.replace(self.rng.choice(self._workers))

    def _set_back(self) -> None:
        """The clock is set back, and a worker begins again."""
        self._wall_shift_ms -= self.rng.choice((100, 1_000, 3_000))
        self._restart()

    def _kill_at_commit(self) -> None:
        self.dies_at_commit = True

    # -- the end ------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.dies_at_commit = False
        super()._heal()

    def _staff(self, worker: Client) -> None:
        """Workers do all jobs, `worker` takes the rest."""
        there = {want.command.queue for want in worker.wants if want.wanted}
        for name in sorted({DONE, DEAD} - there):
            want = Want(q.Consume("", name, holder=name, credit=1 << 20))
            worker.wants.append(want)
            if worker.logged_on:
                worker.consume(want)
        if not self._workers:
            self._new_worker("s0")
        for queue in self._work():
            doing = self._workers[0]
            mine = [want for want in doing.wants if want.command.queue == queue]
            if not any(want.wanted and want.command.filter is None for want in mine):
                want = Want(q.Consume(self.cid(), queue, holder=self.cid(), credit=1 << 20))
                doing.wants.append(want)
                if doing.logged_on:
                    doing.consume(want)

    def _drained(self) -> bool:
        busy = any(worker.attempt is not None for worker in self._workers)
        return super()._drained() and not busy and not self.ingest.open and self.judge.idle
