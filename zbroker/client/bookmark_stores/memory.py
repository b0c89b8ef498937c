"""The bookmark store in memory, which is also what every bookmark store does."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from zbroker.client.bookmark_stores.format import Key
from zbroker.client.bookmark_stores.progress import State, resume_point
from zbroker.client.bookmark_stores.tracker import Manner, Tracking
from zbroker.errors import ZBrokerError
from zbroker.ids import check_client_name, format_vector


class MemoryBookmarkStore:
    """What named subscriptions have processed, for as long as this object lives.

    Given to `zbroker.connect(..., bookmark_store=...)`; several clients may share one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._trackings: dict[Key, Tracking] = {}  # the newest of each name
        self._closed = False

    def recent(self, client: str, name: str) -> str | None:
        """The vector behind which `since="recent"` begins; None if nothing is known: EPOCH."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """What is known of a subscription that was not open since the store is."""
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
