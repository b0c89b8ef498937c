"""Garbage for every decoder: a typed answer or a typed error, never anything else, never a hang.

What a checksum protects is also tried with the checksum made right again: checksums keep rot away,
not enemies or our own mistakes. ZB_MUTATIONS says how many inputs each decoder gets (default 1,000;
scripts/test-all: 1,000,000). A failure shows the input.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal import build
from tests.torture import queue_cases as qs
from tests.torture import security_cases as s
from tests.torture.mutating import mutated
from zbroker.checksums import crc32c
from zbroker.errors import ClientError, ConfigError, StorageError, ZBrokerError
from zbroker.formats import decoder
from zbroker.ids import publisher_id
from zbroker.journal import conflicts, snapshot
from zbroker.log import format as f
from zbroker.log import packed, summaries
from zbroker.log.headers import decode_headers
from zbroker.log.summaries import SUMMARY_HEAD
from zbroker.replication import snapshot_rows
from zbroker.wire import bodies, codec, replication
from zbroker.wire.internal import Record
from zbroker.wire.messages import Columns
from zbroker.wire.units import NamedRow

MUTATIONS = int(os.environ.get("ZB_MUTATIONS", "1000"))
MANY = 1_000_000
SLOW_S = 0.5  # of processor; what is slow by its input takes seconds
SEED: Final = 77
OFFSET: Final = 8_256


class Case(NamedTuple):
    """One decoder: inputs that are good, how to read one, how to make its checksums right."""

    name: str
    good: list[bytes]
    read: Callable[[bytes], object]
    mend: Callable[[bytes], bytes] = bytes
    raises: tuple[type[Exception], ...] = ()


def crc_at_end(size: int, crc_at: int, *, head: bytes = b"") -> Callable[[bytes], bytes]:
    """Mends a structure of `size` bytes whose CRC is at `crc_at` and covers all before it."""

    def mend(data: bytes) -> bytes:
        if len(data) < size:
            return data
        crc = crc32c(head + data[:crc_at])
        return data[:crc_at] + struct.pack("<I", crc) + data[crc_at + 4 :]

    return mend


# -- the journal ------------------------------------------------------------------------------


def batch(topics: int, columns: Columns | None, extra: bool) -> f.Batch:
    made = build.publish(7, b"x" * 30, max(topics, 1))
    made.topics = [f"topic.{n}" for n in range(topics)]
    made.columns = columns
    made.extra = [(9, b"unknown")] if extra else []
    return made


BATCHES: Final = [
    f.encode_batch_header(made, OFFSET, SEED)
    for made in (
        batch(1, None, False),
        batch(0, None, False),
        batch(3, Columns(bytes(6), bytes(24)), True),
        batch(40, Columns(bytes(80)), False),
        batch(1, Columns(keys=b"\x91\xc4\x01k", headers=b"\x91\x80", expiry=bytes(8)), True),
    )
]


def mend_batch(data: bytes) -> bytes:
    if len(data) < f.BATCH.size:
        return data
    (length,) = struct.unpack_from("<I", data, 8)
    covered = OFFSET.to_bytes(8, "little") + data[:108] + data[f.BATCH.size : length]
    crc = f.crc32c(covered, SEED)
    return data[:108] + struct.pack("<I", crc) + data[112:]


def read_batch(data: bytes) -> object:
    return f.decode_batch_header(data, 0, OFFSET, SEED)


GROUP: Final = f.encode_group_header(
    f.GroupHeader(8_192, 64 + 112, 1, 1, 1, 5, 1, 0), [1], SEED
)[0]  # fmt: skip


def read_group(data: bytes) -> object:
    header = f.decode_group_header(data, 0, 8_192)
    if isinstance(header, f.GroupHeader):
        f.check_group(data, 0, header, [1], SEED)
    return header


HEADER: Final = f.SegmentHeader(0xABCD, 1, 1, 1, 0, 0, 77, 1_700_000_000, 24_576)
NOTE: Final = f.encode_note(f.AckedNote(3, 0xABCD, 1, 99, 2, 1))


def file_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, size: data[offset : offset + size]


def packed_file(segment: bytes) -> bytes:
    frames = [packed.compressor().compress(segment[at : at + n]) for at, n in packed.cuts(24_576)]
    lengths = [len(frame) for frame in frames]
    head = packed.encode_head(packed.PackedHeader(0xABCD, 1, len(segment)), lengths)
    return head + b"".join(frames) + packed.encode_table(len(head), len(segment), lengths)


SEGMENT: Final = random.Random(1).randbytes(10_000).ljust(24_576, b"\0")
PACKED: Final = packed_file(SEGMENT)


def read_packed(data: bytes) -> object:
    """Whatever is damaged, no byte that it gives may differ from the segment, unless it is zero."""
    file = packed.Packed("it", file_of(data), len(data), packed.Frames())
    if file.size > 1 << 30:
        return None  # it says so of itself; who reads takes blocks of a bounded size
    for offset in (0, 4_096, 9_000, 20_000):
        found = file.read(offset, 1_000)
        assert len(found) <= 1_000
    return file.consistent()


def read_table(data: bytes) -> object:
    return packed.read_seek_table(file_of(data), len(data))


HEAD: Final = packed.encode_head(packed.PackedHeader(0xABCD, 1, 24_576), [300, 200])


def mend_head(data: bytes) -> bytes:
    if len(data) < 20:
        return data
    content = data[8:-4]
    head = struct.pack("<II", 0x184D2A50, len(content) + 4) if data[0] & 1 else data[:8]
    return head + content + crc32c(content).to_bytes(4, "little")


def read_head(data: bytes) -> object:
    return packed.read_head("it", file_of(data), len(data))


def summary_file() -> bytes:
    fields = dict.fromkeys(summaries.Summary.__struct_fields__, 0)
    made = msgspec.convert(
        {**fields, **_summary_fields(), "instance": 0xABCD, "serial": 1, "salt": 77},
        summaries.Summary,
        strict=False,
    )
    return summaries.encode(made)


def _summary_fields() -> dict[str, object]:
    empty: dict[object, object] = {list: [], bool: False, str: ""}
    types = {field.name: field.type for field in msgspec.structs.fields(summaries.Summary)}
    return {name: value for name, kind in types.items() for value in _empty(kind, empty)}


def _empty(kind: object, empty: dict[object, object]) -> list[object]:
    origin = getattr(kind, "__origin__", kind)
    return [empty[origin]] if origin in empty else []


def mend_body(head: struct.Struct) -> Callable[[bytes], bytes]:
    """For `head` = magic, version, length, CRC of the body after it."""

    def mend(data: bytes) -> bytes:
        if len(data) < head.size:
            return data
        magic, version, _, _ = head.unpack_from(data)
        body = data[head.size :]
        return head.pack(magic, version, len(body), crc32c(body)) + body

    return mend


def state() -> bytes:
    """A snapshot of some publishers, one of them from another instance, and a definition."""
    sessions = snapshot.Sessions()
    for number, name in enumerate(("ann", "ben", "a" * 40)):
        made = build.publish(7 + number, b"x" * 10)
        made.publisher, made.origin_instance = publisher_id(name), number
        sessions.fold_name(made.publisher, name, "")
        sessions.fold(made)
    sessions.named.wiring.learn(NamedRow("work", 5, qs.WIRINGS[0]))
    return snapshot.Cutter(snapshot.folds(sessions), 77).cut()


STATE: Final = state()


def read_state(data: bytes) -> object:
    found = snapshot.decode(data)
    if found is not None:
        snapshot.SnapshotParts().add(found)
        snapshot.learn(found, snapshot.folds(snapshot.Sessions()))
    return found


CONFLICT: Final = conflicts.HEAD.pack(conflicts.MAGIC, conflicts.VERSION, 2, crc32c(b"\x80\x00"))


# -- the wire ---------------------------------------------------------------------------------

COMMANDS: Final = [
    {"cmd": "logon", "cid": "1", "client": "ann", "instance": "ab", "version": 1,
     "credentials": {"user": "ann", "password": "x"}},
    {"cmd": "publish", "topic": "t", "seq": 7, "prev": 6, "count": 2, "topics": ["a", "b"],
     "columns": {"index": bytes(4), "time": bytes(16)}, "crc": 99},
    {"cmd": "flush", "cid": "2"},
    {"cmd": "subscribe", "cid": "3", "topic": "t.*", "regex": True, "since": "0", "credit": 1000},
    {"cmd": "flow", "sub": 1, "credit": 5},
    {"cmd": "ranges", "cid": "4"},
]  # fmt: skip
STATED: Final = replication.Statement(
    7, 1, 2, 3, [replication.OriginPosition(7, 1, 40), replication.OriginPosition(8, 1, 9, 5, 2)],
    [8],
)  # fmt: skip
LINKS: Final = [
    msgspec.msgpack.encode(message) for message in (
        replication.LinkHello(1, 1, 5, "a", "g", STATED),
        replication.LinkWelcome(5, 1, "b", "g", STATED, 1 << 20),
        replication.SendUnits(5, 1, [Record(1, 7, 1, 41, 40, 0, 77, 1, 5, 4, topics=["t"])]),
        replication.LinkReceipt(5, 0, 1, [replication.LinkItem(1, "disk_full", "no space")]),
        replication.LinkBeat(5, STATED, 3, 1),
        replication.LinkEnded(5, "the journal is another one"),
        replication.LinkRefused(5, "same_instance", "one is a copy"),
    )
]  # fmt: skip
FRAMES: Final = [msgspec.msgpack.encode(command) for command in COMMANDS]
PLAIN: Final = bodies.pack([b"a", b"bb" * 40, b"", b"x" * 300])
UNIFORM: Final = bodies.pack([b"12345678"] * 20)
ZSTD: Final = bodies.zstandard.ZstdCompressor().compress(PLAIN)


def both(name: str | None) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        for count in (4, 20):
            reported = _code(lambda: bodies.check_packed(data, count, name, 1 << 20))  # noqa: B023
            got = _code(lambda: bodies.unpack(data, name, count, 1 << 20))  # noqa: B023
            assert reported == got, f"check_packed says {reported!r}, unpack {got!r}"
        return None

    return read


def _code(act: Callable[[], object]) -> str:
    try:
        act()
    except ClientError as error:
        return error.code
    return ""


def columns(data: bytes) -> object:
    bodies.check_columns(Columns(data[:40], data[40:]), 20, 3)
    return None


KEYS: Final = msgspec.msgpack.encode([b"key", None])
HEADERS: Final = msgspec.msgpack.encode([None, {"a": 1, "b": b"x", "c": 2.5}])


PAYLOADS: Final = {
    "json": [b'{"a": [1, 2.5, "x", null, true], "b": {"c": "\\u00e4"}}'],
    "msgpack": [msgspec.msgpack.encode({"a": [1, 2.5, "x", None], "b": b"123"})],
    "nvfix": [b"name=value\x01price=10.5\x01"],
    "fix": [b"8=FIX.4.2\x0135=D\x0155=IBM\x0110=123\x01"],
}

Error = (ClientError,)
Unread = (msgspec.DecodeError, UnicodeDecodeError)
CASES: Final = [
    Case("batch header", BATCHES, read_batch, mend_batch),
    Case("group header", [GROUP], read_group),
    Case("segment header", [HEADER.encode()], f.decode_segment_header, crc_at_end(96, 92)),
    Case("note", [NOTE], f.decode_note, crc_at_end(64, 60)),
    Case("packed file", [PACKED], read_packed, raises=(StorageError,)),
    Case("packed head", [HEAD], read_head, mend_head, (StorageError,)),
    Case("seek table", [PACKED[-100:], packed.encode_table(99, 24_576, [9, 9])], read_table),
    Case("summary", [summary_file()], lambda data: summaries.decode(data, HEADER),
         mend_body(SUMMARY_HEAD)),
    Case("state snapshot", [STATE], read_state, raises=(StorageError,)),
    Case("conflict", [CONFLICT + b"\x80\x00"], lambda data: conflicts._decode(data, 0),
         mend_body(conflicts.HEAD)),
    Case("command to ingest", FRAMES, lambda data: codec.decode(codec.INGEST, data), raises=Error),
    Case("command to delivery", FRAMES, lambda data: codec.decode(codec.DELIVERY, data),
         raises=Error),
    Case("cid of a bad command", FRAMES, codec.cid_of),
    Case("packed body", [PLAIN, UNIFORM], both(None)),
    Case("compressed body", [ZSTD], both("zstd")),
    Case("columns", [bytes(40) + bytes(160)], columns, raises=Error),
    Case("key column", [KEYS], lambda data: bodies.check_columns(Columns(keys=data), 2, 1),
         raises=Error),
    Case("header column", [HEADERS],
         lambda data: bodies.check_columns(Columns(headers=data), 2, 1), raises=Error),
    *(
        Case(f"payload of type {name}", good, lambda data, name=name: decoder.decode(name, data),
             raises=(ZBrokerError,))
        for name, good in PAYLOADS.items()
    ),
    Case("command to queues", qs.COMMANDS, lambda data: codec.decode(codec.QUEUES, data),
         raises=Error),
    Case("answer of queues", qs.ANSWERS, lambda data: codec.decode(codec.QUEUES_ANSWERS, data),
         raises=Error),
    Case("question at the desk of queues", qs.QUESTIONS, qs.read_to_endpoint, raises=Error),
    Case("answer from the desk of queues", qs.REPORTED, qs.read_from_endpoint, raises=Error),
    Case("units", qs.COMMITS, lambda data: codec.decode(codec.TO_JOURNAL, data), raises=Error),
    Case("named rows", qs.NAMED, lambda data: codec.decode(codec.FROM_JOURNAL, data),
         raises=Error),
    Case("message of a source", LINKS, lambda data: codec.decode(codec.TO_DESTINATION, data),
         raises=Error),
    Case("message of a destination", LINKS, lambda data: codec.decode(codec.TO_SOURCE, data),
         raises=Error),
    Case("origins in a state snapshot", [STATE], snapshot_rows.first_part),
    Case("positions", qs.POSITIONS, qs.read_positions, raises=(ValueError,)),
    Case("wiring record", qs.WIRINGS, qs.read_wiring, raises=Unread),
    Case("queue record", qs.FACTS, qs.read_facts, raises=(*Unread, ValueError)),
    Case("token", s.TOKENS, s.read_token, s.mend_token, Error),
    Case("access file", [s.ACCESS], s.read_access, raises=(ConfigError,)),
    Case("password hash", [s.HASH], s.read_hash, raises=(ValueError,)),
    Case("key file", [s.KEY_FILE.encode()], s.read_key_file, raises=(ConfigError,)),
    Case("ZAP question", [msgspec.msgpack.encode(s.ZAP)], s.read_zap),
    Case("question at a desk", s.QUESTIONS, s.read_question, raises=Error),
    Case("answer to a client", s.ANSWERS, s.read_answer, raises=Error),
    Case("line of the audit", [s.AUDIT], s.read_audit),
    Case("request to the admin", [b"GET /status?x=1 localhost", b'{"who": "a", "ttl_s": 1}'],
         s.read_request, raises=Error),
]  # fmt: skip


def try_one(case: Case, data: bytes) -> float:
    """How long it took. Raises: AssertionError for what is no typed answer."""
    begun = time.process_time()
    try:
        case.read(data)
    except case.raises:
        pass
    except Exception as error:  # that is the question
        raise AssertionError(f"{case.name}: {error!r} for {data.hex()}") from error
    return time.process_time() - begun


def attack(case: Case, count: int, seed: int) -> None:
    rng = random.Random(f"{case.name} {seed}")
    for number in range(count):
        data = mutated(rng.choice(case.good), rng)
        if number % 2:
            data = case.mend(data)
        if try_one(case, data) > SLOW_S:  # perhaps another process had the processor
            assert min(try_one(case, data) for _ in range(3)) < SLOW_S, f"slow: {data.hex()}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_good_is_read(case: Case) -> None:
    for data in case.good:
        assert case.mend(data) == data, "the mending is wrong"
        try_one(case, data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_garbage_has_a_typed_answer(case: Case) -> None:
    attack(case, MUTATIONS, 1)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_million_inputs_have_a_typed_answer(case: Case) -> None:
    attack(case, MANY, 2)


@given(st.sampled_from(CASES), st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_have_a_typed_answer(case: Case, data: bytes) -> None:
    try_one(case, data)
    try_one(case, case.mend(data))


# -- two readers of the same bytes ------------------------------------------------------------


def one_by_one(data: bytes, position: int) -> list[f.Batch]:
    """What decode_headers should find, by the decoder of single headers."""
    found: list[f.Batch] = []
    at = 0
    while at <= len(data) - f.BATCH.size:
        if data[at : at + 4] != f.BATCH_MAGIC:
            at = f.pad(at + OFFSET, f.GROUP_ALIGN) + f.GROUP_LENGTH - OFFSET
            if data[at : at + 4] != f.BATCH_MAGIC:
                break
        got = f.decode_batch_header(data, at, OFFSET + at, SEED)
        if not isinstance(got, f.Batch) or got.position != position:
            break
        found.append(got)
        position, at = got.end_position, got.end_offset - OFFSET
    return found


def block(rng: random.Random) -> bytes:
    """Some batches that follow on, with or without a group between them."""
    data, position = b"", 7
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.3:
            data += bytes(-(OFFSET + len(data)) % f.GROUP_ALIGN + f.GROUP_LENGTH)
        made = build.publish(position, rng.randbytes(rng.choice((0, 5, 200))), rng.randint(1, 3))
        data += f.encode_batch_header(made, OFFSET + len(data), SEED) + bytes(made.body)
        data += bytes(-len(data) % f.ALIGN)
        position = made.end_position
    return data


def differ(count: int, seed: int) -> int:
    rng, total = random.Random(seed), 0
    for _ in range(count):
        data = block(rng)
        if rng.random() < 0.8:
            data = mutated(data, rng)
        fast = decode_headers(data, OFFSET, OFFSET, SEED, 7, 1 << 62, 1 << 30)
        assert fast == one_by_one(data, 7), data.hex()
        total += len(fast)
    return total


def test_the_fast_walk_finds_what_single_headers_give() -> None:
    assert differ(MUTATIONS, 1) > MUTATIONS // 4


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_the_fast_walk_finds_the_same_in_many_blocks() -> None:
    differ(200_000, 2)


def test_every_decoder_of_the_journal_and_the_wire_is_in_the_list() -> None:
    """A new one must be added here, or be named as one that reads only what this process wrote."""
    covered = {"decode_batch_header", "decode_group_header", "decode_segment_header", "decode_note"}
    inner = {"decode_tail"}
    there = {name for name in dir(f) if name.startswith("decode_")}
    assert there == covered | inner
