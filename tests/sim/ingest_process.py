"""The ingest process of the simulated worlds, and bugs of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.net import Pipe
from zbroker.ids import publisher_id
from zbroker.ingest.clients import Client, Clients
from zbroker.ingest.core import IngestCore, Item, Limits
from zbroker.ingest.effects import Send, Token
from zbroker.ingest.link import Forward, Link
from zbroker.ingest.prev_tracker import PrevTracker
from zbroker.wire import codec
from zbroker.wire import internal as i

if TYPE_CHECKING:
    from tests.sim.world import World

INGEST, JOURNAL, MARKS = "tcp-ingest", "ipc-journal", "ipc-marks"
TURN_MS = 2


class IngestNode:
    """The ingest process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        limits = Limits(1 << 20, 1 << 20, 1 << 20, 100)
        self.core = IngestCore(limits, next(world.incarnations), world.recording)
        if world.bug == "no hello":
            self.core.link.__class__ = _DeafLink  # what forwards has the same one
        if world.bug == "prev is not filled in":
            self.core.clients.__class__ = _UnchainedClients
        self.items: list[Item] = []
        self.known: dict[str, int] = {}
        self.journal: Pipe | None = None
        self.marks = world.net.dealer(Pipe(MARKS, self._on_marks, on_connected=self._subscribe))
        self.listener = world.net.bind(INGEST, self._receive)
        self._turn()

    def _subscribe(self) -> None:
        self.world.net.send(self.marks, b"")

    def _receive(self, rid: bytes, frame: tuple[bytes, bytes | None]) -> None:
        self.items.append(Item(rid, codec.decode(codec.INGEST, frame[0]), frame[1]))

    def _on_marks(self, frame: bytes) -> None:
        self.perform(self.core.on_marks(codec.MARKS.decode(frame)))

    def _on_journal(self, frame: bytes) -> None:
        message = codec.FROM_JOURNAL.decode(frame)
        if isinstance(message, i.Welcome):
            self.perform(self.core.on_welcome(message))
        elif isinstance(message, i.Opened):
            self.perform(self.core.on_opened(message))
        elif isinstance(message, i.JournalReceipt):
            self.perform(self.core.on_receipt(message))

    def _turn(self) -> None:
        if not self.alive:
            return
        now_ms = self.world.at.now_ms
        items, self.items = self.items, []
        self.perform(self.core.turn(items, now_ms))
        self.perform(self.core.tick(now_ms))
        self.core.check()
        self.world.at.after(TURN_MS, self._turn)

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._answer(effect.rid, effect.message)
            elif isinstance(effect, Token):
                self._answer(effect.client.rid, effect.answer)
            elif isinstance(effect, Forward):
                self._forward(effect)
            else:
                self._reconnect()

    def _forward(self, effect: Forward) -> None:
        message = effect.message
        if self.world.bug == "logon answered by ingest" and isinstance(message, i.Open):
            high = max(
                (cl.acked for cl in self.core.clients.by_name.values() if cl.name == message.name),
                default=0,
            )
            guess = i.Opened(message.cid, message.name, publisher_id(message.name), 1, high, high)
            self.world.at.after(0, lambda: self.perform(self.core.on_opened(guess)))
        assert self.journal is not None
        self.world.net.send(
            self.journal, (codec.encode(message), [bytes(b) for b in effect.bodies])
        )

    def _reconnect(self) -> None:
        if self.journal is not None:
            self.world.net.close(self.journal)
        self.journal = self.world.net.dealer(Pipe(JOURNAL, self._on_journal))

    def _answer(self, rid: bytes, message: Any) -> None:
        if not self.world.net.answer(self.listener, rid, codec.encode(message)):
            self.perform(self.core.gone(rid, self.world.at.now_ms))

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        self.world.net.close(self.marks)
        if self.journal is not None:
            self.world.net.close(self.journal)


# -- planted bugs -----------------------------------------------------------------------------


class _UnchainedClients(Clients):
    """Batches without `prev` go to the journal as they came."""

    def add(self, client: Client) -> Client | None:
        client.used = _Unchained()
        return super().add(client)


class _Unchained(PrevTracker):
    def before(self, seq: int) -> int | None:
        return None


class _DeafLink(Link):
    """Keeps its socket when the journal was restarted."""

    def on_marks(self, incarnation: int) -> None:
        if self.up:
            self._journal = incarnation
