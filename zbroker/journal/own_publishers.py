"""What the journal publishes in its own names: dead letters, commits, transactions. Pure.

    "$broker.<instance>.<generation>"         messages of the queues process
    "$staged.<app>.<instance>.<generation>"   commits of staged messages, by app
    "$transactions.<instance>.<generation>"   transactions of sessions

Only this log gives the sequences of these publishers. They are named after the log's origin, so the
messages of two instances stay apart where they are replicated, and a generation after a lost end
does not give the same bookmarks again.
"""

from __future__ import annotations

from typing import Final

from zbroker.ids import Origin, publisher_id
from zbroker.journal.group_builder import Body, GroupBuilder
from zbroker.journal.sessions import PublisherState
from zbroker.log.format import Batch
from zbroker.wire import internal as m
from zbroker.wire.units import BROKER_NAME, UnitPart

STAGED_NAME: Final = "$staged"
TRANSACTIONS_NAME: Final = "$transactions"


def broker_name(origin: Origin) -> str:
    """The name that the broker itself publishes under in the log of this origin."""
    return f"{BROKER_NAME}.{origin.instance:016x}.{origin.generation}"


def staged_name(app: str, origin: Origin) -> str:
    """The name that commits of an app publish under in the log of this origin."""
    return f"{STAGED_NAME}.{app}.{origin.instance:016x}.{origin.generation}"


def transactions_name(origin: Origin) -> str:
    """The name that transactions publish under in the log of this origin."""
    return f"{TRANSACTIONS_NAME}.{origin.instance:016x}.{origin.generation}"


class OwnPublishers:
    """Publishes in the broker's own names; a session of each is opened once in a process."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._opened: set[str] = set()

    def open(self, name: str) -> PublisherState:
        """Raises: ClientError publisher_collision."""
        to = self._to
        known = to.sessions.get(publisher_id(name)) if name in self._opened else None
        if known is None:
            known = to.sessions.open(name, "", to.wall_ns)
            self._opened.add(name)
        return known

    def publish(
        self, known: PublisherState, part: UnitPart, body: Body, *, flags: int = 0
    ) -> Batch:
        """Puts a batch with the next sequences of this publisher into the group."""
        to, high = self._to, known.high
        entry = m.Entry(
            known.id, known.session, high + 1, part.count, high, part.crc, None, part.topics, None,
            part.columns, routes=part.routes,
        )  # fmt: skip
        batch = to.batch_of(entry, body, 0, known)
        batch.flags = flags
        to.put(batch)
        to.messages += batch.taken
        to.sessions.accepted(entry, to.next_position - 1, to.generation)
        return batch
