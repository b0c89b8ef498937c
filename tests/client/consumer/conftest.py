"""A fake broker with a queue, and a client on it."""

from __future__ import annotations

import pytest

from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import WAIT_S
from zbroker.client import connect


@pytest.fixture
def broker():
    with QueueBroker() as fake:
        yield fake


@pytest.fixture
def client(broker):
    one = connect(broker.url, "worker", timeout=WAIT_S)
    yield one
    one.close(flush=False)
