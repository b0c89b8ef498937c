"""One day of the log at 10,000 times its pace: only what a filter lets through, with a pause.

The messages are compared with the same rows of the table, chosen there by pandas.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zbroker.clock import parse_time
from zbroker.demo import check, flights
from zbroker.errors import ZBrokerError

if TYPE_CHECKING:
    from zbroker.client import Client, Message, Subscription
    from zbroker.demo.check import FlightTable
    from zbroker.demo.story import Advance, Story

DAY: Final = "24 June 2013"
SINCE: Final = "20130624T090000Z"  # five in the morning in New York
UNTIL: Final = "20130625T090000Z"
CARRIER: Final = "UA"
LATE_MIN: Final = 60
FILTER: Final = f"/carrier = '{CARRIER}' AND /arr_delay > {LATE_MIN}"
RATE: Final = "10000X"
PAUSE_S: Final = 0.5
SILENT_S: Final = 20.0
HOUR_NS: Final = 3_600_000_000_000


class PausedSubscription:
    """A subscription that is paused once, after `pause_after` messages."""

    def __init__(self, subscription: Subscription, pause_after: int) -> None:
        self.under_way = 0  # messages that came although it was paused
        self.paused = False
        self._subscription = subscription
        self._pause_after = pause_after

    def __iter__(self) -> Iterator[Message]:
        """All messages. Raises: ZBrokerError, also "timeout" if nothing comes for SILENT_S."""
        count = 0
        while (message := self._subscription.next(SILENT_S)) is not None:
            yield message
            count += 1
            if count == self._pause_after:
                yield from self._pause()

    def _pause(self) -> Iterator[Message]:
        self._subscription.pause()
        self.paused = True
        try:
            while (message := self._subscription.next(PAUSE_S)) is not None:
                self.under_way += 1
                yield message
        except ZBrokerError as error:
            if error.code != "timeout":
                raise
        self._subscription.resume()


def replay(story: Story, client: Client, table: FlightTable) -> None:
    """Replays the day; a difference is a failure of the story."""
    story.chapter(
        f"Live through {DAY} once more",
        f"filter {FILTER}, rate {RATE}; paused on the way and resumed.",
    )
    wanted = table.late(CARRIER, LATE_MIN, parse_time(SINCE), parse_time(UNTIL))
    begun = time.perf_counter()
    with client.subscribe(
        flights.TOPICS, regex=True, since=SINCE, until=UNTIL, filter=FILTER, rate=RATE
    ) as subscription:
        watched = PausedSubscription(subscription, len(wanted) // 2)
        with story.bar("late flights", len(wanted)) as advance:
            found = check.compare(wanted, 0, _counted(watched, advance))
    if watched.paused:
        came = f"{watched.under_way} were under way" if watched.under_way else "nothing came"
        story.say(f"Paused after {len(wanted) // 2:,} of them for {PAUSE_S} s: {came}.")
    story.verdict(_summary(found.rows, wanted, time.perf_counter() - begun), found.difference)


def _counted(messages: PausedSubscription, advance: Advance) -> Iterator[Message]:
    for count, message in enumerate(messages, 1):
        advance(count)
        yield message


def _summary(rows: int, wanted: FlightTable, taken_s: float) -> str:
    late = f"{rows:,} of {len(wanted):,} late United flights of {DAY}"
    times = wanted.departure_ns or [0]
    hours = (times[-1] - times[0]) / HOUR_NS
    return f"{late}, each column as in the table: {hours:.1f} hours in {taken_s:.1f} s"
