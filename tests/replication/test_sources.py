"""Other instances that send here: rights, keys, and claims that are not theirs to make."""

from __future__ import annotations

from typing import Any

import pytest

from tests.access.build import KEYS, rules
from tests.replication.build import HERE, THERE, THIRD, statement
from tests.replication.test_core import SOURCE, Process, answers
from zbroker.access.core import Access
from zbroker.engine.effects import Answer, Note, Say
from zbroker.engine.events import Gone, RulesChanged
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.link_topics import EVERYTHING, LinkTopics
from zbroker.replication.contract import ReplicationSettings
from zbroker.replication.core import ReplicationCore
from zbroker.replication.durability import DestinationRule
from zbroker.replication.sources import BadFrame, FromSource
from zbroker.wire import internal as m
from zbroker.wire import replication as w
from zbroker.wire.replicas import AskOrigins, FirstStartRow, FollowLog, OriginRows, PeerHolds
from zbroker.wire.replication import OriginPosition

MAY = """
[principal.there]
keys = ['$0']
roles = ['copies']
[principal.other]
keys = ['$1']
roles = ['copies', 'none']
[principal.idle]
keys = ['$2']
[[role.copies.allow]]
actions = ['replicate']
topics = ['orders', 'prices.*']
"""
DENIED = "[[role.none.deny]]\nactions = ['replicate']\ntopics = ['prices.eu']\n"
ALLOWED = "[[role.none.allow]]\nactions = ['publish']\ntopics = ['x']\n"


class Secured(Process):
    """An instance with access rules, whose destination `there` has the first key."""

    def __init__(self, text: str = MAY + ALLOWED) -> None:
        super().__init__()
        self.core = ReplicationCore(
            ReplicationSettings(
                HERE.instance, "here", "g", 50, [DestinationRule("there", key=KEYS[0])],
                access=rules(text),
            )
        )  # fmt: skip
        self.welcomed()

    def hello(
        self, key: str, *, name: str = "there", session: int = 1, rid: bytes = SOURCE,
        said: w.Statement | None = None,
    ) -> list[Any]:  # fmt: skip
        said = said or statement(1, {})
        hello = w.LinkHello(w.PROTOCOL, 1, session, name, "g", said)
        return self.hears(FromSource(rid, hello, key=key))


def said_to_journal(effects: list[Any], kind: type) -> list[Any]:
    found = [effect.message for effect in effects if type(effect) is Say]
    return [message for message in found if isinstance(message, kind)]


def test_a_source_may_bring_the_topics_that_its_role_allows() -> None:
    process = Secured()
    (opened,) = said_to_journal(process.hello(KEYS[0]), m.OpenLink)
    assert opened.topics == ["orders", r"prices\..*"]


@pytest.mark.parametrize(
    ("key", "text", "part"),
    [
        (KEYS[2], MAY + ALLOWED, "has no right"),
        (KEYS[1], MAY + DENIED, "deny"),
        (KEYS[3], MAY + ALLOWED, ""),
    ],
)
def test_a_source_without_the_right_is_refused(key: str, text: str, part: str) -> None:
    process = Secured(text)
    (refused,) = answers(process.hello(key), w.LinkRefused)
    assert refused.code in ("not_entitled", "auth_failed")
    assert part in refused.reason
    assert not process.core.sources.links


def test_another_connection_with_its_session_number_is_ended() -> None:
    process = Secured()
    process.hello(KEYS[0])
    process.begun()
    units = FromSource(SOURCE, w.SendUnits(1, 1, []), key=KEYS[1])
    assert answers(process.hears(units), w.LinkEnded)


def test_an_instance_id_belongs_to_the_key_that_sends_under_it() -> None:
    """Else any source could end the link of another one."""
    process = Secured()
    process.hello(KEYS[0])
    (refused,) = answers(process.hello(KEYS[1], name="other", session=2, rid=b"x"), w.LinkRefused)
    assert refused.code == "same_instance"
    assert list(process.core.sources.links) == [SOURCE]


def test_an_instance_id_belongs_to_the_name_that_sends_under_it() -> None:
    """A copied directory that is served under another name must not end the link of its origin."""
    process = Process()
    process.welcomed()
    hellos = [w.LinkHello(w.PROTOCOL, 1, n, name, "g", statement(1, {})) for n, name in
              ((1, "there"), (2, "copy"), (3, "there"))]  # fmt: skip
    process.hears(FromSource(SOURCE, hellos[0]))
    (refused,) = answers(process.hears(FromSource(b"x", hellos[1])), w.LinkRefused)
    assert (refused.code, "there sends here" in refused.reason) == ("same_instance", True)
    assert list(process.core.sources.links) == [SOURCE]
    assert not answers(process.hears(FromSource(b"y", hellos[2])), w.LinkRefused)
    assert list(process.core.sources.links) == [b"y"]


def test_a_copy_that_is_here_first_gives_way_to_a_destination() -> None:
    """While the link of the original was down its copy took the place."""
    process = Secured()
    process.hello(KEYS[1], name="copy", rid=b"x")
    effects = process.hello(KEYS[0], session=2)
    assert not answers(effects, w.LinkRefused)
    assert [one.rid for one in effects if isinstance(one, Answer)] == [b"x"]
    assert list(process.core.sources.links) == [SOURCE]
    (refused,) = answers(process.hello(KEYS[1], name="copy", session=3, rid=b"x"), w.LinkRefused)
    assert refused.code == "same_instance"


def test_of_two_starts_of_one_instance_the_later_one_sends() -> None:
    """A copy with the same name and key: the two would end each other's links for ever."""
    process = Secured()
    later, earlier = statement(1, {}), statement(1, {})
    later.started_ns, earlier.started_ns = 20, 10
    process.hello(KEYS[0], said=earlier)
    assert not answers(process.hello(KEYS[0], session=5, said=later, rid=b"x"), w.LinkRefused)
    (refused,) = answers(process.hello(KEYS[0], session=6, said=earlier), w.LinkRefused)
    assert (refused.code, "a later start of there" in refused.reason) == ("same_instance", True)
    assert list(process.core.sources.links) == [b"x"]
    process.hears(Gone(b"x"))
    assert not answers(process.hello(KEYS[0], session=7, said=earlier), w.LinkRefused)


def test_only_a_destination_says_how_much_of_this_instance_it_holds() -> None:
    """A claim that is believed begins a generation, and answers the question of a start."""
    process = Secured()
    holds = statement(1, {HERE: 900})
    assert said_to_journal(process.hello(KEYS[0], said=holds), PeerHolds)
    for instance, name in ((77, "there"), (78, "other")):
        claims = statement(1, {HERE: 900})
        claims.instance = instance
        effects = process.hello(KEYS[1], name=name, said=claims, rid=name.encode())
        assert said_to_journal(effects, m.OpenLink)
        assert not said_to_journal(effects, PeerHolds)


# -- topics -----------------------------------------------------------------------------------


ORDERS = LinkTopics(["orders"])


class Told(Process):
    """What the log holds is said to a source that has connected."""

    def __init__(self, back: LinkTopics = EVERYTHING, text: str = "") -> None:
        super().__init__()
        rule = DestinationRule("there", key=KEYS[0] if text else "", topics=back)
        access = rules(text) if text else Access.off()
        self.core = ReplicationCore(
            ReplicationSettings(HERE.instance, "here", "g", 50, [rule], access=access)
        )
        self.welcomed()

    def hello(
        self, topics: LinkTopics = ORDERS, digest: int | None = None, *, rows: Any = (),
        held: Any = (), session: int = 1, key: str = "",
    ) -> list[Any]:  # fmt: skip
        said = w.Statement(*THERE, 1, session, list(held))
        digest = topics.digest if digest is None else digest
        hello = w.LinkHello(
            w.PROTOCOL, 1, session, "there", "g", said, digest, [*topics.patterns], topics.filter,
            topics.types,
        )  # fmt: skip
        effects = self.hears(FromSource(SOURCE, hello, key=key))
        (ask,) = said_to_journal(effects, AskOrigins) or [None]
        if ask is None:
            return effects
        return effects + self.hears(OriginRows(ask.cid, HERE.generation, 1, list(rows)))


def notes(effects: list[Any]) -> dict[str, str]:
    return {one.name: one.text for one in effects if isinstance(one, Note)}


def test_the_journal_hears_by_which_topics_records_come() -> None:
    (ask,) = said_to_journal(Told().hello(), m.OpenLink)
    assert ask.digest == ORDERS.digest


def test_a_digest_of_other_topics_is_refused() -> None:
    (refused,) = answers(Told().hello(digest=7), w.LinkRefused)
    assert refused.code == "bad_field"


def test_topics_that_are_sent_back_otherwise_are_said() -> None:
    assert "orders" in notes(Told().hello())["replication.topics_differ"]
    assert notes(Told(ORDERS).hello()).keys() == {"replication.source_up"}


LARGE = LinkTopics(["orders"], "/n > 5", 9)


def test_a_filter_counts_like_topics() -> None:
    (ask,) = said_to_journal(Told().hello(LARGE), m.OpenLink)
    assert ask.digest == LARGE.digest
    said = notes(Told(ORDERS).hello(LARGE))
    assert "sends orders where /n > 5, and gets orders from" in said["replication.topics_differ"]
    assert said["replication.source_up"].endswith("(topics: orders where /n > 5)")
    assert notes(Told(LARGE).hello(LARGE)).keys() == {"replication.source_up"}


@pytest.mark.parametrize("digest", [ORDERS.digest, LinkTopics(["orders"], "/n > 5").digest])
def test_a_digest_without_the_filter_or_its_types_is_refused(digest: int) -> None:
    (refused,) = answers(Told().hello(LARGE, digest), w.LinkRefused)
    assert refused.code == "bad_field"


def test_a_release_that_does_not_know_filters_refuses_the_link() -> None:
    """It knows the keys of that time only: the digest is not that of the topics for it."""
    from zbroker.wire import codec

    topics = LinkTopics(["orders"])
    known = w.LinkHello(
        w.PROTOCOL, 2, 1, "there", "g", statement(1, {}), LARGE.digest, [*topics.patterns]
    )
    said = codec.decode(codec.TO_DESTINATION, codec.encode(known))
    (refused,) = answers(Told().hears(FromSource(SOURCE, said)), w.LinkRefused)
    assert refused.code == "bad_field"


def test_a_change_of_topics_is_said_with_the_place() -> None:
    row = OriginPosition(*THERE, 9)
    text = notes(Told(ORDERS).hello(rows=[row]))["replication.topics_changed"]
    assert f"{THERE.instance:016x}.{THERE.generation} after 9" in text


@pytest.mark.parametrize(("topics", "said"), [(["orders"], False), (["orders", "x"], True)])
def test_a_right_for_fewer_topics_is_said(topics: list[str], said: bool) -> None:
    effects = Told(text=MAY + ALLOWED).hello(LinkTopics(topics), key=KEYS[0])
    assert ("replication.right_narrower" in notes(effects)) is said


def test_what_is_covered_goes_to_the_journal() -> None:
    told = Told()
    told.hello()
    told.core.sources.links[SOURCE].peer.rows[THERE] = OriginPosition(*THERE, 9)
    covered = m.Covered(*THERE, 3, 9)
    effects = told.hears(FromSource(SOURCE, w.SendUnits(1, 1, [], [covered])))
    (replicate,) = said_to_journal(effects, m.Replicate)
    assert replicate.covered == [covered]
    assert not said_to_journal(effects, AskOrigins)
    assert told.core.sources.rows()[0].lag == 0, "what the topics leave out is not lacked"
    kept = m.Covered(*THERE, 3, 9, keep=True)
    effects = told.hears(FromSource(SOURCE, w.SendUnits(1, 1, [], [kept])))
    assert said_to_journal(effects, AskOrigins), "its row has changed for good"


def test_links_say_their_topics() -> None:
    told = Told()
    told.hello()
    (row,) = told.core.sources.rows()
    assert (row.topics, row.filter) == (["orders"], "")
    told.hello(LARGE, session=2)
    (row,) = told.core.sources.rows()
    assert (row.topics, row.filter) == (["orders"], "/n > 5")


@pytest.mark.parametrize(
    ("topics", "digest", "said"),
    [(EVERYTHING, 0, "ask"), (ORDERS, 0, "follow"), (EVERYTHING, ORDERS.digest, "follow")],
)
def test_an_empty_log_takes_a_state_of_all_topics_only(
    topics: LinkTopics, digest: int, said: str
) -> None:
    told = Told()
    told.hello(topics, held=[OriginPosition(*THERE, 9, digest)])
    journal = told.core.sources.journal
    effects = told.hears(FirstStartRow(0, "filling"))
    assert bool(answers(effects, w.AskState)) is (said == "ask")
    assert said_to_journal(effects, FollowLog) == [FollowLog(journal)] * (said == "follow")


def test_another_peer_is_awaited_before_a_log_begins_without_a_state() -> None:
    told = Told()
    told.hello(held=[OriginPosition(*THERE, 9)])
    assert not said_to_journal(told.hears(FirstStartRow(0, "filling", ["other"])), FollowLog)


def test_what_a_peer_holds_under_topics_does_not_come_back() -> None:
    told = Told()
    held = [OriginPosition(HERE.instance, 4, 9, ORDERS.digest), OriginPosition(*HERE, 3)]
    (said,) = said_to_journal(told.hello(held=held), PeerHolds)
    assert sorted(said.generations) == [(4, 9), (HERE.generation, 3)]
    assert said.whole == [(HERE.generation, 3)]


@pytest.mark.parametrize("closed", [False, True])
def test_the_journal_hears_what_a_peer_holds_of_others_and_this_instance_does_not(
    closed: bool,
) -> None:
    told = Told()
    told.hears(FirstStartRow(0, "open", []))
    other, more = Origin(THERE.instance + 9, 4), OriginPosition(THERE.instance + 9, 4, 9)
    here = [OriginPosition(*THERE, 7)]
    told.core.own.begin(1, 1, here, [w.ClosedGeneration(*other, 5)] if closed else [])
    held = [more, OriginPosition(*THERE, 7), OriginPosition(*HERE, 3)]
    (said,) = said_to_journal(told.hello(held=held), PeerHolds)
    assert said.rows == ([] if closed else [more])


def test_a_generation_above_which_none_can_be_drawn_is_no_generation() -> None:
    from zbroker.wire import codec

    said = statement(1, {Origin(HERE.instance, w.GENERATION_MAX + 1): 1})
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", said)
    with pytest.raises(ClientError, match="bad_field"):
        codec.decode(codec.TO_DESTINATION, codec.encode(hello))


def test_changed_rules_end_the_links_that_they_change() -> None:
    process = Secured()
    process.hello(KEYS[0])
    process.begun()
    assert not answers(process.hears(RulesChanged(rules(MAY + ALLOWED))), w.LinkEnded)
    less = rules(MAY.replace("'orders', ", "") + ALLOWED)
    assert answers(process.hears(RulesChanged(less)), w.LinkEnded)
    assert not process.core.sources.links


def test_a_frame_that_is_not_a_message_ends_its_link() -> None:
    process = Secured()
    error = ClientError("bad_frame", "the header is not msgpack")
    (refused,) = answers(process.hears(BadFrame(b"stranger", error)), w.LinkRefused)
    assert refused.code == "bad_frame"
    process.hello(KEYS[0])
    process.begun()
    assert answers(process.hears(BadFrame(SOURCE, error)), w.LinkEnded)
    assert not process.core.sources.links


def test_without_security_everything_may_come() -> None:
    process = Process("there")
    process.welcomed()
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", statement(1, {THERE: 3}))
    effects = process.hears(FromSource(SOURCE, hello))
    (opened,) = said_to_journal(effects, m.OpenLink)
    assert opened.topics == [".*"]
    assert Access.off().permit("", "replicate").patterns() == [".*"]


def test_a_link_from_a_source_shows_its_address_and_what_it_holds_that_is_not_here() -> None:
    process = Process()
    settings = process.core.settings
    process.core = ReplicationCore(settings, lambda rid: (f"10.0.0.2:{len(rid)}", 7))
    process.welcomed(rows=[OriginPosition(*THERE, 40), OriginPosition(*HERE, 90)])
    held = {THERE: 50, THIRD: 7, HERE: 80}
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", statement(1, held))
    process.hears(FromSource(SOURCE, hello))
    process.begun([OriginPosition(*THERE, 40), OriginPosition(*HERE, 90)])
    (row,) = process.core.sources.rows()
    assert (row.address, row.state) == (f"10.0.0.2:{len(SOURCE)}", "receiving")
    assert row.lag == 10 + 7, "what is here as far counts nothing"


def test_a_generation_that_is_closed_here_is_not_lacking() -> None:
    process = Process()
    process.welcomed()
    hello = w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", statement(1, {THIRD: 7}))
    process.hears(FromSource(SOURCE, hello))
    process.core.own.closed[THIRD] = 7
    (row,) = process.core.sources.rows()
    assert row.lag == 0


def both_hold(
    process: Process, *, at_third: dict[Origin, int], at_there: dict[Origin, int]
) -> None:
    """Two sources say what they hold, and are welcomed."""
    for rid, name, said in (
        (SOURCE, "there", statement(1, at_there)),
        (b"third", "third", statement(1, at_third, of=THIRD)),
    ):
        process.hears(FromSource(rid, w.LinkHello(w.PROTOCOL, 1, 1, name, "g", said)))
        process.begun()


def test_a_source_that_was_set_back_is_not_awaited_for_what_another_one_holds_of_it() -> None:
    """It may not know of a generation that it began before that: others have to send it."""
    lost = Origin(THERE.instance, THERE.generation + 9)
    process = Process()
    process.welcomed()
    both_hold(process, at_there={THERE: 3}, at_third={lost: 7, THIRD: 1})
    assert process.core.own.sources == {THIRD.instance}
    process.core.own.raised(lost, 7, 0)
    said = statement(2, {THERE: 3})
    process.hears(FromSource(SOURCE, w.LinkBeat(1, said, 0, 0)))
    assert process.core.own.sources == {THERE.instance, THIRD.instance}


def test_what_a_source_appends_now_comes_from_itself() -> None:
    """Another one may have heard more of it: that is on its way here, too."""
    process = Process()
    process.welcomed()
    both_hold(process, at_there={THERE: 3}, at_third={THERE: 5, THIRD: 1})
    assert process.core.own.sources == {THERE.instance, THIRD.instance}


@pytest.mark.parametrize("closed", [False, True])
def test_a_source_that_holds_its_older_generation_brings_it(closed: bool) -> None:
    old = Origin(THERE.instance, THERE.generation - 1)
    ends = [w.ClosedGeneration(*old, 4)] if closed else []
    here = statement(1, {THERE: 3} if closed else {THERE: 3, old: 4})
    here.closed = ends
    process = Process()
    process.welcomed()
    process.hears(FromSource(SOURCE, w.LinkHello(w.PROTOCOL, 1, 1, "there", "g", here)))
    process.begun()
    third = statement(1, {old: 4}, of=THIRD)
    process.hears(FromSource(b"third", w.LinkHello(w.PROTOCOL, 1, 1, "third", "g", third)))
    process.begun()
    assert process.core.own.sources == {THERE.instance, THIRD.instance}
