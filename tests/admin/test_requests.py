"""zbroker/admin/requests.py: what a body or a query may say."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin import core, requests
from zbroker.errors import ClientError


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (requests.Through, b""),
        (requests.Through, b"{}"),
        (requests.Through, b'{"through": -1}'),
        (requests.Through, b'{"through": "7"}'),
        (requests.Through, b'{"through": 7, "dry": true}'),
        (requests.Through, b'{"through": 9223372036854775808}'),
        (requests.Select, b'{"serials": []}'),
        (requests.Select, b"[1]"),
        (requests.Select, b"\xff"),
        (requests.Select, b"[" * 5_000),
        (requests.Nothing, b'{"x": 1}'),
        (requests.Hold, b'{"who": "", "what": "", "position": 1, "ttl_s": 1}'),
        (requests.Hold, b'{"who": "a", "what": "", "position": 1, "ttl_s": 2592001}'),
        (requests.Hold, b'{"who": "a", "what": ""}'),
        (requests.Client, b"{}"),
        (requests.Client, b'{"client": ""}'),
        (requests.Client, b'{"client": 7}'),
    ],
)
def test_a_wrong_body_is_refused_with_what_is_wrong(kind: Any, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        requests.parse(kind, body)
    assert caught.value.code == "bad_field"
    assert core.refusal(caught.value).status == 400


def test_a_request_names_segments_in_one_of_two_ways() -> None:
    assert requests.wanted(requests.parse(requests.Select, b'{"through": 7}')) == (None, 7)
    assert requests.wanted(requests.parse(requests.Select, b'{"serials": [3, 4]}')) == ([3, 4], 0)
    for body in (b"{}", b'{"through": 7, "serials": [3]}'):
        with pytest.raises(ClientError):
            requests.wanted(requests.parse(requests.Select, body))


def test_an_empty_body_asks_for_nothing_special() -> None:
    assert requests.parse(requests.Nothing, b"") == requests.Nothing()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (requests.WantedClients, "limit=0"),
        (requests.WantedTopics, "limit=1001"),
        (requests.WantedTopics, "topic=x"),
        (requests.WantedHistory, "seconds=3601"),
        (requests.WantedHistory, "seconds=0"),
        (requests.WantedAudit, "limit=x"),
        (requests.WantedHealth, "live=yes"),
    ],
)
def test_a_wrong_query_is_refused_with_what_is_wrong(kind: Any, query: str) -> None:
    with pytest.raises(ClientError, match="the query") as caught:
        requests.parse_query(kind, query)
    assert caught.value.code == "bad_field"


def test_a_probe_asks_for_life_by_a_number() -> None:
    assert requests.parse_query(requests.WantedHealth, "live=1").live
    assert not requests.parse_query(requests.WantedHealth, "live=0").live
    assert not requests.parse_query(requests.WantedHealth, "").live


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
    assert requests.keys_of(body) == keys


def test_names_of_a_body_are_bounded() -> None:
    body = b"{" + b",".join(b'"%s%d": 1' % (b"k" * 100, n) for n in range(100)) + b"}"
    found = requests.keys_of(body)
    assert len(found) == requests.KEYS_MAX
    assert {len(key) for key in found} == {64}
