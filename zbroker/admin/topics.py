"""GET /topics: counts of the log by topic, the thread that counts, and subscriptions."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from heapq import nsmallest
from typing import Any, Final

from zbroker.access.grants import AccessPattern
from zbroker.admin.process_link import ProcessLink, WorkThread
from zbroker.admin.requests import TopicsQuery
from zbroker.admin.tallies import Tallies, TopicTally
from zbroker.clock import Clock, format_time
from zbroker.config import setting_of
from zbroker.errors import ClientError, StorageError
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.paths import Paths
from zbroker.recording import Recording
from zbroker.topics import Matcher, matcher
from zbroker.wire.surveys import AskTopics
from zbroker.wire.surveys import Topics as TopicsAnswer

PATTERNS_MAX: Final = 200  # of subscriptions, the most frequent ones: each is tried on each row


class TopicReports:
    """Answers from any thread."""

    def __init__(self, counting: TopicCounter, link: ProcessLink, recording: Recording) -> None:
        self._counting = counting
        self._link = link
        self._recording = recording

    def answer(self, wanted: TopicsQuery) -> dict[str, Any]:
        """Those with the most messages first. Raises: ClientError, StorageError."""
        fits = _fits(wanted.match)
        counted, complete = self._counting.rows()
        interest = Interest(self._answers())
        rows = {row.topic: row for row in counted}
        for topic in interest.exact:
            rows.setdefault(topic, TopicTally(topic, 0, 0, 0, 0, 0))
        found = [row for row in rows.values() if fits(row.topic)]
        shown = nsmallest(wanted.limit, found, key=lambda row: (-row.messages, row.topic))
        return {
            "complete": complete,
            "left_out": len(found) - len(shown),
            "topics": [self._row(row, interest.of(row.topic)) for row in shown],
        }

    def _answers(self) -> list[TopicsAnswer]:
        """The answers of the delivery workers; that of a silent one is missing."""
        workers = [name for name in self._link.processes if setting_of(name) == "delivery"]
        with suppress(ClientError):  # the counts of the log do not need them
            answers = self._link.ask(TopicsAnswer, AskTopics(0), workers)
            return [answer for answer in answers.values() if answer is not None]
        return []

    def _row(self, row: TopicTally, subscriptions: int) -> dict[str, Any]:
        there = row.messages > 0
        return {
            "topic": row.topic, "messages": row.messages, "bytes": row.bytes,
            "first_time": format_time(row.first_time) if there else None,
            "last_time": format_time(row.last_time) if there else None,
            "last_position": row.last if there else None,
            "recorded": self._recording(row.topic), "subscriptions": subscriptions,
        }  # fmt: skip


class Interest:
    """How many subscriptions want a topic; `exact` are those that are named."""

    def __init__(self, answers: Iterable[TopicsAnswer]) -> None:
        self.exact: Counter[str] = Counter()
        patterns: Counter[str] = Counter()
        for row in (row for one in answers for row in one.rows):
            (patterns if row.regex else self.exact)[row.topic] += row.subscriptions
        self._patterns: list[tuple[Matcher, int]] = []
        for text, count in patterns.most_common(PATTERNS_MAX):
            with suppress(ClientError):  # delivery has taken it, so this is a newer one's
                self._patterns.append((matcher(text, regex=True), count))

    def of(self, topic: str) -> int:
        """By name and by pattern."""
        return self.exact[topic] + sum(count for fits, count in self._patterns if fits(topic))


def _fits(match: str) -> Matcher:
    """Raises: ClientError bad_field."""
    if not match:
        return lambda _: True
    try:
        return AccessPattern(match)
    except ValueError as error:
        raise ClientError("bad_field", f"the query: `match`: {error}") from None


SLICE_MS: Final = 10  # of work
PAUSE_S: Final = 0.03  # after each: a quarter of one core at most
REST_MS: Final = 600_000
WAIT_S: Final = 1.0  # for an answer that is complete: enough for a short log

End = Callable[[], int]  # how far the log is durable. Raises: ClientError, StorageError


class TopicCounter(WorkThread):
    """The thread that counts what the log holds of each topic.

    It begins with the first question, continues with each further one, and rests when none has come
    for REST_MS: an instance that is not asked pays nothing. A slice of work is followed by a longer
    pause, in a niced thread: threads that serve clients go first. Any thread calls `rows`.
    """

    def __init__(self, paths: Paths, end: End, clock: Clock, log: logging.Logger) -> None:
        super().__init__("topics")
        self._paths = paths
        self._end = end
        self._clock = clock
        self._log = log
        self._tallies = Tallies()
        self._cursor: Cursor | None = None
        self._lock = threading.Lock()  # of both
        self._wanted = 0  # the position up to which it is to be counted
        self._asked_ms = 0
        self._done = threading.Condition()

    def rows(self) -> tuple[list[TopicTally], bool]:
        """The counts so far, and whether they are complete as of now.

        Raises: ClientError not_ready, StorageError.
        """
        wanted = self._end()
        with self._done:
            self._asked_ms = self._clock.mono_ms()
            self._wanted = max(self._wanted, wanted)
            if not self._thread.is_alive() and not self._stop.is_set():
                self._thread.start()
            self._wake.set()
            self._done.wait_for(lambda: self._tallies.position >= wanted, WAIT_S)
        with self._lock:
            tallies = self._tallies
            return list(tallies.rows()), tallies.position >= wanted and not tallies.full

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        log: Log | None = None
        while not self._stop.is_set():
            try:
                log = log or Log(self._paths.journal, self._paths.archive)
                more = self.turn(log)
            except (StorageError, OSError) as error:
                self._log.warning("topics cannot be counted: %s; tried again when asked", error)
                more = False
            finally:
                if log is not None:
                    log.close()  # a file that stays open takes space after it was unlinked
            if more:
                self._stop.wait(PAUSE_S)
            else:
                self._wake.wait()
                self._wake.clear()

    def turn(self, log: Log) -> bool:
        """One slice; True if there is more to do, and it was asked for. Raises: StorageError."""
        now_ms, wanted = self._clock.mono_ms(), self._wanted
        log.refresh()
        with self._lock:
            self._tallies.forget(log.first_position)
            self._slice(log, wanted, now_ms + SLICE_MS)
            more = self._tallies.position < wanted
        if not more:
            with self._done:
                self._done.notify_all()
        return more and now_ms - self._asked_ms < REST_MS

    def _slice(self, log: Log, wanted: int, until_ms: int) -> None:
        cursor = self._cursor or log.seek(log.first_position)
        for found, serial in log.header_lists(cursor, wanted):
            self._tallies.take(found, serial)
            last = found[-1]
            if isinstance(last, Gap):
                cursor = log.seek(last.end)
            else:
                cursor = Cursor(serial, last.end_offset, last.end_position)
            if self._clock.mono_ms() >= until_ms:
                break
        else:
            self._tallies.position = max(self._tallies.position, wanted)
        self._cursor = cursor
