"""The ingest process: the front door for publishers.

Purpose   answers logons (after the journal did), checks and packs what clients publish, forwards it
          to the journal, acknowledges what is persisted. What is not recorded goes to delivery.
Sockets   ROUTER tcp for clients ([listen] ingest), monitor and ZAP; DEALER ipc journal; SUB ipc
          marks; ROUTER ipc ingest-desk for questions of the admin; with a [[record]] table DEALER
          ipc live, live-2, ... of each delivery worker.
Owns      nothing on disk.
Settings  [limits]; [[record]]; [ingest] spin_us; [delivery] workers; [security].
Exits     0 when told to stop.
Weakness  one thread: about half a million single publishes per second is its limit on one core.
          While the journal's credit is used up no client is read, so what is not recorded waits
          too. A batch of recorded and unrecorded messages is cut and packed anew here.

It alone spins: for spin_us after the last event it looks again instead of sleeping, as long as few
messages come per turn; waking a sleeping core costs more than all the rest of one publish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import zmq

from zbroker import sockets
from zbroker.config import delivery_rooms, socket_of
from zbroker.errors import ClientError
from zbroker.ingest.admin_endpoint import Desk
from zbroker.ingest.core import IngestCore, Item, Limits
from zbroker.ingest.effects import Effect, Send, Token, Verify
from zbroker.ingest.link import Forward, Reconnect
from zbroker.ingest.live import LiveForward
from zbroker.ingest.logon_endpoints import doors_for, missing
from zbroker.ingest.passwords import Verifier
from zbroker.limits import (
    FRAME_SLACK_BYTES,
    FRAMES_MAX,
    INGEST_TURN_MAX,
    MIB,
    UNRECORDED_NAMED_MAX,
)
from zbroker.recording import Recording
from zbroker.server import disconnects_file
from zbroker.server.process import EX_OK, Process
from zbroker.server.public_listener import PublicListener
from zbroker.wire import codec, internal, token
from zbroker.wire.messages import Ack, Logon
from zbroker.wire.stages import StagesDone

SEND_HWM: Final = 1_000  # answers queued per client; beyond it only the newest ack is kept
TOKEN_LIFE_S: Final = 24 * 3_600
RETRY_MS: Final = 20  # how soon an answer that found a full queue is tried again
SPIN_MEAN_MAX: Final = 4.0  # messages per turn (moving mean) up to which spinning pays
STOP_WAIT_MS: Final = 3_000  # for receipts of what was accepted before the stop
TURN_BYTES_MAX: Final = 8 * MIB  # of one turn: what was read and not handled yet is in memory
CONFIRM_MS: Final = 500
FILTERED_KEPT_BYTES: Final = 16 * 100_000  # of runs for a client that does not read its acks


def run(process: Process) -> int:
    """Serves publishers until told to stop."""
    room = IngestRoom(process)
    while not process.stopping or room.unsettled():
        room.turn()
    process.close()
    return EX_OK


class IngestRoom:
    """Moves frames between clients, core and journal."""

    def __init__(self, process: Process) -> None:
        self._process = process
        config = process.config
        limits = Limits(
            config.limits.message_bytes, config.limits.batch_bytes, config.limits.window_bytes,
            config.limits.clients, config.journal.time == "publisher",
            config.limits.clients_of_one,
        )  # fmt: skip
        self._workers = delivery_rooms(config)
        frame_bytes = max(limits.message_bytes, limits.batch_bytes) + FRAME_SLACK_BYTES
        self._front = PublicListener(process, frame_bytes=frame_bytes, sndhwm=SEND_HWM)
        self._door = self._front.door
        self._passwords = Verifier()
        recording = Recording(config.record, nothing=config.records_nothing)
        self.core = IngestCore(
            limits, process.incarnation, recording, len(self._workers),
            self._door.wires.quiet_ms, self._front.access,
        )  # fmt: skip
        self._key = process.paths.token_key.read_bytes()
        self._spin_s = config.ingest.spin_us / 1e6  # 0 on a machine with one core
        self._mean = 0.0
        self._full: dict[bytes, dict[str, msgspec.Struct]] = {}  # found a full queue, see _keep
        self._endpoints: tuple[int, dict[str, str]] = (0, {})
        self._confirm_ms = 0
        self._stop_ms: int | None = None
        self._clients = self._door.router
        self._marks = sockets.marks_subscriber(process.context, process.paths.ipc("marks"))
        self._journal: zmq.Socket[bytes] | None = None
        self._live: dict[int, zmq.Socket[bytes]] = {}  # by delivery worker, from 0
        self._poller = zmq.Poller()
        for socket in (self._clients, self._marks, process.link, self._passwords.fd):
            self._poller.register(socket, zmq.POLLIN)
        self._door.register(self._poller)
        desk = process.paths.ipc("ingest-desk")
        self._desk = Desk(process.context, desk, self._poller, process.log)
        self._desk.disconnects = disconnects_file.read(process.paths.disconnects).number
        self._endpoint = self._front.open()
        self._ready = False
        self._shut = False

    # -- one turn -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Waits for something, then handles all that waits: receipts first, they free windows."""
        self._gate()
        events = dict(self._wait())
        if self._journal is not None and self._journal in events:
            self._read_journal()
        if self._marks in events:
            self._read_marks()
        for worker, live in self._live.items():  # before clients: who subscribed first gets it
            if live in events:
                self._read_live(worker, live)
        self._let_in(events)
        if self._desk.router in events:
            now_ms = self._process.clock.mono_ms()
            self._perform(self._desk.answer(self.core, now_ms, self._door.peer))
        drained = not self._shut
        if self._clients in events:
            drained = self._read_clients()
        self._tick(drained)

    def _let_in(self, events: dict[object, int]) -> None:
        """Handshakes, passwords, and the rules if they have changed."""
        now_ms = self._process.clock.mono_ms()
        self._front.turn(events, now_ms, self.core.refusals)
        if self._passwords.fd in events:
            for number, good in self._passwords.answers():
                self._perform(self.core.on_verified(number, now_ms, good=good))
        access = self._front.look(now_ms)
        if access is not None:
            self._perform(self.core.entitle(access, now_ms))

    def _gate(self) -> None:
        """While the journal's credit is used up, clients wait in their own queues."""
        link = self.core.link
        shut = (link.up and link.full) or self._process.stopping
        if shut != self._shut:
            self._shut = shut
            if shut:
                self._poller.unregister(self._clients)
            else:
                self._poller.register(self._clients, zmq.POLLIN)

    def _wait(self) -> list[tuple[object, int]]:
        if self._spin_s and self._mean <= SPIN_MEAN_MAX:
            # longer while an answer of the journal is due: a sync and two hops
            spin_s = self._spin_s * (4 if self.core.link.bytes else 1)
            if events := sockets.spin(self._poller, spin_s):
                return events
        now_ms = self._process.clock.mono_ms()
        wait_ms = min(self._process.wait_ms(), self.core.next_wake_ms(now_ms) - now_ms)
        wait_ms = self._front.wait_ms(wait_ms, now_ms)
        return self._poller.poll(min(max(wait_ms, 0), RETRY_MS) if self._full else max(wait_ms, 0))

    def _tick(self, drained: bool) -> None:
        now_ms = self._process.clock.mono_ms()
        self._perform(self.core.tick(now_ms, drained=drained))
        while self.core.clients.left:
            self._door.forget(self.core.clients.left.pop())
        if now_ms >= self._confirm_ms:
            self._confirm_ms = now_ms + CONFIRM_MS
            self._perform(self.core.link.confirm())
            self._process.stats = self._stats()
        self._retry()
        self._process.turn()

    def unsettled(self) -> bool:
        """While stopping: True as long as accepted messages wait for receipts, within a limit."""
        now_ms = self._process.clock.mono_ms()
        if self._stop_ms is None:
            self._stop_ms = now_ms + STOP_WAIT_MS
        return self.core.link.bytes > 0 and now_ms < self._stop_ms

    def _stats(self) -> dict[str, int | float | str]:
        core = self.core
        errors = {f"error_{code}": count for code, count in core.errors.items()}
        return {
            "clients": len(core.clients), "messages": core.messages, "errors": core.errors.total(),
            "journal": "up" if core.link.up else "down", **core.unrecorded(), **errors,
            **self._front.stats(),
        }  # fmt: skip

    # -- reading ------------------------------------------------------------------------------

    def _read_clients(self) -> bool:
        """Takes what clients sent, a turn of it at most; True if that was all."""
        items: list[Item] = []
        size = 0
        while (
            len(items) < INGEST_TURN_MAX
            and size < TURN_BYTES_MAX
            and (received := self._door.receive()) is not None
        ):
            rid, frames, over, key, count = received
            items.append(_item(rid, frames, over, key))
            size += count
        if any(isinstance(item.command, Logon) for item in items):
            self._read_endpoints()
        before = self.core.messages
        self._perform(self.core.turn(items, self._process.clock.mono_ms()))
        taken = max(len(items), self.core.messages - before)  # a packed batch is many messages
        self._mean += 0.1 * (taken - self._mean)
        return len(items) < INGEST_TURN_MAX and size < TURN_BYTES_MAX

    def _read_journal(self) -> None:
        journal = self._journal
        while journal is not None and (frames := sockets.receive(journal)) is not None:
            message = codec.FROM_JOURNAL.decode(frames[0].buffer)
            if isinstance(message, internal.JournalReceipt):
                self._perform(self.core.on_receipt(message))
            elif isinstance(message, internal.Opened):
                self._perform(self.core.on_opened(message))
            elif isinstance(message, StagesDone):
                self._perform(self.core.committing.done(message))
            elif isinstance(message, internal.Welcome):
                self._perform(self.core.on_welcome(message))
                self._announce()
            journal = self._journal

    def _read_marks(self) -> None:
        frames = sockets.receive(self._marks)
        if frames is not None:
            self._perform(self.core.on_marks(codec.MARKS.decode(frames[0].buffer)))

    def _read_live(self, worker: int, live: zmq.Socket[bytes]) -> None:
        while (frames := sockets.receive(live)) is not None:
            self.core.live.on_grant(codec.FROM_LIVE.decode(frames[0].buffer), worker)

    def _announce(self) -> None:
        if not self._ready:
            self._ready = True
            self._process.ready(self._endpoint)

    def _read_endpoints(self) -> None:
        """What the supervisor wrote of the other listeners; read again only when it changed.

        It has all of them once each has been known, and keeps those of a process that is restarted.
        """
        process, path = self._process, self._process.paths.running
        try:
            stamp = path.stat().st_mtime_ns
            if stamp != self._endpoints[0]:
                known = msgspec.json.decode(path.read_bytes()).get("endpoints", {})
                self._endpoints = (stamp, known)
        except (OSError, msgspec.DecodeError):
            if not process.supervised:
                process.log.warning("%s cannot be read: logons name no other endpoints", path)
        if process.supervised:
            self.core.clients.unknown = missing(process.config, self._endpoints[1])

    # -- performing ---------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._answer(effect.rid, effect.message)
            elif isinstance(effect, Verify):
                self._passwords.ask(effect)
            elif isinstance(effect, Token):
                self._door.logged_on(effect.client.rid)
                self._answer(effect.client.rid, self._with_token(effect))
            elif isinstance(effect, Forward):
                assert self._journal is not None
                _send_on(self._journal, effect)
            elif isinstance(effect, LiveForward):
                _send_on(self._live[effect.worker], effect)
            elif isinstance(effect, Reconnect):
                self._journal = self._new_dealer(self._journal, "journal")
            else:
                name = socket_of("live", self._workers[effect.worker])
                old = self._live.get(effect.worker)
                self._live[effect.worker] = self._new_dealer(old, name)

    def _answer(self, rid: bytes, message: msgspec.Struct) -> None:
        try:
            sockets.deliver(self._clients, rid, codec.encode(message))
        except zmq.Again:
            self._keep(rid, message)
        except zmq.ZMQError:
            self._full.pop(rid, None)
            self._perform(self.core.gone(rid, self._process.clock.mono_ms()))

    def _keep(self, rid: bytes, message: msgspec.Struct) -> None:
        """Keeps an answer that found a full queue, in the place of an older one of its kind.

        Acks are merged, so the newest says it all; but for what is not recorded.
        """
        kinds = self._full.setdefault(rid, {})
        if not isinstance(message, Ack) or message.cid is not None:
            kinds[type(message).__name__] = message
            return
        kind = message.type if message.unrecorded is None else "unrecorded"
        older = kinds.get(kind)
        if isinstance(older, Ack) and message.unrecorded is not None:
            names = dict.fromkeys([*message.unrecorded, *(older.unrecorded or [])])
            message.unrecorded = list(names)[:UNRECORDED_NAMED_MAX]
            runs = (older.filtered or b"") + (message.filtered or b"")
            message.filtered = runs[-FILTERED_KEPT_BYTES:] or None
        kinds[kind] = message

    def _retry(self) -> None:
        """Answers that found a full queue: the newest of each kind is all that is kept."""
        for rid, kinds in list(self._full.items()):
            for kind, message in list(kinds.items()):
                try:
                    sockets.deliver(self._clients, rid, codec.encode(message))
                except zmq.Again:
                    break
                except zmq.ZMQError:
                    kinds.clear()
                    break
                kinds.pop(kind)
            if not kinds:
                self._full.pop(rid, None)

    def _with_token(self, effect: Token) -> Ack:
        client, answer = effect.client, effect.answer
        expires_s = self._process.clock.wall_ns() // 1_000_000_000 + TOKEN_LIFE_S
        answer.token = token.make(
            self._key,
            token.Token(
                client.name, client.principal, client.instance, client.session, expires_s,
                client.key, self._desk.disconnects,
            ),
        )  # fmt: skip
        answer.endpoints = doors_for(client.worker, self._workers, self._endpoints[1])
        return answer

    def _new_dealer(self, old: zmq.Socket[bytes] | None, name: str) -> zmq.Socket[bytes]:
        """A new socket in the place of one in which frames for a dead process may be queued."""
        if old is not None:
            self._poller.unregister(old)
            old.close(linger=0)
        new = sockets.dealer(self._process.context, self._process.paths.ipc(name))
        self._poller.register(new, zmq.POLLIN)
        return new


def _send_on(dealer: zmq.Socket[bytes], effect: Forward | LiveForward) -> None:
    bodies = effect.bodies
    sockets.send(dealer, codec.encode(effect.message), sockets.MORE if bodies else 0)
    for body in bodies[:-1]:
        sockets.send(dealer, body, sockets.MORE, copy=len(body) < sockets.COPY_MAX_BYTES)
    if bodies:
        last = bodies[-1]
        sockets.send(dealer, last, copy=len(last) < sockets.COPY_MAX_BYTES)


def _item(rid: bytes, frames: sockets.Frames, over: bool, key: str) -> Item:
    """One command as the core takes it; what cannot be decoded becomes its error."""
    header = frames[0].buffer
    try:
        if over or len(frames) > 2:
            raise ClientError(
                "bad_frame",
                f"a command has a header and at most one body, not over {FRAMES_MAX} frames",
            )
        command = codec.decode(codec.INGEST, header)
    except ClientError as error:
        return Item(rid, error, None, codec.cid_of(header), key)
    return Item(rid, command, frames[1].bytes if len(frames) > 1 else None, None, key)
