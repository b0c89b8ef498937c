"""The admin's process: answers over HTTP, and everything that becomes of old segments.

For: `zbroker-admin` and whoever watches an instance; archiving, compressing and asking for the
removal of segments, by [retention] or by hand, in a niced thread; alarms.
Sockets: HTTP on listen.admin; ipc DEALER to the supervisor (beats), another for status requests;
ipc DEALER to the journal (holders, leases, remove, retire, reindex); ipc DEALERs to the desks of
the delivery workers, for one question each.
Files: writes copies of sealed segments and their summaries (journal and archive directory),
<data>/actions, run/admin.token (0600, new at each start), run/leases.json; reads run/instance.json.
It unlinks no segment: the journal does, when it is asked to.
Settings: listen.admin; [retention]; delivery.workers; journal.directory, archive_directory,
segment_size, time.
Exit codes: as every room (zbroker.supervisor.child).
When it is killed: an unfinished copy is thrown away by the next start, two whole copies are
finished by it, a removal goes on in the journal, a request that waited is told as failed.
Known weaknesses: the numbers of a room are as old as its last beat, up to half a second. After a
start the wall clock is believed at once, however wrong it is; only later jumps are followed slowly.
Work on segments shares the disk with the journal: it is paced, not scheduled.
"""

from __future__ import annotations

import threading
from typing import Final

import zmq

from zbroker import endpoints
from zbroker.admin import token
from zbroker.admin.answers import Answers
from zbroker.admin.catalog import Catalog
from zbroker.admin.delivery_link import DeliveryLink
from zbroker.admin.history import History
from zbroker.admin.http import Server
from zbroker.admin.journal_link import JournalLink
from zbroker.admin.lags import LogTimes
from zbroker.admin.leases import Leases
from zbroker.admin.subscriptions import Subscriptions
from zbroker.admin.supervisor_link import SupervisorLink
from zbroker.admin.survey import Tools
from zbroker.admin.worker import Worker
from zbroker.config import delivery_rooms, socket_of
from zbroker.errors import ConfigError
from zbroker.process import Process

WATCH_MS: Final = 5_000  # how often alarms are looked for when nobody asks
STOP_POLL_S: Final = 0.05  # how long the HTTP thread may take to see that it is to end


def run(process: Process) -> int:
    """Serves until told to stop."""
    room = AdminRoom(process)
    try:
        room.start()
        while not process.stopping:
            room.turn()
    finally:
        room.close()
    return 0


class AdminRoom:
    """The loop's thread moves frames; HTTP threads answer; the worker works."""

    def __init__(self, process: Process) -> None:
        self._process = process
        paths, clock, log = process.paths, process.clock, process.log
        self._poller = zmq.Poller()
        self._poller.register(process.link, zmq.POLLIN)
        self._link = JournalLink(
            process.context, paths.ipc("journal"), process.incarnation, self._poller
        )
        self._supervisor = SupervisorLink(process.context, paths.ipc("supervisor"), clock)
        tools = Tools(
            process.config,
            paths,
            self._link,
            Leases(paths.run / "leases.json", clock, log),
            Catalog(paths.journal, paths.archive),
            History(paths.actions, log),
            clock,
            log,
        )
        self._worker = Worker(tools)
        self._delivery = DeliveryLink(process.context, self._desks(), clock)
        subscriptions = Subscriptions(
            self._delivery, self._link, LogTimes(paths.journal, paths.archive)
        )
        self._answers = Answers(tools, self._supervisor, self._worker, subscriptions)
        self._server = self._listen(token.make(paths.admin_token))
        self._watch_ms = clock.mono_ms() + WATCH_MS

    def _desks(self) -> dict[str, str]:
        """Where each delivery worker is asked, by room."""
        ipc = self._process.paths.ipc
        rooms = delivery_rooms(self._process.config)
        return {room: ipc(socket_of("desk", room)) for room in rooms}

    def _listen(self, secret: str) -> Server:
        listen = self._process.listen
        at = endpoints.split(listen)
        try:
            return Server((at.host.strip("[]"), at.port), self._answers, secret, self._process.log)
        except OSError as error:
            reason = f"cannot listen on {listen}: {error.strerror}"
            hint = "change listen.admin; port 0 picks one"
            raise ConfigError("bad_config", reason, hint) from None

    def start(self) -> None:
        """Everything but this thread."""
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(STOP_POLL_S,), name="http", daemon=True).start()
        self._worker.start()
        host, port = self._server.server_address[0], self._server.server_address[1]
        self._process.ready(f"http://{host!s}:{port}")

    def turn(self) -> None:
        """Frames of the journal and the supervisor; alarms when it is time."""
        process = self._process
        self._poller.poll(process.wait_ms())
        now_ms = process.clock.mono_ms()
        self._link.turn(now_ms)
        if now_ms >= self._watch_ms:
            self._watch_ms = now_ms + WATCH_MS
            process.stats = {"alarms": self._answers.watch()}
        process.turn()

    def close(self) -> None:
        """Whoever waits for the journal is told first, so that no thread is waited for in vain."""
        self._link.close()
        self._worker.stop()
        self._server.shutdown()
        self._server.server_close()
        self._delivery.close()
        self._supervisor.close()
