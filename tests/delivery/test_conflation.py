"""What a conflated subscription is sent, whatever way its messages come in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from zbroker.delivery.conflation import (
    HELD_MAX_BYTES,
    KEYS_MAX,
    BatchMessages,
    Conflation,
    Held,
    MessagePlace,
    Path,
)
from zbroker.errors import ZBrokerError
from zbroker.limits import MIB
from zbroker.wire.messages import Columns

INTERVAL = 10
BROKEN = object()  # stands for a payload that is not what its type says


@dataclass
class One:
    """A message as these tests see it."""

    time: int
    value: Any = None
    topic: str = "t"
    position: int = 0
    wanted: bool = True
    data: bytes = b""

    @property
    def place(self) -> MessagePlace:
        return MessagePlace(self.position, 7, self.position + 100, (1, 2, self.position + 200))


def numbered(ones: list[One]) -> list[One]:
    for at, one in enumerate(ones):
        one.position = at + 1
        one.data = one.data or b"%d" % at
    return ones


def messages_of(ones: Sequence[One]) -> BatchMessages:
    def value(i: int) -> Any:
        if ones[i].value is BROKEN:
            raise ZBrokerError("bad_payload", "not json")
        return ones[i].value

    return BatchMessages(
        [one.data for one in ones],
        [one.time for one in ones],
        [one.topic for one in ones],
        lambda i: ones[i].place,
        value,
    )


def add(conflation: Conflation, ones: Sequence[One]) -> list[Held]:
    held = conflation.add(messages_of(ones), [i for i, one in enumerate(ones) if one.wanted])
    conflation.check()
    return held


def field(name: str) -> Path:
    return lambda value: value.get(name) if isinstance(value, dict) else None


def sent(held: list[Held]) -> list[tuple[int, bytes]]:
    """Position and content."""
    return [(one.first.position, one.data) for one in held]


# -- one thing at a time ----------------------------------------------------------------------


@pytest.mark.seed("004-76")
@pytest.mark.seed("004-80")
def test_the_newest_message_goes_under_the_identity_of_the_first() -> None:
    ones = numbered([One(10), One(12), One(19)])
    conflation = Conflation(INTERVAL)
    assert add(conflation, ones) == []
    assert conflation.flush() == [Held(ones[0].place, "t", 19, b"2", ones[0].place.position)]


def test_keys_come_in_the_order_of_their_first_messages() -> None:
    conflation = Conflation(INTERVAL)
    add(conflation, numbered([One(1, topic=name) for name in "abcba"]))
    assert sent(conflation.flush()) == [(1, b"4"), (2, b"3"), (3, b"2")]


@pytest.mark.seed("004-79")
def test_an_interval_ends_with_the_first_message_of_another_one() -> None:
    conflation = Conflation(INTERVAL)
    ones = numbered([One(18), One(19), One(20), One(41)])
    assert sent(add(conflation, ones)) == [(1, b"1"), (3, b"2")]
    assert sent(conflation.flush()) == [(4, b"3")]


@pytest.mark.seed("004-79")
@pytest.mark.parametrize(("log_now", "expected"), [(19, []), (20, [(1, b"0")]), (999, [(1, b"0")])])
def test_an_interval_ends_when_log_time_passes_it(
    log_now: int, expected: list[tuple[int, bytes]]
) -> None:
    conflation = Conflation(INTERVAL)
    add(conflation, numbered([One(15)]))
    assert conflation.end_ns == 20
    assert sent(conflation.due(log_now)) == expected


def test_nothing_is_due_before_there_was_a_message() -> None:
    conflation = Conflation(INTERVAL)
    assert conflation.due(1 << 62) == []
    assert conflation.oldest_position is None


def test_times_before_1970_have_intervals_too() -> None:
    conflation = Conflation(INTERVAL)
    ones = numbered([One(-11), One(-10), One(-1), One(0)])
    assert sent(add(conflation, ones)) == [(1, b"0"), (2, b"2")]


def test_log_time_that_goes_back_belongs_to_the_open_interval() -> None:
    conflation = Conflation(INTERVAL)
    assert add(conflation, numbered([One(25), One(3), One(29)])) == []
    assert sent(conflation.flush()) == [(1, b"2")]


def test_the_oldest_position_is_that_of_the_first_message_held() -> None:
    conflation = Conflation(INTERVAL)
    ones = numbered([One(1), One(2, topic="u"), One(3), One(11, topic="u")])
    add(conflation, ones[:3])
    assert conflation.oldest_position == 1
    add(conflation, ones[3:])
    assert conflation.oldest_position == 4
    conflation.flush()
    assert conflation.oldest_position is None


def test_what_is_not_wanted_is_not_looked_at() -> None:
    conflation = Conflation(INTERVAL)
    ones = numbered([One(1), One(2, wanted=False), One(99, wanted=False)])
    assert add(conflation, ones) == []
    assert sent(conflation.flush()) == [(1, b"0")]


# -- keys -------------------------------------------------------------------------------------


DEEP: Any = 0
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1, True),
        (1, 2, False),
        ("1", 1, False),
        ("a", "a", True),
        ("", "", True),
        (1, 1.0, True),
        ([1], [1.0], True),
        (1.5, 1.5, True),
        (0.1, 0.2, False),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (True, "True", False),
        (float("nan"), float("nan"), True),
        (b"a", "a", False),
        (b"a", b"a", True),
        (b"b'a'", b"a", False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1, [2]], [[1], 2], False),
        (["1,2"], ["1", "2"], False),
        ([], {}, False),
        ((1, 2), [1, 2], True),
        ([None], [None], True),
        ([None], ["None"], False),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({1: "a", "1": "b", (2, b"x"): 3}, {(2, b"x"): 3, "1": "b", 1: "a"}, True),
        (Ext(1, b"a"), Ext(1, b"a"), True),
        (Ext(1, b"a"), Ext(2, b"a"), False),
        (1 << 100, 1 << 100, True),
        (1 << 100, 2.0**100, True),
        ((1 << 61) - 1, float(1 << 61), False),
        (1 << 61, float(1 << 61), True),
        (-5, -5.0, True),
        (1 << 100, str(1 << 100), False),
        (DEEP, DEEP, False),
    ],
)
def test_messages_are_merged_if_their_fields_are_the_same(
    left: object, right: object, same: bool
) -> None:
    conflation = Conflation(INTERVAL, [field("id")])
    add(conflation, numbered([One(1, {"id": left, "n": 1}), One(2, {"id": right, "n": 2})]))
    assert len(conflation.flush()) == (1 if same else 2)


def test_fields_make_a_key_together_with_the_topic() -> None:
    conflation = Conflation(INTERVAL, [field("id")])
    add(conflation, numbered([One(1, {"id": 1}), One(1, {"id": 1}, topic="u")]))
    assert len(conflation.flush()) == 2


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 1, "b": None}, True),
        ({"c": 1}, {"c": 1}, False),
        ({"a": None}, {"a": None}, False),
        (None, None, False),
        ([1], [1], False),
        (BROKEN, BROKEN, False),
    ],
)
def test_two_fields_make_one_key(left: object, right: object, same: bool) -> None:
    conflation = Conflation(INTERVAL, [field("a"), field("b")])
    add(conflation, numbered([One(1, left), One(2, right)]))
    assert len(conflation.flush()) == (1 if same else 2)


def test_what_has_no_key_waits_for_the_end_of_the_interval_too() -> None:
    conflation = Conflation(INTERVAL, [field("id")])
    ones = numbered([One(1, {"id": 1}), One(2, BROKEN), One(3, {"id": 2}), One(4, {"id": 1})])
    assert add(conflation, ones) == []
    assert sent(conflation.due(INTERVAL)) == [(1, b"3"), (2, b"1"), (3, b"2")]


def test_payloads_are_looked_into_only_if_a_key_has_fields() -> None:
    conflation = Conflation(INTERVAL)
    add(conflation, numbered([One(1, BROKEN), One(2, BROKEN)]))
    assert len(conflation.flush()) == 1


# -- limits -----------------------------------------------------------------------------------


def test_too_many_keys_end_an_interval_early() -> None:
    conflation = Conflation(INTERVAL, [field("id")])
    ones = numbered([One(1, {"id": n}) for n in range(KEYS_MAX)])
    assert add(conflation, ones) == []
    assert add(conflation, [One(2, {"id": 0}, position=KEYS_MAX + 1)]) == []
    one_more = One(3, {"id": -1}, position=KEYS_MAX + 2)
    early = add(conflation, [one_more])
    assert [held.first.position for held in early] == list(range(1, KEYS_MAX + 1))
    assert conflation.closed_early == 1
    assert conflation.oldest_position == KEYS_MAX + 2


def test_too_many_bytes_end_an_interval_early() -> None:
    conflation = Conflation(INTERVAL)
    mib = bytes(MIB)
    count = HELD_MAX_BYTES // MIB
    ones = numbered([One(1, topic=f"{n}", data=mib) for n in range(count)])
    assert len(add(conflation, ones)) == count - 1  # the topics' names have bytes, too
    assert conflation.closed_early == 1
    assert conflation.oldest_position == count


def test_a_newer_message_may_be_the_one_that_is_too_much() -> None:
    conflation = Conflation(INTERVAL)
    large = bytes(HELD_MAX_BYTES - 10)
    ones = numbered(
        [One(1), One(1, topic="u"), One(2, data=large), One(3, data=large + b"0123456789")]
    )
    assert add(conflation, ones[:3]) == []
    assert sent(add(conflation, ones[3:])) == [(1, large), (2, b"1")]
    assert conflation.oldest_position == 4


def test_a_message_over_the_limit_is_held_alone() -> None:
    conflation = Conflation(INTERVAL)
    large = bytes(HELD_MAX_BYTES + 1)
    ones = numbered([One(1, data=large), One(2, topic="u")])
    assert add(conflation, ones[:1]) == []
    assert conflation.closed_early == 0
    assert sent(add(conflation, ones[1:])) == [(1, large)]
    assert conflation.closed_early == 1


def test_the_bytes_of_a_key_count() -> None:
    conflation = Conflation(INTERVAL, [field("id")])
    half = "x" * (HELD_MAX_BYTES // 2)
    assert add(conflation, numbered([One(1, {"id": half})])) == []
    assert len(add(conflation, [One(1, {"id": half + "y"}, position=2)])) == 1


# -- against a model --------------------------------------------------------------------------


def model(ones: list[One], key: Any) -> list[Held]:
    """Groups a list: by interval, then by key."""
    numbers = accumulate((one.time // INTERVAL for one in ones), max)
    result = []
    for _, group in groupby(zip(numbers, ones, strict=True), key=lambda pair: pair[0]):
        same: dict[Hashable, list[One]] = {}
        for _, one in group:
            same.setdefault(key(one), []).append(one)
        since = min((s[0].place.position for s in same.values()), default=0)
        result += [
            Held(s[0].place, s[-1].topic, s[-1].time, s[-1].data, since) for s in same.values()
        ]
    return result


#: values of the field, and what they are; None: it equals nothing
VALUES = [
    (1, "one"),
    (1.0, "one"),
    (True, "true"),
    ("1", "text"),
    ([1, {"a": None, "b": 2}], "list"),
    ((1.0, {"b": 2, "a": None}), "list"),
    ({}, "map"),
    (None, None),
]
PAYLOADS = [({"id": value}, name) for value, name in VALUES] + [(BROKEN, None), ("text", None)]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[One], list[str | None]]:
    """Messages, and what each one's field is."""
    gaps = draw(st.lists(st.integers(-8, 8) | st.integers(0, 40), max_size=40))
    ones, names = [], []
    for time in accumulate(gaps):
        payload, name = draw(st.sampled_from(PAYLOADS))
        ones.append(One(time, payload, draw(st.sampled_from("tu")), wanted=draw(st.booleans())))
        names.append(name)
    return numbered(ones), names


def with_keys(*keys: bytes | None) -> BatchMessages:
    """One message of topic "t" for each key, in one interval."""
    ones = numbered([One(0) for _ in keys])
    columns = [None if key is None else Columns(keys=key) for key in keys]
    return messages_of(ones)._replace(extra=lambda i: columns[i])


@pytest.mark.parametrize("keys", [(b"k",), (b"old", b"k"), (None, b"k"), (b"old", None)])
def test_the_newest_message_brings_its_own_key(keys: tuple[bytes | None, ...]) -> None:
    conflation = Conflation(INTERVAL)
    conflation.add(with_keys(*keys), range(len(keys)))
    conflation.check()
    [held] = conflation.flush()
    assert held.extra == (None if keys[-1] is None else Columns(keys=keys[-1]))


def test_keys_count_as_bytes_that_are_held() -> None:
    conflation = Conflation(INTERVAL)
    big = with_keys(bytes(HELD_MAX_BYTES))
    assert conflation.add(big, [0]) == []
    conflation.check()
    ones = numbered([One(1, topic="u")])
    assert [held.topic for held in conflation.add(messages_of(ones), [0])] == ["t"]
    assert conflation.closed_early == 1


@given(history=histories(), by_field=st.booleans(), data=st.data())
def test_what_is_sent_is_what_the_model_gives_however_it_comes_in(
    history: tuple[list[One], list[str | None]], by_field: bool, data: st.DataObject
) -> None:
    ones, names = history
    conflation = Conflation(INTERVAL, [field("id")] if by_field else [])
    held: list[Held] = []
    at = 0
    while at < len(ones):
        if data.draw(st.booleans()):
            log_now = min(one.time for one in ones[at:]) - data.draw(st.integers(0, 5))
            held += conflation.due(log_now)
        end = data.draw(st.integers(at + 1, len(ones)))
        held += add(conflation, ones[at:end])
        at = end
        done = {one.first.position for one in held}
        assert conflation.oldest_position not in done
    held += conflation.flush()

    def key(one: One) -> Hashable:
        name = names[one.position - 1] if by_field else "all"
        return (one.topic, name) if name else one.position

    assert held == model([one for one in ones if one.wanted], key)
    positions = [one.first.position for one in held]
    assert positions == sorted(set(positions))
