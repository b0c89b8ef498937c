"""The settings of replication: `[[destination]]` and `[replication]`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from zbroker.config.units import DURATION, Duration, Name, Natural


class DestinationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Another instance to which this one sends its log. Any number of them.

    Both send to each other if each has such a table for the other one.

    name: The `instance.name` of that instance.
    to: Its `listen.replication`; several addresses are tried one after the other:
        ["tcp://10.0.0.2:9104"].
    server_key: Its public key, with security on.
    mode: "sync": a message is acknowledged when it is durable there, too; "async": acknowledgements
        do not wait for it.
    downgrade_after: After lagging for this time, a synchronous destination is not waited for until
        it has caught up; 0: acknowledgements always wait for it.
    topics: The topics that it gets; `*` is any text: ["orders", "trades.*"]. [] is all.
        A change is a gap there: what an older list left out before it does not come.
    filter: It gets only messages of these topics for which this is true: "/price > 100". "" is all.
        A change is a gap, too.
    """

    name: Name
    to: Annotated[list[str], Meta(min_length=1)]
    server_key: str = ""
    mode: Literal["async", "sync"] = "async"
    downgrade_after: Annotated[Duration, Meta(extra=DURATION)] = 0
    topics: list[str] = []
    filter: str = ""


class ReplicationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What an acknowledgement waits for, where there are synchronous destinations; and a start.

    sync_needed: How many synchronous destinations must have a message before it is acknowledged; 0:
        all of them. 1 of two is a quorum that no single failure stalls.
    min_sync: How many of them are waited for even if they are downgraded: publishers then wait.
    return_wait: How long a start offers no messages of replicated queues while a destination did
        not answer, or has records that are not here: it may have taken messages over. After that
        they are offered, and flagged as redelivered; those of at-most-once queues are not.
    """

    sync_needed: Natural = 0
    min_sync: Natural = 0
    return_wait: Duration = 30_000
