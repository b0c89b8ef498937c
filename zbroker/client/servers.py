"""Which broker a client connects to, when there is a choice. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zbroker import endpoints
from zbroker.errors import ZBrokerError


class ServerChooser(Protocol):
    """What `connect` takes in place of URLs. Called by one thread at a time; must not wait."""

    def choose(self) -> str:
        """The URL to try now."""

    def connected(self, url: str) -> None:
        """That one gave a session."""

    def failed(self, url: str, error: ZBrokerError | None) -> None:
        """That one gave no session, or the session was lost. `error`: what it said, if anything."""


class ListChooser:
    """Stays with a URL for as long as it works, then goes on to the next one, in a circle."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Raises: ZBrokerError bad_field, bad_url."""
        if not urls:
            raise ZBrokerError("bad_field", "no URL was given")
        self.urls = tuple(map(endpoints.ingest_url, urls))
        self._at = 0

    def choose(self) -> str:
        return self.urls[self._at]

    def connected(self, url: str) -> None:
        """Nothing: it stays where it is."""

    def failed(self, url: str, error: ZBrokerError | None) -> None:
        del error
        if url == self.urls[self._at]:
            self._at = (self._at + 1) % len(self.urls)
