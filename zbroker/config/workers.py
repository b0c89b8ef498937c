"""The delivery workers of an instance and the doors of all rooms: `[delivery] workers`.

    worker     room          door                                ipc sockets
    1          delivery      [listen] delivery                   live, desk
    2          delivery-2    the same host, the next port   live-2, desk-2

With port 0 each worker gets a free one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final

from zbroker import endpoints
from zbroker.config.tree import Config

DELIVERY: Final = "delivery"
QUEUES: Final = "queues"
_PORT_MAX: Final = 65_535


def delivery_rooms(config: Config) -> tuple[str, ...]:
    """The rooms of its delivery workers, the first one first."""
    more = (f"{DELIVERY}-{worker}" for worker in range(2, config.delivery.workers + 1))
    return (DELIVERY, *more)


def reader_rooms(config: Config) -> tuple[str, ...]:
    """The rooms that read the log, each with cursors of its own: what they need stays."""
    return (*delivery_rooms(config), QUEUES)


def socket_of(name: str, room: str) -> str:
    """What the ipc socket `name` of this delivery room is called."""
    return name + room.removeprefix(DELIVERY)


def doors(config: Config) -> dict[str, str]:
    """What each room with clients listens on, as the config has it."""
    found = {"ingest": config.listen.ingest}
    first = endpoints.split(config.listen.delivery)
    for behind, room in enumerate(delivery_rooms(config)):
        port = first.port + behind if first.port else 0
        found[room] = str(first._replace(port=port)) if behind else config.listen.delivery
    return found | {QUEUES: config.listen.queues, "admin": config.listen.admin}


def setting_of(room: str) -> str:
    """The key of [listen] that a room's door comes from."""
    return room.partition("-")[0]


def clashes(config: Config) -> Iterator[tuple[str, str, str]]:
    """Doors that cannot be: the setting to change, what is wrong, what to write instead."""
    found = doors(config)
    workers = config.delivery.workers
    last = endpoints.split(config.listen.delivery).port + workers - 1
    if last > _PORT_MAX:
        reason = f"{workers} delivery workers need the ports up to {last}; the last is {_PORT_MAX}"
        yield DELIVERY, reason, "choose a lower port, or 0: each worker gets a free one"
        return
    for (one, left), (other, right) in combinations(found.items(), 2):
        if _meet(endpoints.split(left), endpoints.split(right)):
            reason = f"{one} and {other} would both listen on port {endpoints.split(right).port}"
            hint = "choose another; several delivery workers take consecutive ports"
            yield setting_of(other), reason, hint


def _meet(one: endpoints.Endpoint, other: endpoints.Endpoint) -> bool:
    """True if both are the same port of the same address."""
    if one.port != other.port or not one.port:
        return False
    hosts = {endpoints.split(endpoints.told(str(at), "")).host for at in (one, other)}
    return len(hosts) == 1 or "*" in hosts
