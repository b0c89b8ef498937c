"""The bookmark store in memory, which is also what every bookmark store does.

A subscription with a name has one `Tracking` in it, between its reader and what is stored. With
discard="auto" a message is discarded when the reader asks for the next one; else when the user says
so, from any thread. The lock guards the progress; a store that writes asks for the state.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple, Self, get_args

from zbroker.client.bookmark_stores.format import Key
from zbroker.client.bookmark_stores.progress import ByMark, ByPosition, State, resume_point
from zbroker.client.message import Message
from zbroker.client.subscriber.options import Discard, SubscribeOptions, choice
from zbroker.errors import ZBrokerError
from zbroker.ids import EPOCH, Origin, check_client_name, format_vector
from zbroker.wire.messages import Options


class MemoryBookmarkStore:
    """What named subscriptions have processed, for as long as this object lives.

    Given to `zbroker.connect(..., bookmark_store=...)`; several clients may share one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._trackings: dict[Key, Tracking] = {}  # the newest of each name
        self._closed = False

    def recent(self, client: str, name: str) -> str | None:
        """The vector after which `since="recent"` begins; None if nothing is known: EPOCH."""
        state = self._state(Key(client, name))
        return format_vector(resume_point(state)) if state else None

    def forget(self, client: str, name: str) -> None:
        """Has the subscription begin at EPOCH next time. Raises: ZBrokerError name_in_use."""
        with self._guard:
            self._check_free(Key(client, name))
            self._trackings.pop(Key(client, name), None)
            self._remove(Key(client, name))

    def close(self) -> None:
        """Nothing is stored from now on."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- for subscriptions --------------------------------------------------------------------

    def _track(self, key: Key, manner: Manner) -> Tracking:
        """The place of a subscription. Raises: ZBrokerError name_in_use, bad_field, closed."""
        check_client_name(key.client)
        check_subscription_name(key.name)
        with self._guard:
            if self._closed:
                raise ZBrokerError("closed", "the bookmark store is closed")
            self._check_free(key)
            tracking = Tracking(self, key, self._state(key), manner)
            self._trackings[key] = tracking
        return tracking

    def _keeps(self, tracking: Tracking) -> bool:
        """True if what `tracking` says counts."""
        return not self._closed and self._trackings.get(tracking.key) is tracking

    def _changed(self, tracking: Tracking) -> None:
        """Its state is another one now. Raises: ZBrokerError store_failed."""

    # -- helpers ------------------------------------------------------------------------------

    def _state(self, key: Key) -> State:
        tracking = self._trackings.get(key)
        return self._load(key) if tracking is None else tracking.state()

    def _load(self, key: Key) -> State:
        """The state of a subscription that was not open since the store is."""
        return {}

    def _remove(self, key: Key) -> None:
        """Nothing is known of it any more."""

    def _check_free(self, key: Key) -> None:
        tracking = self._trackings.get(key)
        if tracking is not None and not tracking.ended:
            raise ZBrokerError(
                "name_in_use",
                f"a subscription {key.name!r} of {key.client!r} is open in this bookmark store",
                "close it first, or choose another name",
            )


def check_subscription_name(name: str) -> None:
    """Raises: ZBrokerError bad_field."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ZBrokerError("bad_field", f"name={name!r} is not printable text")


class Manner(NamedTuple):
    """How a subscription is tracked.

    ignores_stored: the stored state does not count. auto: the reader discards by going on.
    by_mark: see progress.py.
    """

    ignores_stored: bool
    auto: bool
    by_mark: bool


class Tracking:
    """Made by a store. `stored` is what it knew before, as far as that counts.

    ended: its subscription is closed. A later discard still counts, until the store is
    closed or another subscription takes the name.
    """

    def __init__(self, store: MemoryBookmarkStore, key: Key, before: State, manner: Manner) -> None:
        self.key = key
        self.ended = False
        self.stored: State = {} if manner.ignores_stored else before
        self._store = store
        self._before = before  # is stored until this one is under way
        self._auto = manner.auto
        self._lock = threading.Lock()
        progress = ByMark if manner.by_mark else ByPosition
        self._progress: ByMark | ByPosition = progress(self.stored)
        # the batch in hand, if the reader discards it by going on, and how much of it is passed;
        # the progress learns of that when it is asked
        self._hand: list[Message] = []
        self._given: list[Message] = []  # the same, emptied if the rest will not be handed out
        self._passed = self._learned = 0

    def begin(self, vector: Mapping[Origin, int]) -> None:
        """The broker has accepted the subscription, which begins after `vector`."""
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
            self._hand, self._passed, self._learned = self._given.copy(), 0, 0
        return fresh

    def passed(self, message: Message) -> None:
        """The reader asks for the next one after `message`. Raises: ZBrokerError store_failed."""
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
        """The state to store."""
        with self._lock:
            self._tell()
            return self._progress.state() or self._before

    def _tell(self) -> None:
        passed = self._passed
        if self._learned < passed:
            self._progress.discard_part(self._hand, self._learned, passed)
            self._learned = passed


def tracked(
    store: MemoryBookmarkStore | None, client: str, wanted: SubscribeOptions
) -> Tracking | None:
    """The subscription's place in the store; None without a name. Its command gets its begin.

    Raises: ZBrokerError bad_field, name_in_use, closed, StorageError store_failed.
    """
    choice("discard", wanted.discard, get_args(Discard))
    if wanted.name is None:
        if wanted.recent or wanted.discard == "manual":
            what = "since='recent'" if wanted.recent else "discard='manual'"
            raise ZBrokerError("bad_field", f"{what} needs the name of the subscription")
        return None
    if store is None:
        raise ZBrokerError(
            "bad_field", f"the client has no bookmark store for the subscription {wanted.name!r}",
            "give connect() a bookmark_store",
        )  # fmt: skip
    command = wanted.command
    options = command.options or Options()
    by_mark = options.delivery == "live" or options.conflation_s is not None
    manner = Manner(not wanted.recent, wanted.discard == "auto", by_mark)
    tracking = store._track(Key(client, wanted.name), manner)
    if wanted.recent:
        vector = resume_point(tracking.stored)
        command.bookmark = format_vector(vector) if vector else EPOCH
    return tracking
