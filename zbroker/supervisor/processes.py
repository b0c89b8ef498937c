"""The processes of an instance: of which module each is, and what must have been ready before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from zbroker.config import Config


class ProcessPlan(NamedTuple):
    """One process: its module, and the processes that must have been ready before it starts.

    preloaded: the zygote imports the module, else the process does that itself.
    """

    name: str
    module: str
    needs: tuple[str, ...] = ()
    preloaded: bool = True


#: admin needs none, so that `status` can report the progress of a long recovery; its modules are
#: its own, and imported beside the start of the journal
PROCESSES: Final = (
    ProcessPlan("journal", "zbroker.journal.loop"),
    ProcessPlan("ingest", "zbroker.ingest.loop", ("journal",)),
    ProcessPlan("delivery", "zbroker.delivery.loop", ("journal",)),
    ProcessPlan("queues", "zbroker.queues.loop", ("journal",)),
    ProcessPlan("replication", "zbroker.replication.loop", ("journal",)),
    ProcessPlan("admin", "zbroker.admin.loop", preloaded=False),
)


def processes_of(
    config: Config, kinds: tuple[ProcessPlan, ...] = PROCESSES
) -> tuple[ProcessPlan, ...]:
    """The processes of an instance: one of each kind, of delivery one per worker, of replication
    none without links."""
    from zbroker.config import delivery_workers  # PROCESSES is read before much is imported

    replication = ("replication",) if config.replicates else ()
    workers = {"delivery": delivery_workers(config), "replication": replication}
    return tuple(
        kind._replace(name=name) for kind in kinds for name in workers.get(kind.name, (kind.name,))
    )
