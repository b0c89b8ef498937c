"""Headless Chromium with an empty profile, which asks no server but the page it is shown.

Needs selenium, and Debian's packages chromium and chromium-driver on the path.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

PROGRAMS: Final = ("chromium", "chromedriver")
QUIET: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A driver of selenium; the browser ends with it."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        program, driver_program = map(shutil.which, PROGRAMS)
        options.binary_location = program or ""
        for argument in (*QUIET, *arguments, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options, webdriver.ChromeService(driver_program))
        try:
            yield driver
        finally:
            driver.quit()
