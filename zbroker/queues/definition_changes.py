"""Definitions on their way into the log: records of a checked config, one change of a name at a
time. Pure.

    settings --checked--> record --committed--> landed: the queue runs, is altered, or is gone

For operators and clients alike. A record is made of what holds, so the next change of a name waits
until the one before it has landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zbroker.config import QueueConfig
from zbroker.config.queue_links import QueueLinks
from zbroker.definitions import check_queue, compile_queue
from zbroker.definitions.definition import bad_queue
from zbroker.errors import ClientError
from zbroker.log.queue_records import ReplicatedDefinition
from zbroker.log.records import DefinitionRecord
from zbroker.queues.chosen_names import is_chosen
from zbroker.queues.commits import Done
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.recording import Recording
from zbroker.wire.internal import Located

QUEUES_MAX: Final = 10_000  # names, also those of queues that were deleted: the log keeps them
CONFIG: Final = "config"  # the source of a queue of the config
ADMIN: Final = "admin"  # the source of an operator's


class DefinitionChanges:
    """Makes records and commits them."""

    def __init__(
        self, shared: QueuesContext, recording: Recording, links: QueueLinks, scopes: ScopeChanges
    ) -> None:
        self._shared = shared
        self._recording, self._links, self._scopes = recording, links, scopes

    # -- checks -------------------------------------------------------------------------------

    def check_known(self) -> None:
        """Raises: ClientError not_ready, before the definitions of the log are known."""
        if not self._shared.manager.known:
            raise ClientError("not_ready", "the queues are being read")

    def check_new(self, name: str, *, chosen: bool = False) -> None:
        """chosen: by the broker. Raises: ClientError queue_exists, too_many; BadQueue."""
        manager = self._shared.manager
        if is_chosen(name) and not chosen and name not in manager.running:
            text = f"names as {name!r} are chosen by the broker"
            raise bad_queue("name", text, "leave the name empty, or choose another one")
        if name in manager.running:
            raise ClientError("queue_exists", f"there is a queue {name!r} already")
        rows, known = manager.rows, len(manager.rows) + len(manager.replicated.definitions)
        if name not in rows and known + len(manager.making) >= QUEUES_MAX:
            text = f"an instance knows at most {QUEUES_MAX} names of queues, also of deleted ones"
            raise ClientError("too_many", text, "use a name again that is known here")

    def is_configured(self, one: QueueState) -> bool:
        """True for a queue that only the config may change."""
        # the config of another instance has it, and this one's has not
        of_a_peer = one.replicated is not None and not self._shared.manager.is_configured(one.name)
        return one.definition.source == CONFIG and not of_a_peer

    def check_idle(self, name: str) -> None:
        """Raises: ClientError not_ready, while another change of that name is on its way."""
        changing = name in self._shared.manager.changing or self._scopes.is_changing(name)
        if changing or name in self._shared.manager.making:
            raise ClientError("not_ready", f"queue {name!r} is being changed; try again")

    def check(self, config: QueueConfig) -> None:
        """Whether there can be such a queue here. Raises: BadQueue."""
        check_queue(config, self._recording)
        self._links.check(config)

    # -- records ------------------------------------------------------------------------------

    def place(self, config: QueueConfig) -> str | None:
        """What the journal has to look up before there is a record of a new queue."""
        if config.scope != "local":
            return compile_queue(config).begins
        return None if config.recovery_point in ("epoch", "now") else config.recovery_point

    def created(
        self, config: QueueConfig, source: str, located: Located | None,
        owner: tuple[str, str, str] | None = None, *, chosen: bool = False,
    ) -> DefinitionRecord | ReplicatedDefinition:  # fmt: skip
        """The record of a new queue. located: its place. owner: of an exclusive one. chosen: its
        name, by the broker. Raises: as `check_new`."""
        self.check_new(config.name, chosen=chosen)
        manager = self._shared.manager
        if config.scope == "local":
            begins = located.position if located is not None else None
            return manager.created(config, source, begins, owner)
        assert located is not None, "a replicated queue has a place"
        return manager.replicated.created(config, source, located)

    def deleted(
        self, one: QueueState, source: str
    ) -> Sequence[DefinitionRecord | ReplicatedDefinition]:
        """The records that end a queue, on all instances. Raises: ClientError queue_in_use."""
        one.check_unlocked()
        manager = self._shared.manager
        if one.replicated is not None:
            return manager.replicated.deleted(one.name, source)
        row, forgotten = manager.rows[one.name], is_chosen(one.name)
        deletion = DefinitionRecord(
            one.name, row.life, source, row.created, row.begins, routes=row.routes,
            forgotten=forgotten,
        )  # fmt: skip
        return [deletion]

    def commit(
        self, name: str, made: Sequence[DefinitionRecord | ReplicatedDefinition], done: Done
    ) -> None:
        """Calls `done` once all of it is durable, or refused. Raises: as `check_idle`."""
        self.check_idle(name)
        left, refused = len(made), ("", "")

        def landed(code: str, reason: str, position: int) -> None:
            nonlocal left, refused
            left -= 1
            if code:
                refused = code, reason
            if left == 0:
                self._shared.manager.changing.discard(name)
                done(*refused, position)

        self._shared.manager.changing.add(name)
        for record in made:
            self._shared.manager.define(record, landed)


def kept_source(one: QueueState) -> str:
    """The source of a queue that an operator alters: whose it is does not change by that."""
    return ADMIN if one.definition.source == CONFIG else one.definition.source


def configured(name: str, hint: str = "edit the [[queue]] table and restart") -> ClientError:
    """The refusal of a change of a queue that the config has."""
    text = f"queue {name!r} is defined in the config file: it is changed there"
    return ClientError("bad_queue", text, hint)
