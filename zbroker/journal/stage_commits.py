"""Commits of staged messages: judged, and placed as one batch that shows them. Pure.

What is committed is published by "$staged.<app>": its sequences are given here alone, so a commit
that comes again after any crash is the same or none. Of one app a batch is committed once, and none
that is older than its newest: Spark gives its batches rising numbers, and repeats the last one.
An app may be "<name>/<run>": then "$staged.<name>" publishes for all runs, since publishers are
known for ever and runs are not.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import value as crc32c

from zbroker.errors import ClientError
from zbroker.ids import publisher_id
from zbroker.journal.group_builder import DISK_FULL, NAMES_FULL, NOT_READY, GroupBuilder
from zbroker.journal.sessions import PublisherState
from zbroker.journal.stages import Stage
from zbroker.log import references
from zbroker.log.format import FLAG_SHOWS
from zbroker.log.references import CommitRecord, Reference
from zbroker.wire import internal as m
from zbroker.wire.stages import STAGES_MAX, CommitStages, StagesDone

STAGED_NAME: Final = "$staged"
MESSAGES_MAX: Final = (1 << 32) - 1
PARTS_MAX: Final = 1_000_000
TOPICS_MAX: Final = 10_000


class CommitPlacer:
    """Places commits into the group of `to`."""

    def __init__(self, to: GroupBuilder) -> None:
        self._to = to
        self._open: set[str] = set()  # names whose publisher has a session

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
        chosen = []
        for one in ask.stages:
            stage = self._to.sessions.stages.get(ask.principal, one.token)
            have = stage.messages if stage is not None else 0
            if stage is None or have != one.messages:
                text = f"of stage {one.token[:64]!r} {have} messages are here, not {one.messages}"
                raise ClientError("stage_unknown", text)
            chosen.append(stage)
        return chosen

    def _commit(self, ask: CommitStages, chosen: list[Stage]) -> tuple[int, int]:
        """Position and count of its messages. Raises: ClientError."""
        parts: list[Reference] = [part for stage in chosen for part in stage.parts]
        topics = list(dict.fromkeys(topic for stage in chosen for topic in stage.topics))
        count = sum(stage.messages for stage in chosen)
        if len(parts) > PARTS_MAX or len(topics) > TOPICS_MAX or count > MESSAGES_MAX:
            text = f"a commit shows at most {PARTS_MAX} parts and {TOPICS_MAX} topics"
            raise ClientError("too_large", text)
        known = self._publisher(ask.app.partition("/")[0], ask.principal)
        tokens = [stage.token for stage in chosen]
        record = CommitRecord(ask.app, ask.batch, tokens, parts, ask.principal)
        body, to = references.encode(record), self._to
        entry = m.Entry(
            known.id, known.session, known.high + 1, count, known.high, crc32c(body), None, topics
        )
        batch = to.batch_of(entry, body, 0, known)
        batch.flags = FLAG_SHOWS
        to.put(batch)
        to.messages += count
        to.sessions.accepted(entry, to.next_position - 1)
        to.sessions.stages.committed(record, batch)
        return batch.position, count

    def _publisher(self, of: str, principal: str) -> PublisherState:
        """Its name stands in the log before its messages. Raises: ClientError.

        It counts as a name of who commits first; others may have apps of the same name.
        """
        to, name = self._to, f"{STAGED_NAME}.{of}"
        known = to.sessions.get(publisher_id(name)) if of in self._open else None
        if known is None:
            known = to.sessions.open(name, "", to.wall_ns)
        if known is None:
            reason = f"the name {name!r} has the publisher id of another name"
            raise ClientError("publisher_collision", reason)
        self._open.add(of)
        if not known.named:
            if to.sessions.names_of(principal) >= to.settings.names_max:
                raise ClientError("too_many", NAMES_FULL)
            known.principal = known.principal or principal
            to.name(known)
        return known
