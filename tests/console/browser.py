"""Headless Chromium for tests: started and ended by its driver, with an empty profile."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tools import chromium as tools_chromium

WAIT_S: Final = 10.0  # for anything that the page is to show
POLL_S: Final = 0.05


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of one's own with an empty profile."""
    if importlib.util.find_spec("selenium") is None:
        pytest.skip("needs package selenium")
    for program in tools_chromium.PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"needs package of {program}")
    with tools_chromium.chromium() as driver:
        driver.set_page_load_timeout(WAIT_S)
        driver.set_script_timeout(WAIT_S)
        yield Browser(driver)


class Browser:
    """One window."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def size(self, width: int, height: int) -> None:
        """The window as a screen of so many CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """What is seen of an element; "" if it is hidden."""
        script = """const node = document.querySelector(arguments[0]);
            return node.checkVisibility() ? node.innerText : ''"""
        return str(self.run(script, selector))

    def rows(self, section: str) -> list[list[str]]:
        """The cells of a section's table."""
        script = """return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]
            .map((row) => [...row.cells].map((cell) => cell.textContent))"""
        found: list[list[str]] = self.run(script, section)
        return found

    def element(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def until(self, holds: Callable[[], object]) -> None:
        """Waits until something holds. Raises: TimeoutException after WAIT_S."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, WAIT_S, POLL_S).until(lambda _: holds())

    def complaints(self) -> list[str]:
        """What the console of the browser got since it was asked: errors, refused resources."""
        return [str(line["message"]) for line in self.driver.get_log("browser")]
