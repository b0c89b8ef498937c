"""A storm of publishers that are killed and started again from their stores, while processes and
whole instances are killed under them: every message whose publish() returned is in the log, once,
in the order of its thread.

Each publisher notes what it is about to publish and what has returned (storm_ledger.py), so the
verdict is exact. One is written by hand and sends everything up to five times.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.process.load import until
from tests.process.storm_hand import TIMES_MAX, WINDOW, Stutter, sent_again, stuttered
from tests.process.storm_instance import Instance
from tests.process.storm_ledger import (
    NOTE,
    Call,
    Content,
    Ledger,
    calls,
    content_of,
    contents,
    judge,
    line_of,
)
from tests.process.storm_publisher import Child
from zbroker.cli.journal.rows import MessageRow
from zbroker.ids import publisher_id

pytestmark = [pytest.mark.process, pytest.mark.timeout(1_800)]

THREADS: Final = (1, 4, 4)  # of each publisher
HAND: Final = "hand"
WAIT_S: Final = 120.0
CALLS_MAX: Final = 150  # of a publisher in one life
#: what is killed, in this order, again and again
TARGETS: Final = (
    "journal",
    "instance",
    "ingest",
    "zygote",
    "delivery",
    "journal",
    "ingest",
    "queues",
)


class Storm:
    """One instance, its publishers, and who kills all of them."""

    def __init__(self, directory: Path, seed: int, per_second: float) -> None:
        self.instance = Instance(directory / "data")
        self.children = [
            Child(self.instance.url, f"storm-{n}", directory / f"storm-{n}", threads, seed + n)
            for n, threads in enumerate(THREADS)
        ]
        self.kills = 0
        self._hand = Stutter(self.instance.url, HAND, seed)
        self._rng = random.Random(seed)
        self._per_second = per_second
        self._pause = threading.Event()
        self._errors: list[BaseException] = []

    def blow(self, messages: int, kills: int, lives: int) -> None:
        """Until there are at least so many messages, kills, and lives of each publisher."""
        threads = [self._thread(partial(self._kill_processes, kills))]
        threads += [self._thread(partial(self._kill, child, lives)) for child in self.children]
        for thread in threads:
            thread.join()
        until(lambda: self._is_enough(messages) or self._over(), f"{messages}", WAIT_S)
        for child in self.children:
            child.stop()
        assert not self._errors, self._errors
        for child in self.children:
            child.end()

    def _is_enough(self, messages: int) -> bool:
        self._pause.wait(0.2)  # to count takes a while
        return self._returned() >= messages

    def _returned(self) -> int:
        return sum(child.returned() for child in self.children)

    def close(self) -> None:
        for child in self.children:
            child.close()
        self._hand.close()
        self.instance.close()

    # -- kills --------------------------------------------------------------------------------

    def _kill_processes(self, kills: int) -> None:
        for number in range(kills):
            self._pause.wait(self._rng.uniform(0.1, 1.0))
            target = TARGETS[number % len(TARGETS)]
            if target == "instance":
                self.instance.restart()
            else:
                self.instance.kill_process(target)
            self.kills += 1

    def _kill(self, child: Child, lives: int) -> None:
        """Some die while they connect, most while they publish."""
        rng = random.Random(child.name)
        for number in range(lives):
            child.start(self._per_second / len(self.children))
            if number % 4 == 3:
                self._pause.wait(rng.uniform(0.3, 0.6))
            else:
                goal = child.progress() + NOTE.size * rng.randint(1, CALLS_MAX)
                until(
                    lambda goal=goal: child.progress() > goal or child.has_ended() or self._over(),
                    f"{child.name} goes on", WAIT_S,
                )  # fmt: skip
            child.kill()
        child.start(self._per_second / len(self.children))

    def _over(self) -> bool:
        return bool(self._errors)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    # -- the verdict --------------------------------------------------------------------------

    def judge(self) -> int:
        """Compares the log with all ledgers. Returns: how many messages had returned."""
        by_hand = self._hand.finish()  # nothing more comes
        by_publisher = defaultdict(list)
        for message in self.instance.messages():
            by_publisher[message.publisher].append(message)
        _judge_hand(by_publisher.pop(publisher_id(HAND)), by_hand)
        returned = by_hand
        for child in self.children:
            found = by_publisher.pop(publisher_id(child.name))
            sequences = [message.sequence for message in found]
            assert sequences == sorted(set(sequences)), f"{child.name}: sequences do not rise"
            lines: dict[int, list[Content]] = defaultdict(list)
            for message in found:
                lines[line_of(message)].append(content_of(message))
            assert set(lines) <= set(child.lines)
            returned += sum(judge(n, child.calls(n), lines[n]) for n in child.lines)
        assert not by_publisher, "messages of unknown publishers"
        return returned

    def send_again(self) -> int:
        """Everything once more with the same sequences, to a journal that has just read its log."""
        before = self.instance.messages()
        self.instance.kill_process("journal")
        by_publisher = defaultdict(list)
        for batch in self.instance.batches():
            by_publisher[batch.publisher].append(batch)
        sent = sum(
            sent_again(self.instance.url, name, by_publisher[publisher_id(name)], self._rng)
            for name in [HAND, *(child.name for child in self.children)]
        )
        reported = self.instance.journal
        until(lambda: reported()["duplicates"] >= sent, f"{sent} dropped, not {reported()}", 10.0)
        assert (reported()["duplicates"], reported()["conflicts"]) == (sent, 0)
        assert self.instance.messages() == before
        return sent


def _judge_hand(found: list[MessageRow], persisted: int) -> None:
    """1, 2, 3, ... once each; all that was acknowledged, and what was on the way."""
    assert [int(message.data) for message in found] == list(range(1, len(found) + 1))
    assert 0 < persisted <= len(found)


def storm(directory: Path, seed: int, messages: int, kills: int, lives: int) -> str:
    """Runs one. Returns: what happened."""
    weather = Storm(directory, seed, per_second=max(4_000, messages / 60))
    try:
        weather.blow(messages, kills, lives)
        returned = weather.judge()
        assert returned >= messages
        sent = weather.send_again()
        publishers = sum(child.kills for child in weather.children)
        return (
            f"{returned:,} messages, {publishers} publishers and {weather.kills} processes killed; "
            f"{sent:,} sent again\n"
        )
    finally:
        weather.close()


@pytest.mark.seed("002-01")
@pytest.mark.seed("002-03")
@pytest.mark.seed("002-30")
@pytest.mark.seed("002-34")
@pytest.mark.seed("002-35")
def test_what_publish_returned_for_is_in_the_log_once_and_in_order(tmp_path: Path) -> None:
    sys.stdout.write(storm(tmp_path, seed=1, messages=20_000, kills=4, lives=2))  # for -s


@pytest.mark.seed("002-34")
@pytest.mark.seed("002-35")
@pytest.mark.long
def test_half_a_million_messages_in_a_storm_are_in_the_log_once_and_in_order(
    tmp_path: Path,
) -> None:
    sys.stdout.write(storm(tmp_path, seed=2, messages=500_000, kills=40, lives=40))


# -- the test of the test -------------------------------------------------------------------------

KNOWN: Final = [
    Call(0, 1, True), Call(1, 20, True), Call(21, 5, False), Call(26, 1, True), Call(27, 1, False),
    Call(28, 1, True),
]  # fmt: skip


def published(*known: tuple[int, int]) -> list[Content]:
    """These calls, as they are in the log: (first, count)."""
    return [content for first, count in known for content in contents(7, first, count)]


@pytest.mark.parametrize("under_way", range(6))
def test_of_a_call_under_way_any_number_of_its_first_messages_may_be_there(under_way: int) -> None:
    some = contents(7, 21, 5)[:under_way]
    found = [*published((0, 1), (1, 20)), *some, *published((26, 1), (28, 1))]
    assert judge(7, KNOWN, found) == 23
    found = [*published((0, 1), (1, 20)), *some, *published((26, 1), (27, 1), (28, 1))]
    assert judge(7, KNOWN, found) == 23


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found[1:],
        lambda found: found[:-1],
        lambda found: [*found[:3], *found[4:]],
        lambda found: [*found[:4], *found[3:]],
        lambda found: [*found[:3], found[4], found[3], *found[5:]],
        lambda found: [*found[:21], *contents(7, 21, 5)[1:], *found[21:]],
        lambda found: [*found[:21], *2 * contents(7, 27, 1), *found[21:]],
        lambda found: [*found, *contents(7, 27, 1)],
        lambda found: [*found, *contents(7, 29, 1)],
        lambda found: [found[0]._replace(headers=None), *found[1:]],
        lambda found: [*found[:5], found[5]._replace(topic="t"), *found[6:]],
    ],
    ids=["first", "last", "missing", "double", "swapped", "not the first ones", "twice under way",
         "too late", "unknown", "headers", "topic"],
)  # fmt: skip
def test_what_was_not_published_so_is_noticed(spoil: Callable[[list[Content]], Any]) -> None:
    found = published((0, 1), (1, 20), (26, 1), (28, 1))
    assert judge(7, KNOWN, found) == 23
    with pytest.raises(AssertionError, match="line 7"):
        judge(7, KNOWN, spoil(found))


def test_a_ledger_goes_on_after_a_call_that_did_not_return(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "0.ledger")
    ledger.begins(5)
    ledger.returned(5)
    ledger.begins(3)
    ledger.close()
    again = Ledger(tmp_path / "0.ledger")
    again.begins(1)
    again.returned(1)
    again.close()
    assert calls(tmp_path / "0.ledger") == [Call(0, 5, True), Call(5, 3, False), Call(8, 1, True)]


def test_a_stutter_says_each_number_once_to_five_times_and_leaves_none_out() -> None:
    said = list(stuttered(100, random.Random(1)))
    assert list(dict.fromkeys(said)) == list(range(101, 101 + WINDOW))
    assert len(said) > 2 * WINDOW
    assert TIMES_MAX > 1
