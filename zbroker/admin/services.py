"""The parts of the admin's process that run in threads beside its loop.

HTTP is answered, segments are worked on, topics are counted; processes are asked each second for
the state of queues and links, and for refusals.
"""

from __future__ import annotations

from zbroker import endpoints
from zbroker.admin import authentication
from zbroker.admin.answers import Answers, AnswerSources
from zbroker.admin.audit import Audit, RefusalReports
from zbroker.admin.authentication import Doorkeeper, Secrets
from zbroker.admin.branches import BranchReports
from zbroker.admin.client_reports import ClientReports, LogTimes, SubscriptionReports
from zbroker.admin.digest_reports import DigestReports
from zbroker.admin.drains import Drains
from zbroker.admin.exchanges import ExchangeReports
from zbroker.admin.history import History
from zbroker.admin.http import Console, Server, Site
from zbroker.admin.journal_link import AdminJournalLink, HoldLeases
from zbroker.admin.link_reports import LinkReports, LinkWatch
from zbroker.admin.process_link import (
    QUEUES,
    REPLICATION,
    SUPERVISOR,
    ProcessLink,
    QueueLink,
    ReplicationLink,
    Sampler,
)
from zbroker.admin.queues import QueueReports, QueueWatch
from zbroker.admin.sessions import SessionReports
from zbroker.admin.survey import Catalog, Tools
from zbroker.admin.topics import TopicCounter, TopicReports
from zbroker.admin.worker import AdminWorker
from zbroker.config import delivery_workers, socket_of
from zbroker.errors import ConfigError
from zbroker.recording import Recording
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.server.process import Process
from zbroker.server.public_listener import access_file
from zbroker.wire.supervision import Status


class AdminServices:
    """The loop's thread calls these methods; threads begin with `start`. Raises: ConfigError."""

    def __init__(self, process: Process, journal: AdminJournalLink) -> None:
        config, paths, clock, log = process.config, process.paths, process.clock, process.log
        self._process = process
        self.access = access_file(process)
        leases, history = (
            HoldLeases(paths.run / "leases.json", clock, log),
            History(paths.actions, log),
        )
        catalog = Catalog(paths.journal, paths.archive)
        tools = Tools(config, paths, journal, leases, catalog, history, clock, log)
        self._worker = AdminWorker(tools)
        self._processes = ProcessLink(process.context, _endpoints(process), clock)
        queues = QueueLink(self._processes)
        self._queue_watch = QueueWatch(queues, clock)
        self._replication = ProcessLink(
            process.context, {REPLICATION: paths.ipc("replication-desk")}, clock
        )
        links = ReplicationLink(self._replication, on=config.replicates)
        self._link_watch = LinkWatch(links, clock, catalog.rows)
        self._supervisor = ProcessLink(process.context, {SUPERVISOR: paths.ipc(SUPERVISOR)}, clock)
        self._sampler = Sampler(self._supervisor, clock, self._queue_watch.numbers)
        self._counter = TopicCounter(paths, self._persisted, clock, log)
        self._audit = Audit(paths.audit, clock, log)
        listening = [self._processes, *([self._replication] if config.replicates else [])]
        self._refusals = RefusalReports(listening, self._audit)
        self._disconnects = DisconnectsFile(paths.disconnects, log)
        recording = Recording(config.record, nothing=config.records_nothing)
        times = LogTimes(paths.journal, paths.archive)
        self._answers = Answers(
            AnswerSources(
                tools,
                self._worker,
                self._sampler,
                SubscriptionReports(self._processes, journal, times),
                ClientReports(self._processes, self._disconnects),
                TopicReports(self._counter, self._processes, recording),
                self._audit,
                self.access,
                QueueReports(
                    queues, self._queue_watch, clock, self._link_watch.naming, config.instance.name
                ),
                ExchangeReports(queues),
                SessionReports(queues),
                BranchReports(queues, clock),
                LinkReports(links, self._link_watch, config.destination),
                DigestReports(paths, self._persisted, clock),
                Drains(self._processes, links, self._persisted, clock, config.instance.name),
            )
        )
        self._server = _listen(process)

    def start(self) -> str:
        """Begins all of it. Returns: the URL."""
        paths = self._process.paths
        secrets = Secrets(
            authentication.make(paths.admin_token),
            authentication.make(paths.admin_read_token),
            paths.token_key.read_bytes(),
        )
        doorkeeper = Doorkeeper(secrets, self.access, self._process.clock, self._disconnects)
        self._server.start(Site(self._answers, doorkeeper, self._audit, Console()))
        self._worker.start()
        self._queue_watch.start()
        if self._process.config.replicates:
            self._link_watch.start()
        if doorkeeper.secured:
            self._refusals.start()
        host, port = self._server.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _persisted(self) -> int:
        return self._worker.survey.holders().persisted

    def sample(self) -> Status | None:
        """The work of each second. Returns: the state of all processes, if it is known.

        Raises: Bug, if the thread that answers HTTP has ended.
        """
        self._server.check()
        self._audit.tick()
        return self._sampler.take()

    def watch(self, status: Status | None) -> int:
        """Logs the alarms that begin or end. Returns: how many there are."""
        return self._answers.watch(status)

    def close(self) -> None:
        """Ends the threads, which soon find that nothing answers them any more."""
        self._worker.stop()
        self._counter.stop()
        self._refusals.stop()
        self._queue_watch.stop()
        self._link_watch.stop()
        self._processes.close()
        self._replication.close()
        self._server.stop()
        self._supervisor.close()


def _endpoints(process: Process) -> dict[str, str]:
    """Where each process with clients is asked."""
    ipc, workers = process.paths.ipc, delivery_workers(process.config)
    delivery = {worker: ipc(socket_of("desk", worker)) for worker in workers}
    return {"ingest": ipc("ingest-desk"), QUEUES: ipc("queues-desk")} | delivery


def _listen(process: Process) -> Server:
    at = endpoints.split(process.listen)
    try:
        return Server((at.host.strip("[]"), at.port), process.log)
    except OSError as error:
        reason = f"cannot listen on {process.listen}: {error.strerror}"
        hint = "change listen.admin; port 0 picks one"
        raise ConfigError("bad_config", reason, hint) from None
