"""Waits, turns and receipts without a broker."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.client.aio.looped import in_loop
from zbroker.client.aio.publisher import AsyncReceipt, AsyncTrack
from zbroker.client.aio.transport import LoopTurns, Waiters, check_loop
from zbroker.errors import ZBrokerError


async def rounds(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


# -- waiters ----------------------------------------------------------------------------------


@in_loop
async def test_a_wait_ends_when_its_condition_holds():
    waiters, seen = Waiters(asyncio.get_running_loop()), []
    task = asyncio.create_task(waiters.until(lambda: len(seen) == 2, None))
    for _ in range(2):
        await rounds()
        assert not task.done()
        seen.append(1)
        waiters.look()
    assert await task


@in_loop
async def test_a_condition_that_is_gone_again_is_waited_for_again():
    waiters, free = Waiters(asyncio.get_running_loop()), []

    async def take():
        assert await waiters.until(lambda: free, None)
        free.pop()

    tasks = [asyncio.create_task(take()) for _ in range(2)]
    for done in (1, 2):
        await rounds()
        free.append(1)
        waiters.look()
        await rounds()
        assert sum(task.done() for task in tasks) == done


@in_loop
async def test_a_wait_whose_time_is_over_says_so():
    loop = asyncio.get_running_loop()
    waiters = Waiters(loop)
    assert not await waiters.until(lambda: False, loop.time() + 0.001)
    assert not await waiters.until(lambda: False, loop.time() - 1)
    assert await waiters.until(lambda: True, loop.time() - 1)
    assert not waiters._waiting


@in_loop
async def test_a_cancelled_wait_is_forgotten():
    waiters = Waiters(asyncio.get_running_loop())
    task = asyncio.create_task(waiters.until(lambda: False, None))
    await rounds()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiters.look()
    assert not waiters._waiting


# -- turns ------------------------------------------------------------------------------------


@in_loop
async def test_turns_that_are_asked_for_together_are_one():
    count = []
    turns = LoopTurns(asyncio.get_running_loop(), lambda: count.append(1))
    turns.soon()
    turns.soon()
    assert turns.is_soon
    await rounds()
    assert (len(count), turns.is_soon) == (1, False)


@in_loop
async def test_the_earliest_timer_counts():
    done = asyncio.Event()
    turns = LoopTurns(asyncio.get_running_loop(), done.set)
    turns.within(100_000)
    turns.within(1)
    turns.within(50_000)
    await asyncio.wait_for(done.wait(), 10)


@in_loop
async def test_after_the_end_there_are_no_turns():
    count = []
    turns = LoopTurns(asyncio.get_running_loop(), lambda: count.append(1))
    turns.soon()
    turns.within(1)
    turns.close()
    turns.soon()
    turns.within(1)
    await asyncio.sleep(0.01)
    assert (count, turns.is_soon) == ([], False)


# -- receipts ---------------------------------------------------------------------------------


@in_loop
async def test_receipts_are_reported_in_whatever_order_they_are_awaited():
    track = AsyncTrack(7)
    receipts = [AsyncReceipt(track, "a", b"x") for _ in range(4)]
    receipts[0].value, receipts[3].value = 1, 4
    tasks = [asyncio.create_task(receipt.wait()) for receipt in reversed(receipts)]
    await rounds()
    receipts[1].value, receipts[2].value = 2, 3
    for settled in range(1, 5):
        track.settled = settled
        track.changed()
        await rounds()
        assert [task.done() for task in reversed(tasks)] == [n < settled for n in range(4)]
    assert [await task for task in tasks] == ["7|4|", "7|3|", "7|2|", "7|1|"]
    assert not track._heap
    assert not track._of


@in_loop
async def test_a_refused_message_fails_its_receipt():
    track = AsyncTrack(7)
    receipt = AsyncReceipt(track, "a", 5)
    task = asyncio.create_task(receipt.wait())
    await rounds()
    track.refuse(5, 5, ZBrokerError("bad_topic", "no"))
    track.settled = 5
    track.changed()
    with pytest.raises(ZBrokerError, match="bad_topic"):
        await task
    with pytest.raises(ZBrokerError, match="bad_topic"):
        await receipt


@in_loop
async def test_what_ends_the_client_ends_every_wait():
    track = AsyncTrack(7)
    receipts = [AsyncReceipt(track, "a", b"no number yet"), AsyncReceipt(track, "a", 5)]
    tasks = [asyncio.create_task(receipt.wait(60)) for receipt in receipts]
    tasks.append(asyncio.create_task(track.until_settled(9, 60)))
    await rounds()
    track.error = ZBrokerError("session_ended", "gone")
    track.changed()
    for task in tasks:
        with pytest.raises(ZBrokerError, match="session_ended"):
            await task


@in_loop
async def test_waits_that_are_given_up_leave_one_entry_per_message():
    track = AsyncTrack(7)
    receipts = [AsyncReceipt(track, "a", b"no number yet"), AsyncReceipt(track, "a", 5)]
    for _ in range(20):
        for receipt in receipts:
            with pytest.raises(ZBrokerError, match="timeout"):
                await receipt.wait(0)
    assert (track._unnumbered, track._heap, track._of) == ({}, [5], {5: set()})


@in_loop
async def test_callbacks_are_called_with_their_receipt():
    track, reported = AsyncTrack(7), []
    receipt = AsyncReceipt(track, "a", 1)
    receipt.add_done_callback(reported.append)
    track.changed()
    assert reported == []
    track.settled = 1
    track.changed()
    assert reported == [receipt]


# -- the loop ---------------------------------------------------------------------------------


@in_loop
async def test_another_thread_learns_whose_the_client_is():
    track, reported = AsyncTrack(7), []

    def work():
        try:
            check_loop(track.loop, track)
        except RuntimeError as error:
            reported.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert "event loop" in reported[0]
    check_loop(track.loop, track)


def test_another_loop_learns_so_too():
    track = asyncio.run(_track())

    async def use():
        await AsyncReceipt(track, "a", 1).wait(1)

    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(use())
    track.error = ZBrokerError("closed", "over")
    with pytest.raises(ZBrokerError, match="closed"):
        asyncio.run(use())


async def _track():
    return AsyncTrack(7)
