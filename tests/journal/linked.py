"""A core with a link to another instance: sessions, names, records, and what became of them."""

from __future__ import annotations

from typing import Any

from zbroker.engine.effects import Answer
from zbroker.ids import publisher_id
from zbroker.journal.group_builder import JournalSettings, LogEnd
from zbroker.journal.group_commit import GroupCommit
from zbroker.journal.sessions import Sessions
from zbroker.log import records
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, KIND_PUBLISHER, Batch
from zbroker.wire import codec
from zbroker.wire import internal as m
from zbroker.wire.internal import Record

HERE, THERE, MINE, LINK_NUMBER = 9, 8, 77, 1
LINK, LISTENER = b"\0link", b"\0door"
P = publisher_id("p")
WALL = 1_000


def make(**settings: bool) -> GroupCommit:
    core = GroupCommit(JournalSettings(HERE, MINE, **settings), Sessions(), LogEnd(1, 1, 0))  # type: ignore[arg-type]
    core.receive(LINK, m.Hello("replication", 1), [])
    core.receive(LISTENER, m.Hello("ingest", 1), [])
    open_link(core)
    core.sessions.fold_name(P, "p", "")
    return core


def open_link(core: GroupCommit, number: int = LINK_NUMBER, **given: Any) -> m.LinkOpened:
    """A session with the other instance, which may bring everything unless `given` says other."""
    ask = {"peer": THERE, "topics": [".*"], "origins": [".*"], **given}
    [answer] = core.receive(LINK, m.OpenLink(1, MINE, number=number, **ask), [])
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, m.LinkOpened)
    return answer.message


def name(core: GroupCommit, name: str, principal: str = "") -> m.ReceiptItem:
    """The other instance names a publisher."""
    body = records.encode(records.PublisherRecord(name, principal))
    named = Record(KIND_PUBLISHER, THERE, 1, 7, 0, 0, publisher=publisher_id(name))
    return give(core, named, body=body)[1][0]


def record(seq: int, count: int, at: int, after: int = 0, **more: object) -> Record:
    """Messages of publisher "p", the first one at origin position `at` of the other instance."""
    given: dict[str, object] = {
        "publisher": P, "session": 5, "prev": seq - 1, "topics": ["t"], "crc": seq,
        "log_time": WALL, **more,
    }  # fmt: skip
    return Record(
        KIND_PUBLISH, THERE, 1, at, after, seq=seq, count=count, **given  # type: ignore[arg-type]
    )  # fmt: skip


def give(
    core: GroupCommit, *given: Record, body: bytes = b"body", link: int = LINK_NUMBER
) -> tuple[list[Batch], list[m.ReceiptItem]]:
    """What the log gets, and the answers."""
    send(core, *given, body=body, link=link)
    return commit(core)


def send(core: GroupCommit, *given: Record, body: bytes = b"body", link: int = LINK_NUMBER) -> None:
    """They wait; the message goes through its encoding."""
    message = m.Replicate(MINE, 1, 0, list(given), link)
    decoded = codec.to_journal(codec.encode(message))
    core.receive(LINK, decoded, [body] * len(given))


def commit(core: GroupCommit) -> tuple[list[Batch], list[m.ReceiptItem]]:
    group = core.group(WALL)
    core.written_to(core.next_position, core.serial)
    sends = core.synced(core.next_position)
    core.check()
    items = [
        i
        for send in sends
        if isinstance(send.message, m.JournalReceipt)
        for i in send.message.items
    ]
    return (group.batches if group is not None else []), items


def shape(batches: list[Batch]) -> list[tuple[int, int, int, int, int, bool]]:
    """Kind, sequence, skip, cut, origin position, late."""
    return [
        (b.kind, b.sequence, b.skip, b.cut, b.origin_position, bool(b.flags & FLAG_LATE))
        for b in batches
    ]
