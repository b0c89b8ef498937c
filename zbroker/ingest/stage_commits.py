"""Commits and aborts of what was staged: from clients to the journal, and its answers back. Pure.

Stages and apps belong to the principal that staged them. One that may not publish everything needs
the right for every topic that is committed, by the rules as they are now:

    commit --nothing restricts it--> CommitStages --> committed
       `--rights--> what topics? --> entitled now --> CommitStages --> committed

Both commands are kept until the journal answers, and go again to the next one: it knows what it
did. What a body says is counted before it is decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import DecodeError, ValidationError, msgpack
from msgspec.structs import replace

from zbroker.engine.effects import Answer
from zbroker.errors import ClientError
from zbroker.ids import check_client_name
from zbroker.ingest import checks
from zbroker.ingest.clients import ClientConnection
from zbroker.ingest.contract import Effect
from zbroker.ingest.links import AppendLink
from zbroker.wire import messages as m
from zbroker.wire.bodies import announced
from zbroker.wire.stages import (
    BODY_MAX_BYTES,
    STAGES,
    STAGES_MAX,
    TOKENS,
    AbortStaged,
    AbortStages,
    CommitStaged,
    CommitStages,
    Committed,
    StagesDone,
)

OPEN_MAX: Final = 1_000  # that wait for the journal
OF_ONE_MAX: Final = 16  # of one connection
T = TypeVar("T")


class PendingCommit(NamedTuple):
    """A command that waits for the journal."""

    client: ClientConnection
    cid: str | None
    ask: CommitStages | AbortStages


class StageCommits:
    """Commits and aborts that wait for the journal."""

    def __init__(self, link: AppendLink) -> None:
        self._link = link
        self._last = 0
        self._asked: dict[int, PendingCommit] = {}

    def ask(
        self, client: ClientConnection, command: CommitStaged | AbortStaged, body: bytes | None
    ) -> Sequence[Effect]:
        """On to the journal. Raises: ClientError."""
        if client.state != "live":
            raise ClientError("not_ready", "the logon of this connection is not answered yet")
        if client.permit is not None and client.permit.nothing:
            raise ClientError("not_entitled", "you may not publish, so there is nothing of yours")
        if len(self._asked) >= OPEN_MAX:
            raise ClientError("not_ready", f"{OPEN_MAX} commits wait for the journal")
        if sum(asked.client is client for asked in self._asked.values()) >= OF_ONE_MAX:
            raise ClientError("not_ready", f"{OF_ONE_MAX} of your commits wait for the journal")
        ask: CommitStages | AbortStages
        if isinstance(command, CommitStaged):
            check_client_name(command.app)
            ask = CommitStages(
                0, 0, command.app, command.batch, _decoded(STAGES, body), client.principal,
                asks_topics=client.permit is not None,
            )  # fmt: skip
        else:
            ask = AbortStages(0, 0, _decoded(TOKENS, body), client.principal)
        return self._forward(client, command.cid, ask)

    def _forward(
        self, client: ClientConnection, cid: str | None, ask: CommitStages | AbortStages
    ) -> Sequence[Effect]:
        self._last += 1
        ask = replace(ask, cid=self._last)
        self._asked[self._last] = PendingCommit(client, cid, ask)
        return self._link.ask(ask)

    def done(self, done: StagesDone) -> Sequence[Effect]:
        """Passes the journal's answer on to its client."""
        asked = self._asked.pop(done.cid, None)
        if not self._link.on_done(done) or asked is None or asked.client.state != "live":
            return []
        client, cid, ask = asked
        if done.code:
            return [Answer(client.rid, m.Error(done.code, done.reason, cid=cid))]
        if done.topics is None:
            return [Answer(client.rid, Committed(cid, done.position, done.count, done.already))]
        try:
            if client.permit is not None:
                checks.check_staged(client.permit, done.topics)
        except ClientError as error:
            return [Answer(client.rid, m.Error(error.code, error.reason, cid=cid))]
        return self._forward(client, cid, replace(ask, asks_topics=False))


def _decoded(decoder: msgpack.Decoder[T], body: bytes | None) -> T:
    """Raises: ClientError bad_frame, too_large."""
    if body is None:
        raise ClientError("bad_frame", "its body, which says what was staged, is missing")
    if len(body) > BODY_MAX_BYTES or announced(body) > STAGES_MAX:
        text = f"it names at most {STAGES_MAX} stages in {BODY_MAX_BYTES} bytes"
        raise ClientError("too_large", text)
    try:
        return decoder.decode(body)
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        raise ClientError("bad_frame", f"its body does not say what was staged: {error}") from None
