"""The admin's process: answers over HTTP, and everything that becomes of old segments.

For: `zbroker-admin`, the console, Prometheus and other monitoring; archiving,
compressing and asking for the removal of segments, by [retention] or by hand, in a niced thread;
alarms; the audit log.
Sockets: HTTP on listen.admin; ipc DEALER to the supervisor (beats), another for status requests;
ipc DEALER to the journal (holders, leases, remove, retire, reindex); ipc DEALERs to
ingest, the delivery workers and queues, for one question each.
Files: writes copies of sealed segments and their summaries (journal and archive directory),
<data>/actions, <data>/audit, run/admin.token and run/admin-read.token (0600, new at each start),
run/leases.json, run/disconnects.json; reads run/instance.json, run/token.key, the access file, and
the log, to count topics on request. It unlinks no segment: the journal does, when it is
asked to.
Settings: listen.admin; [security]; [[record]]; [retention]; delivery.workers; journal.directory,
archive_directory, segment_size, time.
Exit codes: as every room (zbroker.supervisor.child).
When it is killed: an unfinished copy is thrown away by the next start, two whole copies are
finished by it, a removal goes on in the journal, a request that waited is reported as failed.
Known weaknesses: the numbers of a room are as old as its last beat, up to half a second. After a
start the wall clock is believed at once, however wrong it is; only later jumps are followed slowly.
The numbers of the last hour are in memory, and lost at a restart. Work on segments shares the
disk with the journal: it is paced, not scheduled.
"""

from __future__ import annotations

from typing import Final

import zmq

from zbroker import endpoints
from zbroker.admin import authentication
from zbroker.admin.answers import Answers, AnswerSources
from zbroker.admin.audit import Audit, RefusalReports
from zbroker.admin.authentication import Doorkeeper, Secrets
from zbroker.admin.client_reports import ClientReports, LogTimes, SubscriptionReports
from zbroker.admin.history import History
from zbroker.admin.http import Console, Server, Site
from zbroker.admin.journal_link import AdminJournalLink, HoldLeases
from zbroker.admin.process_link import ROOM as QUEUES
from zbroker.admin.process_link import ProcessLink, QueueLink, Sampler, SupervisorLink
from zbroker.admin.queues import QueueReports, QueueWatch
from zbroker.admin.survey import Catalog, Tools
from zbroker.admin.topics import TopicCounter, TopicReports
from zbroker.admin.worker import AdminWorker
from zbroker.config import delivery_rooms, socket_of
from zbroker.errors import ConfigError
from zbroker.recording import Recording
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.server.process import Process
from zbroker.server.public_listener import access_file

SAMPLE_MS: Final = 1_000  # how often processes are asked how they are
WATCH_MS: Final = 5_000  # how often alarms are looked for without a request
INGEST_DESK: Final = "ingest-desk"
QUEUES_DESK: Final = "queues-desk"


def run(process: Process) -> int:
    """Serves until it is asked to stop."""
    room = AdminLoop(process)
    try:
        room.start()
        while not process.stopping:
            room.turn()
    finally:
        room.close()
    return 0


class AdminLoop:
    """The loop's thread moves frames; HTTP threads answer; the worker works."""

    def __init__(self, process: Process) -> None:
        self._process = process
        paths, clock, log = process.paths, process.clock, process.log
        self._poller = zmq.Poller()
        self._poller.register(process.link, zmq.POLLIN)
        self._link = AdminJournalLink(
            process.context, paths.ipc("journal"), process.incarnation, self._poller
        )
        self._supervisor = SupervisorLink(process.context, paths.ipc("supervisor"), clock)
        self._access = access_file(process)
        self._tools = Tools(
            process.config,
            paths,
            self._link,
            HoldLeases(paths.run / "leases.json", clock, log),
            Catalog(paths.journal, paths.archive),
            History(paths.actions, log),
            clock,
            log,
        )
        self._worker = AdminWorker(self._tools)
        self._desks = ProcessLink(process.context, self._desk_endpoints(), clock)
        self._queue_desk = QueueLink(self._desks)
        self._queue_watch = QueueWatch(self._queue_desk, clock)
        self._sampling = Sampler(self._supervisor, clock, self._queue_watch.numbers)
        self._counting = TopicCounter(paths, self._end, clock, log)
        self._audit = Audit(paths.audit, clock, log)
        self._refusals = RefusalReports(self._desks, self._audit)
        self._disconnects = DisconnectsFile(paths.disconnects, log)
        self._answers = Answers(self._parts())
        self._server = self._listen()
        self._sample_ms = self._watch_ms = clock.mono_ms()

    def _parts(self) -> AnswerSources:
        tools, desks = self._tools, self._desks
        times = LogTimes(tools.paths.journal, tools.paths.archive)
        return AnswerSources(
            tools,
            self._worker,
            self._sampling,
            SubscriptionReports(desks, self._link, times),
            ClientReports(desks, self._disconnects),
            TopicReports(
                self._counting,
                desks,
                Recording(tools.config.record, nothing=tools.config.records_nothing),
            ),
            self._audit,
            self._access,
            QueueReports(self._queue_desk, self._queue_watch, tools.clock),
        )

    def _end(self) -> int:
        return self._worker.survey.holders().persisted

    def _desk_endpoints(self) -> dict[str, str]:
        """Where each room with a door is asked."""
        ipc = self._process.paths.ipc
        rooms = delivery_rooms(self._process.config)
        delivery = {room: ipc(socket_of("desk", room)) for room in rooms}
        return {"ingest": ipc(INGEST_DESK), QUEUES: ipc(QUEUES_DESK)} | delivery

    def _listen(self) -> Server:
        listen = self._process.listen
        at = endpoints.split(listen)
        try:
            return Server((at.host.strip("[]"), at.port), self._process.log)
        except OSError as error:
            reason = f"cannot listen on {listen}: {error.strerror}"
            hint = "change listen.admin; port 0 picks one"
            raise ConfigError("bad_config", reason, hint) from None

    def start(self) -> None:
        """Everything but this thread."""
        process, paths = self._process, self._process.paths
        secrets = Secrets(
            authentication.make(paths.admin_token),
            authentication.make(paths.admin_read_token),
            paths.token_key.read_bytes(),
        )
        doorkeeper = Doorkeeper(secrets, self._access, process.clock, self._disconnects)
        self._server.start(Site(self._answers, doorkeeper, self._audit, Console()))
        self._worker.start()
        self._queue_watch.start()
        if doorkeeper.secured:
            self._refusals.start()
        host, port = self._server.address
        process.ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def turn(self) -> None:
        """Moves frames of the journal and the supervisor, and does the work of each second."""
        process = self._process
        due_ms = max(0, self._sample_ms - process.clock.mono_ms())
        self._poller.poll(min(due_ms, process.wait_ms()))
        now_ms = process.clock.mono_ms()
        self._link.turn(now_ms)
        self._access.look(now_ms)
        if now_ms >= self._sample_ms:
            self._sample_ms = max(self._sample_ms + SAMPLE_MS, now_ms)
            self._look(now_ms)
        self._server.check()
        process.turn()

    def _look(self, now_ms: int) -> None:
        status = self._sampling.take()
        self._audit.tick()
        if now_ms >= self._watch_ms:
            self._watch_ms = now_ms + WATCH_MS
            self._process.stats = {"alarms": self._answers.watch(status)}

    def close(self) -> None:
        """Fails questions to the journal first, so that no thread is waited for in vain."""
        self._link.close()
        self._worker.stop()
        self._counting.stop()
        self._refusals.stop()
        self._queue_watch.stop()
        self._desks.close()
        self._server.stop()
        self._supervisor.close()
