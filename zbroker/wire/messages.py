"""Commands and answers between clients and the broker's listeners, protocol version 1.

Each is a msgpack map with string keys whose `cmd` names the command; unknown keys are ignored.
docs/reference/wire.md is the page for people who write clients. Each docstring has direction and
answer; `->` is client to broker.

Units: `*_bytes` bytes, `*_ns` nanoseconds since 1970 UTC, `*_s` seconds; positions and sequences
are integers from 1 to 2**63 - 1, publisher and instance ids from 0 to 2**64 - 1.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Raw, Struct, field

from zbroker.errors import hint_of
from zbroker.limits import BATCH_COUNT_MAX, CREDIT_DEFAULT_BYTES, SUBSCRIPTIONS_MAX, U63_MAX

VERSION: Final = 1
SECONDS_MAX: Final = 366 * 86_400

U32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
U63 = Annotated[int, Meta(ge=0, le=U63_MAX)]
Seq = Annotated[int, Meta(ge=1, le=U63_MAX)]
Count = Annotated[int, Meta(ge=1, le=BATCH_COUNT_MAX)]
Text = Annotated[str, Meta(max_length=1024)]
Secret = Annotated[str, Meta(max_length=255)]
Cid = Annotated[str, Meta(max_length=64)] | None


class ClientCommand(Struct, tag_field="cmd", omit_defaults=True, gc=False):
    """What a client may send. `cid` comes back in the direct answer."""


class Columns(Struct, omit_defaults=True, gc=False):
    """Per message of a packed body, little-endian arrays of `count` items.

    index: u16, into `topics`. time: i64 ns. offset (broker to subscriber only): u32, what to add to
    `seq` and `position` when the body was re-packed and its messages are not consecutive.
    expiry: i64 ns, 0 = never. keys, headers: one msgpack array each, of binaries or nil, and of
    maps from text to text, number, bool, binary or nil, or nil.
    """

    index: bytes | None = None
    time: bytes | None = None
    offset: bytes | None = None
    keys: bytes | None = None
    headers: bytes | None = None
    expiry: bytes | None = None


# -- every listener ---------------------------------------------------------------------------


class Heartbeat(ClientCommand, tag="heartbeat"):
    """Both directions. Not answered.

    heartbeat_s (-> only): from now on as if the logon had asked for it; 0: for none.
    """

    heartbeat_s: Annotated[float, Meta(ge=0, le=3600)] | None = None


class Logoff(ClientCommand, tag="logoff"):
    """-> Ends the session on this listener. Answered `processed`."""

    cid: Cid = None


# -- ingest -----------------------------------------------------------------------------------


class Logon(ClientCommand, tag="logon"):
    """-> ingest. Opens a publisher session; answered `processed`, after all it sent before.

    credentials: `user` and `password`, where the key of the connection does not say it all.
    ack_interval_s: merged acks come once in this time, not with each commit.
    """

    client: Text
    instance: Text
    cid: Cid = None
    version: int = VERSION
    credentials: Annotated[dict[Secret, Secret], Meta(max_length=4)] | None = None
    heartbeat_s: Annotated[float, Meta(gt=0, le=3600)] | None = None
    ack_interval_s: Annotated[float, Meta(gt=0, le=60)] | None = None

    def __repr__(self) -> str:  # without what is secret
        return f"Logon(client={self.client!r}, instance={self.instance!r})"


class Publish(ClientCommand, tag="publish"):
    """-> ingest. With `count` the body is a msgpack array of that many binaries, else a payload.

    Only a payload has `key`, `headers` and `expires_ns` here; packed messages have columns. stage:
    the token that packed messages are staged under; a commit shows them. mandatory: those of these
    messages that no binding leads to a queue are `returned` in an ack. resent: they were sent in a
    session before this one, and may be in the log of another instance: a full queue takes them.
    Answered by errors, and if `ack` asks for it by acks: see Ack.
    """

    seq: Seq
    topic: str | None = None
    topics: list[str] | None = None
    count: Count | None = None
    prev: U63 | None = None
    crc: U32 | None = None
    codec: str | None = None
    time_ns: int | None = None
    columns: Columns | None = None
    ack: list[str] | None = None
    cid: Cid = None
    key: bytes | None = None
    headers: dict[str, Raw] | None = None
    expires_ns: U63 | None = None
    stage: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    mandatory: bool = False
    resent: bool = False


class Flush(ClientCommand, tag="flush"):
    """-> ingest. Answered `persisted` with this `cid` once everything sent before it is settled."""

    cid: Cid = None


# -- delivery ---------------------------------------------------------------------------------


class ListenerLogon(ClientCommand, tag="logon"):
    """-> delivery, with the token of ingest's answer. Answered `processed`."""

    token: Annotated[str, Meta(max_length=2048)]
    cid: Cid = None
    heartbeat_s: Annotated[float, Meta(gt=0, le=3600)] | None = None


class Options(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How a subscription is delivered.

    delivery: what must have happened to a message before it is sent: "persisted" (durable here),
    "fully_durable" (also at enough synchronous destinations), "live" (written, not yet durable).
    rate: the most per second: messages (1000), bytes ("500KB") or a multiple of log time ("2X").
    rate_max_gap_s: the longest wait between two messages where `rate` is a multiple.
    conflation_s: per interval only the newest message of each key. conflation_clock: intervals of
    log time ("log"), or of the time in which it is sent ("replay"). conflation_key: fields that
    make a key together with the topic. select: which fields are sent ("-/,+/a").
    limit: it ends after so many messages. wait_s: how long a bookmark may be not here yet.
    """

    codecs: list[str] = []
    delivery: Annotated[str, Meta(pattern="^(persisted|fully_durable|live)$")] = "persisted"
    rate: int | float | Annotated[str, Meta(max_length=32)] | None = None
    rate_max_gap_s: Annotated[float, Meta(gt=0, le=SECONDS_MAX)] | None = None
    paused: bool = False
    conflation_s: Annotated[float, Meta(gt=0, le=SECONDS_MAX)] | None = None
    conflation_clock: Annotated[str, Meta(pattern="^(log|replay)$")] = "log"
    conflation_key: Annotated[list[Text], Meta(max_length=16)] = []
    select: Annotated[str, Meta(max_length=4096)] | None = None
    limit: Seq | None = None
    wait_s: Annotated[float, Meta(ge=0, le=SECONDS_MAX)] = 0


class Subscribe(ClientCommand, tag="subscribe"):
    """-> delivery. Answered `processed` {position}, then msg, `completed`; an error ends the sid.

    bookmark: where to start: "0", "0|1|", a bookmark, a list of them, a time, a vector,
    "point:NAME", or a range of two of them: "[a:b)". until: where to end: a bookmark (inclusive), a
    time (exclusive), "now", a vector (inclusive) or "point:NAME". filter: only messages whose
    content it is true for. unrecorded: messages of topics that are not recorded too, as they come;
    by default if there is neither bookmark nor until nor an option that only a replay can have.
    """

    sid: Annotated[str, Meta(min_length=1, max_length=64)]
    topic: Text
    cid: Cid = None
    regex: bool = False
    bookmark: Annotated[str, Meta(max_length=32_768)] | None = None
    until: Annotated[str, Meta(max_length=32_768)] | None = None
    unrecorded: bool | None = None
    credit: U63 = CREDIT_DEFAULT_BYTES
    bookmark_not_found: Annotated[str, Meta(pattern="^(fail|epoch|now)$")] = "fail"
    filter: str | None = None
    options: Options | None = None


class Flow(ClientCommand, tag="flow"):
    """-> delivery. Gives `bytes` more credit to a subscription. Not answered."""

    sid: str
    bytes: U63


class Unsubscribe(ClientCommand, tag="unsubscribe"):
    """-> delivery. Answered `processed`; nothing for this sid follows that answer."""

    sid: str
    cid: Cid = None


class Pause(ClientCommand, tag="pause"):
    """-> delivery. Answered `processed`; messages in flight may still come."""

    sids: Annotated[list[str], Meta(min_length=1, max_length=SUBSCRIPTIONS_MAX)]
    cid: Cid = None


class Resume(ClientCommand, tag="resume"):
    """-> delivery. Answered `processed` {combined}: the sids that share one replay from now on.

    Subscriptions at the same position, with the same rate, share one: their messages are sent in
    the order of the log, across all of them, as fast as the slowest of them takes it.
    groups: every such group is made, also of those with the same conflation, and named in {groups};
    without it only the largest one of those without conflation.
    """

    sids: Annotated[list[str], Meta(min_length=1, max_length=SUBSCRIPTIONS_MAX)]
    cid: Cid = None
    groups: bool = False


class Replace(ClientCommand, tag="replace"):
    """-> delivery. Another topic or filter ("": none) for a subscription that goes on.

    Answered `processed` {position}: from there on the new ones apply. Fields that are left out
    stay.
    """

    sid: str
    cid: Cid = None
    topic: Text | None = None
    regex: bool = False
    filter: str | None = None


class Ranges(ClientCommand, tag="ranges"):
    """-> delivery. Answered by RangeList: the log between two points, split by bytes."""

    cid: Cid = None
    topic: Text | None = None
    regex: bool = False
    bookmark: Annotated[str, Meta(max_length=32_768)] = "0"
    until: Annotated[str, Meta(max_length=32_768)] = "now"
    parts: Annotated[int, Meta(ge=1, le=100_000)] = 1


IngestCommand = Logon | Publish | Flush | Heartbeat | Logoff
DeliveryCommand = (
    ListenerLogon | Subscribe | Flow | Unsubscribe | Pause | Resume | Replace | Ranges | Heartbeat
    | Logoff
)  # fmt: skip


# -- answers ----------------------------------------------------------------------------------


class ServerAnswer(Struct, tag_field="cmd", omit_defaults=True, gc=False):
    """What the broker may send."""


class Ack(ServerAnswer, tag="ack"):
    """type: processed, persisted, completed, dropped.

    processed with a cid: checked, registered; it promises nothing about the data. The `vector` of
    a subscription that begins or is replaced covers all that is before its `position`.
    persisted {seq}: recorded messages up to `seq` are durable; `seq` is one of a recorded message.
    returned: runs of mandatory ones that are in no queue, as of `filtered`; these are reported once
    or, after a lost connection, not at all.
    processed {seq, unrecorded}: everything up to `seq` is settled, and its newest message is of a
    topic that is not recorded. `unrecorded` of both has the topics of settled messages that are not
    in the log: these went to the current subscribers. filtered: runs of sequences that a filter did
    not record: first and last of each, u64, little-endian.
    completed {sid, bookmark, vector, ended}: messages durable at its start were sent; `ended`: this
    was the end of its range or of its limit, nothing follows.
    persisted {sid, bookmark, vector}: the subscription has passed everything up to there, and it is
    durable: a resume point, also where nothing matched.
    dropped {sid, dropped}: so many unrecorded messages were not sent to it for lack of credit.
    """

    type: str
    cid: Cid = None
    # publishers
    seq: int | None = None
    durability: str | None = None
    duplicate: int = 0
    unrecorded: list[str] | None = None
    filtered: bytes | None = None
    returned: bytes | None = None
    # subscriptions
    sid: str | None = None
    position: int | None = None
    credit: int | None = None
    bookmark: str | None = None
    vector: str | None = None
    combined: list[str] | None = None
    groups: list[list[str]] | None = None
    ended: bool = False
    dropped: int = 0
    # logon; recording is "some" where not every topic is recorded
    recording: str | None = None
    acked: int | None = None
    publisher: int | None = None
    session: int | None = None
    version: int | None = None
    origin: tuple[int, int] | None = None
    window_bytes: int | None = None
    max_message_bytes: int | None = None
    max_batch_bytes: int | None = None
    heartbeat_s: float | None = None
    endpoints: dict[str, str] | None = None
    principal: str | None = None  # whom the access file takes this connection for
    missing: int | None = None  # ranges of instances that this log does not have, if there are any
    token: str | None = None


class Error(ServerAnswer, tag="error"):
    """A refusal. `seq`: of the refused publish; `high`: what the journal holds of the publisher.

    hint: that of the code, where the one who refuses has no better one.
    """

    code: str
    reason: str
    hint: str = ""
    cid: Cid = None
    sid: str | None = None
    seq: int | None = None
    high: int | None = None

    def __post_init__(self) -> None:
        self.hint = self.hint or hint_of(self.code)


class Msg(ServerAnswer, tag="msg"):
    """broker -> subscriber, with a packed body: messages `skip` to `skip + take` of it count.

    `seq` and `position` are those of the first one that counts. `origin` is left out when it is
    this instance's own position line. Without `position` they are not recorded.
    """

    sid: str
    publisher: int
    seq: int
    time_ns: int
    count: int
    position: int = 0
    topic: str | None = None
    topics: list[str] | None = None
    skip: int = 0
    take: int | None = None
    crc: int | None = None
    codec: str | None = None
    origin: tuple[int, int, int] | None = None
    columns: Columns | None = None


class RangeList(ServerAnswer, tag="ranges"):
    """Half-open position ranges [from, to, bytes] that together cover what was asked for.

    first: where that begins, also if nothing is there. vector: it covers what is before `first`, on
    each instance; left out where that was not looked for.
    """

    generation: int
    instance: int
    log_start: int = field(name="floor")
    persisted: int
    ranges: list[tuple[int, int, int]]
    cid: Cid = None
    first: int = 0
    vector: str | None = None


AnyAnswer = Ack | Error | Msg | RangeList | Heartbeat
