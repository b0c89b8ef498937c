"""What the simulated instances have to keep of generations, and what they may not. See
zbroker.journal.generation_closer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zbroker.ids import Origin

if TYPE_CHECKING:
    from tests.sim.many_world import ManyWorld


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
