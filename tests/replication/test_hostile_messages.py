"""Each field of each message of a link, missing or wrong: no process dies of it, and nothing is
believed beyond the right of who says it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import msgpack
from msgspec.structs import replace

from tests.replication.build import HERE, THERE, THIRD, statement
from tests.replication.test_core import SOURCE, Process
from tests.replication.test_sources import KEYS, Secured
from zbroker.engine.effects import JOURNAL, Answer, Say
from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.log.reader import Cursor
from zbroker.replication.core import DestinationBroke, FromDestination
from zbroker.replication.effects import StartFound
from zbroker.replication.sources import BadFrame, FromSource
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.internal import Record
from zbroker.wire.replicas import PeerHolds

WRONG: list[Any] = [
    None, "x", "", b"x", 1.5, True, [], {}, [[]], [0], -1, 0, 1, 1 << 16, (1 << 32) - 1, 1 << 32,
    1 << 62, U63_MAX, 1 << 63, (1 << 64) - 1, "x" * 2_000, "\0", "link_hello",
]  # fmt: skip
HELD = {HERE: 3, THERE: 7, THIRD: 9}
RECORD = Record(1, *THERE, 8, 7, 1, 77, 1, 8, 7, 1, topics=["t"])
NAMED = [w.NamedMessages(*THERE, [7, 1]), w.NamedMessages(*THIRD, [9, 2])]
WANT = w.Want(1, "work", HERE.instance, "here", THERE.instance, 1, 1, 10, 3, NAMED, 2)
WANTED = w.WantSession(1, "alice", "billing", 7, "me")
LATER = [w.LaterGeneration(THIRD.instance, 9)]
TO_DESTINATION: list[w.LinkMessage] = [
    w.LinkHello(w.PROTOCOL, 1, 2, "there", "g", statement(2, HELD, [THIRD.instance])),
    w.SendUnits(1, 1, [RECORD]),
    w.LinkBeat(1, replace(statement(2, HELD, [THIRD.instance]), later=LATER), 1, 0),
    w.NoState(1),
    w.StatePart(1, 0, True),
    w.SkipRange(1, *THIRD, 10, 12),
    WANT,
    WANTED,
]
TO_SOURCE: list[w.LinkMessage] = [
    w.LinkWelcome(1, 1, "there", "g", statement(2, HELD, [THIRD.instance]), 1 << 20),
    w.LinkRefused(1, "not_entitled", "no"),
    w.LinkReceipt(1, 0, 1, [w.LinkItem(1, "fork", "two")]),
    w.LinkBeat(1, replace(statement(2, HELD, [THIRD.instance]), later=LATER), 1, 0),
    w.LinkEnded(1, "over"),
    w.AskState(1),
    w.StateReceipt(1, 1, True),
    WANT,
    WANTED,
]


def variants(message: w.LinkMessage) -> Iterator[bytes]:
    """Its frame with each field, at any depth, missing or wrong."""
    whole = msgspec.to_builtins(message, enc_hook=None, builtin_types=(bytes,))
    for path in _paths(whole):
        *way, last = path
        without = copy.deepcopy(whole)
        del _at(without, way)[last]
        yield msgpack.encode(without)
        for value in WRONG:
            changed = copy.deepcopy(whole)
            _at(changed, way)[last] = value
            yield msgpack.encode(changed)
        doubled = copy.deepcopy(whole)
        if isinstance(inside := _at(doubled, path), list):
            inside.extend(inside * 3)
            yield msgpack.encode(doubled)
    frame = msgpack.encode(whole)
    yield from (frame[:size] for size in range(len(frame)))


def _paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = value if isinstance(value, dict) else range(len(value)) if _is_list(value) else ()
    for key in keys:
        yield (*above, key)
        yield from _paths(value[key], (*above, key))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _at(value: Any, path: Any) -> Any:
    for key in path:
        value = value[key]
    return value


def test_every_message_of_a_link_is_in_the_tables() -> None:
    assert {type(one) for one in TO_DESTINATION} == set(get_args(w.ToDestination))
    assert {type(one) for one in TO_SOURCE} == set(get_args(w.ToSource))


def _from_source(frame: bytes, key: str) -> FromSource | BadFrame:
    try:
        return FromSource(
            SOURCE, codec.decode(codec.TO_DESTINATION, frame, 1 << 20), [b"body"], key
        )
    except ClientError as error:
        return BadFrame(SOURCE, error)


@pytest.mark.parametrize("message", TO_DESTINATION, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", ["there", "other"])
def test_a_source_can_say_nothing_that_ends_the_process_or_exceeds_its_right(
    message: w.LinkMessage, name: str
) -> None:
    """`there` is a destination, too, and may say how much of this log it holds; `other` may not."""
    key = KEYS[0] if name == "there" else KEYS[1]
    tried = 0
    for frame in variants(message):
        process = Secured()
        process.hello(key, name=name)
        process.begun()
        own = process.core.own.position(HERE)
        effects = process.hears(_from_source(frame, key))
        effects += process.tick(1_000)
        tried += 1
        for effect in effects:
            if type(effect) is Say:
                assert effect.link == JOURNAL
                assert name == "there" or not isinstance(effect.message, PeerHolds), frame
                said = codec.to_journal(codec.encode(effect.message))
                assert not isinstance(said, m.OpenLink) or 0 < said.peer < 1 << 64, frame
            elif isinstance(effect, Answer):
                codec.decode(codec.TO_SOURCE, codec.encode(effect.message), 1 << 20)
        assert process.core.own.position(HERE) == own, "only the own journal says that"
        assert process.hello(key, name=name, session=U63_MAX), "it may begin again"
    assert tried > 50


@pytest.mark.parametrize("message", TO_SOURCE, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("state", ["greeting", "sending"])
def test_a_destination_can_say_nothing_that_ends_the_process_or_lets_go_what_it_lacks(
    message: w.LinkMessage, state: str
) -> None:
    for frame in variants(message):
        process = Process("there")
        process.welcomed()
        process.tick()
        link = process.core.outgoing["there"]
        link.session = 1  # as in the frames
        if state == "sending":
            welcome = w.LinkWelcome(1, 1, "there", "g", statement(1, {}), 1 << 20)
            process.hears(FromDestination("there", welcome))
            process.hears(StartFound("there", 1, Cursor(1, 1, 0), {}))
        mark = link.mark
        try:
            said = codec.decode(codec.TO_SOURCE, frame, 1 << 20)
            process.hears(FromDestination("there", said))
        except ClientError as error:
            process.hears(DestinationBroke("there", error.reason))
        process.tick(1_000)
        # nothing of this log was read: what a destination claims lets nothing of it go
        assert link.mark == mark
        assert process.core.own.position(HERE) == 0, "only the own journal says that"
