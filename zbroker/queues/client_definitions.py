"""Queues that clients declare, delete and purge. Pure.

    declare  --no name--> the broker chooses one
             --none there--> checked, (place looked up), record committed --landed--> created
             --there--> the same settings: it is there; others: refused, and what differs
    delete   --the declaration that is meant, conditions hold--> record committed --landed--> gone
    purge    --what is ready now--> one unit --landed--> gone

Rights are checked before anything is looked at, and again after a look-up. A declaration names one
queue of several that had a name one after the other, so a repeated delete is harmless.
Source: docs/reference/client-queues.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, ParamSpec

from msgspec.structs import replace

from zbroker.access.core import Permit
from zbroker.config import QueueConfig
from zbroker.definitions import compile_queue, read_table
from zbroker.definitions.definition import bad_queue
from zbroker.errors import ClientError
from zbroker.filters import Expression, Filter, check_at_once
from zbroker.log.records import DefinitionRecord
from zbroker.queues.chosen_names import ChosenNames
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.definition_changes import DefinitionChanges, configured, kept_source
from zbroker.queues.exclusive_queues import ExclusiveQueues
from zbroker.queues.purges import Purges
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.wire import queue_messages as q
from zbroker.wire.internal import Located

CLIENT: Final = "client:"  # before the principal, in the source of a definition
COMPILES: Final = 4  # of its filters, until a new queue runs
COMPILED: Final = ("filter", "priority", "barrier", "group_key")
SHOWN_CHARS: Final = 100  # of a setting in an error

_P = ParamSpec("_P")
_Command = q.DeclareQueue | q.DeleteQueue | q.PurgeQueue


class ClientDefinitions:
    """Performs these commands. All of them raise ClientError."""

    def __init__(
        self, shared: QueuesContext, changes: DefinitionChanges, purges: Purges,
        scopes: ScopeChanges, exclusive: ExclusiveQueues,
    ) -> None:  # fmt: skip
        self._shared, self._exclusive = shared, exclusive
        self._scopes = scopes
        self._changes = changes
        self._purges = purges
        self._names = ChosenNames(shared.manager.commits.incarnation)
        self._under_way: dict[str, str] = {}  # names that do not count yet, and whose they are

    # -- declare ------------------------------------------------------------------------------

    def declare(self, connection: QueuesConnection, command: q.DeclareQueue) -> None:
        """Answers once there is such a queue."""
        if command.passive:
            self._look(connection, command)
            return
        chosen = not command.queue
        if chosen:
            command = replace(command, queue=self._names.next())
        self._check_declare(connection, command)
        self._changes.check_known()
        self._changes.check_idle(command.queue)
        if "name" in command.settings:
            raise ClientError("bad_field", "key `settings`: the name is in `queue`")
        config = read_table({**command.settings, "name": command.queue})
        if chosen and config.scope != "local":
            text = "the broker chooses no name for a queue of several instances"
            raise bad_queue("scope", text, 'choose one, or write scope = "local"')
        one = self._shared.manager.running.get(command.queue)
        if one is None:
            self._create(connection, command, config, chosen=chosen)
            return
        self._exclusive.check(connection, one, command)
        differing = list(_differences(one.definition.config, config))
        if differing:
            text = f"there is a queue {command.queue!r} already, with {', '.join(differing)}"
            raise ClientError("queue_exists", text)
        self._shared.promise(one, lambda: self._declared(connection, command, one), known=True)

    def _look(self, connection: QueuesConnection, command: q.DeclareQueue) -> None:
        if not self._may(connection, "consume", command.queue):
            self._check_right(connection, command.queue)
        if command.settings:
            raise ClientError("bad_field", "key `settings`: `passive` looks only, and needs none")
        one = self._shared.running(command.queue)
        self._exclusive.check(connection, one, command)
        self._declared(connection, command, one)

    def _create(
        self, connection: QueuesConnection, command: q.DeclareQueue, config: QueueConfig, *,
        chosen: bool,
    ) -> None:  # fmt: skip
        name, account = command.queue, connection.use.account
        source = CLIENT + connection.token.principal
        self._changes.check_new(name, chosen=chosen)
        account.check_queue(self._declared_by(source, name))
        account.compile(COMPILES * _chars(config), lambda: self._check(config))
        if config.exclusive:
            self._exclusive.owner(connection, command)  # refused before anything is looked up

        def done(code: str, reason: str, _position: int) -> None:
            del self._under_way[name]
            if code:
                self._shared.refuse_late(connection, ClientError(code, reason), command.cid)
                return
            one = self._shared.manager.running.get(name)
            if one is None:
                error = ClientError("not_ready", f"queue {name!r} cannot run here; see the log")
                self._shared.refuse_late(connection, error, command.cid)
            else:
                self._shared.promise(
                    one, lambda: self._declared(connection, command, one, created=True)
                )

        def make(located: Located | None) -> None:
            owner = self._exclusive.owner(connection, command) if config.exclusive else None
            made = self._changes.created(config, source, located, owner, chosen=chosen)
            self._changes.commit(name, [made], done)
            if isinstance(made, DefinitionRecord):
                self._exclusive.declared(made, connection)
            self._under_way[name] = source

        def found(located: Located) -> None:
            if located.code:
                raise ClientError(located.code, located.reason)
            self._check_declare(connection, command)
            account.check_queue(self._declared_by(source, name))
            make(located)

        place = self._changes.place(config)
        if place is None:
            make(None)
        else:
            self._shared.locate(place, self._later(connection, command, found))

    def _check(self, config: QueueConfig) -> None:
        self._changes.check(config)
        made = compile_queue(config)
        for key in COMPILED:
            found: Filter | Expression | None = getattr(made, key)
            try:
                check_at_once(found.steps if found is not None else 0)
            except ClientError as error:  # it is asked of each batch, while others wait
                raise bad_queue(key, f"`{key}` cannot be used: {error.reason}") from None

    def _declared_by(self, source: str, name: str) -> int:
        """How many names besides this one have this source, also of deleted queues."""
        manager = self._shared.manager
        rows = sum(row.source == source for row in manager.rows.values() if row.name != name)
        replicated = sum(
            one == source for each, one in manager.replicated.definitions.sources() if each != name
        )
        return rows + replicated + sum(one == source for one in self._under_way.values())

    def _declared(
        self, connection: QueuesConnection, command: q.DeclareQueue, one: QueueState,
        *, created: bool = False,
    ) -> None:  # fmt: skip
        one.used_ms = self._shared.now.mono_ms

        def answer() -> None:
            consumers = len(self._shared.of.get(one.name, ()))
            self._shared.answer_late(connection, q.QueueDeclared(
                one.name, created, one.definition.declaration, len(one.queue.here), consumers,
                command.cid, not one.ready,
            ))  # fmt: skip

        self._shared.own_writes.when_read(one, answer)

    # -- delete and purge ---------------------------------------------------------------------

    def delete(self, connection: QueuesConnection, command: q.DeleteQueue) -> None:
        """Answers once it is gone."""
        one = self._meant(connection, command)
        if not command.if_empty:
            self._delete(connection, command)
            return
        one.check_ready()
        delete = self._later(connection, command, lambda: self._delete(connection, command))
        self._shared.own_writes.when_read(one, delete)

    def _delete(self, connection: QueuesConnection, command: q.DeleteQueue) -> None:
        one = self._meant(connection, command)
        if self._changes.is_configured(one):
            raise configured(one.name)
        self._changes.check_idle(one.name)
        if command.if_unused and self._shared.of.get(one.name):
            count = len(self._shared.of[one.name])
            raise ClientError("queue_in_use", f"queue {one.name!r} has {count} consumers")
        if command.if_empty and (one.queue.here or one.returning):
            text = f"queue {one.name!r} has {len(one.queue.here | one.returning)} messages"
            raise ClientError("queue_in_use", text)
        count = len(one.queue.here)
        done = self._changed(connection, command, one)
        records = self._changes.deleted(one, kept_source(one))
        self._changes.commit(one.name, records, lambda code, reason, _: done(code, reason, count))

    def purge(self, connection: QueuesConnection, command: q.PurgeQueue) -> None:
        """Answers once what was in it and not leased is gone."""
        one = self._meant(connection, command)
        self._scopes.check_stays(one)
        queue, before = one.queue, one.folded
        done = self._changed(connection, command, one)
        if not isinstance(queue, Replayable):
            self._purges.work(one, queue, before, lambda code, count: done(code, "", count))
            return
        purge = self._purges.of(one, before)
        if purge.changes:
            self._purges.replayable(
                one, purge, lambda code, reason, _: done(code, reason, purge.taken)
            )
        else:
            done("", "", 0)

    def _meant(
        self, connection: QueuesConnection, command: q.DeleteQueue | q.PurgeQueue
    ) -> QueueState:
        """The queue that a command is about."""
        self._check_right(connection, command.queue)
        one = self._shared.running(command.queue)
        self._exclusive.check(connection, one, command)
        if command.declaration not in (None, one.definition.declaration):
            text = f"the queue {command.queue!r} that is meant was deleted; this is another one"
            raise ClientError("unknown_queue", text)
        return one

    def _changed(
        self, connection: QueuesConnection, command: q.DeleteQueue | q.PurgeQueue, one: QueueState
    ) -> Callable[[str, str, int], None]:
        """The end of a change: called with a code and its reason, or with none and a count."""

        def done(code: str, reason: str, count: int) -> None:
            if code:
                error = ClientError(code, reason or "it could not be written")
                self._shared.refuse_late(connection, error, command.cid)
                return
            answer = q.QueueChanged(one.name, count, command.cid)
            self._shared.promise(one, lambda: self._shared.answer_late(connection, answer))

        return done

    # -- rights -------------------------------------------------------------------------------

    def _check_declare(self, connection: QueuesConnection, command: q.DeclareQueue) -> None:
        """A queue shows its consumers what enters it, and writes dead letters."""
        self._check_right(connection, command.queue)
        settings = command.settings
        topic, letters = settings.get("topic") or command.queue, settings.get("dead_letter")
        if settings.get("bound", False) is True:
            pass  # a binding takes the rights to what it brings
        elif settings.get("regex", False) is not False:
            whole = self._permit(connection, "replay").everything
            self._demand(connection, whole, "replay every topic, as a queue with a pattern needs")
        elif isinstance(topic, str):  # else there is no such queue
            whole = self._may(connection, "replay", topic)
            self._demand(connection, whole, f"replay all of {topic!r}, as this queue needs")
        if letters and isinstance(letters, str):
            whole = self._may(connection, "publish", letters)
            self._demand(connection, whole, f"publish to {letters!r}, its dead letters")

    def _check_right(self, connection: QueuesConnection, queue: str) -> None:
        self._demand(connection, self._may(connection, "configure", queue), f"configure {queue!r}")

    def _may(self, connection: QueuesConnection, action: str, name: str) -> bool:
        return self._permit(connection, action).verdict(name) == "all"

    def _permit(self, connection: QueuesConnection, action: str) -> Permit:
        return self._shared.connections.access.permit(connection.token.principal, action)

    @staticmethod
    def _demand(connection: QueuesConnection, may: bool, what: str) -> None:
        if not may:
            raise ClientError("not_entitled", f"{connection.token.principal!r} may not {what}")

    # -- answers that come late ---------------------------------------------------------------

    def _later(
        self, connection: QueuesConnection, command: _Command, then: Callable[_P, None]
    ) -> Callable[_P, None]:
        """`then`, for a client that may be gone by then; what it raises is answered."""

        def later(*given: _P.args, **named: _P.kwargs) -> None:
            if not self._shared.is_here(connection):
                return
            try:
                then(*given, **named)
            except ClientError as error:
                self._shared.refuse_late(connection, error, command.cid)

        return later


def _differences(has: QueueConfig, wanted: QueueConfig) -> Iterator[str]:
    """The settings of a queue that are not those that are wanted, with both values."""
    for key in QueueConfig.__struct_fields__:
        old, new = getattr(has, key), getattr(wanted, key)
        if key == "topic":  # "" is the name of the queue
            old, new = old or has.name, new or wanted.name
        if old != new:
            yield f"`{key}` {_shown(old)}, not {_shown(new)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _chars(config: QueueConfig) -> int:
    """How much there is to compile."""
    pattern = len(config.topic) if config.regex else 0
    return pattern + sum(len(getattr(config, key)) for key in COMPILED)
