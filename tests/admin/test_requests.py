"""zbroker/admin/requests.py: what a body or a query may say."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin import core, requests
from zbroker.errors import ClientError


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (requests.RemovalQuery, b""),
        (requests.RemovalQuery, b"{}"),
        (requests.RemovalQuery, b'{"through": -1}'),
        (requests.RemovalQuery, b'{"through": "7"}'),
        (requests.RemovalQuery, b'{"through": 7, "dry": true}'),
        (requests.RemovalQuery, b'{"through": 9223372036854775808}'),
        (requests.SegmentSelection, b'{"serials": []}'),
        (requests.SegmentSelection, b"[1]"),
        (requests.SegmentSelection, b"\xff"),
        (requests.SegmentSelection, b"[" * 5_000),
        (requests.EmptyRequest, b'{"x": 1}'),
        (requests.HoldRequest, b'{"who": "", "what": "", "position": 1, "ttl_s": 1}'),
        (requests.HoldRequest, b'{"who": "a", "what": "", "position": 1, "ttl_s": 2592001}'),
        (requests.HoldRequest, b'{"who": "a", "what": ""}'),
        (requests.ClientQuery, b"{}"),
        (requests.ClientQuery, b'{"client": ""}'),
        (requests.ClientQuery, b'{"client": 7}'),
    ],
)
def test_a_wrong_body_is_refused_with_what_is_wrong(kind: Any, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        requests.parse(kind, body)
    assert caught.value.code == "bad_field"
    assert core.refusal(caught.value).status == 400


def test_a_request_names_segments_in_one_of_two_ways() -> None:
    assert requests.wanted(requests.parse(requests.SegmentSelection, b'{"through": 7}')) == (
        None,
        7,
    )
    assert requests.wanted(requests.parse(requests.SegmentSelection, b'{"serials": [3, 4]}')) == (
        [3, 4],
        0,
    )
    for body in (b"{}", b'{"through": 7, "serials": [3]}'):
        with pytest.raises(ClientError):
            requests.wanted(requests.parse(requests.SegmentSelection, body))


def test_an_empty_body_asks_for_nothing_special() -> None:
    assert requests.parse(requests.EmptyRequest, b"") == requests.EmptyRequest()


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (requests.ClientsQuery, "limit=0"),
        (requests.TopicsQuery, "limit=1001"),
        (requests.TopicsQuery, "topic=x"),
        (requests.HistoryQuery, "seconds=3601"),
        (requests.HistoryQuery, "seconds=0"),
        (requests.AuditQuery, "limit=x"),
        (requests.HealthQuery, "live=yes"),
    ],
)
def test_a_wrong_query_is_refused_with_what_is_wrong(kind: Any, query: str) -> None:
    with pytest.raises(ClientError, match="the query") as caught:
        requests.parse_query(kind, query)
    assert caught.value.code == "bad_field"


def test_a_probe_asks_for_life_by_a_number() -> None:
    assert requests.parse_query(requests.HealthQuery, "live=1").live
    assert not requests.parse_query(requests.HealthQuery, "live=0").live
    assert not requests.parse_query(requests.HealthQuery, "").live


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
def test_only_the_names_of_a_body_are_reported(body: bytes, keys: list[str]) -> None:
    assert requests.keys_of(body) == keys


def test_names_of_a_body_are_bounded() -> None:
    body = b"{" + b",".join(b'"%s%d": 1' % (b"k" * 100, n) for n in range(100)) + b"}"
    found = requests.keys_of(body)
    assert len(found) == requests.KEYS_MAX
    assert {len(key) for key in found} == {64}
