"""Frames to messages and back; what cannot be decoded becomes an error with a published code."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec
from msgspec import msgpack

from zbroker.errors import ClientError
from zbroker.limits import HEADER_MAX_BYTES
from zbroker.wire import (
    branches,
    exchange_messages,
    full_queues,
    internal,
    messages,
    owner_requests,
    queue_messages,
    replicas,
    replication,
    stages,
    supervision,
    transactions,
    units,
)

T = TypeVar("T")

_ENCODER: Final = msgpack.Encoder()
_AT: Final = re.compile(r" - at (?:`key` in (?=`\$\.))?`\$\.?([^`]*)`")
_MISSING: Final = re.compile(r"missing required field `(\w+)`")

INGEST: Final = msgpack.Decoder(messages.IngestCommand | stages.CommitStaged | stages.AbortStaged)
DELIVERY: Final = msgpack.Decoder(messages.DeliveryCommand)
ANSWERS: Final = msgpack.Decoder(messages.AnyAnswer | stages.Committed)
QUEUES: Final = msgpack.Decoder(
    queue_messages.QueuesCommand | transactions.ToQueues | branches.ToQueues
)
QUEUES_ANSWERS: Final = msgpack.Decoder(
    queue_messages.AnyQueuesAnswer | transactions.FromQueues | branches.FromQueues
)
TO_JOURNAL: Final = msgpack.Decoder(
    internal.ToJournal
    | units.ToJournal
    | stages.ToJournal
    | replicas.ToJournal
    | exchange_messages.ToJournal
    | transactions.ToJournal
    | branches.ToJournal
)
FROM_JOURNAL: Final = msgpack.Decoder(
    internal.FromJournal
    | units.NamedRows
    | stages.StagesDone
    | replicas.FromJournal
    | exchange_messages.ExchangeRows
    | transactions.FromJournal
    | branches.FromJournal
)
TO_DESTINATION: Final = msgpack.Decoder(replication.ToDestination)
TO_SOURCE: Final = msgpack.Decoder(replication.ToSource)
WATERMARKS: Final = msgpack.Decoder(internal.Watermarks)
REPLICATED: Final = msgpack.Decoder(replicas.Replicated)
FULL_QUEUES: Final = msgpack.Decoder(full_queues.FullQueues)
LINK_QUESTIONS: Final = msgpack.Decoder(replicas.LinkQuestion | owner_requests.ToReplication)
FROM_REPLICATION: Final = msgpack.Decoder(owner_requests.FromReplication)
TO_LIVE: Final = msgpack.Decoder(internal.ToLive)
FROM_LIVE: Final = msgpack.Decoder(internal.LiveCredit)
TO_SUPERVISOR: Final = msgpack.Decoder(supervision.ToSupervisor)
FROM_SUPERVISOR: Final = msgpack.Decoder(supervision.FromSupervisor)


class _Replicate(internal.Batches, tag="replicate"):
    """A Replicate whose records are as they came."""

    records: list[msgspec.Raw]
    link: int
    covered: list[internal.Covered] = msgspec.field(default_factory=list)


_REPLICATE: Final = msgpack.Decoder(_Replicate)
_RECORD: Final = msgpack.Decoder(internal.Record)

encode = _ENCODER.encode


def decode(
    decoder: msgpack.Decoder[T], frame: bytes | memoryview, max_bytes: int = HEADER_MAX_BYTES
) -> T:
    """The command in a header frame.

    Raises: ClientError too_large, bad_frame, bad_command or bad_field (its reason names the key).
    """
    if len(frame) > max_bytes:
        reason = f"a header has at most {max_bytes} bytes, this one {len(frame)}"
        raise ClientError("too_large", reason)
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError("bad_frame", f"the header is not msgpack: {error}") from None


def to_journal(frame: bytes | memoryview) -> internal.InternalMessage:
    """A message to the journal. What a peer sent as a record and is none is MALFORMED here.

    Raises: msgspec.DecodeError, for anything else: the other processes of the broker are wrong.
    """
    try:
        message: internal.InternalMessage = TO_JOURNAL.decode(frame)
        return message
    except msgspec.ValidationError:
        sent = _REPLICATE.decode(frame)
        return internal.Replicate(
            sent.incarnation, sent.ordinal, sent.confirmed, list(map(_record, sent.records)),
            sent.link, sent.covered,
        )  # fmt: skip


def _record(packed: msgspec.Raw) -> internal.Record:
    try:
        return _RECORD.decode(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return internal.Record(internal.MALFORMED, 0, 0, 0, 0, 0)


def _explain(text: str) -> ClientError:
    missing, at = _MISSING.search(text), _AT.search(text)
    if missing and missing[1] == "token":  # a program was given the URL of another endpoint
        reason = "key `token` is missing: clients log on at the ingest endpoint, this is another"
        hint = "connect to port 9101, unless listen.ingest says other; its answer has the token"
        return ClientError("bad_field", reason, hint)
    if missing:
        return ClientError("bad_field", f"key `{missing[1]}` is missing")
    if at is None:
        return ClientError("bad_frame", f"the header is not a msgpack map with string keys: {text}")
    if at[1] == "cmd" and text.startswith("Invalid value"):
        return ClientError("bad_command", text[: at.start()])
    return ClientError("bad_field", f"key `{at[1]}`: {text[: at.start()]}")


class _OnlyCid(msgspec.Struct):
    """The part of a refused header that is read. Everything else in it is skipped, not built."""

    cid: messages.Cid = None


_ONLY_CID: Final = msgpack.Decoder(_OnlyCid)


def cid_of(frame: bytes | memoryview) -> str | None:
    """The `cid` of a header that could not be decoded as a command: its error carries it.

    Only for a header within its limit: a larger one is not read any further.
    """
    if len(frame) > HEADER_MAX_BYTES:
        return None
    try:
        return _ONLY_CID.decode(frame).cid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
