"""Staged batches over a link with topics: the messages go when a commit shows them."""

from __future__ import annotations

import pytest

from tests.journal.whole import Whole
from tests.replication.build import THERE, units
from zbroker.ids import publisher_id
from zbroker.link_topics import LinkTopics
from zbroker.log.format import FLAG_SHOWS, KIND_PUBLISH, KIND_STAGED
from zbroker.log.reader import Log
from zbroker.replication.contract import LinkIdentity
from zbroker.replication.effects import FindStart, LinkBlock, StartFound
from zbroker.replication.log_port import LinkLog
from zbroker.replication.outgoing_link import OutgoingLink
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.wire import replication as w


def sent(at: Whole, topics: LinkTopics) -> list[w.SendUnits]:
    """All that a destination with an empty log gets of a log."""
    own = OwnHoldings(at.instance)
    own.begin(at.core.generation, 1, [])
    link = OutgoingLink("there", LinkIdentity(at.instance, "here", "g", 1), own, topics)
    link.tick(0, 1)
    said = w.Statement(*THERE, 1, 1, [])
    effects = link.heard(w.LinkWelcome(link.session, 2, "there", "g", said, 1 << 20), 0)
    (find,) = (one for one in effects if isinstance(one, FindStart))
    log = LinkLog(lambda: Log(disk=at.disk), lambda: at.core.persisted)
    found, names, messages = log.find(find), dict[int, tuple[str, str]](), list[w.SendUnits]()
    assert isinstance(found, StartFound)
    link.found(found)
    while (read := link.next_read(at.core.persisted)) is not None:
        block = log.read(read)  # type: ignore[arg-type]
        assert isinstance(block, LinkBlock)
        effects, wanted = link.read(block, names)
        names |= dict.fromkeys(wanted, ("name", ""))
        messages += units(effects or link.go_on(names))
    link.check()
    return messages


@pytest.mark.parametrize(
    ("topics", "payloads"), [(["t"], [b"a", b"b", b"c"]), (["other"], [])]
)  # fmt: skip
def test_what_a_commit_shows_goes_as_messages(topics: list[str], payloads: list[bytes]) -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.stage("two", b"c", name="other")
    at.stage("three", b"never")
    at.commit_stages("app", 1, one=2, two=1)
    found = [record for message in sent(at, LinkTopics(topics)) for record in message.records]
    assert not any(record.kind == KIND_STAGED or record.flags & FLAG_SHOWS for record in found)
    published = [record for record in found if record.kind == KIND_PUBLISH]
    app = {record.publisher for record in published}
    assert not app & {publisher_id("task"), publisher_id("other")}, "they are those of the commit"
    assert sum(record.count for record in published) == len(payloads)


def test_without_topics_stages_and_commits_go_as_they_are() -> None:
    at = Whole()
    at.stage("one", b"a", b"b")
    at.commit_stages("app", 1, one=2)
    found = [record for message in sent(at, LinkTopics()) for record in message.records]
    assert [r.kind for r in found if r.topics] == [KIND_STAGED, KIND_PUBLISH]
    assert found[-1].flags & FLAG_SHOWS
