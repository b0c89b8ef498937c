"""zbroker/admin/console/text.js: numbers, sizes, times and names as people read them."""

from __future__ import annotations

from tests.console.browser import Browser
from tests.console.fake import Fake

NONE = "\u2013"

CASES: list[tuple[str, object, str]] = [
    ("count", 1_234_567, "1,234,567"),
    ("count", None, NONE),
    ("count", "12", NONE),
    ("rate", 0, "0"),
    ("rate", 0.01, "< 0.1"),
    ("rate", 1.25, "1.3"),
    ("rate", 9.97, "10"),
    ("rate", 1_234.5, "1,235"),
    ("size", 0, "0 bytes"),
    ("size", 1_023, "1,023 bytes"),
    ("size", 1_536, "1.5 KiB"),
    ("size", 5 << 40, "5 TiB"),
    ("duration", 0.25, "0.3 s"),
    ("duration", 59, "59 s"),
    ("duration", 5_400, "1.5 h"),
    ("duration", 86_400 * 12, "12 d"),
    ("name", "a\u200bb\n", "a\\u{200b}b\\u{a}"),
    ("name", "ä€😀", "ä€😀"),
    ("name", None, ""),
    ("name", "x" * 300, "x" * 200 + "…"),
    ("visible", "x" * 300, "x" * 300),
    ("sentence", "the broker starts.", "The broker starts."),
    ("sentence", None, ""),
]

CALL = """
const [cases, done] = arguments;
import("/console/text.js").then((text) => done(cases.map(([name, value]) => text[name](value))));
"""
TIMES = """
const [values, done] = arguments;
const iso = (date) => (date ? date.toISOString() : null);
import("/console/text.js").then((text) => done(values.map((one) => iso(text.moment(one)))));
"""


def test_each_value_has_its_text(browser: Browser, fake: Fake) -> None:
    browser.open(fake.url)
    asked = [[name, value] for name, value, _ in CASES]
    found = browser.driver.execute_async_script(CALL, asked)
    assert found == [text for _, _, text in CASES]


def test_every_form_of_a_time_is_read(browser: Browser, fake: Fake) -> None:
    browser.open(fake.url)
    values = ["20260314T150926.535897Z", "20260314T150926Z", "2026-03-14T15:09:26+00:00"]
    others = [1_773_500_966, "yesterday", None]
    found = browser.driver.execute_async_script(TIMES, values + others)
    second = "2026-03-14T15:09:26.000Z"
    assert found == ["2026-03-14T15:09:26.535Z", second, second, second, None, None]
