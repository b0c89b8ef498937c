"""The queues process of the simulated instances: the core and performers that ship.

What it saves is there at once, or a while later, as where a thread writes it. Its tables outlive it
with the disk; the note of what was sent, with the memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from tests.sim import owners_bugs
from tests.sim.delivery_process import DiskReader
from tests.sim.lives import ListenerLife
from tests.sim.ports import Mailbox, Ordered
from tests.sim.queues_clients import rows_of
from zbroker.config.queue_links import QueueLinks
from zbroker.engine.effects import Send, Tell
from zbroker.engine.events import Asked
from zbroker.queues.core import QueuesCore
from zbroker.queues.effects import (
    Effect,
    Give,
    Load,
    SaveTables,
    SayReplication,
    TablesLoaded,
    TablesSaved,
    TrackDeliveries,
)
from zbroker.queues.log_work import LogWork
from zbroker.queues.queue_state import QueueState
from zbroker.queues.registry import QueueRegistry, SavedQueue
from zbroker.queues.snapshots import Snapshot, position_of
from zbroker.recording import Recording
from zbroker.server.token_listener import ListenerSettings
from zbroker.wire import codec
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import TransferRequest
from zbroker.wire.replication import NamedMessages

if TYPE_CHECKING:
    from tests.sim.owners_world import OwnersInstance

KEY = b"k" * 32
QUEUE = "q"


def queues_of(name: str) -> str:
    """Where an instance listens for consumers."""
    return f"tcp-queues-{name}"


class Tables:
    """What the tables of one instance hold."""

    def __init__(self) -> None:
        self._many: dict[tuple[str, int], SavedQueue] = {}
        self._upto = 0

    def write(self, taken: Snapshot) -> None:
        kept = {} if taken.whole else self._many
        self._many = {key: one for key, one in kept.items() if key not in taken.gone} | taken.many
        self._upto = taken.upto

    def load(self, effect: Load) -> dict[tuple[str, int], SavedQueue]:
        persisted = min(effect.persisted, effect.history.end(effect.here.generation))
        found = {}
        for key, one in self._many.items():
            position = position_of(one.position, self._upto, persisted)
            if position is not None:
                found[key] = SavedQueue(position, one.horizon, dict(one.rows))
        return found


class InstanceQueues(ListenerLife):
    """One life of the process."""

    def __init__(self, instance: OwnersInstance) -> None:
        super().__init__(instance, queues_of(instance.name))
        world, name, nothing = self.world, instance.name, Recording([])
        incarnation = next(world.incarnations)
        manager = QueueRegistry(incarnation, world.locals.configs_of(name), nothing, name)
        settings = ListenerSettings(KEY, 100, incarnation, nothing)
        links = QueueLinks(
            name, dict.fromkeys(world.instances, True), replicates=True, sync=instance.needed > 0
        )
        self.core = QueuesCore(settings, manager, links=links)
        owners_bugs.plant(world.bug, self.core)
        world.filters.judge(self)
        self.requests = Mailbox()
        with instance.undisturbed_disk():
            reader = DiskReader(instance.disk)
        self._work = LogWork(reader, self._sent, nothing.type_of, self._sending, sees_all=True)
        judged = Ordered(self.core, lambda wrong: world.demand(False, wrong))
        sources = [self.journal, self.clients, self.requests, self.marks]
        own: dict[type, Callable[[Any], Any]] = {
            Send: self._send, Load: self._load, SaveTables: self._save,
            TrackDeliveries: self._track, Tell: lambda effect: world.told(effect.answer),
            SayReplication: lambda effect: instance.ask_replication(effect.message),
        }  # fmt: skip
        effects = get_args(Effect)
        every = self.performers(effects, {**self._work.performers, **own})
        self.begin(judged, sources, effects, every)

    # -- performers ---------------------------------------------------------------------------

    def _send(self, effect: Send) -> Any:
        self.world.answered(self.instance, codec.decode(codec.QUEUES_ANSWERS, effect.header))
        return self.clients.send(effect)

    def _sending(self, give: Give) -> None:
        key = give.to.queue, give.declaration
        noted = self.instance.sent_before
        noted[key] = max(noted.get(key, 0), give.positions.max() + 1)

    def _sent(self, send: Send) -> bool:
        if not self.clients.sent(send):
            return False
        job = codec.decode(codec.QUEUES_ANSWERS, send.header)
        assert isinstance(job, q.Job)
        for position, payload, deliveries in rows_of(job, send.body or b""):
            self.world.delivered(self, position, payload, flagged=deliveries > 1)
        self._point()
        return True

    def _track(self, effect: TrackDeliveries) -> None:
        self.instance.sent_before[effect.queue, effect.declaration] = effect.position

    def _load(self, effect: Load) -> TablesLoaded:
        self._work.begin(effect.here, effect.persisted)
        noted, self.instance.sent_before = self.instance.sent_before, {}
        saved = self.instance.tables.load(effect)
        return TablesLoaded(saved, lambda name, declaration: noted.get((name, declaration)))

    def _save(self, effect: SaveTables) -> None:
        def written() -> None:
            if self.alive:
                self.instance.tables.write(effect.taken)
                self.requests.put(TablesSaved())

        self.world.at.after(self.world.rng.choice((0, 5, 50)), written)

    # -- others -------------------------------------------------------------------------------

    def ask(self, question: s.QueuesQuestion) -> None:
        """The admin asks."""
        self.requests.put(Asked(b"admin", question))

    def request(self, instance: int, count: int, names: list[NamedMessages]) -> None:
        """Another instance could take messages, or those with these names."""
        if names:
            self.requests.put(TransferRequest(QUEUE, instance, 0, names, count))
        else:
            self.requests.put(TransferRequest(QUEUE, instance, count))

    @property
    def queue(self) -> QueueState | None:
        return self.core.manager.running.get(QUEUE)

    def kill(self) -> None:
        self.instance.kill_queues()
