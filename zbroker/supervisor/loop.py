"""The supervisor's process: `zbroker start`.

Purpose   starts the other processes in order, watches their beats, restarts them, stops them.
Sockets   ROUTER ipc supervisor (beats of the processes, status for the admin).
Owns      lock, instance.json, run/ of the data directory; the directory of the ipc sockets.
Settings  [instance], [listen], [delivery] workers, [log]; it hands all of them to the processes.
Exits     0 stopped by SIGTERM, SIGINT or SIGHUP; 1 the data directory is in use; 70 no process can
          be started here; 74 the storage cannot be used; 78 the config is wrong.
Weakness  when it is killed, the kernel kills all of them within milliseconds. Any other process may
          be killed and is started again, also the zygote, from which the others are forked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final, get_args

import setproctitle
import zmq

from zbroker.clock import SystemClock
from zbroker.config import Config
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Performers, Source, TurnPlan
from zbroker.paths import Paths
from zbroker.server import security
from zbroker.server.admin_endpoint import AdminEndpoint
from zbroker.server.process import configure_logs
from zbroker.server.process_loop import ONE, TurnLoop
from zbroker.supervisor import core as c
from zbroker.supervisor import directory
from zbroker.supervisor.announcer import Announcer
from zbroker.supervisor.children import Children
from zbroker.supervisor.held_ports import HeldPorts
from zbroker.supervisor.processes import PROCESSES, ProcessPlan, processes_of
from zbroker.supervisor.signals import SignalsPort
from zbroker.wire import codec
from zbroker.wire.supervision import Stop

NAME: Final = "supervisor"

log: Final = logging.getLogger(NAME)


def run(
    config: Config,
    announce: Callable[[str], None],
    kinds: tuple[ProcessPlan, ...] = PROCESSES,
    *,
    stdin: bool = False,
) -> int:
    """Runs an instance until it is asked to stop; calls `announce` with its URL when it serves.

    stdin: the end of standard input asks for that, too.

    Raises: ZBrokerError already_running, ConfigError, StorageError: before anything was started.
    """
    began_ms = SystemClock().mono_ms()
    configure_logs(config.log, NAME)
    setproctitle.setproctitle(f"zbroker {NAME}")
    notice = security.check(config)
    plans = processes_of(config, kinds)
    children = Children(config, plans)  # before there is anything that a fork would inherit
    lock = paths = None
    try:
        lock = directory.lock(config.paths(0).data)
        paths = directory.prepare(config)
        log.log(logging.INFO if notice.safe else logging.WARNING, notice.text)
        announcer = Announcer(config, paths, announce, began_ms)
        return SupervisorLoop(config, paths, children, plans, stdin=stdin).serve(announcer)
    finally:
        children.close()
        if paths is not None:
            directory.clean(paths)
        if lock is not None:
            os.close(lock)


class SupervisorLoop(TurnLoop):
    """Sockets, signals and children of the supervisor, and its plan."""

    def __init__(
        self,
        config: Config,
        paths: Paths,
        children: Children,
        plans: tuple[ProcessPlan, ...],
        *,
        stdin: bool,
    ) -> None:
        super().__init__(SystemClock(), log)
        self._children = children
        self._ports = HeldPorts()
        listen = self._ports.hold_listeners(config)
        self._signals = SignalsPort(self.poller, stdin=stdin)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        at = paths.ipc(NAME)
        self._endpoint = AdminEndpoint(self._context, at, codec.TO_SUPERVISOR, self.poller, log)
        self.core = c.SupervisorCore(
            c.ProcessState(NAME, pid=os.getpid(), started_ms=self.clock.mono_ms()),
            c.ZygoteState(pid=children.serve(self.poller, paths).pid),
            [c.ProcessState(plan.name, plan.needs, listen.get(plan.name, "")) for plan in plans],
        )

    def serve(self, announcer: Announcer) -> int:
        """Turns until everything has ended; returns the exit code."""
        # children before what they say, so that no process is heard that is not known
        sources: list[tuple[Source, Limit]] = [
            (each, ONE) for each in (self._signals, self._children, self._endpoint)
        ]
        performers: Performers = {
            c.Start: self._children.launch,
            c.Kill: self._children.kill,
            c.AskStop: self._ask_stop,
            c.StartZygote: self._children.start_zygote,
            c.EndZygote: self._children.refuse,
            c.Announce: announcer.announce,
            e.Tell: self._endpoint.tell,
        }
        self.begin(self.core, TurnPlan(sources, get_args(c.Effect)), performers)
        self.run()
        return self.core.exit_status

    def _ask_stop(self, effect: c.AskStop) -> None:
        """By message, which wakes its loop; by signal, when it has not said anything yet."""
        if not effect.rid or not self._endpoint.send(effect.rid, Stop()):
            self._children.stop(effect)

    def close(self) -> None:
        """Kills what still runs, and closes every socket."""
        for process in self.core.processes.values():
            if process.pid:
                self._children.kill(c.Kill(process.name, process.pid))
        self._signals.close()
        self._context.destroy(linger=0)
        self._ports.close()
