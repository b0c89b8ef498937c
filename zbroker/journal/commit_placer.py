"""Commits of staged messages by apps: one batch that shows them. Pure.

A batch of an app is committed once, and none that is older than the newest one: Spark gives its
batches rising numbers and repeats the last one. So a commit that comes again after any crash is the
same or does nothing. An app may be "<name>/<run>": then the publisher of "<name>" publishes for all
runs, since publishers are known for ever and runs are not.
"""

from __future__ import annotations

from typing import Final

from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.journal import shown_stages
from zbroker.journal.group_builder import DISK_FULL, NAMES_FULL, NOT_READY, GroupBuilder
from zbroker.journal.own_publishers import OwnPublishers, staged_name
from zbroker.journal.sessions import PublisherState
from zbroker.journal.shown_stages import CommitName
from zbroker.journal.stages import Stage
from zbroker.wire.stages import STAGES_MAX, CommitStages, StagesDone

RETURNING: Final = "peers may hold a commit of this instance that comes back first; ask again"


class CommitPlacer:
    """Places commits into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to, self._own = to, OwnPublishers(to)

    def place(self, ask: CommitStages) -> StagesDone:
        """What becomes of it; nothing is placed twice."""
        stages = self._to.sessions.stages
        last = stages.last(ask.principal, ask.app)
        if last is not None and ask.batch <= last.batch:
            same = ask.batch == last.batch
            place = (last.position, last.count) if same else (0, 0)
            return StagesDone(ask.cid, *place, already=True)
        if not ask.stages:
            return StagesDone(ask.cid)
        if self._to.commits_wait():
            return StagesDone(ask.cid, code="not_ready", reason=RETURNING)
        try:
            chosen = self._chosen(ask)
            if ask.asks_topics:
                topics = dict.fromkeys(topic for stage in chosen for topic in stage.topics)
                return StagesDone(ask.cid, topics=list(topics))
            position, count = self._commit(ask, chosen)
        except ClientError as error:
            self._to.refused += 1
            return StagesDone(ask.cid, code=error.code, reason=error.reason)
        return StagesDone(ask.cid, position, count)

    def _chosen(self, ask: CommitStages) -> list[Stage]:
        """Raises: ClientError."""
        if self._to.fenced:
            raise ClientError("not_ready", NOT_READY)
        if not self._to.accepting:
            raise ClientError("disk_full", DISK_FULL)
        if len(ask.stages) > STAGES_MAX or len({one.token for one in ask.stages}) < len(ask.stages):
            raise ClientError("bad_field", f"a commit names 1 to {STAGES_MAX} stages, each once")
        chosen: list[Stage] = []
        for one in ask.stages:
            chosen += shown_stages.whole(self._to, ask.principal, one.token, one.messages)
        return chosen

    def _commit(self, ask: CommitStages, chosen: list[Stage]) -> tuple[int, int]:
        """Position and count of its messages. Raises: ClientError."""
        shown_stages.check_size(chosen)
        known = self._publisher(ask.app.partition("/")[0], ask.principal)
        name = CommitName(ask.app, ask.batch, ask.principal)
        batch = shown_stages.show(self._to, self._own, known, name, chosen)
        return batch.position, batch.taken

    def _publisher(self, app: str, principal: str) -> PublisherState:
        """The publisher of an app; its name is in the log before its messages.

        It counts as a name of the principal that commits first; others may have apps of that name.
        Raises: ClientError publisher_collision, not_entitled, too_many.
        """
        to = self._to
        origin = Origin(to.settings.instance, to.generation)
        known = self._own.open(staged_name(app, origin))
        if not known.named:
            if to.sessions.names_of(principal) >= to.settings.names_max:
                raise ClientError("too_many", NAMES_FULL)
            known.principal = known.principal or principal
            to.name(known)
        return known
