"""Several instances, and workers whose sessions time out soon.

The world of sessions_world.py. Only the instance where a session began last, or that it was handed
over to, may write that it has timed out, as its own log says; whatever the others have read of it,
and however late they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.sim.owners_process import QUEUE
from tests.sim.sessions_world import Committer, Seen, SessionsInstance, SessionsWorld
from tests.sim.transactions_workers import SessionLink
from zbroker.log.format import Batch
from zbroker.log.records import TRANSACTION
from zbroker.queues.core import QueuesCore
from zbroker.wire import queue_messages as q

TIMEOUTS_MS: Final = (100, 700, 5_000)


class KeptCommitter(Committer):
    """A worker with such a session. It begins again as another program when that is over."""

    def __init__(self, world: SessionsWorld, number: int) -> None:
        super().__init__(world, number)
        self._renew()

    def _consume(self) -> None:
        """Of its session, if that is attached and is kept."""
        attached = self.link.attached
        if attached is None or not attached.timeout_ms:
            super()._consume()
            return
        self._sid, self._asked_ms = self.world.cid(), self.world.at.now_ms
        self._send(q.Consume(
            self._sid, QUEUE, self._sid, backlog=self.backlog, credit=1 << 20,
            session=self.link.session, epoch=attached.epoch,
        ))  # fmt: skip

    def _renew(self) -> None:
        before = self.link
        self.link = SessionLink(self, before.session, before.address)
        self.link.force = before.force
        self.link.timeout_ms = self.world.rng.choice(TIMEOUTS_MS)

    def answered(self, answer: Any) -> None:
        super().answered(answer)
        if getattr(answer, "code", "") == "session_fenced":
            self.fenced()

    def fenced(self) -> None:
        self.world.events.append("session over")
        self.link.close()
        self._roll_back()
        self._renew()


def _all_are_here(core: Any) -> None:
    """Sessions that began at other instances are looked at as if they had begun here."""
    sessions, learn = core.manager.sessions, core.manager.sessions.learn

    def learn_all(begin: Any, *, begins: bool = False, before: bool = False) -> None:
        begin = begin._replace(instance=sessions.here)
        learn(begin, begins=begins or not begin.ended, before=before)

    sessions.learn = learn_all


def _times_out_what_it_handed_over(core: Any) -> None:
    """A session that was handed over is looked at where it was, too."""
    sessions, learn = core.manager.sessions, core.manager.sessions.learn

    def learn_more(begin: Any, *, begins: bool = False, before: bool = False) -> None:
        one = sessions.get(begin.key)
        if one is not None and begin.instance != sessions.here and not begin.ended:
            begin = begin._replace(instance=sessions.here)
        learn(begin, begins=begins, before=before)

    sessions.learn = learn_more


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "two instances time out": _all_are_here,
    "what was handed over times out where it was": _times_out_what_it_handed_over,
}
BUGS: Final = (*QUEUES,)


class KeptSessionsWorld(SessionsWorld):
    """One seed's history."""

    committer_type = KeptCommitter
    queues_bugs = QUEUES

    def _epoch(self, instance: SessionsInstance, seen: Seen, batch: Batch) -> None:
        record = TRANSACTION.decode(bytes(batch.body))
        if record.ended and batch.origin_instance == instance.id:
            home = seen.homes[record.session]
            text = f"{instance.name} times out {record.session}, which began at {home:x}"
            self.demand(home == instance.id, text)
            self.events.append("session timed out")
        super()._epoch(instance, seen, batch)
