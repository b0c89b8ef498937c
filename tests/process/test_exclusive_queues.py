"""Exclusive queues of sessions, with a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

import zbroker
import zbroker.aio
from tests.process.load import until_running
from tests.waiting import until
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 30.0


def test_a_session_has_a_queue_for_itself_until_it_is_closed(tmp_path: Path) -> None:
    with (
        LocalBroker(tmp_path / "data") as broker,
        zbroker.connect(broker.url, name="a") as client,
    ):
        with pytest.raises(ZBrokerError, match="session_timeout") as alone:
            client.declare_queue("mine", exclusive=True)
        assert alone.value.code == "bad_field"
        with client.session("s", session_timeout=60, timeout=T) as session:
            made = session.declare_queue("mine", bound=True, exclusive=True, timeout=T)
            assert made.created
            assert session.bind("mine", "amq.fanout", timeout=T)
            client.publish("amq.fanout", b"1")
            client.flush(timeout=T)
            os.kill(until_running(broker, "queues", 0), signal.SIGKILL)
            for use in (
                lambda: client.declare_queue("mine", passive=True, timeout=T),
                lambda: client.purge_queue("mine", timeout=T),
                lambda: client.delete_queue("mine", timeout=T),
                lambda: client.unbind("mine", "amq.fanout", timeout=T),
                lambda: client.consume("mine", timeout=T),
            ):
                with pytest.raises(ZBrokerError, match="exclusive") as locked:
                    use()
                assert locked.value.code == "resource_locked"
            with session.consume("mine", timeout=T) as consumer:
                [message] = consumer.fetch(1, timeout=T)
                assert message.data == b"1"
                message.ack()
                consumer.flush(timeout=T)
            assert session.purge_queue("mine", timeout=T) == 0

        def is_gone() -> bool:
            try:
                client.declare_queue("mine", passive=True, timeout=T)
            except ZBrokerError as error:
                return error.code == "unknown_queue"
            return False

        until(is_gone, "the queue goes with its session", T)


def test_likewise_in_an_event_loop(tmp_path: Path) -> None:
    async def use(url: str) -> None:
        async with zbroker.aio.connect(url, name="b") as client:
            session = await client.session("s", session_timeout=60, timeout=T)
            async with session:
                made = await session.declare_queue("own", exclusive=True, timeout=T)
                assert made.created
                assert not (await session.declare_queue("own", exclusive=True, timeout=T)).created
                await session.delete_queue("own", timeout=T)
                chosen = await session.declare_queue(exclusive=True, bound=True, timeout=T)
                assert chosen.name.startswith("gen-")
                assert await session.bind(chosen.name, "amq.direct", "a", timeout=T)

    with LocalBroker(tmp_path / "data") as broker:
        asyncio.run(use(broker.url))
