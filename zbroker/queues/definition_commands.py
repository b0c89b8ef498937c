"""Definitions of queues by operators: made, changed, deleted. Pure.

Each change is a record in the log; it is answered once it is durable, and holds once it was read
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import to_builtins

from zbroker.config import QueueConfig
from zbroker.config.queue_links import QueueLinks
from zbroker.definitions import changed, check_queues, compile_queue, migrated, read_table
from zbroker.definitions.validation import altered
from zbroker.errors import ClientError
from zbroker.log.queue_records import ReplicatedDefinition
from zbroker.log.records import DefinitionRecord
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.recording import Recording
from zbroker.wire import queue_surveys as s
from zbroker.wire.internal import Located

QUEUES_MAX: Final = 10_000
JOINS: Final = (
    "other instances have this queue already: what is done at one of them is done everywhere"
)


class DefinitionCommands:
    """Commands of operators about definitions."""

    def __init__(
        self, shared: QueuesContext, answers: OperatorAnswers, recording: Recording,
        links: QueueLinks, scopes: ScopeChanges,
    ) -> None:  # fmt: skip
        self._shared, self._answers = shared, answers
        self._recording, self._links, self._scopes = recording, links, scopes
        self._changing: set[str] = set()  # queues of which a definition is on its way

    def define(self, rid: bytes, ask: s.Define) -> s.Changed | None:
        """Answers at once, or later. Raises: ClientError."""
        manager = self._shared.manager
        if not manager.known:
            raise ClientError("not_ready", "the queues are being read")
        if ask.what not in ("create", "alter", "delete"):
            raise ClientError("bad_field", f"key `what`: {ask.what[:64]!r} is nothing to be done")
        if ask.what == "create":
            return self._create(rid, ask)
        running = manager.running.get(ask.name)
        if running is None:
            raise ClientError("unknown_queue", f"there is no queue {ask.name[:64]!r}")
        if running.definition.source == "config" and not self._only_of_a_peer(running):
            raise _configured(ask)
        if running.replicated is not None:
            return self._define_replicated(rid, ask, running)
        self._scopes.check_stays(running)
        if ask.what == "alter" and ask.definition.get("scope", "local") != "local":
            return self._migrate(rid, ask, running)
        record = manager.rows[ask.name]
        new = DefinitionRecord(ask.name, record.life, "admin", record.created, record.begins)
        if ask.what == "alter":
            new.types = record.types
            config = changed(running.definition.config, ask.definition)
            self._check(config)
            new.definition = to_builtins(config)
        return self._commit(rid, ask, [new])

    def _only_of_a_peer(self, one: QueueState) -> bool:
        """The config of another instance has it, and this one's has not."""
        return one.replicated is not None and not self._shared.manager.is_configured(one.name)

    def _define_replicated(self, rid: bytes, ask: s.Define, one: QueueState) -> s.Changed | None:
        """The same for a queue that other instances have, too: they read the record."""
        replicated = self._shared.manager.replicated
        if ask.what == "delete":
            return self._commit(rid, ask, replicated.deleted(ask.name))
        config = changed(one.definition.config, ask.definition)
        self._check(config)
        return self._commit(rid, ask, [replicated.altered(config, "admin")])

    def _migrate(self, rid: bytes, ask: s.Define, one: QueueState) -> s.Changed | None:
        """A local queue is to be on several instances, with all that is in it."""
        old, manager = one.definition.config, self._shared.manager
        if manager.is_configured(ask.name):
            raise _configured(ask)
        config = migrated(old, altered(old, ask.definition))
        self._check(config)
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

        self._scopes.begin(one, config, "admin", over)
        return None

    def _create(self, rid: bytes, ask: s.Define) -> s.Changed | None:
        manager = self._shared.manager
        self._check_new(ask.name)
        if len(manager.rows) + len(manager.replicated.definitions) >= QUEUES_MAX:
            raise ClientError("too_many", f"an instance knows at most {QUEUES_MAX} queues")
        config = read_table({**ask.definition, "name": ask.name})
        self._check(config)
        replicated = config.scope != "local"
        if config.recovery_point in ("epoch", "now") and not replicated:
            return self._commit(rid, ask, [manager.created(config, "admin")])

        def create(located: Located) -> s.Changed | None:
            self._check_new(ask.name)
            if replicated:
                record = manager.replicated.created(config, "admin", located)
                return self._commit(rid, ask, [record])
            return self._commit(rid, ask, [manager.created(config, "admin", located.position)])

        begins = compile_queue(config).begins if replicated else config.recovery_point
        self._answers.reply_at(rid, ask, (begins, ""), create)
        return None

    def _check_new(self, name: str) -> None:
        """Raises: ClientError queue_exists."""
        if name in self._shared.manager.running:
            raise ClientError("queue_exists", f"there is a queue {name!r} already")

    def _check(self, config: QueueConfig) -> None:
        others = [
            one.definition.config for one in self._shared.manager.running.values()
            if one.name != config.name
        ]  # fmt: skip
        check_queues([*others, config], self._recording)
        self._links.check(config)

    def _commit(
        self, rid: bytes, ask: s.Define, made: Sequence[DefinitionRecord | ReplicatedDefinition]
    ) -> s.Changed | None:
        """Raises: ClientError not_ready: a record is made of what holds, so one at a time is."""
        if ask.name in self._changing:
            raise ClientError("not_ready", f"queue {ask.name!r} is being changed; try again")
        if ask.dry_run:
            return s.Changed(ask.cid)
        left = len(made)

        def done(code: str, reason: str, position: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._changing.discard(ask.name)
                answer = s.Changed(ask.cid, position=position, code=code, reason=reason)
                self._answers.tell(rid, answer)

        self._changing.add(ask.name)
        for record in made:
            self._shared.manager.define(record, done)
        return None


def _configured(ask: s.Define) -> ClientError:
    """The refusal of a change of what the config says."""
    text = f"queue {ask.name!r} is defined in the config file: it is changed there"
    hint = "edit the [[queue]] table and restart"
    if "scope" in ask.definition:
        hint = (
            "write the new `scope` into the [[queue]] table of every instance that has one and "
            "restart them: the start takes along what is in the queue; or take the table out where "
            "the queue of the others is to hold"
        )
    return ClientError("bad_queue", text, hint)
