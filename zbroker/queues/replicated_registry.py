"""The replicated queues of a registry: made here or at a peer, changed, deleted. Pure.

    [[queue]] or an operator --no peer has it--> a new life --landed--> runs
    a record of a peer ------------------------------------------------> runs, also without a table

A queue of the config that a peer has defined is adopted: it has that life, and begins where that
began. A definition that came from a peer and cannot be used here is not run, and is noted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import ValidationError, convert, to_builtins

from zbroker.config import QueueConfig
from zbroker.definitions import Definition, changed, compile_queue
from zbroker.definitions.validation import FIXED
from zbroker.engine.effects import Note
from zbroker.errors import ClientError, ConfigError
from zbroker.ids import Origin, Vector
from zbroker.log.queue_records import (
    DEFINITION,
    QueueDeclaration,
    ReplicatedDefinition,
    VectorEntry,
    decoded,
)
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.declarations import QueueView, ReplicatedDefinitions, entries
from zbroker.topics import TopicType
from zbroker.wire.internal import Located
from zbroker.wire.units import NamedRow

if TYPE_CHECKING:
    from zbroker.queues.registry import QueueRegistry

MEETS: Final = (
    "%s: two instances had defined it, and what it begins with has changed: it is read again, and "
    "its consumers begin again"
)


class LocalPlace(NamedTuple):
    """Where a local queue was when its state was written: its oldest message, or the end of what
    was read; and how far each origin was read there."""

    first: int
    read: Vector


class ReplicatedRegistry:
    """name: of this instance, for initial owners."""

    def __init__(self, manager: QueueRegistry, name: str) -> None:
        self._manager, self._name = manager, name
        self.definitions = ReplicatedDefinitions()
        self._created: dict[str, int] = {}  # where the first record of a name is in this log
        self._unusable: set[tuple[str, QueueDeclaration, str]] = set()  # that were noted

    # -- what is known ------------------------------------------------------------------------

    def named(self, rows: Iterable[NamedRow], end: int) -> None:
        """All that the log has of them, up to `end`."""
        for row in rows:
            record = decoded(DEFINITION, row.body)
            if record is not None:
                # of the state of another instance: positions are those of its log
                self.learn(record, min(row.position, end - 1))

    def learn(self, record: ReplicatedDefinition, position: int) -> None:
        """A record of the log, of whatever instance."""
        created = self._created.get(record.name, position)
        self._created[record.name] = min(created, position)
        if self.definitions.learn(record) and self._manager.known:
            self.converge(record.name, position)

    def begin(self) -> None:
        """Every queue of the log runs."""
        for name in list(self.definitions):
            self.converge(name)

    def converge(self, name: str, known_at: int = 0, place: LocalPlace | None = None) -> None:
        """The queue that runs is as the definitions say.

        known_at: where the record is that says so; the facts before it in its unit count before
        anything is offered. place: of a local queue that has become this one.
        """
        manager, view = self._manager, self.definitions.view(name)
        one = manager.running.get(name)
        if name in manager.moving:
            return  # it is looked at when that is over
        if manager.has_local(name):
            if view is not None and not manager.is_to_move(name):
                self._note_unusable(name, view, "this instance has a local queue of that name")
            return
        if view is None:
            if one is not None:
                manager.end(one)
            return
        definition = self._compiled(view)
        if definition is None:
            return
        if one is None:
            manager.begin(definition, manager.log_start, view, known_at + 1)
        elif one.replicated is None:
            self._begins_again(one, definition, view, known_at, place)
        elif self._is_same(one, definition, view):
            assert one.replicated is not None
            one.replicated.view = view
            manager.alter(one, definition)
        else:
            manager.notes.append(Note("queues.lives_met", MEETS % name, values={"queue": name}))
            one.met = True
            manager.end(one)
            manager.begin(definition, manager.log_start, view, known_at + 1)

    def _begins_again(
        self, one: QueueState, new: Definition, view: QueueView, known_at: int,
        place: LocalPlace | None,
    ) -> None:  # fmt: skip
        """A local queue has become this one. If other instances have the queue, too, what they say
        of it may be anywhere in the log; else nothing is said of it before that place."""
        manager = self._manager
        one.met = True
        manager.end(one)
        alone = place is not None and view.lives == {view.life}
        first = place.first if place is not None and alone else manager.log_start
        manager.begin(new, first, view, known_at + 1)
        begun = manager.running[view.name].replicated
        if begun is not None and place is not None and alone:
            begun.passed(place.read)

    @staticmethod
    def _is_same(one: QueueState, new: Definition, view: QueueView) -> bool:
        """The messages in the queue do not depend on what has changed."""
        assert one.replicated is not None
        old, made = one.definition.config, new.config
        if any(getattr(old, key) != getattr(made, key) for key in FIXED):
            return False
        if one.definition.names != new.names:
            return False
        before = one.replicated.view
        return (before.begins, before.types) == (view.begins, view.types)

    def _compiled(self, view: QueueView) -> Definition | None:
        """None: a peer wrote something that cannot be a queue."""
        try:
            config = convert(view.definition, QueueConfig)
            if config.name != view.name or config.scope == "local":
                raise ClientError("bad_queue", "it is not a replicated queue of that name")
            return compile_queue(
                config, view.declaration, self._created[view.name], view.source, view.types or (),
                view.lives if config.bound else (),
            )  # fmt: skip
        except (ValidationError, ClientError) as error:
            self._note_unusable(view.name, view, str(error))
            return None

    def _note_unusable(self, name: str, view: QueueView, reason: str) -> None:
        if (name, view.life, reason) in self._unusable:
            return
        self._unusable.add((name, view.life, reason))
        text = (
            f"{name}: a peer has this queue, and it cannot run here: {reason}; messages "
            "that are published to it here wait"
        )
        self._manager.notes.append(
            Note("queues.not_usable", text, values={"queue": name, "reason": reason})
        )

    # -- definitions of this instance ---------------------------------------------------------

    def configure(self, config: QueueConfig) -> None:
        """A queue of the config. Raises: ConfigError, if it is another one than the peers'."""
        view = self.definitions.view(config.name)
        if view is None:
            self._create(config)
            return
        try:
            old = convert(view.definition, QueueConfig)
            changed(old, config)
        except ValidationError:
            return  # of a newer release
        except ClientError as error:
            raise ConfigError("bad_config", error.reason, error.hint) from None
        if old != config:
            self._manager.define(self.altered(config, "config"))

    def _create(self, config: QueueConfig) -> None:
        manager, begins = self._manager, compile_queue(config).begins
        manager.making.add(config.name)

        def located(found: Located) -> None:
            if found.code == "not_ready":
                manager.locate(begins, located)  # until the journal answers
            elif self.definitions.view(config.name) is not None:
                manager.making.discard(config.name)  # a peer's came meanwhile
                self.configure(config)
            elif found.code:
                reason = f"the recovery point of queue {config.name!r}: {found.reason}"
                raise ConfigError("bad_config", reason)
            else:
                manager.define(self.created(config, "config", found))

        manager.locate(begins, located)

    def created(self, config: QueueConfig, source: str, found: Located) -> ReplicatedDefinition:
        """The record of a queue that is made now. found: where it begins."""
        here, name = self._here, config.name
        return ReplicatedDefinition(
            name, self.definitions.next_life(name, here, self._manager.wall_ns()),
            self.definitions.next_version(name, here), source,
            entries(VectorEntry(*row) for row in found.passed), to_builtins(config),
            types=self._manager.types_of(compile_queue(config)),
        )  # fmt: skip

    def migrated(
        self, config: QueueConfig, source: str, begins: Vector, types: list[TopicType] | None
    ) -> ReplicatedDefinition:
        """The record of a queue that was local. begins: how far each origin was before it."""
        here, name = self._here, config.name
        return ReplicatedDefinition(
            name, self.definitions.next_life(name, here, self._manager.wall_ns()),
            self.definitions.next_version(name, here), source,
            entries(VectorEntry(*origin, at) for origin, at in begins.items() if at),
            to_builtins(config), types=types,
        )  # fmt: skip

    def altered(self, config: QueueConfig, source: str) -> ReplicatedDefinition:
        """The record that changes a queue."""
        return self.definitions.altered(config.name, to_builtins(config), source, self._here)

    def deleted(self, name: str, source: str) -> list[ReplicatedDefinition]:
        """The records that delete one: of each life that is known."""
        return self.definitions.ended(name, source, self._here)

    def is_initial(self, config: QueueConfig) -> bool | None:
        """See Ownership: whether this instance owns new messages; None: the one they came to."""
        return None if config.scope == "distributed" else config.initial_owner == self._name

    @property
    def _here(self) -> Origin:
        here = self._manager.here
        assert here is not None, "a Welcome came before"
        return here
