"""A link to a destination as people see it. Pure."""

from __future__ import annotations

from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.wire.replicas import ReplicationRow


def row_of(link: OutgoingLink, persisted: int) -> ReplicationRow:
    """How it is; persisted: the durable end of the log."""
    stopped = {f"{o.instance:016x}.{o.generation}": why for o, why in link.stopped.items()}
    problem = link.refusal.reason if link.refusal is not None else ""
    state = "paused" if link.paused and link.state == "down" else link.state
    return ReplicationRow(
        link.link, "out", state, link.peer.instance, mark=link.mark,
        lag=max(0, persisted - link.mark), on_the_way_bytes=link.on_the_way_bytes,
        stopped=stopped, problem=problem, paused=link.paused, topics=[*link.topics.patterns],
        filter=link.topics.filter,
    )  # fmt: skip
