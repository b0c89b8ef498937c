"""Messages that are not recorded: who gets them, who does not, and the link they come by."""

from __future__ import annotations

from array import array

import pytest
import zstandard

from tests.delivery.world import ANN, BOB, World, expand, ready
from zbroker.config import RecordConfig
from zbroker.delivery.contract import GrantLive, LiveReceived
from zbroker.delivery.live import GRANT_BYTES, WANTED_MS, LiveGrants
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW
from zbroker.limits import BEAT_MS, LIVE_CREDIT_BYTES
from zbroker.log.format import crc32c
from zbroker.recording import Recording
from zbroker.wire import bodies, codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

RECORDING = Recording([RecordConfig("t.*", regex=True)])
WALL_NS = 1_700_000_000_000_000_000


@pytest.fixture
def world() -> World:
    made = ready(recording=RECORDING)
    made.wall_ns = WALL_NS
    return made


def live(world: World, *topics: str, seq: int = 1, zstd: bool = False, **more: object) -> None:
    """ingest passes on one batch with a message per topic."""
    names = sorted(set(topics))
    body = bodies.pack([b"%d" % (seq + n) for n in range(len(topics))])
    codec_name = None
    if zstd:
        body, codec_name = zstandard.compress(body), "zstd"
    columns = None
    if len(names) > 1:
        columns = m.Columns(array("H", map(names.index, topics)).tobytes())
    entry = i.Entry(
        7, 1, seq, len(topics), None, crc32c(body), codec_name, names, columns=columns, **more
    )  # type: ignore[arg-type]
    world.pass_on([entry], [body])
    world.core.check()


def got(world: World, sid: str = "s", rid: bytes = ANN) -> list[tuple[int, str, bytes]]:
    return [(seen.seq, seen.topic, seen.data) for seen in world.got(sid, rid)]


def test_a_plain_subscription_gets_them_as_they_come(world: World) -> None:
    world.subscribe("u", bookmark=None)
    live(world, "u", "u")
    live(world, "v", seq=3)
    assert got(world) == [(1, "u", b"1"), (2, "u", b"2")]
    assert {seen.position for seen in world.got()} == {0}
    assert {seen.time_ns for seen in world.got()} == {WALL_NS}


def test_their_header_has_no_position(world: World) -> None:
    world.subscribe("u", bookmark=None)
    body = bodies.pack([b"x"])
    world.pass_on([i.Entry(7, 1, 1, 1, None, crc32c(body), None, ["u"])], [body])
    [send] = world.sent
    msg = codec.decode(codec.ANSWERS, send.header)
    assert isinstance(msg, m.Msg)
    assert b"position" not in send.header
    assert (msg.sid, msg.seq, msg.count, msg.origin) == ("s", 1, 1, None)


def test_they_come_with_recorded_ones(world: World) -> None:
    world.subscribe("t|u", regex=True, bookmark=None)
    live(world, "u", "v", "u")
    world.publish("t")
    world.persist()
    live(world, "u", seq=4)
    assert got(world) == [(1, "u", b"1"), (3, "u", b"3"), (1, "t", b"1/1......."), (4, "u", b"4")]


def test_a_time_that_the_publisher_gave_is_kept(world: World) -> None:
    world.subscribe("u", bookmark=None)
    live(world, "u", time_ns=5)
    assert [seen.time_ns for seen in world.got()] == [5]


@pytest.mark.parametrize("takes", [True, False])
def test_compressed_bodies_are_unpacked_for_who_does_not_take_them(
    world: World, takes: bool
) -> None:
    options = {"codecs": ["zstd"]} if takes else None
    world.subscribe("u", bookmark=None, options=options)
    live(world, "u", "u", zstd=True)
    assert got(world) == [(1, "u", b"1"), (2, "u", b"2")]


@pytest.mark.seed("004-37")
@pytest.mark.parametrize(
    "wishes",
    [{"bookmark": EPOCH}, {"bookmark": NOW}, {"bookmark": None, "until": "now"}],
)
def test_a_bookmark_subscription_to_an_unrecorded_topic_is_refused(
    world: World, wishes: dict[str, str]
) -> None:
    world.subscribe("u", **wishes)
    assert world.errors() == ["topic_not_recorded"]
    assert world.last().sid == "s"
    world.subscribe("u", bookmark=None)
    assert world.acks("processed"), "the sid is free again"


@pytest.mark.seed("004-57")
def test_a_bookmark_subscription_to_a_pattern_gets_recorded_topics_only(world: World) -> None:
    world.subscribe("t|u", regex=True, bookmark=NOW)
    live(world, "u")
    world.publish("t")
    world.persist()
    assert [seen.topic for seen in world.got()] == ["t"]


def test_who_resumes_a_plain_subscription_says_so(world: World) -> None:
    world.publish("t")
    world.persist()
    world.subscribe("t|u", regex=True, bookmark=EPOCH, unrecorded=True)
    world.subscribe("u", "only", bookmark=EPOCH, unrecorded=True)
    live(world, "u")
    assert [seen.topic for seen in world.got()] == ["t", "u"]
    assert len(world.got("only")) == 1


def test_who_says_no_gets_recorded_ones_only(world: World) -> None:
    world.subscribe("t|u", regex=True, bookmark=None, unrecorded=False)
    live(world, "u")
    assert world.got() == []


def test_without_credit_they_are_dropped_and_the_subscriber_learns_it_when_it_gives_some(
    world: World,
) -> None:
    world.subscribe("u", bookmark=None, credit=1)
    for seq in (1, 3, 5):
        live(world, "u", "u", seq=seq)
    assert [seq for seq, _, _ in got(world)] == [1, 2], "one batch of any size may go"
    assert world.core.counts.dropped == 4
    world.send(m.Flow("s", 100))
    assert world.acks("dropped") == [m.Ack("dropped", sid="s", dropped=4)]
    live(world, "u", seq=7)
    world.send(m.Flow("s", 100))
    assert len(world.acks("dropped")) == 1, "it knows"
    assert [seq for seq, _, _ in got(world)] == [1, 2, 7]


def test_one_without_credit_takes_nothing_from_the_others(world: World) -> None:
    world.logon(BOB)
    world.subscribe("u", bookmark=None, credit=0)
    world.subscribe("u", bookmark=None, rid=BOB)
    live(world, "u")
    assert (got(world), len(got(world, rid=BOB))) == ([], 1)


def test_a_subscription_that_is_over_gets_nothing(world: World) -> None:
    for sid, topic, regex in (("a", "u", False), ("b", "u.*", True), ("c", "u", False)):
        world.subscribe(topic, sid, regex=regex, bookmark=None)
    world.send(m.Unsubscribe("a"))
    world.send(m.Unsubscribe("b"))
    live(world, "u")
    assert [len(world.got(sid)) for sid in "abc"] == [0, 0, 1]
    world.send(m.Logoff())
    live(world, "u", seq=2)
    assert len(world.got("c")) == 1


def test_a_subscription_that_is_not_accepted_yet_gets_nothing(world: World) -> None:
    world.up = False
    world.subscribe("u", bookmark=None)
    live(world, "u")
    assert world.got() == []


def test_a_batch_that_names_a_topic_twice_comes_once(world: World) -> None:
    world.subscribe("u", bookmark=None)
    body = bodies.pack([b"a", b"b"])
    columns = m.Columns(array("H", [0, 1]).tobytes())
    entry = i.Entry(7, 1, 1, 2, None, crc32c(body), None, ["u", "u"], columns=columns)
    world.pass_on([entry], [body])
    assert got(world) == [(1, "u", b"a"), (2, "u", b"b")]


def test_where_everything_is_recorded_no_one_waits_for_live_messages() -> None:
    world = ready()
    world.subscribe("u", bookmark=None)
    assert world.core.live.fan_out([i.Entry(7, 1, 1, 1, None, 5, None, ["u"])], [b""], 0) == []


def test_parts_are_made_once_for_all_that_want_the_same(world: World) -> None:
    world.logon(BOB)
    for rid in (ANN, BOB):
        world.subscribe("u", bookmark=None, rid=rid)
    body = bodies.pack([b"a", b"b"])
    columns = m.Columns(array("H", [0, 1]).tobytes())
    entry = i.Entry(7, 1, 1, 2, None, crc32c(body), None, ["u", "v"], columns=columns)
    world.pass_on([entry], [body])
    one, other = world.sent
    assert one.body is other.body
    msg = codec.decode(codec.ANSWERS, one.header)
    assert isinstance(msg, m.Msg)
    assert [seen.data for seen in expand(msg, one.body)] == [b"a"]


# -- the link ---------------------------------------------------------------------------------


MINE = 21


def hello(rid: bytes, incarnation: int) -> LiveReceived:
    return LiveReceived(rid, i.Hello("ingest", incarnation), [], 0)


def batches(rid: bytes, size: int, incarnation: int = MINE) -> LiveReceived:
    return LiveReceived(rid, i.Live(incarnation, []), [b"x" * size], size)


def granted(rid: bytes, echo: int, taken: int, credit: int = LIVE_CREDIT_BYTES) -> GrantLive:
    return GrantLive(rid, i.LiveCredit(MINE, echo, taken, credit))


def test_a_hello_is_answered_with_credit() -> None:
    grants = LiveGrants(MINE)
    assert grants.answer(hello(ANN, 5)) == granted(ANN, 5, 0)
    assert grants.answer(batches(ANN, 10)) is None
    assert grants.taken() == []
    assert grants.tick(0, wanted=True) == [granted(ANN, 5, 10)]
    assert grants.answer(hello(BOB, 6)) == granted(BOB, 6, 0)
    assert grants.answer(batches(ANN, 10)) == granted(ANN, 0, 0, 0), "only the newest is heard"


@pytest.mark.parametrize(("rid", "incarnation"), [(BOB, 21), (ANN, 20)])
def test_what_was_meant_for_a_dead_delivery_is_not_taken(rid: bytes, incarnation: int) -> None:
    grants = LiveGrants(MINE)
    grants.answer(hello(ANN, 5))
    assert grants.answer(batches(rid, 10, incarnation)) == granted(rid, 0, 0, 0), "say Hello"
    assert grants.tick(0, wanted=True) == [granted(ANN, 5, 0)]


def test_more_is_granted_as_soon_as_a_part_was_taken() -> None:
    grants = LiveGrants(MINE)
    grants.answer(hello(ANN, 5))
    grants.answer(batches(ANN, GRANT_BYTES - 1))
    assert grants.taken() == []
    grants.answer(batches(ANN, 1))
    assert grants.taken() == [granted(ANN, 5, GRANT_BYTES)]
    assert grants.taken() == [], "once"


def test_a_grant_comes_on_each_beat() -> None:
    grants = LiveGrants(MINE)
    assert grants.tick(1, wanted=True) == [], "no ingest has said Hello"
    grants.answer(hello(ANN, 5))
    assert grants.next_wake_ms == 1 + BEAT_MS
    assert grants.tick(BEAT_MS, wanted=True) == []
    assert grants.tick(1 + BEAT_MS, wanted=True) == [granted(ANN, 5, 0)]


def test_nothing_is_granted_while_no_one_is_there_to_send_it_to() -> None:
    grants = LiveGrants(MINE)
    assert grants.answer(hello(ANN, 5)) == granted(ANN, 5, 0)
    assert grants.tick(5, wanted=False) == [granted(ANN, 5, 0, 0)]
    assert grants.answer(hello(ANN, 5)) == granted(ANN, 5, 0, 0)
    assert grants.tick(6, wanted=True) == [granted(ANN, 5, 0)], "at once"
    assert grants.tick(5 + WANTED_MS, wanted=False) == [granted(ANN, 5, 0)]
    assert grants.tick(6 + WANTED_MS, wanted=False) == [granted(ANN, 5, 0, 0)], "at once"


def test_the_process_grants_while_a_client_is_logged_on(world: World) -> None:
    world.hear(hello(BOB, 5))
    world.pass_time(1)
    found = [effect for effect in world.done if isinstance(effect, GrantLive)]
    assert [grant.grant.credit_bytes for grant in found] == [LIVE_CREDIT_BYTES]
    world.send(m.Logoff())
    world.pass_time(WANTED_MS)
    found = [effect for effect in world.done if isinstance(effect, GrantLive)]
    assert found[-1].grant.credit_bytes == 0


def test_a_refusal_says_what_to_do() -> None:
    error = ClientError("topic_not_recorded", "")
    assert "without a bookmark" in error.hint
