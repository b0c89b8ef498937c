"""Which exchanges and bindings there can be (zbroker/exchanges/exchange.py)."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.errors import ClientError, Refused
from zbroker.exchanges import Binding, Exchange, check_exchange, checked_binding
from zbroker.exchanges.exchange import (
    ARGUMENTS_MAX,
    HASHES_MAX,
    Conditions,
    conditions_of,
    is_key,
)
from zbroker.limits import EXTRA_MAX_BYTES, ROUTING_KEY_MAX_BYTES
from zbroker.log.queue_records import QueueDeclaration

LIFE = QueueDeclaration(1, 1, 1)
NONE: dict[str, Any] = {}


def binding(key: str = "", arguments: dict[str, Any] = NONE, exchange: str = "e") -> Binding:
    return Binding(exchange, LIFE, "q", LIFE, key, arguments)


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_an_exchange_of_each_kind_may_be_declared(kind: str) -> None:
    check_exchange(Exchange("orders.é", kind, "amq.fanout", auto_delete=True, internal=True))


@pytest.mark.parametrize(
    ("exchange", "code", "part"),
    [
        (Exchange("", "direct"), "bad_field", "`name` is empty"),
        (Exchange("a\n", "direct"), "bad_topic", "printable"),
        (Exchange("a" * 256, "direct"), "bad_topic", "255"),
        (Exchange("amq.mine", "direct"), "reserved_name", "amq.mine"),
        (Exchange("$mine", "direct"), "reserved_name", "begins with"),
        (Exchange("e", "x-random"), "bad_field", "`kind` of exchange 'e' is 'x-random'"),
        (Exchange("e", ""), "bad_field", "`kind`"),
        (Exchange("e", "direct", "a\0"), "bad_topic", "printable"),
        (Exchange("e", "direct", "e"), "bad_field", "itself"),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(exchange: Exchange, code: str, part: str) -> None:
    with pytest.raises(Refused) as caught:
        check_exchange(exchange)
    assert caught.value.code == code
    assert part in caught.value.reason


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_a_binding_by_key_is_kept_as_it_is(kind: str) -> None:
    given = binding("a.*.#")
    assert checked_binding(given, kind) == given


def test_a_binding_of_a_headers_exchange_matches_all_unless_it_says_otherwise() -> None:
    assert checked_binding(binding(), "headers").arguments == {"x-match": "all"}
    given = binding("k", {"x-match": "any-with-x", "x-a": 1})
    assert checked_binding(given, "headers") == given


MANY = {f"n{number}": 1 for number in range(ARGUMENTS_MAX)}


@pytest.mark.parametrize(
    ("given", "kind", "code", "part"),
    [
        (binding(exchange=""), "direct", "bad_field", "default exchange"),
        (binding("é" * 128), "direct", "bad_field", "`key` has 256 bytes, at most 255"),
        (binding("\ud800"), "topic", "bad_field", "not UTF-8"),
        (binding("a.#." * 9), "topic", "bad_filter", f"9 '#', at most {HASHES_MAX}"),
        (binding("k", {"n": 1}), "direct", "bad_field", "no `arguments`"),
        (binding("k", {"n": 1}), "topic", "bad_field", "no `arguments`"),
        (binding("k", {"x-match": "all"}), "fanout", "bad_field", "no `arguments`"),
        (binding("", {"x-match": "none"}), "headers", "bad_field", "`x-match` is 'none'"),
        (binding("", {"x-match": ["all"]}), "headers", "bad_field", "`x-match` is"),
        (binding("", MANY), "headers", "bad_field", "101 `arguments`"),
        (binding("", {"n": [1]}), "headers", "bad_field", "no header has"),
        (binding("", {"n": float("nan")}), "headers", "bad_field", "NaN"),
        (binding("", {"n": "\ud800"}), "headers", "bad_field", "not UTF-8"),
        (binding("", {"n": "x" * EXTRA_MAX_BYTES}), "headers", "bad_field", "at most 16384"),
    ],
)
def test_a_binding_that_cannot_be_is_refused(
    given: Binding, kind: str, code: str, part: str
) -> None:
    with pytest.raises(ClientError) as caught:
        checked_binding(given, kind)
    assert caught.value.code == code
    assert part in caught.value.reason


def test_a_pattern_may_have_as_many_hashes_as_are_allowed() -> None:
    checked_binding(binding("a.#.#." * HASHES_MAX), "topic")


def test_a_key_of_another_kind_may_look_like_a_costly_pattern() -> None:
    checked_binding(binding("a.#." * 9), "direct")


def test_the_longest_key_may_be_bound() -> None:
    checked_binding(binding("k" * ROUTING_KEY_MAX_BYTES), "direct")


@pytest.mark.parametrize(
    ("arguments", "conditions"),
    [
        ({}, None),
        ({"n": 1}, None),
        ({"x-match": "all"}, Conditions(True, frozenset())),
        ({"x-match": "any", "n": 1, "x-n": 1}, Conditions(False, frozenset({("n", 1)}))),
        ({"x-match": "all-with-x", "x-n": 1}, Conditions(True, frozenset({("x-n", 1)}))),
        ({"x-match": "any-with-x", "x-n": 1}, Conditions(False, frozenset({("x-n", 1)}))),
    ],
)
def test_arguments_ask_for_conditions(
    arguments: dict[str, Any], conditions: Conditions | None
) -> None:
    assert conditions_of(arguments) == conditions


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        (b"", True),
        (b"\0", True),
        (("é" * 127).encode(), True),
        (b"k" * 255, True),
        (b"k" * 256, False),
        (b"\xff", False),
    ],
)
def test_a_routing_key_is_text_of_at_most_255_bytes(key: bytes, is_one: bool) -> None:
    assert is_key(key) is is_one
