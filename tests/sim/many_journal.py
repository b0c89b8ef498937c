"""The journal process of one simulated instance, and its answers to its ingest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.sim import many_bugs
from tests.sim.journal_process import JournalNode
from tests.sim.two_nodes import NoIndex
from zbroker.engine.effects import Answer
from zbroker.engine.events import Gone
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.core import JournalCore
from zbroker.journal.locate import Locator
from zbroker.log.reader import Log
from zbroker.wire import internal as m

if TYPE_CHECKING:
    from tests.sim.many_world import Instance

INGEST = b"ingest"


class InstanceJournal(JournalNode):
    """The journal of one instance; ingest's part is typed here: see zbroker.ingest."""

    world: Any
    idle_ms = 12  # there are many of them

    def __init__(self, instance: Instance) -> None:
        addresses = f"ipc-journal-{instance.name}", f"ipc-marks-{instance.name}"
        super().__init__(instance, instance.id, addresses, instance.peers, instance.note)  # type: ignore[arg-type]
        self.inbox.put(ev.Incoming(INGEST, m.Hello("ingest", 1), []))

    def plant_core(self, core: JournalCore) -> None:
        many_bugs.plant_journal(self.world.bug, core)

    def performers(self) -> dict[type, Callable[[Any], Any]]:
        log = Log(disk=self.world.disk)
        locator = Locator(log, NoIndex(), self.fold.sessions)  # type: ignore[arg-type]

        def locate(effect: je.LocatePoint) -> Gone | None:
            ask = effect.ask
            with self.world.undisturbed_disk():
                log.refresh()
                found = locator.locate(
                    ask.cid, ask.value, effect.where, cut=ask.cut, end=ask.end, closed=ask.closed
                )
            return self.answer(Answer(effect.rid, many_bugs.located(self.world.bug, found)))

        return {**super().performers(), je.LocatePoint: locate}

    def answer(self, effect: Answer) -> Gone | None:
        if effect.rid == INGEST:
            self.world.answered(effect.message)
            return None
        return super().answer(effect)
