"""The delivery process of the simulated worlds: the core, Turn and log ports that ship, over the
simulated net and disk.

It may be killed before and after each effect. Where the journal's answers to look-ups are not
simulated, this process makes them up: the log as it is durable then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from tests.sim.lives import ProcessLife
from tests.sim.net import Net
from tests.sim.ports import JournalLink, Listener, Mailbox, Ordered
from zbroker.blocks.block_reader import BlockReader
from zbroker.blocks.read_request import Read
from zbroker.delivery.contract import CloseFiles, Effect, GrantLive, LiveReceived, PlanRanges
from zbroker.delivery.core import DeliveryCore, DeliverySettings
from zbroker.delivery.ports import BlocksPort, PlansPort
from zbroker.engine.contract import Now
from zbroker.engine.effects import Follow, ForgetBlocks, Reconnect, Say, Send
from zbroker.log.disk import Disk
from zbroker.log.reader import Log
from zbroker.wire import codec
from zbroker.wire import internal as i

if TYPE_CHECKING:
    from tests.sim.recording_world import RecordingWorld

DELIVERY, LIVE = "tcp-delivery", "ipc-live"
JOURNAL, WATERMARKS_AT = "ipc-journal", "ipc-marks"
KEY = b"k" * 32
CLIENTS_MAX = 100
ANSWER_MS = (0, 1, 10)  # until a look-up is answered


class DiskReader(BlockReader):
    """Blocks of the simulated disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(Path())
        self._logs = (Log(disk=disk), Log(disk=disk))


class LiveListener(Mailbox):
    """The twin of zbroker.delivery.ports.LiveMessagesPort."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self._net, self._listener = net, net.bind(LIVE, self._arrived)

    def _arrived(self, rid: bytes, frame: tuple[bytes, list[bytes]]) -> None:
        header, bodies = frame
        message = codec.TO_LIVE.decode(header)
        self.put(LiveReceived(rid, message, bodies, sum(map(len, bodies))))

    def grant(self, effect: GrantLive) -> None:
        self._net.answer(self._listener, effect.rid, codec.encode(effect.grant))

    def close(self) -> None:
        """The process is dead."""
        self._net.die(self._listener)


class JudgedCore(Ordered):
    """The core, and the world that sees what it takes from ingest."""

    def __init__(self, node: DeliveryNode) -> None:
        super().__init__(node.core, lambda wrong: node.world.demand(False, wrong))
        self._node = node

    def handle(self, event: Any, now: Now) -> Any:
        before = self._node.core.counts.unrecorded
        effects = super().handle(event, now)
        if self._node.core.counts.unrecorded > before:
            for entry, body in zip(event.message.entries, event.bodies, strict=True):
                self._node.world.passed(self._node, event.rid, entry, body)
        return effects


class DeliveryNode(ProcessLife):
    """One life of the process."""

    def __init__(self, world: RecordingWorld) -> None:
        super().__init__(world, world)
        self.taken: list[tuple[int, int, str, bytes]] = []  # of what is not recorded
        self.incarnation = next(world.incarnations)
        recording = world.recording
        self.core = DeliveryCore(DeliverySettings(KEY, CLIENTS_MAX, self.incarnation, recording))
        self.journal = JournalLink(world.net, JOURNAL, WATERMARKS_AT, every_write=True)
        self.clients, self.live = Listener(world.net, DELIVERY), LiveListener(world.net)
        self._plans = PlansPort(lambda: Log(disk=world.disk), world.clock)
        self._log = BlocksPort(lambda: DiskReader(world.disk))
        sources = [self.journal, self.clients, self._plans, self.live]
        self.begin(JudgedCore(self), sources, (Read, *get_args(Effect)), self._performers())

    @property
    def now(self) -> Now:
        return Now(self.world.at.now_ms, self.world.clock.wall_ns())

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        performers: dict[type, Callable[[Any], Any]]
        performers = dict.fromkeys(get_args(Effect), lambda effect: None)
        performers |= {
            Read: self._log.read, Send: self.clients.send, Say: self._say,
            PlanRanges: self._plans.begin, Reconnect: self.journal.reconnect,
            Follow: self.journal.follow,
            GrantLive: self._grant, ForgetBlocks: self._forget,
            CloseFiles: self._log.close_files,
        }  # fmt: skip
        return performers

    def kill(self) -> None:
        self.world.kill_delivery()

    # -- performers ---------------------------------------------------------------------------

    def _forget(self, effect: ForgetBlocks) -> None:
        self._log.forget(effect)
        self._plans.forget()

    def _grant(self, effect: GrantLive) -> None:
        self.live.grant(self.world.less(effect))

    def _say(self, effect: Say) -> None:
        self.journal.say(effect)
        if not isinstance(effect.message, i.Locate):
            return
        cid, asked = effect.message.cid, self.world.journal

        def answer() -> None:
            world = self.world
            if self.alive and world.journal is asked and asked is not None:
                persisted = asked.core.persisted
                at = 1 if effect.message.value == "0" else persisted
                self.journal.put(i.Located(cid, at, log_start=1, persisted=persisted))

        self.world.at.after(self.world.rng.choice(ANSWER_MS), answer)

    # -- the rest -----------------------------------------------------------------------------

    def die(self) -> None:
        self.alive = False
        self.clients.close()
        self.live.close()
        self.journal.close()
