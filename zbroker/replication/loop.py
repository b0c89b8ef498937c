"""The replication process: this log goes to other instances, and theirs comes here.

Purpose   sends what is durable here to each destination, from where that one is, and messages
          before that if acknowledgements wait for a destination; takes what other instances send
          and hands it to the journal; tells ingest how far enough destinations hold the log; keeps
          what a destination lacks in the log.
Sockets   ROUTER tcp for sources ([listen] replication), monitor and ZAP; a DEALER tcp to each
          destination; DEALER ipc journal; SUB ipc marks; XPUB ipc replicated; ROUTER ipc
          replication-desk for questions of the admin, and requests of the queues.
Owns      nothing on disk; reads the log.
Settings  [[destination]]; [[record]], for filters; [replication]; [listen] replication; [security].
Exits     0 when asked to stop.
Weakness  one thread for all links. A destination that is away for long holds the whole log since
          then: retention removes nothing of it.
"""

from __future__ import annotations

from typing import Final, get_args

import zmq

from zbroker import sockets
from zbroker.config.link_content import link_topics
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Performers, Source, TurnPlan
from zbroker.limits import MIB
from zbroker.log.reader import Log
from zbroker.recording import Recording
from zbroker.replication import effects as re
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.core import ReplicationCore
from zbroker.replication.durability import DestinationRule
from zbroker.replication.log_port import LinkLog
from zbroker.replication.ports import (
    FRAME_MAX_BYTES,
    Address,
    DestinationsPort,
    MarkPort,
    SourcesPort,
)
from zbroker.replication.state_reader import StateReader
from zbroker.server.admin_endpoint import AdminEndpoint
from zbroker.server.ports import JournalPort, RulesPort
from zbroker.server.process import Process
from zbroker.server.process_loop import ONE, READ_SLICE_MS, ProcessLoop
from zbroker.server.public_listener import PublicListener
from zbroker.server.security import server_curve
from zbroker.wire import codec
from zbroker.wire.surveys import unknown

BURST: Final = Limit(100, 4 * MIB)  # messages of one turn from all sources
READS_MAX: Final = 100  # blocks of one turn: the slice of time ends before


def run(process: Process) -> int:
    """Replicates until the supervisor stops it."""
    return ReplicationLoop(process).run()


class ReplicationLoop(ProcessLoop):
    """Sockets and files of the replication process, and its plan."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        context, config, paths = process.context, process.config, process.paths
        self._journal = JournalPort(context, paths, self.poller, self.hot, every_write=True)
        destinations = DestinationsPort(context, self.poller, _addresses(process))
        marks = MarkPort(context, paths.ipc("replicated"), self.poller)
        questions = AdminEndpoint(
            context, paths.ipc("replication-desk"), codec.LINK_QUESTIONS, self.poller, process.log
        )
        self._listener = _listener(process, self.poller)
        recording = Recording(config.record, nothing=config.records_nothing)
        settings = ReplicationSettings(
            paths.instance, config.instance.name, config.instance.group, process.incarnation,
            [DestinationRule(one.name, one.mode == "sync", one.downgrade_after, one.server_key,
                             link_topics(one, recording)) for one in config.destination],
            config.replication.sync_needed, config.replication.min_sync, type_of=recording.type_of,
            return_wait_ms=config.replication.return_wait,
        )  # fmt: skip
        sources: list[tuple[Source, Limit]] = [(self._journal, ONE), (destinations, ONE)]
        answers: Performers = dict.fromkeys((e.Answer, e.LoggedOn, e.LoggedOff), _nobody)
        if (listener := self._listener) is not None:
            settings = settings._replace(access=listener.rules.access)
            self.endpoint = listener.connections.endpoint
            sources.append((listener, ONE))
            if config.security.on:
                sources.append((RulesPort(listener.rules, process.clock), ONE))
            sources.append((SourcesPort(listener.connections, self.poller), BURST))
            answers = {
                e.Answer: listener.answer,
                e.LoggedOn: listener.logged_on,
                e.LoggedOff: listener.logged_off,
            }
        peers = listener.connections.peer if listener is not None else unknown
        core = ReplicationCore(settings, peers)
        log = LinkLog(lambda: Log(paths.journal, paths.archive), lambda: core.persisted)
        states = StateReader(
            lambda: Log(paths.journal, paths.archive), lambda: core.persisted, paths.instance
        )
        performers: Performers = {
            **answers,
            e.Say: self._journal.say,
            e.Reconnect: self._journal.reconnect,
            e.Follow: self._journal.follow,
            e.Tell: questions.tell,
            re.ConnectLink: destinations.connect,
            re.CloseLink: destinations.close,
            re.SayOn: destinations.say,
            re.PublishMark: marks.publish,
            re.FindStart: log.find,
            re.ReadLink: log.read,
            re.ReadState: states.read,
        }
        sources += [(marks, ONE), (questions, ONE), (self.supervisor, ONE)]
        plan = TurnPlan(sources, get_args(re.Effect), READ_SLICE_MS, READS_MAX)
        self.begin(core, plan, performers)

    def open(self) -> None:
        """Makes sure that connections without a key are refused."""
        if self._listener is not None:
            self._listener.connections.self_test()


def _listener(process: Process, poller: zmq.Poller) -> PublicListener | None:
    """Where sources connect, if they may."""
    if not process.config.listen.replication:
        return None
    return PublicListener(process, poller, frame_bytes=FRAME_MAX_BYTES, sndhwm=0)


def _nobody(effect: object) -> None:
    """For effects about connections: without a listener there are none."""
    raise AssertionError(effect)


def _addresses(process: Process) -> dict[str, Address]:
    """Raises: ConfigError."""
    pair = server_curve(process.config)
    return {
        one.name: Address(
            one.to, None if pair is None else sockets.Curve(*pair, one.server_key.encode())
        )
        for one in process.config.destination
    }
