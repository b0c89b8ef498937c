"""Packing: what a batch says must be exactly what it holds."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from zbroker.checksums import crc32c
from zbroker.client.publisher import packer
from zbroker.limits import HEADER_MAX_BYTES, KIB
from zbroker.wire import bodies, codec
from zbroker.wire.messages import Publish


class Item(msgspec.Struct):
    topic: str
    value: bytes
    time: int | None = None
    extra: packer.Extra | None = None


def topics_of(batch):
    if batch.topic is not None:
        return [batch.topic] * batch.count
    return [batch.topics[i] for i in bodies.indexes(batch.columns.index)]


def times_of(batch):
    if batch.columns is None or batch.columns.time is None:
        return [None] * batch.count
    return list(bodies.times(batch.columns.time))


@settings(max_examples=200, deadline=None)
@given(
    items=st.lists(
        st.builds(
            Item,
            topic=st.sampled_from(["a", "b", "c"]),
            value=st.binary(max_size=40),
            time=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
        ),
        min_size=1,
        max_size=30,
    ),
    limit=st.integers(1, 200),
)
def test_batches_hold_every_message_once_in_order(items, limit):
    packed = [packer.pack(run) for run in packer.split(packer.rows(items), limit)]
    out = []
    for batch in packed:
        data = bodies.unpack(batch.body, None, batch.count, 10_000)
        out += list(zip(topics_of(batch), data, times_of(batch), strict=True))
        assert batch.crc == crc32c(batch.body)
        assert batch.count == 1 or len(batch.body) <= limit
    assert out == [(item.topic, item.value, item.time) for item in items]


def test_one_topic_needs_no_column():
    batch = packer.pack(packer.rows([Item("a", b"1"), Item("a", b"2")]))
    assert (batch.topic, batch.topics, batch.columns) == ("a", None, None)


def test_alternating_topics_share_one_batch():
    items = [Item(f"t{i % 7}", b"x") for i in range(2_500)]
    (run,) = packer.split(packer.rows(items))
    batch = packer.pack(run)
    assert batch.topics == [f"t{i}" for i in range(7)]
    assert batch.columns.index[:4] == b"\0\0\1\0"


def test_a_message_over_the_limit_is_alone():
    items = [Item("a", b"1"), Item("a", b"x" * 600 * KIB), Item("a", b"2")]
    assert [len(run.items) for run in packer.split(packer.rows(items))] == [1, 1, 1]


def test_a_header_with_the_longest_topics_fits():
    items = [Item(f"{i:05d}" + "\N{SNOWMAN}" * 80, b"", 1) for i in range(2_500)]
    runs = list(packer.split(packer.rows(items)))
    assert sum(len(run.items) for run in runs) == 2_500
    for run in runs:
        batch = packer.pack(run)
        header = codec.encode(
            Publish(1, topics=batch.topics, count=batch.count, columns=batch.columns)
        )
        assert len(header) < HEADER_MAX_BYTES


@settings(max_examples=100, deadline=None)
@given(
    items=st.lists(
        st.builds(
            Item,
            topic=st.sampled_from(["a", "b" * 255]),
            value=st.binary(max_size=5),
            time=st.just(1),
            extra=st.none()
            | st.builds(
                packer.Extra,
                st.none() | st.binary(max_size=9_000),
                st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=4_000)),
                st.none() | st.integers(1, 1 << 60),
            ),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_what_a_batch_has_beside_its_body_fits_a_header(items):
    out = []
    for run in packer.split(packer.rows(items)):
        batch = packer.pack(run)
        columns = batch.columns
        header = Publish(
            1, batch.topic, topics=batch.topics, count=batch.count, columns=columns, cid="c" * 64
        )
        assert len(codec.encode(header)) < HEADER_MAX_BYTES
        bodies.check_columns(columns, batch.count, len(batch.topics or [""]))
        nothing = [None] * batch.count
        keys = bodies.keys(columns.keys, batch.count) if columns.keys else nothing
        headers = bodies.headers(columns.headers, batch.count) if columns.headers else nothing
        expiry = bodies.expiry(columns.expiry, batch.count) if columns.expiry else nothing
        out += zip(keys, headers, [ns or None for ns in expiry], strict=True)
    given = [item.extra or packer.Extra() for item in items]
    assert out == [(one.key, one.headers, one.expires_ns) for one in given]


def test_extras_that_say_nothing_make_no_columns():
    items = [Item("a", b"1", extra=packer.Extra()), Item("a", b"2")]
    (run,) = packer.split(packer.rows(items))
    assert packer.pack(run).columns is None


def test_keys_and_headers_count_as_bytes_of_their_message():
    extra = packer.Extra(b"k" * 100, {"a": 1})
    items = [Item("a", b"12"), Item("a", b"12", extra=extra)]
    assert packer.rows(items).sizes == [2, 2 + packer.encoded(extra).size]


def test_times_of_many_topics_leave_space_for_their_names():
    items = [Item(f"{i % 1_000:030d}", b"", 1) for i in range(packer.BATCH_MESSAGES)]
    for run in packer.split(packer.rows(items)):
        batch = packer.pack(run)
        header = Publish(1, topics=batch.topics, count=batch.count, columns=batch.columns)
        assert len(codec.encode(header)) < HEADER_MAX_BYTES


def test_messages_without_a_time_get_none():
    items = [Item("a", b"1", 5), Item("a", b"2"), Item("a", b"3", 7)]
    assert [times_of(packer.pack(run)) for run in packer.split(packer.rows(items))] == [
        [5],
        [None],
        [7],
    ]
