"""A fake broker and a client on it, for the tests over sockets."""

from __future__ import annotations

import pytest

from tests.client.fakes import WAIT_S, FakeBroker
from zbroker.client import connect


@pytest.fixture
def broker():
    with FakeBroker() as fake:
        yield fake


@pytest.fixture
def client(broker):
    one = connect(broker.url, "pricer", timeout=WAIT_S)
    yield one
    one.close(flush=False)


@pytest.fixture
def numbered(client):
    """The log holds 300 messages of topic a: their numbers."""
    data = [b"%d" % i for i in range(300)]
    client.publish_many("a", data)
    client.flush(WAIT_S)
    return data
