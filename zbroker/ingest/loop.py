"""The ingest process: publishers log on and publish here.

Purpose   answers logons (after the journal did), checks and packs what clients publish, forwards it
          to the journal, acknowledges what is persisted. Unrecorded messages go to delivery.
Sockets   ROUTER tcp for clients ([listen] ingest), monitor and ZAP; DEALER ipc journal; SUB ipc
          marks and full-queues; with synchronous destinations SUB ipc replicated; ROUTER ipc
          ingest-desk for questions of the admin; with a [[record]] table DEALER ipc live, live-2,
          ... of each delivery worker.
Owns      nothing on disk.
Settings  [limits]; [[record]]; [ingest] spin_us; [delivery] workers; [security].
Exits     0 when asked to stop.
Weakness  one thread: about half a million single publishes per second is its limit on one core.
          While the journal's credit is used up no client is read, so what is not recorded waits
          too. A batch of recorded and unrecorded messages is cut and packed again here.

It spins: for spin_us after the last event it looks again instead of sleeping, as long as clients
publish one message at a time; waking a sleeping core costs more than all the rest of one publish.
Meanwhile it stays on one CPU, and the journal shares it: they work in turn.
"""

from __future__ import annotations

from typing import Final, get_args

from zbroker import cpus
from zbroker.config import delivery_workers, socket_of
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Performers, Source, TurnPlan
from zbroker.ingest.contract import Effect, IngestSettings, PublishLimits, Verify
from zbroker.ingest.core import IngestCore
from zbroker.ingest.ports import EndpointsFile, LivePort, PasswordPort
from zbroker.limits import FRAME_SLACK_BYTES, INGEST_TURN_MAX, MIB
from zbroker.server.ports import NewestSubscriber, ReplicatedPort
from zbroker.server.process import Process
from zbroker.server.process_loop import ONE, ListenerLoop
from zbroker.wire import codec
from zbroker.wire import surveys as s

SEND_HWM: Final = 1_000  # answers queued per client; beyond it they are merged by the core
#: of one turn: commands that are read and not handled yet are in memory
COMMANDS: Final = Limit(INGEST_TURN_MAX, 8 * MIB)


def run(process: Process) -> int:
    """Serves publishers until the supervisor stops it."""
    return IngestLoop(process).run()


class IngestLoop(ListenerLoop):
    """Sockets and files of the ingest process, and its plan."""

    def __init__(self, process: Process) -> None:
        config = process.config
        limits = PublishLimits(
            config.limits.message_bytes, config.limits.batch_bytes, config.limits.window_bytes,
            config.limits.clients, config.journal.time == "publisher",
            config.limits.clients_of_one,
        )  # fmt: skip
        frame_bytes = max(limits.message_bytes, limits.batch_bytes) + FRAME_SLACK_BYTES
        super().__init__(
            process, "ingest-desk", s.INGEST_QUESTIONS, frame_bytes=frame_bytes, sndhwm=SEND_HWM
        )
        workers = delivery_workers(config)
        links = [socket_of("live", worker) for worker in workers]
        settings = IngestSettings(
            limits, process.incarnation, self.recording, workers, links, self.access,
            self.token_key, self.disconnects.number, config.ingest.spin_us,
            any(one.mode == "sync" for one in config.destination),
        )  # fmt: skip
        self._live = LivePort(process.context, process.paths, self.poller, links)
        passwords = PasswordPort(self.poller)
        full = NewestSubscriber(
            process.context, process.paths.ipc("full-queues"), codec.FULL_QUEUES, self.poller
        )
        # The journal first: receipts free windows. Grants come before clients, so that messages
        # go to subscribers that were there before them.
        sources: list[tuple[Source, Limit]] = [
            (self.journal, ONE),
            (self._live, ONE),
            (full, ONE),
            (self.listener, ONE),
            (passwords, ONE),
            *self.rules,
            (self.questions, ONE),
            (EndpointsFile(process), ONE),
            (self.commands, COMMANDS),
            (self.supervisor, ONE),
        ]
        performers: Performers = {
            e.Say: self._say,
            e.Reconnect: self._reconnect,
            Verify: passwords.verify,
        }
        core = IngestCore(settings, self.quiet_ms, self.peer, cpus.current)
        hot: tuple[Source, ...] = self.journal, self.commands
        if settings.replicated:  # right after the journal: acknowledgements wait for it
            replicated = ReplicatedPort(
                process.context, process.paths, self.poller, self.hot, every_change=True
            )
            sources.insert(1, (replicated, ONE))
            hot = self.journal, replicated, self.commands
        self.begin(core, TurnPlan(sources, get_args(Effect), hot=hot), performers)

    def _say(self, effect: e.Say) -> None:
        (self.journal if effect.link == e.JOURNAL else self._live).say(effect)

    def _reconnect(self, effect: e.Reconnect) -> None:
        port = self.journal if effect.link in (e.JOURNAL, e.WATERMARKS) else self._live
        port.reconnect(effect)
