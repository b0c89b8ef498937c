"""Planned stops of the simulated instances with a replicated queue.

In a history people begin, go on with and take back such stops at any moment. At its end one
instance gives away all that it owns while nothing else happens, which has to come to rest; then all
do so at once, each to the next, and that has to come to rest, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.two_nodes import Message
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue
from zbroker.wire.queue_surveys import DrainQueues

if TYPE_CHECKING:
    from tests.sim.owners_process import InstanceQueues
    from tests.sim.owners_world import OwnersInstance, OwnersWorld

ROUND_MS = 3_000  # each has given what all others gave it
LEASES = 3  # so long it is looked whether what was given comes back


def step(world: OwnersWorld) -> None:
    """A person does something about a stop."""
    here, to = world.rng.sample(list(world.instances.values()), 2)
    _say(here, world.rng.choice(("quiet", "quiet", "give", "give", "off")), to)


def offered(world: OwnersWorld, process: InstanceQueues) -> None:
    """A message is sent: no consumer is there any more when all is given away."""
    one = process.queue
    if one is not None and one.replicated is None:
        return  # a local queue is not left
    state = process.core._hand_over.state
    world.demand(state != "giving", f"{process.instance.name} is left, and offers a message")


def end(world: OwnersWorld) -> None:
    """No instance is to stop any more."""
    for each in world.instances.values():
        _say(each, "off", each)


def one_leaves(world: OwnersWorld) -> None:
    """The first one that owns something gives all of it to another one."""
    world.wait(lambda: all(map(_offers, world.instances.values())), "an instance offers nothing")
    many = [*world.instances.values()]
    here = next((each for each in many if _owned(world, each)), many[0])
    to = many[(many.index(here) + 1) % len(many)]
    unseen = _accepted_once(world, (_owned(world, here) - _seen(world, here)) - _seen(world, to))
    if any(_state(each).stand_ins.of for each in many):
        unseen = set()  # what these take over is flagged
    if _consumers(to) or _has_room(here):
        unseen = set()  # a dead one is noticed there when it is sent some
    _say(here, "quiet", to)
    _say(here, "give", to)
    world.wait(lambda: not _owned(world, here), f"{here.name} owns messages")
    flagged = unseen & _seen(world, to)  # before a third one may have asked for them
    world.demand(not flagged, f"what no consumer has seen is flagged at {to.name}: {flagged}")
    world.wait(world.equal, "instances do not see the same queue")
    world.at.run_until(world.at.now_ms + LEASES * world.configs[0].lease)
    world.wait(world.equal, "instances do not see the same queue")
    came_back = _owned(world, here)
    world.demand(not came_back, f"what {here.name} gave away came back to it: {came_back}")
    end(world)


def all_leave(world: OwnersWorld) -> None:
    """Each gives what it owns to the next one, which does the same."""
    many = [*world.instances.values()]
    for here, to in zip(many, [*many[1:], many[0]], strict=True):
        _say(here, "quiet", to)
        _say(here, "give", to)
    world.at.run_until(world.at.now_ms + ROUND_MS)
    world.wait(world.equal, "instances that are left do not come to rest")
    end(world)


def _offers(here: OwnersInstance) -> bool:
    """It has what it was to read after a start: before that it may flag all of it."""
    if here.queues is None or here.queues.queue is None:
        return False
    return _state(here).offers and not _state(here).doubted


def _state(here: OwnersInstance) -> QueueState:
    assert here.queues is not None
    one = here.queues.queue
    assert one is not None
    return one


def _consumers(here: OwnersInstance) -> bool:
    queue = _state(here).queue
    assert isinstance(queue, Queue)
    return bool(queue.consumers.by_key)


def _has_room(here: OwnersInstance) -> bool:
    """A consumer there may be given more in the meantime."""
    queue = _state(here).queue
    assert isinstance(queue, Queue)
    return any(len(one.held) < one.backlog for one in queue.consumers.by_key.values())


def _say(here: OwnersInstance, what: str, to: OwnersInstance) -> None:
    if here.queues is not None:
        here.queues.ask(DrainQueues(1, what, to.id))


def _owned(world: OwnersWorld, here: OwnersInstance) -> set[Message]:
    """What belongs to an instance, by what each of them knows."""
    initial = world.configs[0].initial_owner == here.name
    return {
        message for view in world.views() for message, owner, _ in view
        if owner == here.id or (owner == 0 and initial)
    }  # fmt: skip


def _accepted_once(world: OwnersWorld, many: set[Message]) -> set[Message]:
    """Without those that a second instance accepted, too, which may not be known here yet."""
    world.look()
    return {message for message in many if len(world.accepted[message]) < 2}


def _seen(world: OwnersWorld, here: OwnersInstance) -> set[Message]:
    """What was with a consumer, or comes flagged there, if it comes."""
    one = _state(here)
    assert isinstance(one.queue, Queue)
    named = world.named(here)
    return {named[at] for at in one.queue.counting.before(one.queue.here) | one.queue.leased(None)}
