"""Which messages of a batch are wanted (zbroker/delivery/selection.py): by their headers.

By topic, content and span: tests/delivery/test_options.py and test_rights.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.delivery.test_rights import A, grant, rules
from tests.delivery.world import World, ready
from zbroker.blocks.frame_builder import Block, counting
from zbroker.checksums import crc32c
from zbroker.config import RecordConfig
from zbroker.delivery.selection import StartSelection
from zbroker.errors import ClientError
from zbroker.filters import BUILT_IN, Vocabulary, compile_filter, own
from zbroker.ids import EPOCH, NOW
from zbroker.log.reader import Cursor
from zbroker.recording import Recording
from zbroker.topics import matcher
from zbroker.wire import bodies, codec
from zbroker.wire import messages as m
from zbroker.wire.internal import Entry

Headers = dict[str, Any] | None

PAYLOADS = [b'{"n":0}', b'{"n":1}', b"no JSON"]
ROW = st.tuples(
    st.sampled_from(["t", "t", "u"]),
    st.integers(0, 2),
    st.sampled_from([None, {}, {"book": "b1"}, {"book": "b2"}, {"book": b"b1"}, {"desk": "b1"}]),
)


def book(headers: Headers) -> Any:
    return (headers or {}).get("book")


#: filter -> the same of a payload, by its number, and headers
FILTERS: dict[str, Any] = {
    "HEADER('book') = 'b1'": lambda n, headers: book(headers) == "b1",
    "HEADER('book') IS NULL": lambda n, headers: book(headers) is None,
    "NOT HEADER('book') = 'b1'": lambda n, headers: book(headers) == "b2",
    "/n = 1 AND HEADER('book') > 'b1'": lambda n, headers: n == 1 and book(headers) == "b2",
    "/n = 1 OR HEADER('book') = 'b1'": lambda n, headers: n == 1 or book(headers) == "b1",
}


@given(
    batches=st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=4),
    zstd=st.booleans(),
    skip=st.integers(0, 2),
)
def test_what_is_sent_is_what_has_such_headers(
    batches: list[list[tuple[str, int, Headers]]], zstd: bool, skip: int
) -> None:
    world, rows = ready(), []
    for batch in batches:
        left = min(skip, len(batch) - 1)
        topics, numbers, headers = map(list, zip(*batch, strict=True))
        payloads = [PAYLOADS[n] for n in numbers]
        world.publish(*topics, payloads=payloads, headers=headers, zstd=zstd, skip=left)
        rows += batch[left:]
    world.persist()
    for at, text in enumerate(FILTERS):
        world.subscribe("t|u", f"s{at}", regex=True, filter=text, credit=1 << 20)
    for at, says in enumerate(FILTERS.values()):
        pairs = zip(world.published, rows, strict=True)
        assert world.got(f"s{at}") == [seen for seen, (_, n, headers) in pairs if says(n, headers)]


def picked(block: Block, text: str) -> list[int]:
    selection = StartSelection(matcher("t", regex=False), compile_filter(text))
    return list(selection.picks(block, 0, counting(block.batch(0)), lambda _: "json")[0])


def test_headers_are_decoded_once_for_all_who_ask() -> None:
    block = block_of([{"book": "b1"}, {"book": "b2"}])
    assert picked(block, "HEADER('book') = 'b1'") == [0]
    first = block.headers(0).of(0)
    assert picked(block, "HEADER('book') > 'b1'") == [1]
    assert block.headers(0).of(0) is first


def test_headers_are_not_decoded_if_no_one_asks() -> None:
    block = block_of(["not", "headers"])
    assert picked(block, "MESSAGE_SIZE() > 0") == [0, 1]
    with pytest.raises(ClientError, match="headers"):
        picked(block, "HEADER('book') = 'b1'")


def block_of(headers: list[Any]) -> Block:
    world = World()
    batch = world.publish(*["t"] * len(headers), headers=headers)
    return Block(Cursor(1, 0, 1), [batch], Cursor(1, 1, batch.end_position))


def test_rights_may_depend_on_headers() -> None:
    world = World(access=rules(grant("allow", "replay", "t", "HEADER('desk') = 'fx'")))
    world.welcome()
    world.logon_as("ann", A)
    data = [b"first", b"second", b"third"]
    world.publish("t", "t", "t", payloads=data, headers=[{"desk": "fx"}, None, {"desk": "eq"}])
    world.subscribe("t", bookmark=EPOCH, credit=1 << 20)
    world.persist()
    assert [seen.data for seen in world.got()] == [b"first"]


def test_what_is_not_recorded_is_picked_by_headers_too() -> None:
    world = ready(recording=Recording([RecordConfig("recorded")]))
    world.subscribe("u", bookmark=None, filter="HEADER('book') = 'b1'", credit=1 << 20)
    columns = m.Columns(headers=codec.encode([None, {"book": "b1"}]))
    body = bodies.pack([b"x", b"y"])
    entry = Entry(7, 1, 1, 2, None, crc32c(body), None, ["u"], columns=columns)
    world.pass_on([entry], [body])
    assert [seen.data for seen in world.got()] == [b"y"]


# -- functions about who asks -----------------------------------------------------------------

BEN = b"\x00\x00\x00\x00\x02"
OWNED = [b'{"owner": "ann"}', b'{"owner": "ben"}', b'{"owner": "zbroker"}']


def owned(vocabulary: Vocabulary = BUILT_IN) -> World:
    world = World(vocabulary=vocabulary)
    world.welcome()
    world.logon_as("ann", "")
    world.logon_as("ben", "", BEN)
    world.publish("t", "t", "t", payloads=OWNED)
    world.persist()
    return world


def test_two_users_with_one_filter_get_each_their_own_messages() -> None:
    world = owned()
    world.subscribe(filter="/owner = USER()", credit=1 << 20)
    world.subscribe(filter="/owner = USER()", credit=1 << 20, rid=BEN)
    world.pump()
    assert [one.data for one in world.got()] == [OWNED[0]]
    assert [one.data for one in world.got(rid=BEN)] == [OWNED[1]]


def test_a_filter_that_replaces_another_still_knows_who_asks() -> None:
    world = owned()
    world.subscribe(filter="/owner = 'nobody'", credit=1 << 20, bookmark=NOW, rid=BEN)
    world.send(m.Replace("s", filter="/owner = USER()"), BEN)
    world.publish("t", "t", "t", payloads=OWNED)
    world.persist()
    assert [one.data for one in world.got(rid=BEN)] == [OWNED[1]]


def test_the_instance_is_known_by_name() -> None:
    world = owned(own.vocabulary_of("zbroker", "default"))
    world.subscribe(filter="/owner = INSTANCE_NAME()", credit=1 << 20)
    world.pump()
    assert [one.data for one in world.got()] == [OWNED[2]]


def test_messages_are_conflated_by_what_a_function_makes_of_them() -> None:
    world = ready()
    data = [b'{"s": "ab1"}', b'{"s": "AB2"}', b'{"s": "xy"}']
    world.publish("t", "t", "t", payloads=data, times=[1, 2, 3])
    world.persist()
    options = m.Options(conflation_s=1, conflation_key=["UPPER(LEFT(/s, 2))"])
    world.subscribe(options=options, until=NOW, credit=1 << 20)
    world.pump()
    assert [one.data for one in world.got()] == data[1:]
