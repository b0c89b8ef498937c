"""The console that a real instance serves."""

from __future__ import annotations

import pytest

import zbroker
from tests.console.browser import Browser
from tests.console.test_page import EVIL


@pytest.mark.process
def test_an_instance_shows_who_uses_it(browser: Browser) -> None:
    with zbroker.LocalBroker() as broker, zbroker.connect(broker.url, "pricer") as client:
        client.publish_many(EVIL, [b"{}"] * 1_000)
        client.publish("orders", b"{}")
        client.flush(10)
        subscription = client.subscribe(EVIL, since="epoch", credit=100)
        browser.open(broker.status()["endpoints"]["admin"])
        browser.until(lambda: [row[2] for row in browser.rows("topics")] == ["1,000", "1"])
        browser.until(lambda: browser.rows("subscriptions"))
        browser.until(lambda: len(browser.rows("clients")) == 2)
        browser.until(lambda: browser.rows("segments"))
        browser.until(lambda: "at most" in browser.text("#rates"))
        assert browser.text("h1") == "local ready"
        assert browser.rows("topics")[0][0] == EVIL
        assert browser.rows("subscriptions")[0][:2] == ["pricer", EVIL]
        assert {row[0] for row in browser.rows("clients")} == {"pricer"}
        assert len(browser.rows("processes")) == 6
        assert browser.complaints() == []
        subscription.close()
