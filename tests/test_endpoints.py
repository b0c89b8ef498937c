"""zbroker/endpoints.py: addresses as text."""

from __future__ import annotations

import pytest

from zbroker import endpoints
from zbroker.errors import ClientError


def test_an_endpoint_splits_into_three() -> None:
    assert endpoints.split("tcp://[::1]:9101") == ("tcp", "[::1]", 9101)


@pytest.mark.parametrize(
    "text", ["", "tcp://", "tcp://h", "tcp://h:", "udp://h:1", "tcp://h:99999"]
)
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="tcp://host:port"):
        endpoints.split(text)


@pytest.mark.parametrize("bound", ["tcp://0.0.0.0:9", "tcp://*:9", "tcp://[::]:9"])
def test_a_wildcard_is_told_as_a_star(bound: str) -> None:
    assert endpoints.told(bound, "") == "tcp://*:9"


def test_an_advertised_host_is_told() -> None:
    assert endpoints.told("tcp://127.0.0.1:9", "broker.example") == "tcp://broker.example:9"


def test_a_bound_address_is_told_as_it_is() -> None:
    assert endpoints.told("tcp://127.0.0.1:9", "") == "tcp://127.0.0.1:9"


def test_a_client_puts_the_host_it_used_for_the_star() -> None:
    assert endpoints.reached_from("tcp://*:9", "10.0.0.1") == "tcp://10.0.0.1:9"
    assert endpoints.reached_from("tcp://b:9", "10.0.0.1") == "tcp://b:9"


def test_a_name_other_than_localhost_counts_as_open() -> None:
    assert not endpoints.is_loopback("tcp://broker.example:1")
