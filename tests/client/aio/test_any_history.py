"""Any interleaving of publishing, awaiting, cancelling and lost connections: each message once.

One task publishes and is the history, another reads; both have their waits cut short at random.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.client.aio.looped import data_of, in_loop, pricer, until
from tests.client.fakes import WAIT_S as T
from tests.client.fakes import FakeBroker
from zbroker.errors import ZBrokerError

EXAMPLES = max(15, int(os.environ.get("ZB_SEEDS", "0")) // 10)
LOSSES_MAX = 3  # each costs a reconnect delay that doubles

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 200)),
    st.tuples(st.just("publish_many"), st.integers(1, 2_000)),
    st.tuples(st.sampled_from(["receipt", "flush", "ready", "reader"]), st.integers(0, 5)),
    st.tuples(st.just("rounds"), st.integers(0, 20)),
    st.tuples(st.sampled_from(["restart", "forget", "hold", "release"]), st.just(0)),
)


class History:
    """What was published, what was read, and the waits that were cut short."""

    def __init__(self, broker, client, subscription):
        self.broker, self.client, self.subscription = broker, client, subscription
        self.published, self.read = [], []
        self.losses = 0
        self.receipt = None
        self.reader = asyncio.create_task(self._read())

    async def _read(self):
        while True:
            self.read.append((await self.subscription.next()).data)

    async def step(self, what, amount):
        if what in ("restart", "forget"):
            self.losses += 1
            if self.losses > LOSSES_MAX:
                return
        await getattr(self, what)(amount)

    def _new(self, count):
        start = len(self.published)
        return [b"%d" % i for i in range(start, start + count)]

    async def publish(self, count):
        for data in self._new(count):
            with suppress(ZBrokerError):  # store_full: it is not published
                self.receipt = self.client.publish("a", data)
                self.published.append(data)

    async def publish_many(self, count):
        data = self._new(count)
        with suppress(ZBrokerError):  # as above: none of them
            self.receipt = self.client.publish_many("a", data)
            self.published += data

    async def _cut_short(self, wait, rounds):
        task = asyncio.create_task(wait)
        await turns(rounds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def receipt_wait(self, rounds):
        if self.receipt is not None:
            await self._cut_short(self.receipt.wait(T), rounds)

    async def flush(self, rounds):
        await self._cut_short(self.client.flush(T), rounds)

    async def ready(self, rounds):
        await self._cut_short(self.client.ready(T), rounds)

    async def reader_again(self, rounds):
        """Cut short where it is a few rounds of the loop after something came."""
        before = len(self.read)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                while len(self.read) == before:
                    await asyncio.sleep(0)
        await turns(rounds)
        self.reader.cancel()
        with suppress(asyncio.CancelledError):
            await self.reader
        self.reader = asyncio.create_task(self._read())

    async def rounds(self, count):
        for _ in range(count):
            await asyncio.sleep(0.001)

    async def restart(self, _):
        self.broker.restart()

    async def forget(self, _):
        self.broker.do(self.broker._names.clear)  # the ingest listener: whose sessions there were

    async def hold(self, _):
        self.broker.hold = True

    async def release(self, _):
        self.broker.release()

    async def finish(self):
        self.broker.release()
        await self.client.flush(T)
        await until(lambda: len(self.read) >= len(self.published) or self.reader.done())
        self.reader.cancel()
        with suppress(asyncio.CancelledError):
            await self.reader


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


@given(st.lists(STEPS, min_size=3, max_size=25))
@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.explicit, Phase.generate])
@in_loop
async def test_nothing_is_lost_and_nothing_comes_twice(steps):
    names = {"receipt": "receipt_wait", "reader": "reader_again"}
    with FakeBroker() as broker:
        async with pricer(broker, store_bytes=200_000) as client:
            history = History(broker, client, await client.subscribe("a", since="epoch"))
            for what, amount in steps:
                await history.step(names.get(what, what), amount)
            await history.finish()
        assert data_of(broker) == history.published
        assert history.read == history.published
