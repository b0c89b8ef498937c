"""Who connects to the wrong port, or without a key, learns at once which is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.secured import Secured
from zbroker.access import keys
from zbroker.client import connect
from zbroker.client.connect_types import Credentials
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = pytest.mark.process

FAR = 60.0  # whoever waits for that got no answer


def error_of(
    url: str, credentials: Credentials | None = None, timeout: float = FAR
) -> ZBrokerError:
    with pytest.raises(ZBrokerError) as caught:
        connect(url, credentials=credentials, timeout=timeout)
    return caught.value


def test_the_port_of_another_endpoint_says_which_is_right() -> None:
    with LocalBroker() as broker:
        endpoints = broker.status()["endpoints"]
        for which in ("delivery", "queues"):
            error = error_of(endpoints[which])
            assert error.code == "bad_field"
            assert "clients log on at the ingest endpoint" in error.reason
            assert "9101" in error.hint
        at = endpoints["admin"].replace("http", "tcp")
        assert (
            "does not speak ZeroMQ: clients connect to the ingest" in error_of(at, None, 1).reason
        )


def test_who_has_no_key_or_an_unknown_one_learns_at_once(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "s", {"pricer": ["everything"]}, "")
    with secured.broker as broker:
        error = error_of(broker.url)
        assert (error.code, error.reason) == (
            "auth_failed", "the broker wants to know who you are"
        )  # fmt: skip
        assert "--key and --server-key" in error.hint
        keys.make(tmp_path / "unknown")
        stranger = Credentials(tmp_path / "unknown.key_secret", secured.server.public)
        error = error_of(broker.url, stranger)
        assert (error.code, "access file" in error.hint) == ("auth_failed", True)
        with LocalBroker() as other:
            error = error_of(other.url, secured.credentials("pricer"))
            assert (error.code, error.reason) == ("auth_failed", "the broker does not encrypt")
