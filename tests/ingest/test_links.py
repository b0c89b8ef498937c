"""What ingest keeps until the journal has it: order, ordinals, restarts, lost receipts."""

from __future__ import annotations

from zbroker.engine.effects import JOURNAL, WATERMARKS, Reconnect, Say
from zbroker.engine.journal_session import WELCOME_WAIT_MS
from zbroker.ingest.links import CONFIRM_MS, AppendLink, LinkEffect
from zbroker.wire import internal as m
from zbroker.wire.replicas import Replicated

MINE, J1, J2 = 5, 11, 12


def entry(seq: int) -> m.Entry:
    return m.Entry(1, 1, seq, 1, None, 0, None, ["t"])


def welcome(incarnation: int, echo: int = MINE) -> m.Welcome:
    return m.Welcome(incarnation, echo, 9, 1, 1 << 20, "disk", 1, 1, 1)


def up(link: AppendLink, incarnation: int = J1) -> list[LinkEffect]:
    link.tick(0)
    sent = link.on_welcome(welcome(incarnation))
    assert sent is not None
    assert sent[0] == Reconnect(WATERMARKS), "watermarks of the one before may wait"
    return sent


def up_again(link: AppendLink) -> list[LinkEffect]:
    """Another journal welcomes us, to which Hello was said already."""
    sent = link.on_welcome(welcome(J2))
    assert sent is not None
    return sent


def watermarks(incarnation: int) -> m.Watermarks:
    return m.Watermarks(incarnation, 9, 1, 1, 1, 1, 1, 0)


def appended(effects: list[LinkEffect]) -> list[int]:
    """Ordinals of the appends among `effects`."""
    return [
        e.message.ordinal + n
        for e in effects
        if isinstance(e, Say) and isinstance(e.message, m.Append)
        for n in range(len(e.message.entries))
    ]


def receipt(incarnation: int, *ordinals: int) -> m.JournalReceipt:
    return m.JournalReceipt(incarnation, 1, [m.ReceiptItem(o, 1, 1) for o in ordinals])


def test_nothing_is_sent_before_the_journal_welcomes_us() -> None:
    link = AppendLink(MINE, list)
    link.append(entry(1), b"a")
    assert link.flush() == []
    assert appended(up(link)) == [1]


def test_a_welcome_for_an_older_incarnation_of_us_is_ignored() -> None:
    link = AppendLink(MINE, list)
    assert link.on_welcome(welcome(J1, echo=MINE - 1)) is None
    assert not link.up


def test_another_journal_gets_a_new_socket_and_everything_outstanding_in_order() -> None:
    link = AppendLink(MINE, lambda: [m.OpenSession("p", "", 1)])
    up(link)
    for seq in (1, 2, 3):
        link.append(entry(seq), b"a")
    assert appended(link.flush()) == [1, 2, 3]
    link.on_receipt(receipt(J1, 1))
    hello = link.on_watermarks(watermarks(J2), 10)
    assert hello == [
        Reconnect(JOURNAL),
        Say(JOURNAL, m.Hello("ingest", MINE, [m.OpenSession("p", "", 1)], 2)),
    ]
    assert appended(up_again(link)) == [2, 3]
    link.check()


def test_a_hello_without_answer_is_said_again_on_a_new_socket() -> None:
    link = AppendLink(MINE, list)
    assert len(link.tick(0)) == 2
    assert link.tick(WELCOME_WAIT_MS - 1) == []
    assert isinstance(link.tick(WELCOME_WAIT_MS)[0], Reconnect)


def test_receipts_of_another_journal_are_ignored() -> None:
    link = AppendLink(MINE, list)
    up(link)
    link.append(entry(1), b"a")
    link.flush()
    assert link.on_receipt(receipt(J2, 1)) == []


def test_a_journal_that_knows_us_no_more_gets_everything_again() -> None:
    link = AppendLink(MINE, list)
    up(link)
    for seq in (1, 2):
        link.append(entry(seq), b"a")
    link.open(1, "p", "")
    link.on_receipt(receipt(J1, 1))
    assert link.on_unknown(5) == [
        Reconnect(JOURNAL), Say(JOURNAL, m.Hello("ingest", MINE, [], 2)),
    ]  # fmt: skip
    assert not link.up
    sent = link.on_welcome(welcome(J1))
    assert sent is not None
    kinds = [type(e.message) for e in sent if isinstance(e, Say)]
    assert kinds == [m.Append, m.Open]
    assert appended(sent) == [2]


def test_receipts_settle_in_order_whatever_is_repeated_or_lost() -> None:
    link = AppendLink(MINE, list)
    up(link)
    for seq in (1, 2, 3):
        link.append(entry(seq), b"a")
    link.flush()
    assert link.on_receipt(receipt(J1, 2, 3)) == [], "the first one was lost: its repetition comes"
    assert [o.ordinal for o, _ in link.on_receipt(receipt(J1, 1, 2))] == [1, 2]
    assert [o.ordinal for o, _ in link.on_receipt(receipt(J1, 1, 2, 3))] == [3]
    assert link.bytes == 0
    link.check()


def test_a_logon_is_after_what_was_appended_before_it() -> None:
    link = AppendLink(MINE, list)
    up(link)
    link.append(entry(1), b"a")
    kinds = [type(e.message) for e in link.open(1, "p", "") if isinstance(e, Say)]
    assert kinds == [m.Append, m.Open]
    link.on_watermarks(watermarks(J2), 0)
    again = [type(e.message) for e in up_again(link) if isinstance(e, Say)]
    assert again == [m.Append, m.Open]
    assert link.on_opened(m.Opened(1, "p", 1, 1))
    assert not link.on_opened(m.Opened(1, "p", 1, 2)), "answered already"


def test_receipts_that_were_seen_are_confirmed_on_a_beat() -> None:
    link = AppendLink(MINE, list)
    assert link.tick(0)[1:] == [Say(JOURNAL, m.Hello("ingest", MINE, [], 1))]
    link.on_welcome(welcome(J1))
    link.append(entry(1), b"a")
    link.flush()
    for now_ms in (0, CONFIRM_MS):
        link.on_receipt(receipt(J1, 1))  # the journal repeats it: the first Confirm was lost
        assert link.next_wake_ms() == now_ms
        assert link.tick(now_ms) == [Say(JOURNAL, m.Confirm(J1, 1))]
        assert link.tick(now_ms + CONFIRM_MS - 1) == []
        assert link.next_wake_ms() is None, "nothing is to be confirmed"
        assert link.tick(now_ms + CONFIRM_MS) == []


def test_while_an_answer_is_missing_the_journal_hears_of_us() -> None:
    """So it can say that it does not know us."""
    batch, logon = AppendLink(MINE, list), AppendLink(MINE, list)
    for link in (batch, logon):
        up(link)
        assert link.next_wake_ms() is None
    batch.append(entry(1), b"a")
    batch.flush()
    logon.open(1, "p", "")
    for link in (batch, logon):
        for now_ms in (CONFIRM_MS, 2 * CONFIRM_MS):
            assert link.tick(now_ms) == [Say(JOURNAL, m.Confirm(J1, 0))]
            assert link.next_wake_ms() == now_ms + CONFIRM_MS


def test_a_logon_is_not_told_of_what_destinations_lack() -> None:
    link = AppendLink(MINE, list, replicated=True)
    up(link)
    link.gate.moved(Replicated(J1, 5, 1))
    for position, acked in ((4, 9), (5, 0)):
        opened = m.Opened(1, "p", 1, 1, 9, 9, position)
        link.open(1, "p", "")
        assert link.on_opened(opened)
        assert (opened.seq, opened.acked) == (9, acked)


def test_receipts_wait_for_destinations() -> None:
    link = AppendLink(MINE, list, replicated=True)
    up(link)
    link.append(entry(1), b"a")
    link.flush()
    assert link.on_receipt(receipt(J1, 1)) == []
    assert link.bytes == 0, "the journal has it: more may be forwarded"
    assert link.gate.moved(Replicated(J1, 2, 1))
    assert [item.ordinal for _, item in link.gate.receipts([])] == [1]
