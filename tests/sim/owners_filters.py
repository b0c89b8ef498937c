"""Consumers with filters at the simulated instances, and what is judged of their requests.

In half of the histories some consumers have filters. What is asked for by name fits one of those
that are there then; what an instance gives away, no consumer of its own with room could take.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pyroaring import BitMap64

from tests.sim.owners_process import QUEUE
from zbroker.log.queue_records import of_steps, steps_of
from zbroker.queues.work.queue import Queue
from zbroker.wire.owner_requests import AskTransfer, TransferRequest
from zbroker.wire.replication import WANT_NAMES_MAX, NamedMessages

if TYPE_CHECKING:
    from tests.sim.owners_process import InstanceQueues
    from tests.sim.owners_world import OwnersInstance, OwnersWorld

#: by the text of the filter: for which sequences of a publisher it is true
FILTERS: Final[dict[str, Callable[[int], bool]]] = {
    "/n % 2 = 0": lambda n: n % 2 == 0,
    "/n % 2 = 1": lambda n: n % 2 == 1,
    "/n % 3 = 1": lambda n: n % 3 == 1,
    "/n < 0": lambda n: False,
}
HALVES: Final = ("/n % 2 = 0", "/n % 2 = 1")  # one of them is true for any message


class SelectiveConsumers:
    """Who has a filter in one history. on: some have."""

    def __init__(self, world: OwnersWorld, seed: int) -> None:
        self._world, self._rng = world, Random(f"filters {seed}")
        self.on = seed % 4 in (2, 3)
        self.asked = 0  # requests that named messages

    def choose(self) -> str | None:
        """The filter of a consumer."""
        return self._rng.choice((None, None, *FILTERS)) if self.on else None

    def last(self, instances: list[OwnersInstance]) -> list[tuple[OwnersInstance, str | None]]:
        """Consumers that do all that is left, where they are, and their filters."""
        if not self.on:
            return [(instance, None) for instance in instances]
        if len(instances) == 1:
            return [(instances[0], text) for text in HALVES]
        return [(instance, HALVES[at % 2]) for at, instance in enumerate(instances)]

    # -- what is judged -----------------------------------------------------------------------

    def asks(self, instance: OwnersInstance, ask: object) -> None:
        """An instance asks another one for messages."""
        if not isinstance(ask, AskTransfer) or not ask.where:
            return
        world, queues = self._world, instance.queues
        if queues is None:
            return
        self.asked += 1
        world.look()
        filters = self._filters(queues)
        world.demand(0 < ask.most <= WANT_NAMES_MAX, f"{instance.name} asks for {ask.most}")
        for one in ask.where:
            for at in of_steps(one.steps):
                message = world.message_at(one.instance, one.generation, at)
                world.demand(
                    message is not None and any(FILTERS[text](message[1]) for text in filters),
                    f"{instance.name} asks for {message}, and has {filters}",
                )

    @staticmethod
    def _filters(queues: InstanceQueues) -> set[str]:
        many = queues.core.shared.of.get(QUEUE, {}).values()
        return {one.filter.text for one in many if one.filter is not None}

    def judge(self, queues: InstanceQueues) -> None:
        """From now on what this process gives away is looked at."""
        handlers: dict[type, Callable[[Any], Any]] = queues.core._handlers
        request = handlers[TransferRequest]

        def judged(event: TransferRequest) -> None:
            one = queues.queue
            queue = one.queue if one is not None else None
            if one is None or not isinstance(queue, Queue) or queues.core.shared.leaves(one):
                request(event)
                return
            before, takes = queue.places.ready.standing.copy(), self._takers(queues, queue)
            request(event)
            gave = before & queue.going
            if gave and takes and queues.instance.journal is not None:  # or the log is not read
                named = self._world.named(queues.instance)
                for position in gave:
                    world, n = self._world, named[position][1]
                    fits = [text for text in takes if text is None or FILTERS[text](n)]
                    where = f"{queues.instance.name} gives {named[position]} away"
                    world.demand(not fits, f"{where}, and could give it to {fits}")

        handlers[TransferRequest] = judged

    @staticmethod
    def _takers(queues: InstanceQueues, queue: Queue) -> list[str | None]:
        """Filters of consumers that have room; None: of one without a filter."""
        many = queues.core.shared.of.get(QUEUE, {})
        return [
            remote.filter.text if (remote := many[one.key]).filter is not None else None
            for one in queue.consumers.current() if one.credit and one.spare > 0
        ]  # fmt: skip

    def some_names(self) -> list[NamedMessages]:
        """What an instance may ask for by name, at any time."""
        names = self._world.names()
        if not self.on or not names:
            return []
        some = self._rng.sample(names, min(len(names), 4))
        return [
            NamedMessages(origin.instance, origin.generation, steps_of(BitMap64([position])))
            for origin, position in some
        ]
