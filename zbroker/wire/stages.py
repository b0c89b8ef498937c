"""Staged messages: commands of clients to ingest, and requests of ingest to the journal. Pure.

    publisher of a part                             ingest
        Publish{stage} + body             ->  as every publish
    who commits
        CommitStaged{app, batch} + stages ->  Committed{position, count}  when it is durable
        AbortStaged + tokens              ->  Committed{}

    ingest                                          journal
        CommitStages{app, batch, stages}  ->  StagesDone{position, count}  after the sync
        AbortStages{stages}               ->  StagesDone{}

Both may be asked again, of any journal process: a commit that is in the log already is answered
with what it was.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, msgpack

from zbroker.wire.internal import Correlated, InternalMessage
from zbroker.wire.messages import U63, Cid, ClientCommand, ServerAnswer

APP_MAX_BYTES: Final = 200
TOKEN_MAX: Final = 64
STAGES_MAX: Final = 100_000  # in one commit or abort
BODY_MAX_BYTES: Final = 8 << 20  # of one: as many tokens of that length


class CommitStaged(ClientCommand, tag="commit"):
    """-> ingest. Its body is a msgpack array of StagedBy. Answered by Committed, or an error."""

    app: Annotated[str, Meta(min_length=1, max_length=APP_MAX_BYTES)]
    batch: U63
    cid: Cid = None


class AbortStaged(ClientCommand, tag="abort"):
    """-> ingest. Its body is a msgpack array of tokens. Answered by Committed of nothing."""

    cid: Cid = None


class Committed(ServerAnswer, tag="committed"):
    """position: of the first message; count: how many there are. already: committed before; then
    position is 0 if a newer batch of the app was committed since."""

    cid: Cid = None
    position: int = 0
    count: int = 0
    already: bool = False


Token = Annotated[str, Meta(min_length=1, max_length=TOKEN_MAX)]


class StagedBy(Struct, array_like=True, gc=False):
    """A token, and how many messages were staged under it."""

    token: Token
    messages: U63


class CommitStages(InternalMessage, tag="commit_stages"):
    """All of these become messages of the log, in this order, or none does.

    app, batch: of one app of a principal a batch is committed once, and none that is older than its
    newest. principal: whose stages these are. asks_topics: nothing is committed, but answered what
    would be: ingest asks first, and looks whether who asks may publish on these now.
    """

    incarnation: int
    cid: int
    app: str
    batch: int
    stages: list[StagedBy]
    principal: str = ""
    asks_topics: bool = False


class AbortStages(InternalMessage, tag="abort_stages"):
    """What this principal staged under these tokens is forgotten."""

    incarnation: int
    cid: int
    stages: list[str]
    principal: str = ""


class StagesDone(Correlated, tag="stages_done"):
    """position: of the first message; count: how many. already: they were committed before.
    topics: requested instead of a commit."""

    position: int = 0
    count: int = 0
    already: bool = False
    code: str = ""
    reason: str = ""
    topics: list[str] | None = None


ToJournal = CommitStages | AbortStages
STAGES: Final = msgpack.Decoder(list[StagedBy])
TOKENS: Final = msgpack.Decoder(list[Token])
