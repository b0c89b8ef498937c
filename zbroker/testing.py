"""Fixtures for the tests of programs that use zbroker: a real broker, a client, a topic.

    pytest_plugins = ["zbroker.testing"]  # in the conftest.py at the top

    def test_an_order_is_published(zbroker_client, zbroker_topic):
        zbroker_client.publish(zbroker_topic, b"...").wait(timeout=5)

pytest is imported here and nowhere else in the package; installing zbroker does not bring it. One
broker serves the whole run, with pytest-xdist one per worker. Names of topics and clients are new
for each test, so tests do not see each other's messages.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Final

import pytest

from zbroker.client import Client, connect
from zbroker.local import LocalBroker, Settings

NAME_CHARACTERS: Final = 80  # of the test's name in a topic: 255 bytes are allowed


@pytest.fixture(scope="session")
def zbroker_settings() -> Settings:
    """Tables of the broker's config over the defaults; a fixture of this name replaces it."""
    return {}


@pytest.fixture(scope="session")
def zbroker_broker(zbroker_settings: Settings) -> Iterator[LocalBroker]:
    """A running broker, for all tests of the run; it has `url`, `status()` and `pids`.

    Raises: ZBrokerError not_started.
    """
    with LocalBroker(settings=zbroker_settings) as broker:
        yield broker


@pytest.fixture
def zbroker_client(zbroker_broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client with a name of its own, closed after the test; that does not wait for acks.

    Raises: ZBrokerError "timeout".
    """
    client = connect(zbroker_broker.url, _unique(request))
    yield client
    client.close(flush=False)


@pytest.fixture
def zbroker_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test uses."""
    return _unique(request)


def _unique(request: pytest.FixtureRequest) -> str:
    """The test's name, as far as topics and clients may have it, and what makes it unique."""
    name = re.sub(r"[^0-9A-Za-z_]+", "-", request.node.name)[:NAME_CHARACTERS]
    return f"{name}-{secrets.token_hex(4)}"
