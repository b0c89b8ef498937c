"""zbroker/admin/console: what the page shows of documents, and what it does without them."""

from __future__ import annotations

import pytest

from tests.console import documents as d
from tests.console.browser import Browser
from tests.console.fake import Fake

EVIL = '<img src=x onerror="window.pwned=1">'
HEX = "10b714bc24174273"
TURNED = "gnp\u202egpj.exe\u0007"  # its end would be shown in front of its beginning


def opened(browser: Browser, fake: Fake) -> None:
    """The page of `fake`, with every section filled."""
    browser.open(fake.url)
    wanted = ("processes", "subscriptions", "queues", "topics", "clients", "segments", "actions")
    browser.until(lambda: all(browser.rows(section) for section in wanted))
    browser.until(lambda: browser.run("return document.querySelector('.line').getAttribute('d')"))


def asked(fake: Fake, path: str) -> int:
    return sum(one.partition("?")[0] == path for one in fake.asked)


def test_each_section_shows_its_document(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    assert browser.text("h1") == "emea-1 ready"
    assert "tcp://127.0.0.1:9101" in browser.text("header")
    assert "1,235/s" in browser.text("#rates")
    assert "3 MiB/s" in browser.text("#rates")
    assert "1,234,567" in browser.text("#log")
    assert [row[0] for row in browser.rows("processes")] == [
        "supervisor", "journal", "ingest", "delivery", "admin",
    ]  # fmt: skip
    assert browser.rows("subscriptions")[0][:6] == [
        "blotter", "orders.eu", "/region = 'EU' AND /quantity > 100", "no credit", "56,789", "57",
    ]  # fmt: skip
    assert browser.rows("queues")[0] == [
        "work", "work", "/orders.*/", "running", "1,234", "1,234", "0", "0", "1.5 h", "0", "13",
        "2.5", "76", "6", "3 MiB",
    ]  # fmt: skip
    assert "76/s" in browser.text("#rates")
    assert [row[0] for row in browser.rows("topics")] == ["orders.eu", "orders.us", "trades"]
    assert browser.rows("clients")[0][:4] == ["pricer", "ingest", "pricer", "10.1.2.3:40000"]
    assert [row[:3] for row in browser.rows("segments")] == [
        ["4", "journal", "open"],
        ["3", "journal", "raw"],
        ["2", "journal", "packed"],
        ["1", "archive", "packed"],
    ]
    assert "compress of segment 3, 25 %" in browser.text("#actions")
    assert "failed: the disk is full" in browser.text("#actions")
    assert browser.text("#alarms") == ""
    assert browser.complaints() == []


def test_a_click_tells_what_holds_a_queue_back(browser: Browser, fake: Fake) -> None:
    fake.documents["/queues"] = d.queues("work", "a/b ?")
    lines = d.explained("its barrier waits", "2 are leased")
    fake.documents["/queues/a%2Fb%20%3F/explain"] = lines
    opened(browser, fake)
    assert browser.text("#queues .explained") == ""
    assert asked(fake, "/queues/work/explain") == 0, "nothing is asked for that no one wants"
    first, second = browser.driver.find_elements("css selector", "#queues .act")
    first.click()
    browser.until(lambda: "it has no consumer" in browser.text("#queues .explained"))
    second.click()
    browser.until(lambda: "its barrier waits" in browser.text("#queues .explained"))
    assert "it has no consumer" not in browser.text("#queues .explained")
    assert "a/b ?: what holds it back" in browser.text("#queues .explained")
    fake.documents["/queues/a%2Fb%20%3F/explain"] = d.explained(EVIL)
    browser.until(lambda: EVIL in browser.text("#queues .explained"))
    assert "2 are leased" not in browser.text("#queues .explained")
    browser.element("#queues .explained button").click()
    assert browser.text("#queues .explained") == ""
    assert browser.run("return document.querySelectorAll('img').length") == 0


def test_a_queue_that_goes_while_it_is_explained_is_reported(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    browser.element("#queues .act").click()
    browser.until(lambda: "it has no consumer" in browser.text("#queues .explained"))
    fake.documents["/queues/work/explain"] = 404
    browser.until(lambda: "no such queue any more" in browser.text("#queues .explained"))


def test_links_are_shown_where_there_are_any(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    browser.until(lambda: asked(fake, "/replication") > 0)
    assert browser.text("#replication") == ""
    fake.documents["/replication"] = d.replication(
        d.link("emea-2", "out", "sending"),
        d.link(
            "archive", "out", "down", mode="async", downgraded=True, by_hand=True,
            stopped={"10b714bc24174273.5": "fork"}, problem=EVIL,
        ),
        d.link("emea-2", "in", "receiving"),
    )  # fmt: skip
    browser.until(lambda: browser.rows("replication"))
    first, second, third = browser.rows("replication")
    assert first == [
        "emea-2", "to", "sending", "sync", "560", "1,234,000", "3 MiB", "64 MiB", *("\u2013",) * 2,
    ]  # fmt: skip
    assert second[:4] == ["archive", "to", "down", "async, downgraded by hand"]
    assert second[-2:] == ["10b714bc24174273.5 fork", EVIL]
    assert third[:5] == ["emea-2", "from", "receiving", "\u2013", "\u2013"]
    assert "Replication" in browser.text("#replication")
    fake.documents["/replication"] = d.replication()
    browser.until(lambda: browser.text("#replication") == "")
    assert browser.complaints() == []


def test_exchanges_are_shown_where_there_are_any(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    browser.until(lambda: asked(fake, "/exchanges") > 0)
    assert browser.text("#exchanges") == ""
    fake.documents["/exchanges"] = d.exchanges(
        d.exchange(EVIL, 2, alternate="lost", auto_delete=True, internal=True)
    )
    browser.until(lambda: browser.text("#exchanges") != "")
    assert browser.rows("exchanges") == [
        ["amq.topic", "topic", "\u2013", "predeclared", "0"],
        [EVIL, "topic", "lost", "auto-delete, internal", "2"],
    ]
    assert asked(fake, "/bindings") == 0, "nothing is asked for that no one wants"
    arguments = {"n": 1, "s": "1", "b": {"base64": "/w=="}}
    fake.documents["/bindings"] = d.bindings(
        d.binding(EVIL, "#"), d.binding("eu", "", arguments=arguments, here=False), left_out=7
    )
    browser.driver.find_elements("css selector", "#exchanges .act")[1].click()
    browser.until(lambda: "and 7 more" in browser.text("#exchanges .explained"))
    assert f"{EVIL}: what is bound to it" in browser.text("#exchanges .explained")
    assert browser.rows("exchanges")[2:] == [
        [EVIL, "#", "\u2013", "\u2013"],
        ["eu", "\u2013", 'n=1, s="1", b=base64 /w==', "10b714bc24174273"],
    ]
    browser.element("#exchanges .explained button").click()
    assert browser.text("#exchanges .explained") == ""
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_distributed_transactions_are_shown_while_there_are_any(
    browser: Browser, fake: Fake
) -> None:
    opened(browser, fake)
    assert browser.text("#transactions") == ""
    assert asked(fake, "/transactions") == 0, "the status counts none"
    fake.documents["/transactions"] = d.transactions(
        d.transaction(EVIL), d.transaction("7:b:", state="rolled_back", here=False, queues=[]),
        left_out=3,
    )  # fmt: skip
    fake.documents["/status"]["journal"] |= {"branches_prepared": 4, "branches_decided": 1}
    browser.until(lambda: browser.text("#transactions") != "")
    assert browser.rows("transactions") == [
        ["shop", EVIL, "prepared", "1.5 h", "here", "2", "1,234", "orders, bills", "billing"],
        ["shop", "7:b:", "rolled back", "1.5 h", HEX, "2", "1,234", "\u2013", "billing"],
    ]
    assert "and 3 more" in browser.text("#transactions")
    fake.documents["/status"]["journal"] |= {"branches_prepared": 0, "branches_decided": 0}
    browser.until(lambda: browser.text("#transactions") == "")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_without_queues_there_are_no_charts_of_them(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    browser.until(lambda: "Queued messages" in browser.text("#rates"))
    fake.documents["/status"]["queues"] = {"count": 0}
    browser.until(lambda: "Queued messages" not in browser.text("#rates"))
    assert "Messages in" in browser.text("#rates")


def test_an_alarm_is_first(browser: Browser, fake: Fake) -> None:
    fake.documents["/status"]["alarms"] = [d.alarm()]
    opened(browser, fake)
    assert browser.text("#state") == "ready, 1 alarm"
    for reported in ("disk_80", "83 % full", "publishers are refused", "see [retention]"):
        assert reported in browser.text("#alarms")
    first = "return document.querySelector('#content section').id"
    assert browser.run(first) == "alarms"
    fake.documents["/status"]["alarms"] = []
    browser.until(lambda: browser.text("#state") == "ready")
    assert browser.text("#alarms") == ""


def test_names_from_outside_are_text(browser: Browser, fake: Fake) -> None:
    fake.documents["/topics"] = d.topics(EVIL, TURNED)
    fake.documents["/clients"] = d.clients(EVIL)
    fake.documents["/queues"] = d.queues(EVIL, TURNED)
    row = d.subscription(EVIL, EVIL, "sending", 1) | {"filter": EVIL, "worker": EVIL}
    fake.documents["/subscriptions"]["subscriptions"] = [row]
    fake.documents["/status"]["name"] = EVIL
    fake.documents["/status"]["alarms"] = [d.alarm() | {"what": EVIL}]
    fake.documents["/actions"]["running"]["action"] = EVIL
    opened(browser, fake)
    assert [row[0] for row in browser.rows("topics")] == [EVIL, "gnp\\u{202e}gpj.exe\\u{7}"]
    assert browser.rows("clients")[0][0] == EVIL
    assert [row[0] for row in browser.rows("queues")] == [EVIL, "gnp\\u{202e}gpj.exe\\u{7}"]
    assert browser.rows("subscriptions")[0][:3] == [EVIL, EVIL, EVIL]
    assert EVIL in browser.text("h1")
    assert EVIL in browser.text("#alarms")
    assert EVIL in browser.text("#actions")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return window.pwned") is None
    assert browser.complaints() == []


def test_a_token_is_asked_for_once_per_tab(browser: Browser, fake: Fake) -> None:
    fake.token = "s3cret"
    browser.open(fake.url)
    browser.until(lambda: browser.run("return document.activeElement.id") == "token-text")
    assert "run/admin-read.token" in browser.text("#token")
    assert browser.text("#content") == ""
    browser.element("#token-text").send_keys("wrong\n")
    browser.until(lambda: "was not accepted" in browser.text("#token"))
    before = len(fake.asked)
    browser.element("#token-text").send_keys("s3cret\n")
    browser.until(lambda: browser.rows("topics"))
    assert browser.text("#token") == ""
    assert asked(fake, "/topics") == 1, f"asked without a token: {fake.asked[:before]}"
    browser.driver.refresh()
    browser.until(lambda: browser.rows("topics"))
    browser.element("#forget").click()
    browser.until(lambda: "run/admin-read.token" in browser.text("#token"))
    assert browser.run("return sessionStorage.length") == 0


def test_a_lost_broker_is_reported_until_it_is_back(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    fake.stop()
    browser.until(lambda: "No answer since" in browser.text("#lost"))
    assert browser.text("#state") == "no answer"
    assert browser.rows("topics"), "what was reported before stays"
    fake.documents["/topics"] = d.topics("after")
    fake.start()
    browser.until(lambda: [row[0] for row in browser.rows("topics")] == ["after"])
    assert browser.text("#lost") == ""


def test_a_document_that_is_missing_leaves_the_others(browser: Browser, fake: Fake) -> None:
    fake.documents |= {"/history": 404, "/clients": 404, "/journal": 503}
    browser.open(fake.url)
    browser.until(lambda: browser.rows("topics"))
    browser.until(lambda: "does not tell this" in browser.text("#clients"))
    browser.until(lambda: "does not tell this" in browser.text("#rates"))
    browser.until(lambda: "Not reported now. Status 503." in browser.text("#segments"))
    assert "1,235/s" in browser.text("#rates")


def test_lists_are_bounded(browser: Browser, fake: Fake) -> None:
    fake.documents["/topics"] = d.topics(*(f"t{i}" for i in range(1_000))) | {"left_out": 5_000}
    fake.documents["/clients"] |= {"left_out": 7, "silent": ["delivery-2"]}
    opened(browser, fake)
    assert len(browser.rows("topics")) == 100
    assert "and 5,900 more" in browser.text("#topics")
    assert "and 7 more" in browser.text("#clients")
    assert "No answer of delivery-2: theirs are missing." in browser.text("#clients")


def test_topics_are_sorted_and_searched(browser: Browser, fake: Fake) -> None:
    fake.documents["/topics"] = d.topics("t10", "t2", "t1")
    opened(browser, fake)
    head = browser.element("#topics th .sort")
    head.click()
    assert [row[0] for row in browser.rows("topics")] == ["t1", "t2", "t10"]
    head.click()
    assert [row[0] for row in browser.rows("topics")] == ["t10", "t2", "t1"]
    assert browser.run("return document.querySelector('#topics th').ariaSort") == "descending"
    browser.element("#topics-search").send_keys("a&b")
    browser.until(lambda: fake.asked and "/topics?limit=1000&match=*a%26b*" in fake.asked)


def test_a_hidden_tab_asks_for_nothing(browser: Browser, fake: Fake) -> None:
    opened(browser, fake)
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        other = Fake()
        try:
            browser.open(other.url)  # by the time this one has asked often, the first has stopped
            browser.until(lambda: asked(other, "/status") >= 2)
            before = len(fake.asked)
            browser.until(lambda: asked(other, "/status") >= 4)
            assert len(fake.asked) == before
        finally:
            other.stop()
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)
    browser.until(lambda: len(fake.asked) > before)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1440])
def test_every_text_can_be_read(browser: Browser, fake: Fake, scheme: str, width: int) -> None:
    fake.documents["/status"]["alarms"] = [d.alarm()]
    fake.documents["/topics"] = d.topics("x" * 255, "orders.eu")
    fake.documents["/clients"] = d.clients("y" * 255)
    browser.scheme(scheme)
    browser.size(width, 800)
    opened(browser, fake)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    found = browser.run(CONTRAST)
    assert len(found) > 50
    assert [one for one in found if one[1] < 4.5] == []
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 247, 248)", "dark": "rgb(18, 21, 24)"}[scheme]


#: [text, contrast with what is behind it] of every element with a text of its own
CONTRAST = """
const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => {
  const [r, g, b] = numbers(color).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  const color = getComputedStyle(node).backgroundColor;
  return numbers(color)[3] === 0 ? ground(node.parentElement) : color;
};
const own = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
return [...document.body.querySelectorAll("*")]
  .filter((node) => own(node) && node.checkVisibility() && node.tagName !== "NOSCRIPT")
  .map((node) => {
    const pair = [light(getComputedStyle(node).color), light(ground(node))];
    return [node.textContent.slice(0, 30), (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)];
  });
"""
