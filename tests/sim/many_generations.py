"""What the simulated instances have to keep of generations, and what they may not. See
zbroker.journal.generation_closer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zbroker.ids import Origin

if TYPE_CHECKING:
    from tests.sim.many_world import Instance, ManyWorld


def still_open(world: ManyWorld) -> dict[str, list[Origin]]:
    """Generations before the newest one of an instance that its own log, or that of another, still
    has a row for."""
    newest = {i.id: i.journal.core.commit.generation for i in world.instances.values() if i.journal}
    found: dict[str, list[Origin]] = {}
    for name, instance in world.instances.items():
        assert instance.journal is not None
        open_ones = instance.journal.core.commit.sessions.origins.open_rows
        old = [one for one in open_ones if one.generation < newest.get(one.instance, 0)]
        if old:
            found[name] = old
    return found


def has_two_histories(victim: Instance, instances: Iterable[Instance]) -> bool:
    """Whether a disk of a former life came back with messages that no other instance had, after a
    later life had closed their generation: the two are not joined, a person keeps one of them."""
    if not victim.former_life or victim.journal is None:
        return False
    closed = victim.journal.core.commit.sessions.origins.closed
    return any(
        there.instance == victim.id and (here := closed.get(there.origin)) is not None
        and here.end != there.end
        for one in instances if one.journal is not None
        for there in one.journal.core.commit.sessions.origins.closed
    )  # fmt: skip
