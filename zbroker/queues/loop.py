"""The queues process: work queues and replayable queues over the log.

Purpose   folds the log into the state of every queue, gives messages to consumers under leases,
          commits what becomes of them, makes dead letters, sets points; answers the admin about all
          of it. Nothing is given before it is durable, and no ack is answered before it is.
Sockets   ROUTER tcp for consumers ([listen] queues), monitor and ZAP; SUB ipc marks and
          replicated; DEALER ipc journal and replication-desk; XPUB ipc full-queues for ingest;
          ROUTER ipc queues-desk for questions of the admin.
Owns      <data>/queues: LMDB tables with the state of the queues, which may be deleted; a note in
          /dev/shm of how far each was delivered, likewise.
Settings  [listen] queues; [[queue]]; [queues]; [limits] clients; [[record]]; [security].
Exits     0 when asked to stop; 74 when the journal lost what was read of it: the next start reads
          it again; 78 when a [[queue]] table cannot follow from what the log knows of that queue.
Weakness  one thread for all queues. Without its tables a start reads the log from the oldest
          message that a queue may need.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args

from zbroker.blocks.block_reader import BlockReader
from zbroker.config.queue_links import queue_links
from zbroker.engine.contract import Performers, TurnPlan
from zbroker.queues import effects as qe
from zbroker.queues.core import QueuesCore
from zbroker.queues.delivered import Delivered
from zbroker.queues.effects import TablesLoaded
from zbroker.queues.full_queue_port import FullQueuePort
from zbroker.queues.log_work import LogWork
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.replication_port import ReplicationPort
from zbroker.queues.tables import TableWriter
from zbroker.server.budgets import budget_of
from zbroker.server.process import Process
from zbroker.server.process_loop import ONE, READ_SLICE_MS, ListenerLoop
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import queue_surveys as s

READS_MAX: Final = 1_000  # blocks of one turn: the slice of time ends before


def run(process: Process) -> int:
    """Serves consumers until asked to stop."""
    return QueuesLoop(process).run()


class QueuesLoop(ListenerLoop):
    """Sockets and files of the queues process, and its plan."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, "queues-desk", s.QUEUES_QUESTIONS)
        config, paths = process.config, process.paths
        settings = ListenerSettings(
            self.token_key, config.limits.clients, process.incarnation, self.recording, self.access,
            budget_of(config.limits), self.disconnects,
        )  # fmt: skip
        manager = QueueRegistry(
            process.incarnation, config.queue, self.recording, config.instance.name
        )
        self._saving = TableWriter(Path(paths.queues), process.clock)
        self._delivered = Delivered(paths.queues / "sent.id")
        self._work = LogWork(
            BlockReader(paths.journal, paths.archive, self.journal.open_segment),
            self.listener.sent, self.recording.type_of, self._delivered.sending,
            sees_all=not self.access.on,
        )  # fmt: skip
        full = FullQueuePort(process.context, paths, self.poller)
        sources = [*self.sources(), (self._saving, ONE), (full, ONE), (self.supervisor, ONE)]
        say = _nobody
        if config.replicates:
            replication = ReplicationPort(process.context, paths, self.poller)
            sources.append((replication, ONE))
            say = replication.say
        links = queue_links(config)
        sources += self.marks(on=links.sync)
        performers: Performers = {
            **self._work.performers,
            qe.SayReplication: say,
            qe.PublishFull: full.publish,
            qe.Load: self._load,
            qe.SaveTables: self._saving.save,
            qe.TrackDeliveries: self._delivered.begin,
        }
        core = QueuesCore(
            settings,
            manager,
            self.quiet_ms,
            self.peer,
            links=links,
            session_timeout_max_ms=config.queues.session_timeout_max,
        )
        plan = TurnPlan(sources, get_args(qe.Effect), READ_SLICE_MS, READS_MAX)
        self.begin(core, plan, performers)

    def _load(self, effect: qe.Load) -> TablesLoaded:
        self._work.begin(effect.announced, effect.persisted)
        if failed := self._delivered.open(effect.here):
            text = "queues.no_note: %s; after a kill more may be flagged as redelivered"
            self.process.log.warning(text, failed)
        saved = self._saving.load(effect.here, effect.persisted, effect.history)
        return TablesLoaded(saved, self._delivered.before)

    def close(self) -> None:
        """Ends the helper thread and closes the tables."""
        self._saving.close()
        self._delivered.close()


def _nobody(effect: qe.SayReplication) -> None:
    """Without links no request is made."""
    raise AssertionError(effect)
