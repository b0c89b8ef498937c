"""zbroker/admin/asking.py: what a body or a query may say."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin import asking, core
from zbroker.errors import ClientError


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (asking.Through, b""),
        (asking.Through, b"{}"),
        (asking.Through, b'{"through": -1}'),
        (asking.Through, b'{"through": "7"}'),
        (asking.Through, b'{"through": 7, "dry": true}'),
        (asking.Through, b'{"through": 9223372036854775808}'),
        (asking.Select, b'{"serials": []}'),
        (asking.Select, b"[1]"),
        (asking.Select, b"\xff"),
        (asking.Select, b"[" * 5_000),
        (asking.Nothing, b'{"x": 1}'),
        (asking.Hold, b'{"who": "", "what": "", "position": 1, "ttl_s": 1}'),
        (asking.Hold, b'{"who": "a", "what": "", "position": 1, "ttl_s": 2592001}'),
        (asking.Hold, b'{"who": "a", "what": ""}'),
        (asking.Client, b"{}"),
        (asking.Client, b'{"client": ""}'),
        (asking.Client, b'{"client": 7}'),
    ],
)
def test_a_wrong_body_is_refused_with_what_is_wrong(kind: Any, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        asking.parse(kind, body)
    assert caught.value.code == "bad_field"
    assert core.refusal(caught.value).status == 400


def test_a_request_names_segments_in_one_of_two_ways() -> None:
    assert asking.wanted(asking.parse(asking.Select, b'{"through": 7}')) == (None, 7)
    assert asking.wanted(asking.parse(asking.Select, b'{"serials": [3, 4]}')) == ([3, 4], 0)
    for body in (b"{}", b'{"through": 7, "serials": [3]}'):
        with pytest.raises(ClientError):
            asking.wanted(asking.parse(asking.Select, body))


def test_an_empty_body_asks_for_nothing_special() -> None:
    assert asking.parse(asking.Nothing, b"") == asking.Nothing()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (asking.WantedClients, "limit=0"),
        (asking.WantedTopics, "limit=1001"),
        (asking.WantedTopics, "topic=x"),
        (asking.WantedHistory, "seconds=3601"),
        (asking.WantedHistory, "seconds=0"),
        (asking.WantedAudit, "limit=x"),
        (asking.WantedHealth, "live=yes"),
    ],
)
def test_a_wrong_query_is_refused_with_what_is_wrong(kind: Any, query: str) -> None:
    with pytest.raises(ClientError, match="the query") as caught:
        asking.parse_query(kind, query)
    assert caught.value.code == "bad_field"


def test_a_probe_asks_for_life_by_a_number() -> None:
    assert asking.parse_query(asking.WantedHealth, "live=1").live
    assert not asking.parse_query(asking.WantedHealth, "live=0").live
    assert not asking.parse_query(asking.WantedHealth, "").live


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        (b"", []),
        (b'{"through": 7, "dry_run": true}', ["through", "dry_run"]),
        (b'{"password": "s3cret"}', ["password"]),
        (b"[1]", []),
        (b"\xff", []),
        (b"[" * 5_000, []),
    ],
)
def test_only_the_names_of_a_body_are_told(body: bytes, keys: list[str]) -> None:
    assert asking.keys_of(body) == keys


def test_names_of_a_body_are_bounded() -> None:
    body = b"{" + b",".join(b'"%s%d": 1' % (b"k" * 100, n) for n in range(100)) + b"}"
    found = asking.keys_of(body)
    assert len(found) == asking.KEYS_MAX
    assert {len(key) for key in found} == {64}
