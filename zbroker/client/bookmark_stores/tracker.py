"""One named subscription in a bookmark store: between its reader and what is stored.

auto: a message is discarded when the reader asks for the next one; else when the user says so, from
any thread. The lock guards the progress; a store that writes asks for the state.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from zbroker.client.bookmark_stores.format import Key
from zbroker.client.bookmark_stores.progress import BookmarkProgress, ByMark, ByPosition, State
from zbroker.client.message import Message
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin

if TYPE_CHECKING:
    from zbroker.client.bookmark_stores.memory import MemoryBookmarkStore


class Manner(NamedTuple):
    """How a subscription is tracked.

    anew: what was stored does not count. auto: see above. by_mark: see progress.py.
    """

    anew: bool
    auto: bool
    by_mark: bool


class Tracking:
    """Made by a store. `stored` is what it knew before, as far as that counts.

    ended: its subscription is closed. What is discarded later still counts, until the store is
    closed or another subscription takes the name.
    """

    def __init__(self, store: MemoryBookmarkStore, key: Key, before: State, manner: Manner) -> None:
        self.key = key
        self.ended = False
        self.stored: State = {} if manner.anew else before
        self._store = store
        self._before = before  # what is stored until this one is under way
        self._auto = manner.auto
        self._lock = threading.Lock()
        progress = ByMark if manner.by_mark else ByPosition
        self._progress: BookmarkProgress = progress(self.stored)
        # the batch in hand, if the reader discards it by going on, and how much of it is passed;
        # the progress is told of that when it is asked
        self._hand: list[Message] = []
        self._given: list[Message] = []  # the same, emptied if the rest will not be handed out
        self._passed = self._told = 0

    def begin(self, vector: Mapping[Origin, int]) -> None:
        """The broker has accepted the subscription, which begins behind `vector`."""
        if not self.stored:
            with self._lock:
                self._progress.advance(vector)
        self._store._changed(self)

    def receive(self, messages: list[Message]) -> list[Message]:
        """A batch is handed out: those of it that are not processed. Raises: ZBrokerError."""
        if not messages[0].recorded:
            return messages
        with self._lock:
            self._tell()
            fresh = self._progress.receive(messages)
            self._given = fresh if self._auto else []
            self._hand, self._passed, self._told = self._given.copy(), 0, 0
        return fresh

    def passed(self, message: Message) -> None:
        """The reader asks for what is behind `message`. Raises: ZBrokerError store_failed."""
        at = self._passed
        if at < len(self._hand) and self._hand[at] is message:
            self._passed = at + 1
            self._store._changed(self)

    def passed_all(self) -> None:
        """The reader asks for another batch. Raises: ZBrokerError store_failed."""
        if self._given and self._passed < len(self._hand):
            self._passed = len(self._hand)
            self._store._changed(self)

    def advance(self, vector: Mapping[Origin, int]) -> None:
        """Everything up to there was handed out, and is durable."""
        with self._lock:
            self._progress.advance(vector)
        self._store._changed(self)

    def discard(self, message: Message) -> None:
        """The message is processed. Twice is once. Raises: ZBrokerError store_failed, closed."""
        with self._lock:
            news = message.recorded and self._progress.discard(message)
        if news:
            self._store._changed(self)

    def check_current(self) -> None:
        """Raises: ZBrokerError closed, if nothing that is discarded here can be stored."""
        if not self._store._keeps(self):
            what = f"the subscription {self.key.name!r} is closed, and so is its store"
            raise ZBrokerError("closed", what, "or another one has the name now")

    def state(self) -> State:
        """What is to be stored."""
        with self._lock:
            self._tell()
            return self._progress.state() or self._before

    def _tell(self) -> None:
        passed = self._passed
        if self._told < passed:
            self._progress.discard_part(self._hand, self._told, passed)
            self._told = passed
