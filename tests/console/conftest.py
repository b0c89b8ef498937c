"""One browser for all tests of the console; each has its own server, so its own storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.console.browser import Browser, chromium
from tests.console.fake import Fake


@pytest.fixture(scope="session")
def chromium_once() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(chromium_once: Browser) -> Iterator[Browser]:
    """Light, as wide as a desk, and empty."""
    chromium_once.size(1440, 900)
    chromium_once.scheme("light")
    chromium_once.complaints()
    yield chromium_once
    chromium_once.open("about:blank")


@pytest.fixture
def fake() -> Iterator[Fake]:
    made = Fake()
    try:
        yield made
    finally:
        made.stop()
