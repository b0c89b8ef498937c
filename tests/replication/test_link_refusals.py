"""What the replication listener refuses is reported to the admin, for its audit log."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.build import KEYS, rules
from tests.replication.build import HERE, THERE, statement
from tests.replication.test_core import SOURCE, record
from tests.replication.test_sources import ALLOWED, DENIED, MAY, Secured
from zbroker.engine.effects import Tell
from zbroker.engine.events import Asked, RulesChanged, Unauthenticated
from zbroker.replication.link_refusals import AGAIN_MS, KNOWN_MAX, NAME_MAX, LinkRefusals
from zbroker.replication.sources import FromSource
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.internal import ReceiptItem
from zbroker.wire.surveys import AskRefusals, RefusalRow, RefusalRows, unknown

STRANGER = f"key {KEYS[3][:8]}..."


def reported(process: Secured, after: int = 0) -> RefusalRows:
    [told] = process.hears(Asked(b"admin", AskRefusals(5, after)))
    assert isinstance(told, Tell)
    assert isinstance(told.answer, RefusalRows)
    assert (told.rid, told.answer.cid) == (b"admin", 5)
    return told.answer


def test_the_admin_asks_the_process_as_it_asks_listeners() -> None:
    ask = AskRefusals(5, 7)
    assert codec.LINK_QUESTIONS.decode(codec.encode(ask)) == ask


def rows(process: Secured) -> list[tuple[str, str, str]]:
    return [(row.who, row.what, row.code) for row in reported(process).rows]


@pytest.mark.parametrize(
    ("key", "text", "who", "code"),
    [
        (KEYS[2], MAY + ALLOWED, "idle", "not_entitled"),
        (KEYS[1], MAY + DENIED, "other", "not_entitled"),
        (KEYS[3], MAY + ALLOWED, STRANGER, "auth_failed"),
    ],
)
def test_a_source_without_the_right_is_reported(key: str, text: str, who: str, code: str) -> None:
    process = Secured(text)
    process.hello(key)
    assert rows(process) == [(who, "link_hello there", code)]


def test_every_refused_hello_is_reported() -> None:
    process = Secured()
    copy = statement(1, {})
    copy.instance = HERE.instance
    process.hello(KEYS[0], name="copy", said=copy)
    old = w.LinkHello(w.PROTOCOL + 1, 1, 1, "old", "g", statement(1, {}))
    process.hears(FromSource(SOURCE, old, key=KEYS[0]))
    process.hello(KEYS[0])
    process.hello(KEYS[1], name="second", rid=b"x")
    assert rows(process) == [
        ("there", "link_hello copy", "same_instance"),
        ("there", "link_hello old", "unknown_version"),
        ("other", "link_hello second", "same_instance"),
    ]


def test_a_link_that_the_journal_refuses_is_reported() -> None:
    process = Secured()
    process.hello(KEYS[0])
    [link] = process.core.sources.links.values()
    process.hears(m.LinkOpened(link.number, code="not_entitled", reason="no"))
    assert rows(process) == [("there", "link_hello there", "not_entitled")]


def test_a_connection_without_a_known_key_is_reported_with_its_host() -> None:
    process = Secured()
    process.hears(Unauthenticated(KEYS[3], "10.0.0.9"))
    process.hears(Unauthenticated(KEYS[3], "10.0.0.8"))
    hosts = ("10.0.0.9", "10.0.0.8")
    assert reported(process).rows == [
        RefusalRow(STRANGER, host, "connect", "auth_failed") for host in hosts
    ]


def test_a_link_that_ends_for_want_of_rights_is_reported() -> None:
    process = Secured()
    process.hello(KEYS[0])
    process.begun()
    process.hears(FromSource(SOURCE, w.SendUnits(1, 1, []), key=KEYS[3]))
    process.hello(KEYS[0])
    process.hears(RulesChanged(rules(MAY.replace("['copies']", "['none']", 1) + ALLOWED)))
    assert rows(process) == [
        (STRANGER, "stay connected there", "auth_failed"),
        ("there", "stay connected there", "not_entitled"),
    ]


def test_other_topics_than_before_are_not_a_refusal() -> None:
    process = Secured()
    process.hello(KEYS[0])
    process.hears(RulesChanged(rules(MAY.replace("'orders', ", "") + ALLOWED)))
    assert not process.core.sources.links
    assert rows(process) == []


def test_records_beyond_the_right_are_reported() -> None:
    process = Secured()
    process.hello(KEYS[0])
    process.begun()
    sent = w.SendUnits(1, 1, [record(1), record(2)])
    process.hears(FromSource(SOURCE, sent, [b"body"] * 2, key=KEYS[0]))
    items: list[Any] = [
        ReceiptItem(1, 0, 0, 0, "not_entitled"),
        ReceiptItem(2, 0, 0, 0, "origin_gap"),
    ]
    process.hears(m.JournalReceipt(process.core.sources.journal, 9, items))
    what = f"send_units of {THERE.instance:016x}"
    assert rows(process) == [("there", what, "not_entitled")]


def test_a_source_that_tries_again_is_reported_once_in_a_while() -> None:
    process = Secured()
    for _ in range(3):
        process.hello(KEYS[3])
        process.now_ms += 16_000
    assert len(rows(process)) == 1
    process.hello(KEYS[2])
    assert len(rows(process)) == 2, "another one"
    process.now_ms += AGAIN_MS
    process.hello(KEYS[3])
    assert len(rows(process)) == 3


def test_each_is_reported_once() -> None:
    process = Secured()
    process.hello(KEYS[3])
    last = reported(process).last
    assert reported(process, last).rows == []


def test_what_strangers_say_is_bounded() -> None:
    refusals = LinkRefusals(0, unknown)
    for number in range(KNOWN_MAX + 5):
        refusals.hello(b"", "", f"{number}" + "x" * 10_000, "auth_failed", 0)
    assert len(refusals._until_ms) == KNOWN_MAX
    report = refusals.report(AskRefusals(1, 0))
    assert report.left_out + len(report.rows) == KNOWN_MAX + 5
    assert all(len(row.what) <= NAME_MAX + 20 for row in report.rows)
