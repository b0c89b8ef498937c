"""Commits and aborts of what was staged: from clients to the journal, and its answers back. Pure.

Both are kept until the journal answers, and go again to the next one: it knows what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import DecodeError, ValidationError, msgpack

from zbroker.errors import ClientError
from zbroker.ids import check_client_name
from zbroker.ingest.clients import Client
from zbroker.ingest.effects import Effect, Send
from zbroker.ingest.link import Link
from zbroker.wire import messages as m
from zbroker.wire.stages import (
    STAGES,
    TOKENS,
    AbortStaged,
    AbortStages,
    CommitStaged,
    CommitStages,
    Committed,
    StagesDone,
)

OPEN_MAX: Final = 1_000  # that wait for the journal
T = TypeVar("T")


class Committing:
    """Who asked for what."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._last = 0
        self._asked: dict[int, tuple[bytes, str | None]] = {}

    def ask(
        self, client: Client, command: CommitStaged | AbortStaged, body: bytes | None
    ) -> Sequence[Effect]:
        """On to the journal. Raises: ClientError."""
        if client.state != "live":
            raise ClientError("not_ready", "the logon of this connection is not answered yet")
        if len(self._asked) >= OPEN_MAX:
            raise ClientError("not_ready", f"{OPEN_MAX} commits wait for the journal")
        self._last += 1
        if isinstance(command, CommitStaged):
            check_client_name(command.app)
            stages = _decoded(STAGES, body)
            ask: CommitStages | AbortStages = CommitStages(
                0, self._last, command.app, command.batch, stages
            )
        else:
            ask = AbortStages(0, self._last, _decoded(TOKENS, body))
        self._asked[self._last] = (client.rid, command.cid)
        return self._link.ask(ask)

    def done(self, done: StagesDone) -> list[Effect]:
        """What the journal says goes on to who asked."""
        rid, cid = self._asked.pop(done.cid, (b"", None))
        if not self._link.on_done(done) or not rid:
            return []
        if done.code:
            return [Send(rid, m.Error(done.code, done.reason, cid=cid))]
        return [Send(rid, Committed(cid, done.position, done.count, done.already))]


def _decoded(decoder: msgpack.Decoder[T], body: bytes | None) -> T:
    """Raises: ClientError bad_frame."""
    if body is None:
        raise ClientError("bad_frame", "its body, which says what was staged, is missing")
    try:
        return decoder.decode(body)
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        raise ClientError("bad_frame", f"its body does not say what was staged: {error}") from None
