"""ingest's decisions without a socket: logon, names, packing, refusals, merged acks."""

from __future__ import annotations

import msgspec
import pytest
import zstandard
from msgspec.structs import replace

from tests.ingest.rig import MINE, Rig, item, made
from zbroker.access.core import Access
from zbroker.engine.effects import JOURNAL as TO_JOURNAL
from zbroker.engine.effects import Reconnect, Say
from zbroker.errors import ClientError
from zbroker.ingest import core as core_module
from zbroker.ingest.contract import EndpointsRead, PublishLimits
from zbroker.ingest.logons import PROBE_MS, PROBES
from zbroker.limits import EXTRA_MAX_BYTES
from zbroker.log.format import crc32c
from zbroker.recording import Recording
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m

A, B = b"\0aaaa", b"\0bbbb"
pack = msgspec.msgpack.encode


class Bench(Rig):
    """A core with the limits that the test says."""

    def __init__(
        self,
        window_bytes: int = 10_000,
        publisher_time: bool = False,
        clients: int = 3,
        access: Access | None = None,
        clients_per_principal: int = 100,
        recording: Recording | None = None,
    ) -> None:
        limits = PublishLimits(
            1_000, 2_000, window_bytes, clients, publisher_time, clients_per_principal
        )
        super().__init__(made(limits, recording, access))

    def lines(self) -> list[tuple[int, int | None]]:
        """First sequence and `prev` of everything that went to the journal."""
        return [(entry.seq, entry.prev) for _, entry, _ in self.appended]

    def logon(
        self, rid: bytes = A, name: str = "p", instance: str = "x", **more: float
    ) -> m.ServerAnswer | m.Heartbeat:
        [answer] = self.turn(item(rid, m.Logon(name, instance, "1", **more), None))
        return answer


def single(
    seq: int, topic: str = "t", ack: bool = True, prev: int | None = None, rid: bytes = A
) -> Received:
    return item(
        rid, m.Publish(seq, topic, prev=prev, ack=["persisted"] if ack else None), b"data%d" % seq
    )


def packed(seq: int, *messages: bytes, rid: bytes = A, **more: object) -> Received:
    body = pack(list(messages))
    return item(
        rid,
        m.Publish(seq, "t", count=len(messages), crc=crc32c(body), ack=["persisted"], **more),
        body,
    )  # type: ignore[arg-type]


def error(answers: list[m.ServerAnswer | m.Heartbeat]) -> m.Error:
    [answer] = answers
    assert isinstance(answer, m.Error)
    return answer


def test_a_logon_tells_what_the_journal_holds() -> None:
    answer = Bench().logon()
    assert isinstance(answer, m.Ack)
    assert (answer.type, answer.cid, answer.publisher, answer.origin) == (
        "processed",
        "1",
        42,
        (9, 1),
    )


class Lacking(Bench):
    """Ranges of other instances are missing in the log."""

    missing = 0

    def opened(self, asked: i.Open) -> i.Opened:
        return replace(super().opened(asked), missing=self.missing)


@pytest.mark.parametrize("missing", [0, 3])
def test_a_logon_tells_how_many_ranges_the_log_lacks(missing: int) -> None:
    bench = Lacking()
    bench.missing = missing
    answer = bench.logon()
    assert isinstance(answer, m.Ack)
    assert answer.missing == (missing or None)


def test_singles_of_a_turn_become_one_batch_whatever_their_topics() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(single(1, "a"), single(2, "b"), single(3, "a"))
    [(_, entry, body)] = bench.appended
    assert (entry.seq, entry.count, entry.topics, entry.prev) == (1, 3, ["a", "b"], 0)
    assert entry.columns is not None
    assert entry.columns.index == b"\0\0\1\0\0\0"
    assert msgspec.msgpack.decode(body) == [b"data1", b"data2", b"data3"]
    assert entry.crc == crc32c(body)


def extra(seq: int, **more: object) -> Received:
    return item(A, m.Publish(seq, "t", **more), b"data%d" % seq)  # type: ignore[arg-type]


def test_keys_headers_and_expiry_of_singles_become_columns() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(
        extra(1, key=b"k"),
        extra(2),
        extra(3, headers={"a": msgspec.Raw(b"\x01")}, expires_ns=7),
        extra(4, key=b""),
    )
    [(_, entry, _)] = bench.appended
    columns = entry.columns
    assert columns is not None
    assert columns.keys == pack([b"k", None, None, b""])
    assert columns.headers == pack([None, None, {"a": 1}, None])
    assert columns.expiry == bytes(16) + (7).to_bytes(8, "little") + bytes(8)
    assert (columns.index, columns.time) == (None, None)


def test_singles_that_expire_never_need_no_columns() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(extra(1, expires_ns=0), extra(2))
    [(_, entry, _)] = bench.appended
    assert (entry.count, entry.columns) == (2, None)


def test_singles_share_a_batch_as_long_as_their_keys_fit_a_header() -> None:
    bench = Bench()
    bench.logon()
    key = bytes(EXTRA_MAX_BYTES - 4)
    bench.turn(*(extra(seq, key=key) for seq in range(1, 6)), extra(6))
    assert [(entry.seq, entry.count) for _, entry, _ in bench.appended] == [(1, 2), (3, 2), (5, 2)]


@pytest.mark.parametrize(
    ("key", "value"), [("key", "text"), ("headers", [1]), ("headers", {1: 2}), ("expires_ns", -1)]
)
def test_a_wrong_type_is_named_by_its_key(key: str, value: object) -> None:
    frame = pack({"cmd": "publish", "topic": "t", "seq": 1, key: value})
    with pytest.raises(ClientError, match=f"`{key}") as raised:
        codec.decode(codec.INGEST, frame)
    assert raised.value.code == "bad_field"


def test_a_jump_in_the_sequence_begins_a_new_batch() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(single(1), single(2), single(9))
    assert [(e.seq, e.count) for _, e, _ in bench.appended] == [(1, 2), (9, 1)]


def test_singles_with_prev_are_packed_as_long_as_they_chain() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(single(1, prev=0), single(2, prev=1), single(3, prev=1))
    assert [(e.seq, e.count, e.prev) for _, e, _ in bench.appended] == [(1, 2, 0), (3, 1, 1)]


def test_a_packed_body_goes_on_untouched_after_the_singles_before_it() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(single(1), packed(2, b"x", b"y"), single(4))
    assert [(e.seq, e.count) for _, e, _ in bench.appended] == [(1, 1), (2, 2), (4, 1)]
    assert bench.appended[1][2] == pack([b"x", b"y"])


@pytest.mark.seed("002-13")
@pytest.mark.seed("004-19")
def test_acks_are_merged_and_only_sent_to_who_asked() -> None:
    bench = Bench()
    bench.logon()
    bench.logon(B, "q")
    bench.turn(packed(1, b"x"), packed(2, b"y"), single(1, rid=B, ack=False))
    reported = bench.settle(
        i.ReceiptItem(1, 5, 1), i.ReceiptItem(2, 6, 2, 1), i.ReceiptItem(3, 7, 1)
    )
    assert reported == [m.Ack("persisted", seq=2, durability="disk", duplicate=1)]


def test_a_refusal_breaks_the_run_of_acks_in_its_place() -> None:
    bench = Bench()
    bench.logon()
    bench.turn(packed(1, b"x"), packed(5, b"y", prev=4, cid="r1"))
    reported = bench.settle(
        i.ReceiptItem(1, 5, 1), i.ReceiptItem(2, 0, 1, 0, "sequence_gap", "because")
    )
    assert isinstance(reported[0], m.Ack)
    assert reported[0].seq == 1
    assert error(reported[1:]) == m.Error("sequence_gap", "because", cid="r1", seq=5, high=1)


@pytest.mark.seed("001-24")
def test_flush_is_answered_when_everything_before_it_is_persisted() -> None:
    bench = Bench()
    bench.logon()
    assert bench.turn(single(1, ack=False), item(A, m.Flush("f"), None)) == []
    assert bench.settle(i.ReceiptItem(1, 5, 1)) == [
        m.Ack("persisted", "f", seq=1, durability="disk")
    ]
    assert bench.turn(item(A, m.Flush("g"), None)) == [
        m.Ack("persisted", "g", seq=1, durability="disk")
    ]


BOMB = zstandard.ZstdCompressor().compress(bytes(1 << 20))


@pytest.mark.parametrize(
    ("publish", "body", "code"),
    [
        (m.Publish(1, "t"), None, "bad_frame"),
        (m.Publish(1), b"x", "bad_field"),
        (m.Publish(1, "t", topics=["t"]), b"x", "bad_field"),
        (m.Publish(1, ""), b"x", "bad_topic"),
        (m.Publish(1, "a\nb"), b"x", "bad_topic"),
        (m.Publish(1, "é" * 128), b"x", "bad_topic"),
        (m.Publish(1, "t"), bytes(1_001), "too_large"),
        (m.Publish(1, "t", count=3), pack([b"a"] * 2), "bad_frame"),
        (m.Publish(1, "t", count=3), b"\xdd\xff\xff\xff\xff", "bad_frame"),
        (m.Publish(1, "t", count=2), pack([b"a", "b"]), "bad_frame"),
        (m.Publish(1, "t", count=2), pack([b"a", b"b"]) + b"x", "bad_frame"),
        (m.Publish(1, "t", count=2), pack([b"a" * 1_500] * 2), "too_large"),
        (m.Publish(1, "t", count=1, codec="zstd"), BOMB, "too_large"),
        (m.Publish(1, "t", count=1, codec="lz4"), b"\x91\xc4\x01a", "bad_field"),
        (m.Publish(1, "t", crc=1), b"x", "bad_frame"),
        (
            m.Publish(1, topics=["a"], count=1, columns=m.Columns(index=b"\1\0")),
            b"\x91\xc4\x01a",
            "bad_field",
        ),
        (m.Publish(1, topics=["a", "b"], count=1), b"\x91\xc4\x01a", "bad_field"),
        (m.Publish(1, "t", time_ns=1), b"x", "bad_field"),
        (m.Publish(1, "t", count=1, key=b"k"), b"\x91\xc4\x01a", "bad_field"),
        (m.Publish(1, "t", count=1, expires_ns=5), b"\x91\xc4\x01a", "bad_field"),
        (m.Publish(1, "t", headers={"a": msgspec.Raw(b"\x80")}), b"x", "bad_field"),
        (m.Publish(1, "t", key=bytes(EXTRA_MAX_BYTES - 3)), b"x", "too_large"),
        (m.Publish(1, "t", columns=m.Columns(keys=b"\x91\xc0")), b"x", "bad_field"),
        (
            m.Publish(1, "t", count=1, columns=m.Columns(headers=b"\x92\xc0\xc0")),
            b"\x91\xc4\x01a",
            "bad_field",
        ),
    ],
)
def test_what_is_wrong_with_a_publish_has_a_code(
    publish: m.Publish, body: bytes | None, code: str
) -> None:
    bench = Bench()
    bench.logon()
    answer = error(bench.turn(item(A, publish, body)))
    assert (answer.code, answer.seq) == (code, 1)
    assert bench.appended == []
    assert bench.core.errors[code] == 1


def test_a_message_of_the_greatest_size_passes_packed_too() -> None:
    bench = Bench()
    bench.logon()
    assert bench.turn(packed(1, bytes(1_000))) == []


def test_publisher_time_must_be_given_where_it_is_log_time() -> None:
    bench = Bench(publisher_time=True)
    bench.logon()
    assert error(bench.turn(single(1))).code == "bad_field"
    bench.turn(item(A, m.Publish(1, "t", time_ns=7), b"x"))
    [(_, entry, _)] = bench.appended
    assert entry.columns is not None
    assert entry.columns.time == (7).to_bytes(8, "little")


@pytest.mark.seed("002-20")
def test_no_one_logs_on_before_every_endpoint_is_known() -> None:
    bench = Bench()
    bench.hear(EndpointsRead({}, ["delivery", "queues"]))
    [refused] = bench.turn(item(A, m.Logon("p", "x", "c"), None))
    assert isinstance(refused, m.Error)
    assert (refused.code, refused.cid) == ("not_ready", "c")
    assert "delivery, queues cannot be reached yet" in refused.reason
    bench.hear(EndpointsRead({"delivery": "tcp://d", "queues": "tcp://q"}))
    answer = bench.logon()
    assert isinstance(answer, m.Ack)
    assert answer.endpoints == {"delivery": "tcp://d", "queues": "tcp://q"}


def test_what_came_before_a_logon_is_refused() -> None:
    bench = Bench()
    assert error(bench.turn(single(1))).code == "not_logged_on"
    assert error(bench.turn(item(A, m.Heartbeat(), None))).code == "not_logged_on"


def test_what_cannot_be_decoded_is_answered_with_its_cid() -> None:
    bad = Received(A, [pack({"cmd": "publich", "cid": "7"})])
    answer = error(Bench().turn(bad))
    assert (answer.code, answer.cid) == ("bad_command", "7")


def test_a_full_window_refuses_and_holds_what_follows_without_prev() -> None:
    bench = Bench(window_bytes=1_000)
    bench.logon()
    bench.turn(packed(1, bytes(900)))
    big = item(A, m.Publish(2, "t"), bytes(200))
    small = item(A, m.Publish(3, "t"), b"x")
    assert error(bench.turn(big, small)).code == "window_full"
    assert bench.lines() == [(1, 0), (3, 2)], "so the journal refuses 3 until it has 2"
    bench.settle(i.ReceiptItem(1, 5, 1), i.ReceiptItem(2, 0, 1, 0, "sequence_gap", ""))
    bench.turn(big, small)
    assert bench.lines()[2:] == [(2, 1)], "both in one batch"


def test_without_prev_the_sequence_used_before_is_filled_in() -> None:
    bench = Bench()
    bench.logon()
    for one in (packed(5, b"a", b"b"), single(9), packed(5, b"a", b"b"), single(6), single(9)):
        bench.turn(one)
    assert bench.lines() == [(5, 0), (9, 6), (5, 0), (6, 5), (9, 6)]
    bench.settle(i.ReceiptItem(1, 2, 6), i.ReceiptItem(2, 3, 9))
    bench.turn(single(3))
    bench.turn(single(12))
    assert bench.lines()[5:] == [(3, None), (12, 9)], "what is before 3 is in the log"


def test_what_was_refused_for_good_is_not_waited_for() -> None:
    bench = Bench(window_bytes=1_000)
    bench.logon()
    bench.turn(packed(1, bytes(900)))
    big = item(A, m.Publish(2, "t"), bytes(200))
    assert error(bench.turn(big)).code == "window_full"
    bad = item(A, m.Publish(2, "t", crc=1), b"x")
    assert error(bench.turn(bad)).code == "bad_frame"
    bench.turn(single(3))
    assert bench.lines() == [(1, 0), (3, 1)]


def test_a_session_that_was_refused_too_many_runs_of_sequences_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_module, "RUNS_MAX", 2)
    bench = Bench(window_bytes=1_000)
    bench.logon()
    bench.turn(packed(1, bytes(900)))
    reported = bench.turn(*(item(A, m.Publish(seq, "t"), bytes(200)) for seq in (4, 6, 8)))
    codes = [answer.code for answer in reported if isinstance(answer, m.Error)]
    assert codes == ["window_full", "window_full", "session_ended", "not_logged_on"]


@pytest.mark.seed("002-22")
def test_a_name_in_use_is_refused_unless_its_holder_is_gone() -> None:
    bench = Bench()
    bench.logon(A)
    assert bench.turn(item(B, m.Logon("p", "y", "2"), None)) == [m.Heartbeat()], (
        "the holder is probed"
    )
    for bench.now_ms in range(PROBE_MS, PROBES * PROBE_MS, PROBE_MS):
        assert bench.tick(bench.now_ms) == [m.Heartbeat()]
    bench.now_ms += PROBE_MS
    assert error(bench.tick(bench.now_ms)).code == "name_in_use"
    bench.turn(item(B, m.Logon("p", "y", "3"), None))
    reported = bench.gone(A)
    assert [a.cid for a in reported if isinstance(a, m.Ack)] == ["3"]


def test_the_same_instance_takes_its_name_over_and_the_old_session_is_informed() -> None:
    bench = Bench()
    bench.logon(A)
    reported = bench.turn(item(B, m.Logon("p", "x", "2"), None))
    assert [type(a) for a in reported] == [m.Error, m.Ack]
    assert error(reported[:1]).code == "session_ended"
    assert error(bench.turn(single(1, rid=A))).code == "not_logged_on"
    assert bench.turn(single(1, rid=B)) == []


def test_a_silent_client_ends_after_two_intervals_only_if_it_asked_for_heartbeats() -> None:
    bench = Bench()
    bench.logon(A, heartbeat_s=1.0)
    bench.logon(B, "q")
    while bench.now_ms < 2_000:
        assert list(bench.core.clients.by_rid) == [A, B]
        bench.now_ms = bench.core.next_wake_ms()
        reported = bench.tick(bench.now_ms)
    assert (bench.now_ms, list(bench.core.clients.by_rid)) == (2_000, [B])
    assert error([one for one in reported if isinstance(one, m.Error)]).code == "not_logged_on"


@pytest.mark.seed("002-43")
def test_a_heartbeat_that_names_an_interval_begins_them() -> None:
    bench = Bench()
    bench.logon(A)
    bench.turn(item(A, m.Heartbeat(1.0), None))
    assert bench.core.clients.by_rid[A].heartbeat_s == 1.0
    beats = 0
    while bench.core.clients.by_rid:
        bench.now_ms = bench.core.next_wake_ms()
        reported = bench.tick(bench.now_ms)
        beats += sum(isinstance(one, m.Heartbeat) for one in reported)
    assert (bench.now_ms, beats) == (2_000, 3)


@pytest.mark.parametrize(
    ("rid", "logon", "code"),
    [
        (b"chosen", m.Logon("p", "x"), "bad_field"),
        (A, m.Logon("", "x"), "bad_field"),
        (A, m.Logon("$p", "x"), "reserved_name"),
        (A, m.Logon("p", "x", version=2), "bad_version"),
        (A, m.Logon("p", "\u00e9" * 1_024), "too_large"),
    ],
)
def test_what_is_wrong_with_a_logon_has_a_code(rid: bytes, logon: m.Logon, code: str) -> None:
    assert error(Bench().turn(item(rid, logon, None))).code == code


def test_a_logon_is_refused_if_no_token_can_be_made_for_it() -> None:
    """Found only when the journal has answered, it would end the process."""
    outcomes = []
    for size in range(1_180, 1_260):
        instance = "\u00e9" * (size - 1_024) + "i" * (2_048 - size)
        answer = Bench().logon(name="n" * 255, instance=instance)
        outcomes.append("ok" if isinstance(answer, m.Ack) else error([answer]).code)
    fits = outcomes.index("too_large")
    assert outcomes == ["ok"] * fits + ["too_large"] * (len(outcomes) - fits)
    assert fits


def test_more_clients_than_allowed_are_refused() -> None:
    bench = Bench(clients=1)
    bench.logon(A)
    assert isinstance(bench.logon(B, "q"), m.Error)


def test_after_a_restart_of_the_journal_sessions_that_it_refused_are_reported() -> None:
    bench = Bench()
    bench.logon(A)
    bench.turn(single(1))
    reconnect, hello = bench.core.handle(i.Watermarks(12, 9, 1, 1, 1, 1, 1, 0), bench.now)
    assert reconnect == Reconnect(TO_JOURNAL)
    assert isinstance(hello, Say)
    assert isinstance(hello.message, i.Hello)
    assert [s.name for s in hello.message.sessions] == ["p"]
    reported = bench.hear(i.Welcome(12, MINE, 9, 1, 1 << 20, "disk", 1, 1, 1, ["p"]))
    assert error(reported).code == "session_ended"


def test_headers_over_the_limit_are_refused_unread() -> None:
    with pytest.raises(ClientError, match="too_large"):
        codec.decode(codec.INGEST, bytes(65_537))
