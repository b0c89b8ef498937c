"""Keys, headers and expiry on their way from publisher to subscriber, without a socket.

packing -> ingest (packed, or one by one) -> the bytes of the journal -> delivery -> Message
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.rig import Rig, item, made
from zbroker.blocks.frame_builder import Block, FrameBuilder, Projection
from zbroker.client.message import Message, decode
from zbroker.client.publisher import packer
from zbroker.client.publisher.packer import Extra
from zbroker.config import RecordConfig
from zbroker.ids import Origin
from zbroker.ingest.contract import PublishLimits
from zbroker.limits import KIB, U63_MAX
from zbroker.log import format as f
from zbroker.log.reader import Cursor
from zbroker.recording import Recording
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RID = b"\0abcd"
HERE = Origin(9, 1)
OFFSET, SEED = 8256, 7


class Given(msgspec.Struct):
    """A message as its publisher gives it."""

    topic: str
    value: bytes
    time: None = None
    extra: Extra | None = None

    @property
    def seen(self) -> Seen:
        extra = self.extra or Extra()
        return Seen(self.topic, self.value, extra.key, dict(extra.headers or {}), extra.expires_ns)


class Seen(NamedTuple):
    """A message as its subscriber sees it."""

    topic: str
    data: bytes
    key: bytes | None
    headers: dict[str, object]
    expires_ns: int | None


SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=5)
    | st.binary(max_size=5) | st.floats(allow_nan=False)
)  # fmt: skip
EXTRAS = st.builds(
    Extra,
    key=st.none() | st.binary(max_size=20) | st.just(b"x" * 15 * KIB),
    headers=st.none() | st.dictionaries(st.text(max_size=5), SCALARS, max_size=4),
    expires_ns=st.none() | st.integers(1, U63_MAX),
)
GIVEN = st.lists(
    st.builds(
        Given,
        topic=st.sampled_from(["a", "b", "live"]),
        value=st.binary(max_size=10),
        extra=st.none() | EXTRAS,
    ),
    min_size=1,
    max_size=20,
)


def packed(given: list[Given]) -> list[tuple[m.Publish, bytes]]:
    """As the client library publishes."""
    found, seq = [], 1
    for run in packer.split(packer.rows(given)):
        batch = packer.pack(run)
        publish = m.Publish(
            seq, batch.topic, topics=batch.topics, count=batch.count, columns=batch.columns
        )
        found.append((publish, batch.body))
        seq += batch.count
    return found


def singly(given: list[Given]) -> list[tuple[m.Publish, bytes]]:
    """As a client written by hand may publish."""
    found = []
    for seq, one in enumerate(given, 1):
        extra = one.extra or Extra()
        headers = None if extra.headers is None else dict(extra.headers)
        publish = m.Publish(
            seq, one.topic, key=extra.key, headers=headers, expires_ns=extra.expires_ns
        )
        found.append((publish, one.value))
    return found


def ingested(
    published: list[tuple[m.Publish, bytes]], recording: Recording | None
) -> list[f.Batch]:
    """What ingest forwards to the journal."""
    rig = Rig(made(PublishLimits(1 << 20, 1 << 20, 1 << 25, 3), recording))
    rig.turn(item(RID, m.Logon("p", "x"), None))
    reported = rig.turn(*(item(RID, publish, body) for publish, body in published))
    assert not [one for one in reported if isinstance(one, m.Error)]
    batches, position = [], 1
    for _, entry, body in rig.appended:
        batches.append(batch := stored(entry, body, position))
        position = batch.end_position
    return batches


def stored(entry: i.Entry, body: bytes, position: int) -> f.Batch:
    """The batch as it comes back from the journal's bytes."""
    batch = f.Batch(
        f.KIND_PUBLISH, position, entry.publisher, entry.session, entry.seq, 0, entry.count, 0,
        entry.topics, body, entry.crc, len(body), columns=entry.columns,
    )  # fmt: skip
    found = f.decode_batch_header(f.encode_batch_header(batch, OFFSET, SEED), 0, OFFSET, SEED)
    assert isinstance(found, f.Batch)
    found.body = body
    return found


def delivered(batch: f.Batch, picks: list[int]) -> list[Message]:
    """What a subscriber gets who wants messages `picks` of the body."""
    block = Block(Cursor(1, 0, batch.position), [batch], Cursor(1, 1, batch.end_position))
    found = []
    for part in FrameBuilder(HERE).picked(
        block, 0, picks, Projection(lambda _: "binary"), sees_all=True
    ):
        msg = codec.decode(codec.ANSWERS, part.before + b"\xa1s" + part.after)
        assert isinstance(msg, m.Msg)
        found += decode(msg, part.body, HERE, 1 << 20)
    return found


def seen(message: Message) -> Seen:
    return Seen(message.topic, message.data, message.key, message.headers, message.expires_ns)


@settings(max_examples=150, deadline=None)
@given(given=GIVEN, one_by_one=st.booleans(), everything=st.booleans(), data=st.data())
def test_a_message_arrives_with_what_it_was_given(given, one_by_one, everything, data):
    recording = None if everything else Recording([RecordConfig("a"), RecordConfig("b")])
    published = singly(given) if one_by_one else packed(given)
    expected = [one.seen for one in given if everything or one.topic != "live"]
    for batch in ingested(published, recording):
        assert f.encode_batch_header(batch, OFFSET, SEED)
        mine, expected = expected[: batch.count], expected[batch.count :]
        assert [seen(message) for message in delivered(batch, list(range(batch.count)))] == mine
        picks = sorted(data.draw(st.sets(st.integers(0, batch.count - 1), min_size=1)))
        assert [seen(message) for message in delivered(batch, picks)] == [mine[n] for n in picks]
    assert expected == []
