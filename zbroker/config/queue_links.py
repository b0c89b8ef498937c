"""What one instance can see of the links that a queue of several instances needs.

a link without `topics` and `filter`   carries acknowledgements and changes of owner, too
any other                              makes a copy: it carries messages alone
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from zbroker.config.queues import QueueConfig
from zbroker.config.tree import Config
from zbroker.errors import ClientError
from zbroker.link_topics import LinkTopics

LinkFault = tuple[str, str, str]  # key of the queue, reason, hint

_ADD: Final = "add a [[destination]] without `topics` and `filter`"


class QueueLinks(NamedTuple):
    """instance: the name of this one. destinations: by name, whether the link carries everything.
    replicates: there are links to others, or from them. sync: some destination is synchronous."""

    instance: str = ""
    destinations: Mapping[str, bool] = {}
    replicates: bool = False
    sync: bool = False

    @property
    def has_whole(self) -> bool:
        """Another instance gets the whole log."""
        return any(self.destinations.values())

    def faults(self, queue: QueueConfig) -> Iterator[LinkFault]:
        """Why such a queue of the config cannot be. Without any links it can: it waits for some."""
        name, owner = queue.name, queue.initial_owner
        if queue.scope == "local":
            return
        if self.replicates and not self.has_whole:
            reason = (
                f"queue {name!r} is on several instances, and no [[destination]] gets the whole "
                "log: no other instance would know what is acknowledged here"
            )
            yield "scope", reason, f"{_ADD}, or take the queue away from such a copy"
        if not self.destinations.get(owner, True):
            reason = (
                f"the link to {owner!r} has `topics` or a `filter`, so it carries nothing about "
                f"queue {name!r}"
            )
            yield "initial_owner", reason, "take them away from that [[destination]]"
        if owner not in ("", self.instance) and not self.replicates:
            reason = f"{owner!r} is another instance, and there are no links to any"
            hint = "write the `instance.name` of this one, or add links"
            yield "initial_owner", reason, hint

    def check(self, queue: QueueConfig) -> None:
        """The same of a queue that is made, or changed, while the instance runs; then it needs
        links. Raises: ClientError bad_queue."""
        for _, reason, hint in self.faults(queue):
            raise ClientError("bad_queue", reason, hint)
        if queue.scope != "local" and not self.has_whole:
            reason = (
                f"queue {queue.name!r} is to be on several instances, and there is no "
                "[[destination]]: no other one would know of it"
            )
            raise ClientError("bad_queue", reason, f"{_ADD} for each of them, and restart")


def queue_links(config: Config, topics: Mapping[str, LinkTopics] | None = None) -> QueueLinks:
    """The links of an instance. topics: what each carries, if that is known."""
    if topics is None:
        topics = {one.name: LinkTopics(one.topics, one.filter) for one in config.destination}
    return QueueLinks(
        config.instance.name,
        {name: carries.is_everything for name, carries in topics.items()},
        config.replicates,
        any(one.mode == "sync" for one in config.destination),
    )
