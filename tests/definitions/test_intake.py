"""What of a batch enters a queue, and a slow reading of it (zbroker/definitions/intake.py)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.filters import making, naive
from zbroker.checksums import crc32c
from zbroker.config import QueueConfig
from zbroker.definitions import compile_queue
from zbroker.definitions import intake as module
from zbroker.definitions.intake import HASHED_MAX_BYTES, U64_MAX, QueueIntake, priority_of
from zbroker.filters.parser import parse
from zbroker.formats import FormatError, decode
from zbroker.limits import U63_MAX
from zbroker.log.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.queues.work.values import Arrivals
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

TYPES = {"a": "json", "b": "msgpack", "c": "nvfix", "d": "json"}
FIRST = 1_000  # position of the first message that counts
SEQUENCE = 50
LOG_TIME = 10_000_000
MS = 1_000_000


class One(NamedTuple):
    """A message of a batch. time, expires: 0 where the batch has no such column."""

    topic: str
    data: bytes
    time: int = 0
    expires: int = 0
    headers: dict[str, Any] | None = None


def batch_of(
    messages: Sequence[One], skip: int = 0, cut: int = 0, *, times: bool = False, zstd: bool = False
) -> Batch:
    topics = sorted({one.topic for one in messages})
    columns = Columns()
    if len(topics) > 1:
        columns.index = bodies.to_little(array("H", [topics.index(m.topic) for m in messages]))
    if times:
        columns.time = bodies.to_little(array("q", [one.time for one in messages]))
    if any(one.expires for one in messages):
        columns.expiry = bodies.to_little(array("q", [one.expires for one in messages]))
    if any(one.headers is not None for one in messages):
        columns.headers = msgspec.msgpack.encode([one.headers for one in messages])
    body = bodies.pack([one.data for one in messages])
    return Batch(
        KIND_PUBLISH, FIRST, 77, 5, SEQUENCE, SEQUENCE - 1, len(messages), LOG_TIME, topics,
        body, crc32c(body), len(body), skip, FLAG_ZSTD if zstd else 0,
        columns=None if columns == Columns() else columns, cut=cut,
    )  # fmt: skip


class Taken:
    """A queue, and whether it asked for payloads."""

    def __init__(self, begin: int = 0, **keys: Any) -> None:
        definition = compile_queue(QueueConfig(**{"name": "q", **keys}))
        self.entering = QueueIntake(definition, TYPES.__getitem__, begin)
        self.asked = 0

    def __call__(self, messages: Sequence[One], *args: Any, **options: Any) -> Arrivals | None:
        def payloads() -> list[bytes]:
            self.asked += 1
            return [one.data for one in messages]

        return self.entering(batch_of(messages, *args, **options), payloads)


def plain(*topics: str) -> list[One]:
    return [One(topic, b"{}") for topic in topics]


def jsons(*payloads: Any) -> list[One]:
    return [One("a", msgspec.json.encode(payload)) for payload in payloads]


def taken(messages: Sequence[One], *args: Any, times: bool = False, **keys: Any) -> Arrivals:
    found = Taken(**{"topic": "a", **keys})(messages, *args, times=times)
    assert found is not None
    return found


# -- everything, beside a slow reading ------------------------------------------------------------


class Slow(NamedTuple):
    """What one message enters with. group: what equal keys have in common; None: no key."""

    priority: int
    group: object
    barrier: bool
    expires: int


def slow(
    config: QueueConfig, wanted: set[str], messages: Sequence[One], span: range, *, times: bool
) -> dict[int, Slow]:
    found = {}
    for i in span:
        one = messages[i]
        values = {
            key: value_of(
                getattr(config, key), one, LOG_TIME if not times else one.time, i - span[0]
            )
            for key in ("filter", "priority", "barrier", "group_key")
        }
        if one.topic in wanted and (not config.filter or naive.truth(values["filter"]) is True):
            barrier = bool(config.barrier) and naive.truth(values["barrier"]) is True
            found[FIRST + i - span[0]] = Slow(
                whole(naive.as_number(values["priority"])),
                canonical(values["group_key"]),
                barrier,
                end_of(config, one, one.time if times else LOG_TIME),
            )
    return found


def value_of(text: str, one: One, time_ns: int, ahead: int) -> Any:
    if not text:
        return None
    message = {
        "TOPIC_NAME": one.topic,
        "BOOKMARK": f"77|{SEQUENCE + ahead}|",
        "LAST_UPDATED": time_ns / 1e9 or None,
        "MESSAGE_SIZE": len(one.data),
        "HEADERS": one.headers,
    }
    tree = parse(text)
    try:
        value = decode(TYPES[one.topic], one.data)
    except FormatError:
        if "/" in text:
            return None
        value = None
    return naive.evaluate(tree, value, message)


def whole(number: Any) -> int:
    if number is None or number != number or number < 0:
        return 0
    return min(int(min(number, 2.0**65)), 2**64 - 1)


def canonical(value: Any) -> object:
    """Equal for what is one key."""
    if naive.null(value) or value != value:
        return None
    if isinstance(value, float) and abs(value) < 2**63 and value == int(value):
        value = int(value)
    return f"{type(value).__name__} {sorted(value.items()) if isinstance(value, dict) else value!r}"


def end_of(config: QueueConfig, one: One, time_ns: int) -> int:
    by_queue = time_ns + config.expiration * MS if config.expiration else 0
    both = [end for end in (one.expires, by_queue) if end]
    if config.expiration_model == "queue":
        return by_queue
    if config.expiration_model == "latest":
        return max(both, default=0)
    if config.expiration_model == "earliest":
        return min(both, default=0)
    return one.expires or by_queue


FIELDS = st.sampled_from(
    ["/a", "/b", "/a/b", "/b[1]", "/35", "/a * 2", "/a > 1", "LAST_UPDATED()", "HEADER('a')"]
)
FILTERS = st.sampled_from(
    [
        "", "", "/a > 0", "/b IS NULL", "TOPIC_NAME() = 'a'", "BOOKMARK() LIKE '5.[|]$'",
        "/a = 'x'", "HEADER('a') > 0", "HEADER('a') = /a OR HEADER('b') = 'x'",
    ]
)  # fmt: skip


@st.composite
def queues(draw: st.DrawFn) -> QueueConfig:
    kind = draw(st.sampled_from(["plain", "priority", "group", "barrier", "both"]))
    keys: dict[str, Any] = {"filter": draw(FILTERS)}
    if kind == "priority":
        keys["priority"] = draw(FIELDS)
    if kind in ("group", "both"):
        keys["group_key"] = draw(FIELDS)
    if kind in ("barrier", "both"):
        keys["barrier"] = draw(FILTERS.filter(bool))
    keys["expiration"] = draw(st.sampled_from([0, 1, 5]))
    if keys["expiration"]:
        models = ["default", "queue", "latest", "earliest"]
        keys["expiration_model"] = draw(st.sampled_from(models))
    pattern = draw(st.sampled_from(["a", "a|b", "a|c", "[abc]"]))
    return QueueConfig("q", topic=pattern, regex=True, **keys)


HEADERS = st.one_of(
    st.none(),
    st.dictionaries(
        st.sampled_from("ab"), st.sampled_from([None, 0, 1, 5.0, "x", "1", "", b"x", True])
    ),
)


@st.composite
def batches(draw: st.DrawFn) -> list[One]:
    topics = draw(st.sampled_from([["a"], ["b"], ["d"], ["a", "b"], ["a", "d"], ["a", "b", "c"]]))
    found = []
    for _ in range(draw(st.integers(1, 8))):
        topic = draw(st.sampled_from(topics))
        data = draw(making.payloads(TYPES[topic]))
        expires = draw(st.sampled_from([0, 0, LOG_TIME + 3 * MS, LOG_TIME + 9 * MS]))
        time = LOG_TIME + draw(st.integers(0, 2)) * MS
        found.append(One(topic, data, time, expires, draw(HEADERS)))
    return sorted(found, key=lambda one: one.time)


@given(queues(), batches(), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans())
@settings(deadline=None)
def test_what_enters_is_what_the_slow_reading_says(
    config: QueueConfig, messages: list[One], skip: int, cut: int, times: bool, more: bool
) -> None:
    skip = min(skip, len(messages) - 1)
    cut = min(cut, len(messages) - 1 - skip)
    wanted = {topic for topic in TYPES if compile_queue(config).topics(topic)}
    span = range(skip, len(messages) - cut)
    expected = slow(config, wanted, messages, span, times=times)
    entering = QueueIntake(compile_queue(config), TYPES.__getitem__)
    for _ in range(1 + more):  # what is remembered changes nothing
        entered = entering(
            batch_of(messages, skip, cut, times=times), lambda: [one.data for one in messages]
        )
    if entered is None:
        assert expected == {}
        return
    assert list(entered.positions) == list(expected)
    check_values(config, entered, list(expected.values()))
    check_runs(entered, {at: one.expires for at, one in expected.items() if one.expires})


def check_values(config: QueueConfig, entered: Arrivals, expected: list[Slow]) -> None:
    assert (entered.priorities is not None) == bool(config.priority)
    if entered.priorities is not None:
        assert entered.priorities.typecode == "Q"
        assert list(entered.priorities) == [one.priority for one in expected]
    assert (entered.groups is not None) == bool(config.group_key)
    if entered.groups is not None:
        assert entered.groups.typecode == "q"
        hashes = list(entered.groups)
        assert [found == 0 for found in hashes] == [one.group is None for one in expected]
        for i, first in enumerate(expected):
            for j, second in enumerate(expected):
                assert (hashes[i] == hashes[j]) == (first.group == second.group)
    assert (entered.barriers is not None) == bool(config.barrier)
    if entered.barriers is not None:
        pairs = zip(entered.positions, expected, strict=True)
        assert list(entered.barriers) == [at for at, one in pairs if one.barrier]


def check_runs(entered: Arrivals, expected: dict[int, int]) -> None:
    runs = entered.expires
    assert {at: end for end, first, stop in runs for at in range(first, stop)} == expected
    assert all(first < stop for _, first, stop in runs)
    for (end, _, stop), (other, first, _) in pairwise(runs):
        assert stop < first or (stop == first and end != other), "neighbours are one run"


# -- what is not touched --------------------------------------------------------------------------


def test_of_one_topic_a_plain_queue_takes_a_range_and_touches_no_payload() -> None:
    one = Taken(topic="a")
    found = one(plain("a", "a", "a", "a"), 1, 1)
    assert found is not None
    assert list(found.positions) == [FIRST, FIRST + 1]
    assert (found.priorities, found.groups, found.barriers, found.expires) == (None, None, None, [])
    assert one.asked == 0


def test_of_other_topics_nothing_is_touched() -> None:
    one = Taken(topic="a", filter="/a = 1", priority="/a")
    assert one(plain("b", "c")) is None
    assert one.asked == 0


def test_of_several_topics_those_that_are_wanted_enter() -> None:
    found = Taken(topic="a|c", regex=True)(plain("a", "b", "c", "a", "b"))
    assert found is not None
    assert list(found.positions) == [FIRST, FIRST + 2, FIRST + 3]


def test_a_body_in_which_nothing_can_match_is_not_unpacked() -> None:
    one = Taken(topic="a", filter="/s = 'word'", priority="/s")
    assert one(jsons({"s": "other"})) is None
    assert one.asked == 0
    assert one(jsons({"s": "other"}), zstd=True) is None
    assert one.asked == 1


def test_payloads_are_asked_for_once_per_type() -> None:
    one = Taken(topic="a|d", regex=True, filter="/a > 0", barrier="/a > 1", group_key="/b")
    found = one([One("a", b'{"a":1}'), One("d", b'{"a":2}')])
    assert found is not None
    assert one.asked == 1
    assert list(found.barriers or ()) == [FIRST + 1]


def test_headers_say_what_enters_and_how_where_payloads_cannot_be_read() -> None:
    rows = [{"book": "b1", "urgency": 7}, None, {"book": "b2"}, {"book": "b1"}]
    messages = [One("a", b"{malformed", headers=headers) for headers in rows]
    asked = {"filter": "HEADER('book') = 'b1'", "priority": "HEADER('urgency')"}
    found = taken(messages, **asked)
    assert list(found.positions) == [FIRST, FIRST + 3]
    assert list(found.priorities or ()) == [7, 0]
    skipped = taken(messages, 1, **asked)
    assert list(skipped.positions) == [FIRST + 2]
    grouped = taken(messages, group_key="HEADER('book')")
    assert grouped.groups is not None
    first, none, other, again = grouped.groups
    assert (first == again, none, first != other) == (True, 0, True)


def test_what_is_before_the_begin_does_not_enter() -> None:
    messages = plain("a", "a", "a")
    for begin, left in ((0, 3), (FIRST, 3), (FIRST + 1, 2), (FIRST + 2, 1)):
        found = Taken(begin, topic="a")(messages)
        assert found is not None
        assert list(found.positions) == list(range(FIRST + 3 - left, FIRST + 3))
    for begin in (FIRST + 3, FIRST + 1_000):
        assert Taken(begin, topic="a")(messages) is None


def test_the_begin_may_be_in_a_batch_of_which_some_do_not_count() -> None:
    found = Taken(FIRST + 1, topic="a")(plain(*"aaaa"), 2)
    assert found is not None
    assert list(found.positions) == [FIRST + 1]


# -- priority and group ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        (None, 0), ("", 0), ("high", 0), (-1, 0), (-0.5, 0), (float("nan"), 0), ({}, 0), ([], 0),
        (b"9", 0), (0, 0), (0.9, 0), (1, 1), (2.9, 2), ("7", 7), (True, 1), ([5, 9], 5),
        (U64_MAX, U64_MAX), (1 << 70, U64_MAX), (1e300, U64_MAX), (float("inf"), U64_MAX),
        (float("-inf"), 0), (2.0**64, U64_MAX), (2.0**63, 1 << 63),
    ],
)  # fmt: skip
def test_a_priority_is_a_whole_number_of_64_bits(value: Any, priority: int) -> None:
    assert priority_of(value) == priority
    assert list(array("Q", [priority_of(value)])) == [priority]


@given(st.one_of(making.values, st.floats(), st.integers()))
def test_every_value_has_a_priority(value: Any) -> None:
    assert 0 <= priority_of(value) <= U64_MAX


def groups(*keys: Any) -> list[int]:
    found = taken([One("b", msgspec.msgpack.encode({"k": key})) for key in keys], topic="b",
                  group_key="/k").groups  # fmt: skip
    assert found is not None
    return list(found)


def test_null_is_no_key() -> None:
    assert groups(None, "", [], float("nan")) == [0, 0, 0, 0]
    assert list(taken(jsons({}, 5), group_key="/k").groups or ()) == [0, 0]


def test_numbers_that_are_equal_are_one_key() -> None:
    one, same, other, text = groups(5, 5.0, 5.5, "5")
    assert one == same
    assert len({one, other, text}) == 3


def test_every_other_value_is_a_key() -> None:
    found = groups(
        0, False, "x", "y", [1], [1, 2], {"a": 1}, b"x", 1e300, -1, msgspec.msgpack.Ext(1, b"x")
    )
    assert len({*found, 0}) == 12


def test_the_order_in_a_map_makes_no_other_key() -> None:
    one, other = groups({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert one == other


def test_keys_that_have_no_msgpack_are_one_key() -> None:
    found = taken([One("a", b'{"k":%d}' % (1 << 80 + n)) for n in (0, 1)], group_key="/k").groups
    mixed = groups({1: 1, "a": 2})
    assert found is not None
    assert 0 != found[0] == found[1]
    assert mixed[0] != 0


def test_a_key_is_the_same_for_ever() -> None:
    assert groups("customer-7", 7) == [5558926762029895158, 2131601075368558396]


def test_a_hash_is_never_0(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nought:
        def __init__(self, *_: object, **__: object) -> None: ...

        def digest(self) -> bytes:
            return bytes(8)

    monkeypatch.setattr(module.hashlib, "blake2b", Nought)
    assert groups("x") == [1]


def test_hashes_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HASHES_MAX", 3)
    one = Taken(topic="a", group_key="/k")
    for n in range(10):
        one(jsons({"k": n}))
        assert len(one.entering._hashes) <= 3
    one.entering._hashes.clear()
    one(jsons({"k": "x" * HASHED_MAX_BYTES}))
    assert one.entering._hashes == {}


# -- expiry ---------------------------------------------------------------------------------------


def test_a_batch_without_times_expires_as_one_run() -> None:
    found = taken(plain("a", "a", "a"), expiration=2)
    assert found.expires == [(LOG_TIME + 2 * MS, FIRST, FIRST + 3)]


def test_runs_break_where_others_are_between() -> None:
    end = LOG_TIME + 2 * MS
    found = taken(plain("a", "b", "a", "a"), expiration=2)
    assert found.expires == [(end, FIRST, FIRST + 1), (end, FIRST + 2, FIRST + 4)]


def test_messages_expire_by_their_own_time() -> None:
    messages = [One("a", b"", time) for time in (MS, MS, 3 * MS)]
    found = taken(messages, expiration=2, times=True)
    assert found.expires == [(3 * MS, FIRST, FIRST + 2), (5 * MS, FIRST + 2, FIRST + 3)]


@pytest.mark.parametrize(
    ("model", "with_own", "without"),
    [("default", 5, 3), ("queue", 3, 3), ("latest", 5, 3), ("earliest", 3, 3)],
)
def test_a_model_says_whose_expiry_holds(model: Any, with_own: int, without: int) -> None:
    messages = [One("a", b"", 0, LOG_TIME + 5 * MS), One("a", b"")]
    found = taken(messages, expiration=3, expiration_model=model)
    ends = {end for end, _, _ in found.expires}
    assert ends == {LOG_TIME + with_own * MS, LOG_TIME + without * MS}


def test_an_earlier_expiry_of_its_own_holds_by_default() -> None:
    messages = [One("a", b"", 0, LOG_TIME + MS)]
    assert taken(messages, expiration=3).expires == [(LOG_TIME + MS, FIRST, FIRST + 1)]
    late = taken(messages, expiration=3, expiration_model="latest")
    assert late.expires == [(LOG_TIME + 3 * MS, FIRST, FIRST + 1)]


def test_of_a_replayable_queue_nothing_expires() -> None:
    assert taken([One("a", b"", 0, LOG_TIME)], kind="replayable").expires == []


def test_the_end_of_time_is_the_end_of_an_expiry() -> None:
    found = taken(plain("a"), expiration=U63_MAX)
    assert found.expires == [(U63_MAX, FIRST, FIRST + 1)]


def test_the_bytes_of_each_are_known_where_they_are_limited() -> None:
    messages = [One("a", b"{}"), One("b", b"\x80"), One("a", b'{"a":1}')]
    entered = Taken(topic="a", max_bytes=100)(messages)
    assert entered is not None
    assert (list(entered.positions), entered.sizes) == ([FIRST, FIRST + 2], array("Q", [2, 7]))


def test_payloads_are_not_looked_at_for_their_number() -> None:
    taken = Taken(topic="a", max_length=100)
    entered = taken([One("a", b"{}")])
    assert entered is not None
    assert (entered.sizes, taken.asked) == (None, 0)
