"""What the replication core is started with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from zbroker.access.core import Access
from zbroker.replication.durability import DestinationRule

FEATURE_LEVEL: Final = 1


class ReplicationSettings(NamedTuple):
    """sync_needed, min_sync: see zbroker.config.ReplicationConfig. access: the rules
    for instances that send here."""

    instance: int
    name: str
    group: str
    incarnation: int
    destinations: Sequence[DestinationRule]
    sync_needed: int = 0
    min_sync: int = 0
    access: Access = Access.off()
