"""zbroker/client/waits.py: a coroutine whose waits block comes to its end at once."""

from __future__ import annotations

import asyncio

import pytest

from zbroker.client.waits import end_of, left_until, run
from zbroker.errors import ZBrokerError


async def blocking(value):
    if isinstance(value, Exception):
        raise value
    return value


async def outer(value):
    return [await blocking(value), await blocking(value)]


def test_what_a_coroutine_returns_is_the_result():
    assert run(blocking(None)) is None
    assert run(outer(7)) == [7, 7]


@pytest.mark.parametrize("error", [ZBrokerError("timeout", "no answer"), KeyError("a")])
def test_what_it_raises_is_raised(error):
    with pytest.raises(type(error)) as caught:
        run(outer(error))
    assert caught.value is error


def test_a_wait_that_suspends_is_a_bug():
    with pytest.raises(AssertionError, match="suspended"):
        run(asyncio.sleep(0))


def test_no_timeout_is_no_end():
    assert end_of(None) is None
    assert left_until(None) is None


def test_time_that_is_over_leaves_nothing():
    assert left_until(end_of(-1.0)) == 0.0
    assert 0 < left_until(end_of(60.0)) <= 60.0
