"""The ingest process of the simulated worlds: the core and Turn that ship, simulated ports; bugs.

It may be killed at any step of a turn or asked to stop, and sleeps as long as its turn says unless
something arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, get_args

from tests.sim.net import Net, Pipe
from tests.sim.ports import JournalLink, Killed, Listener, Mailbox, Ordered, draw, mortal
from zbroker.engine.contract import Limit, Now, Ready, TurnPlan
from zbroker.engine.effects import JOURNAL as TO_JOURNAL
from zbroker.engine.effects import (
    WATERMARKS,
    Answer,
    Exit,
    Gate,
    LoggedOff,
    LoggedOn,
    Pace,
    Reconnect,
    Say,
)
from zbroker.engine.events import Commands, Full, Gone, StopAsked
from zbroker.engine.journal_session import JournalSession
from zbroker.engine.turn import Turn
from zbroker.ids import publisher_id
from zbroker.ingest.chain import PrevTracker
from zbroker.ingest.clients import ClientConnection, ClientRegistry
from zbroker.ingest.contract import Effect, Granted, IngestSettings, PublishLimits
from zbroker.ingest.core import STOP_WAIT_MS, IngestCore
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import internal as i

if TYPE_CHECKING:
    from tests.sim.world import World

INGEST, JOURNAL, WATERMARKS_AT, LIVE = "tcp-ingest", "ipc-journal", "ipc-marks", "ipc-live"
LIMITS: Final = PublishLimits(1 << 20, 1 << 20, 1 << 20, 100)
SPIN_US: Final = 100


class IngestListener(Listener):
    """Clients that send a header and a body, and whose queues may be full."""

    def __init__(self, net: Net, address: str) -> None:
        super().__init__(net, address)
        self.open = True

    def received(self, rid: bytes, frame: Any) -> Received:
        return Received(rid, [part for part in frame if part is not None])

    def events(self, ready: Ready, limit: Limit) -> Iterator[Commands | Gone]:
        if self.open:
            yield from super().events(ready, limit)
        self.drained = self.drained and self.open

    def next_wake_ms(self) -> int | None:
        return super().next_wake_ms() if self.open else None

    def answer(self, effect: Answer) -> Gone | Full | None:
        if self._net.is_full(self._listener, effect.rid):
            return Full(effect.rid, effect)
        sent = self._net.answer(self._listener, effect.rid, codec.encode(effect.message))
        return None if sent else Gone(effect.rid)


class LiveLink(Mailbox):
    """The twin of zbroker.ingest.ports.LivePort, with one worker."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self._net = net
        self._dealer: Pipe | None = None

    def say(self, effect: Say) -> None:
        assert self._dealer is not None
        frame = codec.encode(effect.message), [bytes(body) for body in effect.bodies]
        self._net.send(self._dealer, frame)

    def reconnect(self, _effect: Reconnect) -> None:
        self.close()
        self.waiting.clear()

        def arrived(frame: bytes) -> None:
            if dealer is self._dealer:
                self.put(Granted(0, codec.FROM_LIVE.decode(frame)))

        dealer = Pipe(LIVE, arrived)
        self._dealer = self._net.dealer(dealer)

    def close(self) -> None:
        """The process is dead, or has a new socket."""
        if self._dealer is not None:
            self._net.close(self._dealer)


class IngestProcess:
    """One life of the process."""

    def __init__(self, world: World) -> None:
        self.world, self.alive = world, True
        settings = IngestSettings(
            LIMITS, next(world.incarnations), world.recording, spin_us=SPIN_US
        )
        self.core = IngestCore(settings)
        plant(world.bug, self.core)
        self.journal = JournalLink(world.net, JOURNAL, WATERMARKS_AT)
        self.live = LiveLink(world.net)
        self.clients, self.admin = IngestListener(world.net, INGEST), Mailbox()
        self._pace_us = self._due_ms = 0
        self._read_full = 0  # bursts that were read since the credit was used up
        self._stop_ms: int | None = None  # when it was asked to stop
        self._left: int | None = None  # steps until it dies
        self._done = False
        self._logged_on: set[bytes] = set()  # as the listener knows it
        watched = _Watched(self)
        performers = watched.performers(mortal(self._performers(), self._point))
        boxes = (self.journal, self.live, self.admin, self.clients)
        for box in boxes:
            box.woken = self._woken
        self._plan = TurnPlan([(box, Limit(1)) for box in boxes], get_args(Effect))
        turn = TURNS.get(world.bug, Turn)
        self._turn = turn(watched, self._plan, performers, lambda: self.now)
        world.at.after(0, self._next_turn)

    def _performers(self) -> dict[type, Any]:
        performers: dict[type, Any] = dict.fromkeys(get_args(Effect), lambda effect: None)
        performers |= {
            Answer: self.clients.answer, Say: self._say, Reconnect: self._reconnect,
            Gate: self._gate, Pace: self._pace, Exit: self._exit,
            LoggedOn: lambda effect: self._logged_on.add(effect.rid),
            LoggedOff: lambda effect: self._logged_on.discard(effect.rid),
        }  # fmt: skip
        return performers

    # -- one turn -----------------------------------------------------------------------------

    def _woken(self) -> None:
        """Something arrived: its poller wakes it, sooner or later."""
        self._turn_in(self.world.rng.choice((0, 1, 2)))

    def _turn_in(self, delay_ms: int) -> None:
        due_ms = self.world.at.now_ms + delay_ms
        if due_ms < self._due_ms:
            self._due_ms = due_ms
            self.world.at.after(delay_ms, self._next_turn)

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive or world.at.now_ms < self._due_ms:
            return
        self._due_ms = NEVER
        draw(self._plan, world.rng)
        try:
            wait_ms = self._turn.run({})
        except Killed:
            world.kill_ingest()
            return
        self.core.check()
        self._compare()
        if self._done:
            world.kill_ingest("ingest stopped")
        elif wait_ms is not None:
            self._turn_in(wait_ms or world.rng.choice((0, 0, 1, 5)))

    @property
    def now(self) -> Now:
        return Now(self.world.at.now_ms, self.world.clock.wall_ns())

    def _point(self, _boundary: str = "") -> None:
        """It may die here."""
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise Killed

    def _compare(self) -> None:
        """What the ports were given is what holds."""
        live = {rid for rid, client in self.core.clients.by_rid.items() if client.state == "live"}
        self.world.demand(self._logged_on == live, "the listener does not know who is logged on")

    def commanded(self, commands: Commands) -> None:
        """Clients are read: one burst at most while the journal's credit is used up."""
        link = self.core.link
        self._read_full = self._read_full + 1 if link.up and link.full else 0
        self.world.demand(self._read_full <= 1, "clients are read without credit")

    # -- performers ---------------------------------------------------------------------------

    def _say(self, effect: Say) -> None:
        if effect.link != TO_JOURNAL:
            self.live.say(effect)
            return
        message = effect.message
        if self.world.bug == "logon answered by ingest" and isinstance(message, i.Open):
            high = max(
                (cl.acked for cl in self.core.clients.by_name.values() if cl.name == message.name),
                default=0,
            )
            guess = i.Opened(message.cid, message.name, publisher_id(message.name), 1, high, high)
            self.journal.put(guess)
        self.journal.say(effect)

    def _reconnect(self, effect: Reconnect) -> None:
        port = self.journal if effect.link in (TO_JOURNAL, WATERMARKS) else self.live
        port.reconnect(effect)

    def _gate(self, effect: Gate) -> None:
        self.world.demand(effect.open is not self.clients.open, "the gate is as it was")
        if self.world.bug != "the gate stays open":
            self.clients.open = effect.open

    def _pace(self, effect: Pace) -> None:
        self.world.demand(effect.spin_us != self._pace_us, "the pace is as it was")
        self._pace_us = effect.spin_us

    def _exit(self, _effect: Exit) -> None:
        assert self._stop_ms is not None
        waited = self.world.at.now_ms - self._stop_ms >= STOP_WAIT_MS
        self.world.demand(waited or not self.core.link.bytes, "it ends before what it accepted")
        self._done = True

    # -- the world ----------------------------------------------------------------------------

    def stop(self) -> None:
        """The supervisor asks it to end."""
        if self._stop_ms is None:
            self._stop_ms = self.world.at.now_ms
            self.admin.put(StopAsked())

    def dies_in(self, steps: int | None) -> None:
        """It dies before or after one of the next effects; None: it does not, after all."""
        self._left = steps

    def die(self) -> None:
        self.alive = False
        self.clients.close()
        self.journal.close()
        self.live.close()


class _Watched(Ordered):
    """The core, and the judge of what it hears."""

    def __init__(self, process: IngestProcess) -> None:
        super().__init__(process.core, lambda wrong: process.world.demand(False, wrong))
        self._process = process

    def handle(self, event: Any, now: Now) -> Any:
        if isinstance(event, Commands):
            self._process.commanded(event)
        return super().handle(event, now)


NEVER: Final = 1 << 62


# -- planted bugs -----------------------------------------------------------------------------


class Nested(Turn[Any, Any]):
    """A completion is decided and done in the middle of the list that it came of."""

    def _perform(self, effects: Any) -> list[Any]:
        for effect in effects:
            for event in super()._perform([effect]):
                self._perform(self._core.handle(event, self._clock()))
        return []


class _UnchainedClients(ClientRegistry):
    """Batches without `prev` go to the journal as they came."""

    def add(self, client: ClientConnection) -> ClientConnection | None:
        client.used = _Unchained()
        return super().add(client)


class _Unchained(PrevTracker):
    def before(self, seq: int) -> int | None:
        return None


class _DeafSession(JournalSession):
    """Keeps its socket when the journal was restarted."""

    def watermarks(self, incarnation: int, now_ms: int) -> list[Reconnect | Say]:
        if self.welcomed_by:
            self.welcomed_by = incarnation
        return []


#: bugs of the turn itself
TURNS: Final[dict[str, type[Turn[Any, Any]]]] = {"completions are nested": Nested}


def plant(bug: str, core: IngestCore) -> None:
    """Bugs of the core; those of ports are where the port is."""
    if bug == "no hello":
        core.link._session.__class__ = _DeafSession
    elif bug == "prev is not filled in":
        core.clients.__class__ = _UnchainedClients
