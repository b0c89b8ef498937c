"""Requests between queues of instances: which links they go over, and who is not heard."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.replication.build import HERE, THERE, THIRD
from tests.replication.test_core import MINE, Process, answers
from zbroker.engine.effects import Answer, Tell
from zbroker.engine.events import Asked
from zbroker.ids import Origin
from zbroker.limits import BEAT_MS, U63_MAX
from zbroker.replication.contract import (
    FEATURE_LEVEL,
    NAMES_LEVEL,
    REQUESTS_LEVEL,
    SESSIONS_LEVEL,
)
from zbroker.replication.core import FromDestination
from zbroker.replication.effects import SayOn
from zbroker.replication.request_routes import A_BEAT, SEEN_MAX
from zbroker.replication.sources import FromSource
from zbroker.wire import codec
from zbroker.wire import replication as w
from zbroker.wire.owner_requests import (
    AskHandOver,
    AskTransfer,
    HandOverRequest,
    LiveSources,
    QueuesHere,
    TransferRequest,
)
from zbroker.wire.replication import INSTANCE_MAX, OriginPosition

QUEUES = b"queues"
NAMES = {"there": THERE, "third": THIRD}
FAR = Origin(9, 1)  # an instance without a link with this one
WANT = w.Want(1, "work", HERE.instance, "", THERE.instance, 70, 1, 10)


class Meshed(Process):
    """Links with `there` and `third`: from them, and to those that are named."""

    def __init__(self, *destinations: str, level: int = FEATURE_LEVEL) -> None:
        super().__init__(*destinations)
        self.welcomed()
        for number, (name, origin) in enumerate(NAMES.items(), 1):
            hello = w.LinkHello(w.PROTOCOL, level, number, name, "g", holds(origin))
            self.hears(FromSource(name.encode(), hello))
            self.begun()
        self.tick()
        for name in destinations:
            session = self.core.outgoing[name].session
            answer = w.LinkWelcome(session, level, name, "g", holds(NAMES[name]), 1 << 20)
            self.hears(FromDestination(name, answer))
        self.effects.clear()
        self.hears(Asked(QUEUES, QueuesHere()))

    def asks(self, owner: Origin | int, name: str = "") -> list[Any]:
        number = owner if isinstance(owner, int) else owner.instance
        return self.hears(Asked(QUEUES, AskTransfer("work", number, name, 10)))

    def wants(self, want: w.Want = WANT, name: str = "there") -> list[Any]:
        session = 1 + list(NAMES).index(name)
        return self.hears(FromSource(name.encode(), replace(want, session=session)))


def holds(origin: Origin, *rows: OriginPosition) -> w.Statement:
    return w.Statement(*origin, 1, 1, [*rows])


def sent(effects: list[Any]) -> dict[str, w.Want]:
    """Requests by the connection or link that they go over."""
    found = {one.rid.decode(): one.message for one in effects if isinstance(one, Answer)}
    found |= {f"to {one.link}": one.message for one in effects if isinstance(one, SayOn)}
    return {key: one for key, one in found.items() if isinstance(one, w.Want)}


def told(effects: list[Any]) -> list[Any]:
    said = [one.answer for one in effects if isinstance(one, Tell) and one.rid == QUEUES]
    return [one for one in said if not isinstance(one, LiveSources)]


@pytest.mark.seed("000-18")
def test_a_request_goes_to_the_owner_over_the_link_with_it() -> None:
    for destinations, way in (((), "there"), (("there",), "to there")):
        process = Meshed(*destinations)
        [(where, want)] = sent(process.asks(THERE)).items()
        assert where == way
        assert (want.queue, want.owner, want.asker) == ("work", THERE.instance, HERE.instance)
        assert (want.count, want.hops, want.begun) == (10, w.WANT_HOPS_MAX, MINE)


def test_the_initial_owner_is_found_by_its_name() -> None:
    process = Meshed("third")
    [(way, want)] = sent(process.asks(0, "third")).items()
    assert (way, want.owner, want.name) == ("to third", 0, "third")


def test_a_request_for_an_instance_without_a_link_goes_over_all_links() -> None:
    process = Meshed("third")
    found = sent(process.asks(FAR))
    assert found.keys() == {"there", "to third"}
    assert found["there"].session == 1
    assert found["to third"].session == process.core.outgoing["third"].session


def test_the_owner_tells_its_queues() -> None:
    process = Meshed()
    assert told(process.wants()) == [TransferRequest("work", THERE.instance, 10)]
    by_name = replace(WANT, owner=0, name="here", number=2)
    assert told(process.wants(by_name)) == [TransferRequest("work", THERE.instance, 10)]


def test_a_request_of_a_destination_is_heard_on_the_link_to_it() -> None:
    process = Meshed("there")
    want = replace(WANT, session=process.core.outgoing["there"].session)
    assert told(process.hears(FromDestination("there", want)))
    late = replace(want, session=want.session - 1, number=2)
    assert not told(process.hears(FromDestination("there", late)))


def test_a_request_for_another_instance_is_passed_on_once() -> None:
    process = Meshed()
    for owner, ways in ((THIRD, {"third"}), (FAR, {"third"})):
        want = replace(WANT, owner=owner.instance, number=owner.instance)
        found = sent(process.wants(want))
        assert found.keys() == ways, "not back to who asks"
        assert {one.hops for one in found.values()} == {w.WANT_HOPS_MAX - 1}
        assert not sent(process.wants(want))
        assert not sent(process.wants(want, name="third"))


def test_a_request_that_went_over_too_many_links_ends() -> None:
    process = Meshed()
    assert not sent(process.wants(replace(WANT, owner=FAR.instance, hops=0)))
    assert told(process.wants(replace(WANT, hops=0, number=2))), "it is there"


def test_an_own_request_that_comes_back_ends() -> None:
    process = Meshed()
    own = replace(WANT, asker=HERE.instance, owner=FAR.instance)
    assert not sent(process.wants(own))


def test_an_instance_whose_log_does_not_come_here_may_not_ask() -> None:
    process = Meshed("there")
    process.hears(FromSource(b"there", w.LinkBeat(9, holds(THERE))))  # its link ends
    process.core.sources.end(b"there")
    want = replace(WANT, session=process.core.outgoing["there"].session)
    assert not told(process.hears(FromDestination("there", want)))


def test_an_instance_of_an_older_release_is_not_asked() -> None:
    process = Meshed("there", level=REQUESTS_LEVEL - 1)
    assert not sent(process.asks(THERE))


SOME = [w.NamedMessages(*FAR, [3, 2, 1, 1])]


def test_names_reach_the_queues_of_the_owner_over_others() -> None:
    process = Meshed("third")
    found = sent(process.hears(Asked(QUEUES, AskTransfer("work", FAR.instance, "", 0, SOME, 3))))
    assert {(one.count, one.most) for one in found.values()} == {(0, 3)}
    passed = sent(process.wants(replace(WANT, owner=FAR.instance, where=SOME, most=2)))
    assert [(one.where, one.most) for one in passed.values()] == [(SOME, 2)]
    own = replace(WANT, where=SOME, most=2, number=2)
    assert told(process.wants(own)) == [TransferRequest("work", THERE.instance, 10, SOME, 2)]


def test_a_release_without_names_is_asked_for_a_number_alone() -> None:
    process = Meshed("there", level=NAMES_LEVEL - 1)
    asks = [AskTransfer("work", THERE.instance, "", count, SOME, 3) for count in (0, 7)]
    assert not sent(process.hears(Asked(QUEUES, asks[0])))
    [(_, want)] = sent(process.hears(Asked(QUEUES, asks[1]))).items()
    assert (want.count, want.where, want.most) == (7, [], 0)


def test_a_request_for_nothing_is_not_made() -> None:
    process = Meshed("there")
    assert not sent(process.hears(Asked(QUEUES, AskTransfer("work", THERE.instance, "", 0))))


@pytest.mark.parametrize("where", [
    [w.NamedMessages(*FAR, [3, 1, 1])],
    [w.NamedMessages(*FAR, [0, 1])],
    [w.NamedMessages(*FAR, [3, 0])],
    [w.NamedMessages(0, 1, [3, 1])],
    [w.NamedMessages(1 << 64, 1, [3, 1])],
    [w.NamedMessages(*FAR, [U63_MAX, 1])],
    [w.NamedMessages(*FAR, [1, w.WANT_NAMES_MAX + 1])],
    [w.NamedMessages(*FAR, [1, w.WANT_NAMES_MAX]), w.NamedMessages(*THIRD, [1, 1])],
])  # fmt: skip
def test_names_that_cannot_be_or_are_too_many_are_not_heard(where: list[Any]) -> None:
    process = Meshed()
    assert w.wrong_names(where)
    assert not told(process.wants(replace(WANT, where=where, most=1)))
    assert not sent(process.wants(replace(WANT, where=where, owner=FAR.instance, number=2)))


def test_as_many_names_as_there_may_be_are_within_a_header() -> None:
    where = [w.NamedMessages(INSTANCE_MAX - n, w.GENERATION_MAX, [U63_MAX - n, 1])
             for n in range(1, w.WANT_NAMES_MAX + 1)]  # fmt: skip
    assert not w.wrong_names(where)
    frame = codec.encode(replace(WANT, where=where, most=w.WANT_NAMES_MAX))
    assert codec.decode(codec.TO_SOURCE, frame) == replace(WANT, where=where, most=w.WANT_NAMES_MAX)


# -- sessions -------------------------------------------------------------------------------------

ASK = AskHandOver(THERE.instance, "alice", "billing", 7, "me")
WANTED = w.WantSession(1, "alice", "billing", 7, "me")


def wanted(effects: list[Any]) -> list[w.WantSession]:
    said = [one.message for one in effects if isinstance(one, Answer | SayOn)]
    return [one for one in said if isinstance(one, w.WantSession)]


def test_a_session_is_asked_for_on_the_link_with_its_instance_alone() -> None:
    process = Meshed("there")
    session = process.core.outgoing["there"].session
    assert wanted(process.hears(Asked(QUEUES, ASK))) == [replace(WANTED, session=session)]
    assert not wanted(process.hears(Asked(QUEUES, replace(ASK, owner=FAR.instance))))


def test_a_release_without_hand_overs_is_not_asked_for_a_session() -> None:
    process = Meshed("there", level=SESSIONS_LEVEL - 1)
    assert not wanted(process.hears(Asked(QUEUES, ASK)))


def test_a_session_is_wanted_by_an_instance_to_which_this_log_goes() -> None:
    process = Meshed("there")
    want = replace(WANTED, session=process.core.outgoing["there"].session)
    said = HandOverRequest(THERE.instance, "alice", "billing", 7, "me")
    assert told(process.hears(FromDestination("there", want))) == [said]
    assert told(process.hears(FromSource(b"there", WANTED))) == [said]
    assert not told(process.hears(FromSource(b"third", replace(WANTED, session=2))))
    process.core._requests.rid = b""
    assert not told(process.hears(FromSource(b"there", WANTED)))


def test_a_session_is_not_wanted_by_one_whose_log_does_not_come_here() -> None:
    process = Meshed("there")
    process.core.sources.end(b"there")
    want = replace(WANTED, session=process.core.outgoing["there"].session)
    assert not told(process.hears(FromDestination("there", want)))


def test_nobody_is_told_before_the_queues_were_heard_of() -> None:
    process = Meshed()
    process.core._requests.rid = b""
    assert not told(process.wants())


def test_who_asks_too_often_is_not_heard_before_the_next_beat() -> None:
    process = Meshed()
    heard = [told(process.wants(replace(WANT, number=n))) for n in range(1, A_BEAT + 3)]
    assert sum(map(len, heard)) == A_BEAT
    process.tick(BEAT_MS)
    assert told(process.wants(replace(WANT, number=A_BEAT + 9)))


def test_what_was_seen_is_forgotten_in_the_end() -> None:
    process = Meshed()
    routes = process.core._requests
    for number in range(1, SEEN_MAX + 2):
        routes._heard.clear()
        process.wants(replace(WANT, number=number))
    assert len(routes._seen) == SEEN_MAX
    assert not answers(process.effects, w.LinkEnded)


def test_an_instance_that_may_bring_some_topics_only_may_not_ask() -> None:
    for topics, digest in ((["orders"], 0), ([".*"], 7)):
        process = Meshed()
        link = process.core.sources.links[b"there"]
        link.topics, link.digest = topics, digest
        assert not told(process.wants())


def test_the_queues_hear_whose_log_comes_here() -> None:
    process = Meshed()
    [said] = process.hears(Asked(QUEUES, QueuesHere()))
    assert said == Tell(QUEUES, LiveSources([THERE.instance, THIRD.instance]))
