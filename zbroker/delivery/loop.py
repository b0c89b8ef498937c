"""The delivery process: bookmark and live subscriptions.

Purpose   replays the log to subscribers and follows its end, locates points, splits the log
          into ranges for Spark. Nothing that is recorded is sent before it is durable.
Sockets   ROUTER tcp for clients ([listen] delivery), monitor and ZAP; SUB ipc marks; DEALER ipc
          journal; with a [[record]] table ROUTER ipc live; with synchronous destinations SUB ipc
          replicated; ROUTER ipc desk for questions of the admin. Each of several workers
          ([delivery] workers) has its own: live-2, desk-2, ...
Owns      nothing on disk; reads <data>/journal.
Settings  [listen] delivery; [limits] clients; [[record]]; [security].
Exits     0 when asked to stop.
Weakness  one thread: a slow disk delays all subscribers. Messages to a client that gives credit
          without reading are kept in memory.
"""

from __future__ import annotations

from typing import Final, get_args

from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.config import socket_of
from zbroker.delivery import contract as de
from zbroker.delivery.core import DeliveryCore, DeliverySettings
from zbroker.delivery.ports import BlocksPort, LiveMessagesPort, PlansPort
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Performers, TurnPlan
from zbroker.filters import own
from zbroker.limits import MIB
from zbroker.log.reader import Log
from zbroker.server.budgets import budget_of
from zbroker.server.process import Process, Stats
from zbroker.server.process_loop import ONE, READ_SLICE_MS, ListenerLoop
from zbroker.wire import surveys as s

LIVE_LIMIT: Final = Limit(10_000, 4 * MIB)  # of one turn: unrecorded messages
READS_MAX: Final = 64  # blocks of one turn


def run(process: Process) -> int:
    """Serves subscribers until the supervisor stops it."""
    return DeliveryLoop(process).run()


class DeliveryLoop(ListenerLoop):
    """Sockets and files of the delivery process, and its plan."""

    def __init__(self, process: Process) -> None:
        config, paths = process.config, process.paths
        super().__init__(
            process, socket_of("desk", process.name), s.DELIVERY_QUESTIONS, every_write=True
        )
        vocabulary = own.vocabulary_of(
            config.instance.name, config.instance.group, config.filters.functions
        )
        settings = DeliverySettings(
            self.token_key, config.limits.clients, process.incarnation, self.recording, self.access,
            budget_of(config.limits), self.disconnects, vocabulary, process.name,
            any(one.mode == "sync" for one in config.destination),
        )  # fmt: skip
        self._plans = PlansPort(lambda: Log(paths.journal, paths.archive), process.clock)
        self._log = BlocksPort(
            lambda: BlockReader(paths.journal, paths.archive, self.journal.open_segment)
        )
        live = LiveMessagesPort(process.context)
        sources = [*self.sources(), (self._plans, ONE), (self.supervisor, ONE)]
        sources += self.marks(on=settings.replicated)
        if not self.recording.everything:
            live.listen(paths.ipc(socket_of("live", process.name)), self.poller)
            sources.append((live, LIVE_LIMIT))
        performers: Performers = {
            Read: self._log.read,
            e.ForgetBlocks: self._forget,
            de.PlanRanges: self._plans.begin,
            de.FindPassed: self._plans.begin,
            de.CloseFiles: self._log.close_files,
            de.GrantLive: live.grant,
        }
        core = DeliveryCore(settings, self.quiet_ms, self.peer)
        plan = TurnPlan(sources, (Read, *get_args(de.Effect)), READ_SLICE_MS, READS_MAX)
        self.begin(core, plan, performers)

    def open(self) -> None:
        """Clients may connect at once: what they ask for waits until the journal has answered."""
        super().open()
        self.ready(e.Ready())

    def stats(self) -> Stats:
        """With what was read before."""
        return {**super().stats(), **self._log.stats()}

    def _forget(self, effect: e.ForgetBlocks) -> None:
        self._log.forget(effect)
        self._plans.forget()
