"""Definitions of queues by operators: made, changed, deleted. Pure.

Each change is a record in the log; it is answered once it is durable, and holds once it was read
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import to_builtins

from zbroker.definitions import changed, migrated, read_table
from zbroker.definitions.definition import bad_queue
from zbroker.definitions.validation import altered
from zbroker.errors import ClientError
from zbroker.log.queue_records import ReplicatedDefinition
from zbroker.log.records import DefinitionRecord
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.context import QueuesContext
from zbroker.queues.definition_changes import ADMIN, DefinitionChanges, configured, kept_source
from zbroker.queues.queue_state import QueueState
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Located

JOINS: Final = (
    "other instances have this queue already: a message that is done at one of them is done "
    "everywhere"
)


class DefinitionCommands:
    """Commands of operators about definitions."""

    def __init__(
        self, shared: QueuesContext, answers: OperatorAnswers, changes: DefinitionChanges,
        scopes: ScopeChanges,
    ) -> None:  # fmt: skip
        self._shared, self._answers = shared, answers
        self._changes, self._scopes = changes, scopes

    def define(self, rid: bytes, ask: s.Define) -> s.Changed | None:
        """Answers at once, or later. Raises: ClientError."""
        manager = self._shared.manager
        self._changes.check_known()
        if ask.what not in ("create", "alter", "delete"):
            raise ClientError("bad_field", f"key `what`: {ask.what[:64]!r} is nothing to be done")
        if ask.what == "create":
            return self._create(rid, ask)
        running = manager.running.get(ask.name)
        if running is None:
            raise ClientError("unknown_queue", f"there is no queue {ask.name[:64]!r}")
        if self._changes.is_configured(running):
            raise _configured(ask)
        if running.replicated is not None:
            return self._define_replicated(rid, ask, running)
        self._scopes.check_stays(running)
        if ask.what == "alter" and ask.definition.get("scope", "local") != "local":
            return self._migrate(rid, ask, running)
        if ask.what == "delete":
            return self._commit(rid, ask, self._changes.deleted(running, ADMIN))
        config = changed(running.definition.config, ask.definition)
        self._changes.check(config)
        before = manager.rows[ask.name]
        new = DefinitionRecord(
            ask.name, before.life, before.source, before.created, before.begins,
            to_builtins(config), types=before.types, routes=before.routes, owner=before.owner,
        )  # fmt: skip
        return self._commit(rid, ask, [new])

    def _define_replicated(self, rid: bytes, ask: s.Define, one: QueueState) -> s.Changed | None:
        """The same for a queue that other instances have, too: they read the record."""
        replicated = self._shared.manager.replicated
        if ask.what == "delete":
            return self._commit(rid, ask, self._changes.deleted(one, ADMIN))
        config = changed(one.definition.config, ask.definition)
        self._changes.check(config)
        return self._commit(rid, ask, [replicated.altered(config, kept_source(one))])

    def _migrate(self, rid: bytes, ask: s.Define, one: QueueState) -> s.Changed | None:
        """A local queue is to be on several instances, with all that is in it."""
        old, manager = one.definition.config, self._shared.manager
        if manager.is_configured(ask.name):
            raise _configured(ask)
        config = migrated(old, altered(old, ask.definition))
        self._changes.check(config)
        self._scopes.check(one)
        joins = manager.replicated.definitions.view(ask.name) is not None
        text = JOINS if joins else ""
        if ask.dry_run:
            return s.Changed(ask.cid, len(one.queue.here), text=text)

        def over(count: int, error: ClientError | None) -> None:
            if error is not None:
                self._answers.tell(rid, refusal_of(ask, error))
            else:
                self._answers.tell(rid, s.Changed(ask.cid, count, text=text))

        self._scopes.begin(one, config, kept_source(one), over)
        return None

    def _create(self, rid: bytes, ask: s.Define) -> s.Changed | None:
        changes = self._changes
        changes.check_new(ask.name)
        config = read_table({**ask.definition, "name": ask.name})
        changes.check(config)
        if config.exclusive:
            text = "an exclusive queue belongs to a client: only a client declares one"
            raise bad_queue("exclusive", text, "leave it out")

        def create(located: Located | None) -> s.Changed | None:
            return self._commit(rid, ask, [changes.created(config, ADMIN, located)])

        place = changes.place(config)
        if place is None:
            return create(None)
        self._answers.reply_at(rid, ask, (place, ""), create)
        return None

    def _commit(
        self, rid: bytes, ask: s.Define, made: Sequence[DefinitionRecord | ReplicatedDefinition]
    ) -> s.Changed | None:
        self._changes.check_idle(ask.name)
        if ask.dry_run:
            return s.Changed(ask.cid)

        def done(code: str, reason: str, position: int) -> None:
            answer = s.Changed(ask.cid, position=position, code=code, reason=reason)
            self._answers.tell(rid, answer)

        self._changes.commit(ask.name, made, done)
        return None


def _configured(ask: s.Define) -> ClientError:
    """The refusal of a change of what the config says."""
    if "scope" not in ask.definition:
        return configured(ask.name)
    hint = (
        "write the new `scope` into the [[queue]] table of every instance that has one and "
        "restart them: the start takes along what is in the queue; or take the table out where "
        "the queue of the others is to hold"
    )
    return configured(ask.name, hint)
