"""What a process gives back of the memory that it freed, and when."""

from __future__ import annotations

import subprocess
import sys

from zbroker.limits import MIB
from zbroker.server.heap import (
    FREE_MAX_BYTES,
    HEAP_LOOK_MS,
    HEAP_LOOKS,
    IDLE_FREE_MAX_BYTES,
    IDLE_MS,
    TRIM_MS,
    Allocator,
    Heap,
)


class Fake(Allocator):
    """Notes at which looks memory was given back."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.looks = self.trims = 0

    def free_bytes(self) -> int:
        self.looks += 1
        return self.free

    def trim(self) -> None:
        self.trims += 1


def test_nothing_is_looked_at_while_no_connection_ended() -> None:
    fake = Fake(1 << 40)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, 100):
        heap.connections(0, now_ms)
    assert fake.looks == 0


def test_a_lot_is_given_back_once_connections_ended() -> None:
    fake = Fake(FREE_MAX_BYTES + 1)
    heap = Heap(fake)
    heap.connections(5, 0)
    assert fake.trims == 0, "not at once: libzmq has not freed it yet"
    heap.connections(5, HEAP_LOOK_MS)
    assert fake.trims == 1


def test_a_little_is_kept() -> None:
    fake = Fake(FREE_MAX_BYTES)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, 100):
        heap.connections(1, now_ms)
    assert (fake.trims, fake.looks) == (0, HEAP_LOOKS)


def test_what_is_freed_late_is_given_back_too() -> None:
    fake = Fake(0)
    heap = Heap(fake)
    heap.connections(1, 0)
    heap.connections(1, HEAP_LOOK_MS)
    fake.free = FREE_MAX_BYTES + 1
    heap.connections(1, 2 * HEAP_LOOK_MS)
    assert fake.trims == 1


def test_connections_that_come_and_go_do_not_make_it_trim_all_the_time() -> None:
    fake = Fake(1 << 40)
    heap = Heap(fake)
    end_ms = 100_000
    for now_ms in range(0, end_ms, 100):
        heap.connections(now_ms, now_ms)
    assert 1 <= fake.trims <= end_ms // TRIM_MS + 1


REAL = """
import psutil
from zbroker.server.heap import HEAP_LOOK_MS, Heap, keep_freed_memory
keep_freed_memory()
heap = Heap()
many = [bytes(100_000) for _ in range(1_500)]
kept = many[::200]
held = psutil.Process().memory_info().rss
del many
heap.connections(1, 0)
before = psutil.Process().memory_info().rss
heap.connections(1, HEAP_LOOK_MS)
print(held, before, psutil.Process().memory_info().rss)
"""


def test_pages_go_back_to_the_system_with_the_settings_of_our_processes() -> None:
    command = [sys.executable, "-c", REAL]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    held, before, after = map(int, done.stdout.split())
    assert held - before < 50 * MIB, "glibc keeps it by itself"
    assert held - after > 100 * MIB


def test_a_process_without_news_gives_all_but_a_little_back_once() -> None:
    fake = Fake(IDLE_FREE_MAX_BYTES + 1)
    heap = Heap(fake)
    heap.beat(1_000, busy=True)
    heap.beat(1_000 + IDLE_MS - 1, busy=False)
    assert fake.trims == 0
    for now_ms in range(1_000 + IDLE_MS, 100_000, 2_000):
        heap.beat(now_ms, busy=False)
    assert fake.trims == 1
    heap.beat(100_000, busy=True)
    heap.beat(100_000 + IDLE_MS, busy=False)
    assert fake.trims == 2


def test_a_busy_process_keeps_what_it_freed() -> None:
    fake = Fake(1 << 40)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, IDLE_MS - 1):
        heap.beat(now_ms, busy=False)
        heap.beat(now_ms, busy=True)
    assert fake.looks == 0


def test_a_little_is_kept_by_an_idle_process() -> None:
    fake = Fake(IDLE_FREE_MAX_BYTES)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, 2_000):
        heap.beat(now_ms, busy=False)
    assert (fake.trims, fake.looks) == (0, 1)
