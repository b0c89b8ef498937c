"""The supervisor's process: `zbroker start`.

For: starting the rooms in order, watching their beats, restarting them, stopping them.
Sockets: ipc ROUTER "supervisor" (beats of the rooms, status for admin).
Files: lock, instance.json, run/ of the data directory; the directory of the ipc sockets.
Settings: instance, listen, delivery.workers, log; it hands all of them to the rooms.
Exit codes: 0 stopped by SIGTERM, SIGINT or SIGHUP; 1 the data directory is in use; 70 no process
can be started here; 74 the storage cannot be used; 78 the config is wrong.
Any other process may be killed and is started again, also the one that the rooms are forked from.
Known weakness: when this one is killed, the kernel kills all of them within milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import setproctitle
import zmq

import zbroker
from zbroker import endpoints, sockets
from zbroker.clock import Clock, SystemClock
from zbroker.config import Config, delivery_rooms, doors, setting_of
from zbroker.errors import ClientError
from zbroker.paths import Paths
from zbroker.server import security
from zbroker.server.process import configure_logs
from zbroker.supervisor import core as c
from zbroker.supervisor import directory, zygote
from zbroker.supervisor.ports import Ports
from zbroker.wire import codec
from zbroker.wire import internal as m

BURST_MAX: Final = 256  # beats of one turn
WAIT_MAX_MS: Final = 1_000
CHILDREN_END_S: Final = 2.0
_PR_SET_CHILD_SUBREAPER: Final = 36


class ProcessPlan(NamedTuple):
    """A kind of room: its module, and the rooms that must have been ready before."""

    name: str
    module: str
    needs: tuple[str, ...] = ()


#: admin needs none, so that `status` can report the progress of a long recovery
ROOMS: Final = (
    ProcessPlan("journal", "zbroker.journal.loop"),
    ProcessPlan("ingest", "zbroker.ingest.loop", ("journal",)),
    ProcessPlan("delivery", "zbroker.delivery.loop", ("journal",)),
    ProcessPlan("queues", "zbroker.queues.loop", ("journal",)),
    ProcessPlan("admin", "zbroker.admin.loop"),
)


def rooms_of(config: Config, plan: tuple[ProcessPlan, ...]) -> tuple[ProcessPlan, ...]:
    """The rooms of an instance: of each kind one, of delivery one per worker."""
    workers = {"delivery": delivery_rooms(config)}
    return tuple(
        kind._replace(name=name) for kind in plan for name in workers.get(kind.name, (kind.name,))
    )


def run(
    config: Config, announce: Callable[[str], None], plan: tuple[ProcessPlan, ...] = ROOMS
) -> int:
    """Runs an instance until it is asked to stop; calls `announce` with its URL when it serves.

    Raises: ZBrokerError already_running, ConfigError, StorageError: before anything was started.
    """
    began_ms = SystemClock().mono_ms()
    configure_logs(config.log, "supervisor")
    setproctitle.setproctitle("zbroker supervisor")
    said = security.check(config)
    lock = directory.lock(config.paths(0).data)
    plan = rooms_of(config, plan)
    forker = Forker({room.name: room.module for room in plan})
    paths: Paths | None = None
    try:
        paths = directory.prepare(config)
        level = logging.INFO if said.safe else logging.WARNING
        logging.getLogger("supervisor").log(level, said.text)
        supervisor = Supervisor(config, paths, forker, plan)
        try:
            return supervisor.run(announce, began_ms)
        finally:
            supervisor.close()
    finally:
        forker.end()
        _wait_for_children()
        if paths is not None:
            directory.clean(paths)
        os.close(lock)


def _wait_for_children() -> None:
    """Waits until all of them are gone; each was asked or killed."""
    deadline = time.monotonic() + CHILDREN_END_S
    with contextlib.suppress(ChildProcessError):  # none left: the awaited state
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.005)


class Forker:
    """The zygote as the supervisor sees it: its process and its socket, of one after another."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = modules
        self.start()

    def start(self) -> None:
        """Starts one; the one before, if any, was ended."""
        self._process, self.link = zygote.spawn(self._modules)
        self.link.setblocking(False)

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return self._process.pid if self.link.fileno() >= 0 else 0

    def send(self, message: zygote.Setup | zygote.Launch) -> None:
        """What it will never read shows as the end of its socket."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.link.send(msgspec.json.encode(message))

    def receive(self) -> Iterator[zygote.ChildForked | zygote.NotForked | None]:
        """The next message; None after the last one."""
        if self.link.fileno() < 0:
            return  # between two of them
        try:
            while data := self.link.recv(zygote.MESSAGE_MAX_BYTES):
                yield zygote.FROM_ZYGOTE.decode(data)
        except BlockingIOError:
            return
        except ConnectionResetError:
            pass  # it ended before it read what it was sent
        yield None

    def refuse(self) -> None:
        """Kills it. Messages sent before can still be read; a late process ends itself."""
        with contextlib.suppress(OSError):  # it was closed at the other end
            self.link.shutdown(socket.SHUT_RDWR)
        self._process.kill()

    def end(self) -> None:
        """Kills it, waits until it is gone, and closes the socket."""
        self._process.kill()
        self._process.wait()
        self.link.close()


class Supervisor:
    """Moves bytes and signals between the core and the world."""

    def __init__(
        self, config: Config, paths: Paths, forker: Forker, plan: tuple[ProcessPlan, ...]
    ) -> None:
        self._config, self._paths, self._forker = config, paths, forker
        self._clock: Clock = SystemClock()
        self._log = logging.getLogger("supervisor")
        self._ports = Ports()
        found = doors(config)
        self._core = c.SupervisorCore([
            c.ProcessState(room.name, room.needs, self._listen(room.name, found.get(room.name, "")))
            for room in plan
        ])  # fmt: skip
        self._rids: dict[int, bytes] = {}  # by pid
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._started_ms = self._clock.mono_ms()
        # what the zygote forks becomes ours when the process between has ended
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._watch_signals()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = sockets.inner_router(self._context)
        self._router.bind(paths.ipc("supervisor"))
        self._poller = zmq.Poller()
        for readable in (self._router, self._woken):
            self._poller.register(readable, zmq.POLLIN)
        self._meet_zygote()

    def _meet_zygote(self) -> None:
        self._poller.register(self._forker.link, zmq.POLLIN)
        config = _without_launch(self._config)
        self._forker.send(zygote.Setup(config, self._paths.instance, os.getpid()))

    def _listen(self, room: str, endpoint: str) -> str:
        """Where clients will find this room, "" for one without clients."""
        return self._ports.hold(f"listen.{setting_of(room)}", endpoint) if endpoint else ""

    def _watch_signals(self) -> None:
        self._signals: list[int] = []
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda caught, _: self._signals.append(caught))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it wakes the poller, that is all

    def run(self, announce: Callable[[str], None], began_ms: int) -> int:
        """Turns until everything has ended; returns the exit code."""
        self._announce, self._began_ms = announce, began_ms
        while True:
            now_ms = self._clock.mono_ms()
            for effect in self._core.tick(now_ms):
                if isinstance(effect, c.Halt):
                    return effect.status
                self._perform(effect)
            wake_ms = self._core.next_wake_ms()
            wait_ms = WAIT_MAX_MS if wake_ms is None else max(0, min(WAIT_MAX_MS, wake_ms - now_ms))
            self._poller.poll(wait_ms)
            self._receive()

    # -- events

    def _receive(self) -> None:
        """Hands everything that happened to the core."""
        now_ms = self._clock.mono_ms()
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        while self._signals:
            number = self._signals.pop()
            self._log.info("%s: stopping", signal.Signals(number).name)
            self._core.handle(c.StopSignal(), now_ms)
        ended = list(_reaped())  # before their messages are read, so that no process ends unknown
        self._receive_zygote(now_ms)
        for pid, status in ended:
            self._exited(pid, status, now_ms)
        for _ in range(BURST_MAX):
            message = sockets.receive_from(self._router)
            if message is None:
                break
            self._receive_room(message[0], message[1][0], now_ms)

    def _receive_zygote(self, now_ms: int) -> None:
        for message in self._forker.receive():
            if isinstance(message, zygote.ChildForked):
                self._core.handle(c.Started(message.room, message.pid), now_ms)
            elif isinstance(message, zygote.NotForked):
                self._core.handle(c.Exited(message.room, 0, c.EX_BUG), now_ms)
            else:
                self._poller.unregister(self._forker.link)
                self._forker.end()
                self._core.handle(c.ZygoteLost(), now_ms)

    def _exited(self, pid: int, status: int, now_ms: int) -> None:
        """Handles the exit of a process; other children are the zygote and orphaned helpers."""
        self._rids.pop(pid, None)
        for room in self._core.rooms.values():
            if room.pid == pid:
                self._core.handle(c.Exited(room.name, pid, status), now_ms)

    def _receive_room(self, rid: bytes, frame: zmq.Frame, now_ms: int) -> None:
        try:
            message = codec.decode(codec.TO_SUPERVISOR, frame.buffer)
        except ClientError as error:
            self._log.error("a frame that no room of ours sends: %s; ignored", error)
            return
        if isinstance(message, m.AskStatus):
            sockets.send_to(self._router, rid, codec.encode(self._status(message.cid, now_ms)))
            return
        self._rids[message.pid] = rid
        beat = c.Heard(
            message.room,
            message.pid,
            message.state,
            message.progress,
            message.endpoint,
            message.stats,
        )
        self._core.handle(beat, now_ms)

    def _status(self, cid: int, now_ms: int) -> m.Status:
        own: c.RoomStatus = {
            "room": "supervisor",
            "pid": os.getpid(),
            "state": self._core.state(),
            "restarts": 0,
            "uptime_s": (now_ms - self._started_ms) // 1000,
            "progress": "",
            "endpoint": "",
            "stats": {
                "zygote": self._forker.pid,
                "zygote_restarts": self._core.zygote.restarts,
            },
        }
        return m.Status(cid, self._core.state(), [own, *self._core.status(now_ms)])

    # -- effects

    def _perform(self, effect: c.Effect) -> None:
        if isinstance(effect, c.Start):
            journal, first = self._config.journal, effect.first
            tail_loss = journal.accept_tail_loss and first
            missing = journal.accept_missing and first
            self._forker.send(zygote.Launch(effect.room, effect.listen, tail_loss, missing))
        elif isinstance(effect, c.AskStop):
            self._ask_stop(effect.pid)
        elif isinstance(effect, c.Kill):
            _signal(effect.pid, signal.SIGKILL)
        elif isinstance(effect, c.StartZygote):
            self._forker.start()
            self._meet_zygote()
        elif isinstance(effect, c.EndZygote):
            self._forker.refuse()
        elif isinstance(effect, c.Announce):
            self._tell_endpoints(effect.endpoints, effect.ready)
        elif isinstance(effect, c.LogLine):
            self._log.log(logging.getLevelNamesMapping()[effect.level.upper()], effect.text)

    def _ask_stop(self, pid: int) -> None:
        """By message, which wakes its loop; by signal, when it has not said anything yet."""
        rid = self._rids.get(pid)
        if rid is None or not sockets.send_to(self._router, rid, codec.encode(m.Stop())):
            _signal(pid, signal.SIGTERM)

    def _tell_endpoints(self, bound: dict[str, str], is_ready: bool) -> None:
        running = self._running(bound)
        directory.write_running(self._paths, running)
        if is_ready:
            took_ms = self._clock.mono_ms() - self._began_ms
            what = {"took_ms": took_ms, "url": running["url"]}
            self._log.info(
                "ready in %(took_ms)d ms: %(url)s", what, extra={"code": "supervisor.ready"}
            )
            self._announce(running["url"])

    def _running(self, bound: dict[str, str]) -> dict[str, Any]:
        advertise = self._config.listen.advertise
        told = {room: endpoints.told(at, advertise) for room, at in bound.items()}
        if "admin" in bound:
            told["admin"] = bound["admin"]  # loopback: an advertised host would not reach it
        ingest = told.get("ingest", "")
        return {
            "instance": f"{self._paths.instance:016x}",
            "name": self._config.instance.name,
            "group": self._config.instance.group,
            "version": zbroker.__version__,
            "pid": os.getpid(),
            "url": endpoints.reached_from(ingest, "127.0.0.1") if ingest else "",
            "endpoints": told,
            "started": self._started,
        }

    def close(self) -> None:
        """Kills what still runs, and closes every socket."""
        for room in self._core.rooms.values():
            if room.pid:
                _signal(room.pid, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        self._context.destroy(linger=0)
        self._woken.close()
        self._waker.close()
        self._ports.close()


def _without_launch(config: Config) -> Config:
    """The settings that every start of a room gets; a Launch carries what is for the first only."""
    return config.accepting()


def _reaped() -> Iterator[tuple[int, int]]:
    """Every child that has ended: its pid, and its exit code or minus the signal."""
    with contextlib.suppress(ChildProcessError):  # there is none at all
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, os.waitstatus_to_exitcode(status)


def _signal(pid: int, number: int) -> None:
    """To a child that was not reaped, so that the number is still its own."""
    with contextlib.suppress(ProcessLookupError):  # one that was never ours, and ended
        os.kill(pid, number)
