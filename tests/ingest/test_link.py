"""What ingest keeps until the journal has it: order, ordinals, restarts, lost receipts."""

from __future__ import annotations

from zbroker.ingest.link import WELCOME_WAIT_MS, Forward, Link, LinkEffect, Reconnect
from zbroker.wire import internal as m

MINE, J1, J2 = 5, 11, 12


def entry(seq: int) -> m.Entry:
    return m.Entry(1, 1, seq, 1, None, 0, None, ["t"])


def welcome(incarnation: int, echo: int = MINE) -> m.Welcome:
    return m.Welcome(incarnation, echo, 9, 1, 1 << 20, "disk", 1, 1, 1)


def up(link: Link, incarnation: int = J1) -> list[LinkEffect]:
    link.tick(0, [])
    return link.on_welcome(welcome(incarnation))


def appended(effects: list[LinkEffect]) -> list[int]:
    """Ordinals of the appends among `effects`."""
    return [
        e.message.ordinal + n
        for e in effects
        if isinstance(e, Forward) and isinstance(e.message, m.Append)
        for n in range(len(e.message.entries))
    ]


def receipt(incarnation: int, *ordinals: int) -> m.JournalReceipt:
    return m.JournalReceipt(incarnation, 1, [m.ReceiptItem(o, 1, 1) for o in ordinals])


def test_nothing_is_sent_before_the_journal_welcomes_us() -> None:
    link = Link(MINE)
    link.append(entry(1), b"a")
    assert link.flush() == []
    assert appended(up(link)) == [1]


def test_a_welcome_for_an_older_incarnation_of_us_is_ignored() -> None:
    link = Link(MINE)
    assert link.on_welcome(welcome(J1, echo=MINE - 1)) == []
    assert not link.up


def test_another_journal_gets_a_new_socket_and_everything_outstanding_in_order() -> None:
    link = Link(MINE)
    up(link)
    for seq in (1, 2, 3):
        link.append(entry(seq), b"a")
    assert appended(link.flush()) == [1, 2, 3]
    link.on_receipt(receipt(J1, 1))
    link.on_marks(J2)
    hello = link.tick(10, [m.OpenSession("p", "", 1)])
    assert isinstance(hello[0], Reconnect)
    assert appended(link.on_welcome(welcome(J2))) == [2, 3]
    link.check()


def test_a_hello_without_answer_is_said_again_on_a_new_socket() -> None:
    link = Link(MINE)
    assert len(link.tick(0, [])) == 2
    assert link.tick(WELCOME_WAIT_MS - 1, []) == []
    assert isinstance(link.tick(WELCOME_WAIT_MS, [])[0], Reconnect)


def test_receipts_of_another_journal_are_ignored() -> None:
    link = Link(MINE)
    up(link)
    link.append(entry(1), b"a")
    link.flush()
    assert link.on_receipt(receipt(J2, 1)) == []


def test_receipts_settle_in_order_whatever_is_repeated_or_lost() -> None:
    link = Link(MINE)
    up(link)
    for seq in (1, 2, 3):
        link.append(entry(seq), b"a")
    link.flush()
    assert link.on_receipt(receipt(J1, 2, 3)) == [], "the first one was lost: its repetition comes"
    assert [o.ordinal for o, _ in link.on_receipt(receipt(J1, 1, 2))] == [1, 2]
    assert [o.ordinal for o, _ in link.on_receipt(receipt(J1, 1, 2, 3))] == [3]
    assert link.bytes == 0
    link.check()


def test_a_logon_stands_behind_what_was_appended_before_it() -> None:
    link = Link(MINE)
    up(link)
    link.append(entry(1), b"a")
    kinds = [type(e.message) for e in link.open(1, "p", "") if isinstance(e, Forward)]
    assert kinds == [m.Append, m.Open]
    link.on_marks(J2)
    link.tick(0, [])
    again = [type(e.message) for e in link.on_welcome(welcome(J2)) if isinstance(e, Forward)]
    assert again == [m.Append, m.Open]
    assert link.on_opened(m.Opened(1, "p", 1, 1))
    assert not link.on_opened(m.Opened(1, "p", 1, 2)), "answered already"
