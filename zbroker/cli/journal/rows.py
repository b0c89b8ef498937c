"""Messages, control records and batches of the log as rows: what dump, grep and search print.

Ids that may be above 2**53 are text: most readers of JSON would round them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from zbroker.cli.show import extra_row
from zbroker.clock import format_time
from zbroker.errors import StorageError
from zbroker.exchanges import exchange_rows
from zbroker.ids import format_bookmark
from zbroker.journal import snapshot
from zbroker.limits import MIB, STORED_MAX_BYTES
from zbroker.log import format as f
from zbroker.log import point_records, queue_records, records
from zbroker.wire import bodies
from zbroker.wire.bodies import text_or_base64

READ_BYTES: Final = 1 * MIB

#: what each kind of record is called, and how its body is decoded
KINDS: Final[dict[int, tuple[str, msgspec.msgpack.Decoder[Any] | None]]] = {
    f.KIND_PUBLISH: ("publish", None),
    f.KIND_PUBLISHER: ("publisher", records.PUBLISHER),
    f.KIND_STATE: ("state", None),
    f.KIND_POINT: ("point", records.POINT),
    f.KIND_PURGE: ("purge", records.PURGE),
    f.KIND_NOOP: ("noop", None),
    f.KIND_TIE: ("tie", None),
    f.KIND_QUEUE: ("queue", records.QUEUE),
    f.KIND_WIRING: ("wiring", records.WIRING),
    f.KIND_STAGED: ("staged", None),
    f.KIND_ABORT: ("abort", records.ABORT),
    f.KIND_ORIGIN: ("origin", records.ORIGIN),
    f.KIND_CLOSED: ("closed", records.CLOSED),
    f.KIND_FORGOTTEN: ("forgotten", records.FORGOTTEN),
    f.KIND_DEFINITION: ("definition", queue_records.DEFINITION),
    f.KIND_OUTCOMES: ("outcomes", queue_records.OUTCOMES),
    f.KIND_OWNERSHIP: ("ownership", queue_records.OUTCOMES),
    f.KIND_EXCHANGE: ("exchange", exchange_rows.RECORD),
    f.KIND_TRANSACTION: ("transaction", records.TRANSACTION),
    f.KIND_BRANCH: ("branch", records.BRANCH),
    f.KIND_SHARED_POINT: ("shared_point", point_records.SHARED_POINT),
}
FACTS: Final[dict[type[records.Fact], str]] = {
    records.MessagesGone: "gone",
    records.Failed: "failed",
    records.Horizon: "horizon",
    records.BarrierDelivered: "barrier_delivered",
    records.Returned: "returned",
    records.Noted: "noted",
    records.GoneEarly: "gone_early",
    records.StandIn: "stand_in",
    records.NotedEarly: "noted_early",
    records.Locked: "locked",
}
QUEUE_FACTS: Final[dict[type[queue_records.QueueFact], str]] = {
    queue_records.OriginsGone: "gone",
    queue_records.OriginsFailed: "failed",
    queue_records.Moved: "moved",
    queue_records.Carried: "carried",
    queue_records.OriginsNoted: "noted",
    queue_records.Purged: "purged",
    queue_records.OriginsLocked: "locked",
}
FLAGS: Final = {
    f.FLAG_ZSTD: "zstd", f.FLAG_LATE: "late", f.FLAG_SHOWS: "shows", f.FLAG_UNIT: "unit",
}  # fmt: skip


class MessageRow(NamedTuple):
    """One message of a batch."""

    position: int
    topic: str
    publisher: int
    sequence: int
    time_ns: int
    data: bytes
    key: bytes | None = None
    headers: bodies.Headers | None = None
    expires_ns: int = 0  # 0: never


def unpack(batch: f.Batch, content: Callable[[bytes], bool] | None = None) -> list[MessageRow]:
    """The messages of a batch that count, or those of them whose payload has this `content`.

    Raises: ClientError if the body is not what it says.
    """
    codec = bodies.CODEC_ZSTD if batch.flags & f.FLAG_ZSTD else None
    payloads = bodies.unpack(batch.body, codec, batch.count, STORED_MAX_BYTES)
    columns, topics, skip = batch.columns, batch.topics, batch.skip
    index = bodies.indexes(columns.index) if columns and columns.index else None
    times = bodies.times(columns.time) if columns and columns.time else None
    extras = _extras(batch)
    wanted: Iterable[int] = range(skip, skip + batch.taken)
    if content is not None:
        wanted = [i for i in wanted if content(payloads[i])]
    return [
        MessageRow(
            batch.position + i - skip,
            topics[index[i]] if index else topics[0],
            batch.publisher,
            batch.sequence + i - skip,
            times[i] if times else batch.log_time,
            payloads[i],
            *(extras[i] if extras is not None else ()),
        )
        for i in wanted
    ]


def _extras(batch: f.Batch) -> list[tuple[bytes | None, bodies.Headers | None, int]] | None:
    """Key, headers and expiry of each message of the body; None if none has any."""
    columns, count = batch.columns, batch.count
    if columns is None or columns.keys is columns.headers is columns.expiry is None:
        return None
    keys = bodies.keys(columns.keys, count) if columns.keys else repeat(None, count)
    headers = bodies.headers(columns.headers, count) if columns.headers else repeat(None, count)
    expiry = bodies.expiry(columns.expiry, count) if columns.expiry else repeat(0, count)
    return list(zip(keys, headers, expiry, strict=True))


def message_row(message: MessageRow) -> dict[str, Any]:
    """A message with stable keys."""
    return {
        "position": message.position,
        "topic": message.topic,
        "bookmark": format_bookmark(message.publisher, message.sequence),
        "time": format_time(message.time_ns),
        **text_or_base64(message.data),
        **extra_row(message.key, message.headers),
        **({"expires": format_time(message.expires_ns)} if message.expires_ns else {}),
    }


def control_row(batch: f.Batch) -> dict[str, Any]:
    """A control record; what its body says is decoded, if that can be."""
    row: dict[str, Any] = {
        "position": batch.position,
        "kind": KINDS.get(batch.kind, (str(batch.kind), None))[0],
        "time": format_time(batch.log_time),
    }
    if batch.publisher:
        row["publisher"] = str(batch.publisher)
    content: dict[str, Any] | None = None
    with suppress(ValueError, StorageError):  # msgspec's are, too; then the bytes are shown
        content = _content(batch)
    return row | (text_or_base64(bytes(batch.body)) if content is None else content)


def _content(batch: f.Batch) -> dict[str, Any] | None:
    """What the body says; None for a kind that has none, or an unknown one."""
    _, decoder = KINDS.get(batch.kind, ("", None))
    if decoder is not None:
        found = msgspec.structs.asdict(decoder.decode(batch.body))
        if batch.kind == f.KIND_QUEUE:
            found["facts"] = [_fact(fact) for fact in found["facts"]]
            found["by"] = f"{found['by']:016x}"
        elif batch.kind == f.KIND_EXCHANGE:
            said = exchange_rows.rows_of(batch.body)
            found |= {"rows": msgspec.to_builtins(said), "by": f"{found['by']:016x}"}
        elif batch.kind in (f.KIND_TRANSACTION, f.KIND_BRANCH, f.KIND_SHARED_POINT):
            found["by"] = f"{found['by']:016x}"
        elif batch.kind in f.OF_QUEUES:
            found |= _of_replicated(decoder.decode(batch.body))
        return found
    part = snapshot.decode(batch.body) if batch.kind == f.KIND_STATE else None
    if part is None:
        return None
    rows = {name: len(msgspec.msgpack.decode(rows)) for name, rows in part.folds.items()}
    return {"through": part.through, "part": part.part, "last": part.last, "folds": rows}


def _of_replicated(
    record: queue_records.ReplicatedDefinition | queue_records.OutcomesRecord,
) -> dict[str, Any]:
    """The fields that are shown in another way than they are packed. Raises: ValueError."""
    found: dict[str, Any] = {
        "by": f"{record.by:016x}", "life": _origin(*record.life[1:], record.life.created_ns)
    }  # fmt: skip
    if isinstance(record, queue_records.OutcomesRecord):
        found["facts"] = [_queue_fact(fact) for fact in queue_records.facts_of(record)]
    else:
        found["version"] = _origin(*record.version[1:], record.version.number)
        found["begins"] = [_origin(*entry) for entry in record.begins]
    return found


def _origin(instance: int, generation: int, position: int) -> str:
    return f"{instance:016x}.{generation}.{position}"


def _queue_fact(fact: queue_records.AnyQueueFact) -> dict[str, Any]:
    """One fact; its messages by origin, as runs [first, end). Raises: ValueError."""
    content = {"fact": QUEUE_FACTS[type(fact)], **msgspec.structs.asdict(fact)}
    content["where"] = {
        f"{one.instance:016x}.{one.generation}": [
            list(run) for run in records.runs_of(one.positions)
        ]
        for one in fact.where
    }
    if "to" in content:
        content["to"] = f"{content['to']:016x}"
    if isinstance(fact, queue_records.Purged):
        content["covered"] = [_origin(*entry) for entry in fact.covered]
    return content


def _fact(fact: records.AnyFact) -> dict[str, Any]:
    """One fact; positions as runs [first, end). Raises: ValueError."""
    content = {"fact": FACTS[type(fact)], **msgspec.structs.asdict(fact)}
    if (where := content.pop("where", None)) is not None:
        found = records.unpack_positions(where)
        content["positions"] = [list(run) for run in records.runs_of(found)]
    return content


def header_row(batch: f.Batch, serial: int) -> dict[str, Any]:
    """A record batch without its messages, and its position."""
    plain = ("session", "sequence", "prev", "count", "skip", "cut", "topics")
    return {
        "position": batch.position,
        "end": batch.end_position,
        "kind": KINDS.get(batch.kind, (str(batch.kind), None))[0],
        "time": format_time(batch.log_time),
        "publisher": str(batch.publisher),
        **{name: getattr(batch, name) for name in plain},
        "flags": [name for flag, name in FLAGS.items() if batch.flags & flag],
        "origin": [f"{batch.origin_instance:016x}", batch.origin_generation, batch.origin_position],
        "serial": serial,
        "offset": batch.offset,
        "header_bytes": batch.header_length,
        "body_bytes": batch.body_length,
    }
