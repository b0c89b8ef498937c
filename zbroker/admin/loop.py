"""The admin's process: answers over HTTP, and everything that becomes of old segments.

Purpose   serves `zbroker-admin`, the console, Prometheus and other monitoring; archives, compresses
          and asks for the removal of segments, by [retention] or by hand, in a niced thread; looks
          for alarms; keeps the audit log.
Sockets   HTTP on listen.admin; DEALER ipc supervisor (beats), another for status requests; DEALER
          ipc journal (holders, leases, remove, retire, reindex); DEALERs ipc to ingest, the
          delivery workers and queues, for one question each.
Owns      copies of sealed segments and their summaries (journal and archive directory),
          <data>/actions, <data>/audit, run/admin.token and run/admin-read.token (0600, new at each
          start), run/leases.json, run/disconnects.json; reads run/instance.json, run/token.key, the
          access file, and the log, to count topics on request. It unlinks no segment: the journal
          does, when it is asked to.
Settings  [listen] admin; [security]; [[record]]; [retention]; [delivery] workers; [journal]
          directory, archive_directory, segment_size, time.
Exits     as every process (zbroker.supervisor.child).
Killed    an unfinished copy is thrown away by the next start, two whole copies are finished by it,
          a removal goes on in the journal, a request that waited is reported as failed.
Weakness  the numbers of a process are as old as its last beat: half a second, or two if only time
          has passed. The first request takes 0.1 s more. After a start the wall clock is believed
          at once, however wrong it is; only later jumps are followed slowly. The numbers of the
          last hour are in memory, and lost at a restart. Work on segments shares the disk with the
          journal: it is paced, not scheduled.
"""

from __future__ import annotations

from typing import get_args

from zbroker.admin import schedule
from zbroker.admin.journal_link import AdminJournalLink
from zbroker.admin.services import AdminServices
from zbroker.engine.contract import Limit, Performers, Source, TurnPlan
from zbroker.server.ports import RulesPort
from zbroker.server.process import Process
from zbroker.server.process_loop import ONE, ProcessLoop


def run(process: Process) -> int:
    """Serves until it is asked to stop."""
    return AdminLoop(process).run()


class AdminLoop(ProcessLoop):
    """Moves frames of the journal and takes samples; threads of the services do the rest."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        clock, endpoint = process.clock, process.paths.ipc("journal")
        self._journal = AdminJournalLink(
            process.context, endpoint, process.incarnation, self.poller, clock
        )
        self._services = AdminServices(process, self._journal)
        sources: list[tuple[Source, Limit]] = [
            (self._journal, ONE),
            (self.supervisor, ONE),
        ]
        if process.config.security.on:
            sources.append((RulesPort(self._services.access, clock), ONE))
        performers: Performers = {
            schedule.TakeSample: self._sample,
            schedule.WatchAlarms: self._watch,
        }
        core = schedule.AdminSchedule(clock.mono_ms())
        self.begin(core, TurnPlan(sources, get_args(schedule.Effect)), performers)

    def open(self) -> None:
        """Begins everything but this thread."""
        self.endpoint = self._services.start()

    def close(self) -> None:
        """Fails questions to the journal first, so that no thread is waited for in vain."""
        self._journal.close()
        self._services.close()

    def _sample(self, _effect: schedule.TakeSample) -> schedule.Sampled:
        return schedule.Sampled(self._services.sample())

    def _watch(self, effect: schedule.WatchAlarms) -> schedule.AlarmsCounted:
        return schedule.AlarmsCounted(self._services.watch(effect.status))
