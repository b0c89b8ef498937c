"""zbroker/endpoints.py: addresses as text."""

from __future__ import annotations

import pytest

from zbroker import endpoints
from zbroker.errors import ClientError, ZBrokerError


def test_an_endpoint_splits_into_three() -> None:
    assert endpoints.split("tcp://[::1]:9101") == ("tcp", "[::1]", 9101)


@pytest.mark.parametrize(
    "text", ["", "tcp://", "tcp://h", "tcp://h:", "udp://h:1", "tcp://h:99999"]
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="tcp://host:port"):
        endpoints.split(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("tcp://127.0.0.1:9101", "tcp://127.0.0.1:9101"),
        ("localhost:9101", "tcp://localhost:9101"),
        ("broker.example:9101/", "tcp://broker.example:9101"),
        (" tcp://a-b:0009 ", "tcp://a-b:9"),
        ("[::1]:9101", "tcp://[::1]:9101"),
    ],
)
def test_a_url_may_leave_out_what_goes_without_saying(text: str, url: str) -> None:
    assert endpoints.ingest_url(text) == url


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("http://127.0.0.1:9105", "is for a browser", "tcp://127.0.0.1:9101"),
        ("https://h", "is for a browser", "tcp://127.0.0.1:9101"),
        ("ipc:///tmp/x", "begins with ipc://", "tcp://"),
        ("udp://h:1", "begins with udp://", "tcp://"),
        ("", "does not name a host", "tcp://"),
        ("tcp://", "does not name a host", "tcp://"),
        ("tcp://:9101", "does not name a host", "tcp://"),
        ("a b:1", "does not name a host", "tcp://"),
        ("tcp://h:x", "does not name a host", "tcp://"),
        ("tcp://h:1/path", "does not name a host", "tcp://"),
        ("h", "has no port", "tcp://h:9101"),
        ("tcp://127.0.0.1", "has no port", "tcp://127.0.0.1:9101"),
        ("tcp://h:0", "1 to 65535", "tcp://h:9101"),
        ("tcp://h:99999", "1 to 65535", "tcp://h:9101"),
        ("tcp://*:9", "is where a broker listens", "tcp://HOST:9"),
        ("::1", "without brackets", "[::1]:9101"),
        ("tcp://fe80::1", "without brackets", "[fe80::1]:9101"),
    ],
)
def test_a_wrong_url_is_answered_with_how_to_write_it(text: str, what: str, hint: str) -> None:
    with pytest.raises(ZBrokerError) as caught:
        endpoints.ingest_url(text)
    assert caught.value.code == "bad_url"
    assert what in caught.value.reason
    assert hint in caught.value.hint


@pytest.mark.parametrize("bound", ["tcp://0.0.0.0:9", "tcp://*:9", "tcp://[::]:9"])
def test_a_wildcard_is_reported_as_a_star(bound: str) -> None:
    assert endpoints.advertised(bound, "") == "tcp://*:9"


def test_an_advertised_host_is_reported() -> None:
    assert endpoints.advertised("tcp://127.0.0.1:9", "broker.example") == "tcp://broker.example:9"


def test_a_bound_address_is_reported_as_it_is() -> None:
    assert endpoints.advertised("tcp://127.0.0.1:9", "") == "tcp://127.0.0.1:9"


def test_a_client_puts_the_host_it_used_for_the_star() -> None:
    assert endpoints.reached_from("tcp://*:9", "10.0.0.1") == "tcp://10.0.0.1:9"
    assert endpoints.reached_from("tcp://b:9", "10.0.0.1") == "tcp://b:9"


def test_a_name_other_than_localhost_counts_as_open() -> None:
    assert not endpoints.is_loopback("tcp://broker.example:1")


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://[::1]:9101", True),
        ("tcp://[::]:0", True),
        ("tcp://127.0.0.1:9101", False),
        ("tcp://broker.example:9101", False),
        ("ipc:///tmp/[x]", False),
    ],
)
def test_brackets_are_ipv6(endpoint: str, expected: bool) -> None:
    assert endpoints.is_ipv6(endpoint) is expected
