"""The batch that shows staged messages: of a commit by an app, or of a transaction. Pure.

A client commits and aborts tokens. That is all that is staged under them here, whatever the
generation: it cannot know that one has begun, and all that was acknowledged to it is in either. A
part that was lost with the end of a log is missing in the count until it has come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.journal.group_builder import GroupBuilder
from zbroker.journal.own_publishers import OwnPublishers
from zbroker.journal.sessions import PublisherState
from zbroker.journal.stages import Stage
from zbroker.log import references
from zbroker.log.format import FLAG_SHOWS, KIND_PUBLISH, Batch, content_column
from zbroker.log.references import CommitRecord, PartsOrigin
from zbroker.wire.units import UnitPart

MESSAGES_MAX: Final = (1 << 32) - 1  # of one commit, as are the next two
PARTS_MAX: Final = 1_000_000
TOPICS_MAX: Final = 10_000


class CommitName(NamedTuple):
    """What a CommitRecord says of itself; principal: of the stages, too."""

    app: str
    batch: int
    principal: str


def whole(to: GroupBuilder, principal: str, token: str, messages: int) -> list[Stage]:
    """The stages under a token, which have so many messages. Raises: ClientError stage_unknown."""
    if (principal, token) in to.sessions.stages.prepared:
        raise ClientError("stage_unknown", f"stage {token[:64]!r} is of a prepared transaction")
    return prepared(to, principal, token, messages)


def prepared(to: GroupBuilder, principal: str, token: str, messages: int) -> list[Stage]:
    """The same of a branch that is to be committed."""
    found = to.sessions.stages.own(principal, token)
    have = sum(stage.messages for stage in found)
    if not have or have != messages:
        text = f"of stage {token[:64]!r} {have} messages are here, not {messages}"
        raise ClientError("stage_unknown", text)
    return found


def check_size(chosen: Sequence[Stage]) -> None:
    """Raises: ClientError too_large."""
    parts = sum(len(stage.parts) for stage in chosen)
    topics = len(_topics(chosen))
    count = sum(stage.messages for stage in chosen)
    if parts > PARTS_MAX or topics > TOPICS_MAX or count > MESSAGES_MAX:
        text = f"a commit shows at most {PARTS_MAX} parts and {TOPICS_MAX} topics"
        raise ClientError("too_large", text)


def show(
    to: GroupBuilder, own: OwnPublishers, known: PublisherState, name: CommitName,
    chosen: Sequence[Stage],
) -> Batch:  # fmt: skip
    """Puts it into the group of `to`, as messages of `known`; with it these stages end."""
    parts = [part for stage in chosen for part in stage.parts]
    tokens = [stage.key.token for stage in chosen]
    record = CommitRecord(name.app, name.batch, tokens, parts, name.principal, _origins_of(chosen))
    body = references.encode(record)
    count = sum(stage.messages for stage in chosen)
    part = UnitPart(KIND_PUBLISH, crc32c(body), _topics(chosen), count)
    placed = own.publish(known, part, body, flags=FLAG_SHOWS)
    travels = references.encode_by_identity(record, placed.origin)
    placed.extra = [content_column(crc32c(travels))]  # where its parts are here is not content
    to.sessions.stages.committed(record, placed)
    return placed


def _topics(chosen: Sequence[Stage]) -> list[str]:
    return list(dict.fromkeys(topic for stage in chosen for topic in stage.topics))


def _origins_of(chosen: Sequence[Stage]) -> list[PartsOrigin]:
    found = []
    for origin, stages in groupby(chosen, key=lambda stage: stage.key.origin):
        parts = [len(stage.parts) for stage in stages]
        found.append(PartsOrigin(origin.instance, origin.generation, len(parts), sum(parts)))
    return found
