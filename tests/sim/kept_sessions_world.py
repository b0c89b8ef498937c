"""Several instances, and workers whose sessions time out soon.

The world of sessions_world.py. Only the instance where a session began last, or that it was handed
over to, may write that it has timed out, as its own log says; whatever the others have read of it,
and however late they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.sim.sessions_world import Committer, Seen, SessionsInstance, SessionsWorld
from tests.sim.transactions_workers import SessionLink
from zbroker.log.format import Batch
from zbroker.log.records import TRANSACTION
from zbroker.queues.core import QueuesCore

TIMEOUTS_MS: Final = (100, 700, 5_000)


class KeptCommitter(Committer):
    """A worker with such a session. It begins again as another program when that is over."""

    def __init__(self, world: SessionsWorld, number: int) -> None:
        super().__init__(world, number)
        self._renew()

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

    def learn_all(begin: Any, *, begins: bool = False) -> None:
        learn(begin._replace(instance=sessions.here), begins=begins or not begin.ended)

    sessions.learn = learn_all


QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {"two instances time out": _all_are_here}
BUGS: Final = (*QUEUES,)


class KeptSessionsWorld(SessionsWorld):
    """One seed's history."""

    committer_type = KeptCommitter
    queues_bugs = QUEUES

    def __init__(self, seed: int, bug: str = "") -> None:
        self._homes: dict[tuple[str, str], int] = {}  # by instance and session
        super().__init__(seed, bug)

    def _epoch(self, instance: SessionsInstance, seen: Seen, batch: Batch) -> None:
        record = TRANSACTION.decode(bytes(batch.body))
        at, mine = (instance.name, record.session), batch.origin_instance == instance.id
        if record.ended and mine:
            home = self._homes[at]
            text = f"{instance.name} times out {record.session}, which began at {home:x}"
            self.demand(home == instance.id, text)
            self.events.append("session timed out")
        elif not record.number and record.epoch > seen.epochs.get(record.session, 0):
            self._homes[at] = record.to or batch.origin_instance
        super()._epoch(instance, seen, batch)
