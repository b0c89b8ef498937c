"""What somebody with bad intentions tries, each against a real instance with security on.

eve has a key of her own and may publish and read on `open`. ann has rights that eve wants. Each
test is one attack; it fails when the attack succeeds.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
import zstandard

from tests.collisions import flood, header
from tests.process.load import until, until_running
from tests.process.raw import Raw
from tests.process.secured import Secured, token_of
from zbroker import endpoints
from zbroker.access.passwords import hash_password
from zbroker.client import connect
from zbroker.client.connect_types import Credentials
from zbroker.client.sync import Client
from zbroker.clock import SystemClock
from zbroker.errors import ZBrokerError
from zbroker.ids import publisher_id
from zbroker.log.format import crc32c
from zbroker.sockets import Curve
from zbroker.wire import token

CANARY = "canary-7Qx-do-not-tell"
PAYLOAD = "canary-of-a-payload"
ROLES = """
[[role.ann.allow]]
actions = ["publish", "subscribe", "replay"]
[[role.eve.allow]]
actions = ["publish", "subscribe", "replay"]
topics = ["open"]
[[role.nil.deny]]
actions = ["*"]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("attacks")
    people = {"ann": ["ann"], "eve": ["eve"], "pat": ["eve"], "kim": ["eve"], "lee": ["eve"],
              "nil": ["nil"]}  # fmt: skip
    settings = {"log": {"level": "debug"}}
    with Secured(place, people, ROLES, **settings) as made:
        text, hashed = made.rules(ROLES), hash_password(CANARY)
        for name in ("pat", "kim", "lee"):
            table = f'[principal."{name}"]\n'
            text = text.replace(table, f'{table}password = "{hashed}"\n')
        # kim and lee share a key
        text = text.replace(
            json.dumps(made.pairs["lee"].public), json.dumps(made.pairs["kim"].public)
        )
        made.write(text)
        time.sleep(0.5)  # the rules hold within that time
        yield made


def log_of(broker: Secured) -> list[bytes]:
    with broker.connect() as root:
        return [bytes(one.data) for one in root.subscribe(".*", regex=True, since="epoch",
                                                          until="now")]  # fmt: skip


# -- to be somebody else ----------------------------------------------------------------------


def strange(broker: Secured) -> Curve:
    """A key that was just made up."""
    return Curve(*zmq.curve_keypair(), broker.server.public.encode())


def test_a_key_that_no_one_knows(broker: Secured) -> None:
    before = broker.refused_keys()
    with Raw(broker, None, curve=strange(broker)) as stranger:
        stranger.offer({"cmd": "logon", "client": "ann", "instance": "i"})
        assert stranger.get(1_500) == {}
        until(lambda: broker.refused_keys() > before, "it came as far as that", 10)


def test_no_key_at_all(broker: Secured) -> None:
    with Raw(broker, None) as stranger:
        stranger.offer({"cmd": "logon", "client": "ann", "instance": "i"})
        assert stranger.get(1_500) == {}


def test_a_plain_password_in_the_place_of_a_key(broker: Secured) -> None:
    plain = {zmq.PLAIN_USERNAME: b"ann", zmq.PLAIN_PASSWORD: CANARY.encode()}
    with Raw(broker, None, options=plain) as stranger:
        stranger.offer({"cmd": "logon", "client": "ann", "instance": "i"})
        assert stranger.get(1_500) == {}


def test_a_broker_in_the_middle(broker: Secured) -> None:
    """A client talks to the one broker whose public key it was given, and to no one else."""
    public, _ = zmq.curve_keypair()
    wrong = Credentials(broker.place / "ann.key_secret", public.decode())
    with pytest.raises(ZBrokerError, match="timeout"):
        connect(broker.url, "ann", credentials=wrong, timeout=2)


def test_the_name_of_somebody_else(broker: Secured) -> None:
    with Raw(broker) as eve:
        for name in ("ann", "ann-1", "ann.x", "root", "pat"):
            assert eve.logon(name)["code"] == "not_entitled", name


def test_names_of_the_broker_itself(broker: Secured) -> None:
    with Raw(broker) as eve:
        assert eve.logon("$SYS")["code"] in ("reserved_name", "not_entitled")


def test_a_logon_that_was_overheard(broker: Secured) -> None:
    """The same bytes from another connection: name, instance and all."""
    with Raw(broker, "ann") as ann, Raw(broker) as eve:
        assert ann.logon("ann", "secret-instance")["cmd"] == "ack"
        assert eve.logon("ann", "secret-instance")["code"] == "not_entitled"
        assert ann.ask({"cmd": "flush", "cid": "f"})["type"] == "persisted", "her session lives"


def test_a_routing_id_of_ones_own(broker: Secured) -> None:
    for rid in (b"victim", b"abcde"):
        mine = {zmq.ROUTING_ID: rid}
        with Raw(broker, "ann", options=mine) as one:
            assert one.logon("ann")["code"] == "bad_field"
            with Raw(broker, options=mine) as eve:
                eve.send({"cmd": "logon", "cid": "1", "client": "eve", "instance": "i"})
                assert eve.get(500).get("code") in (None, "bad_field")


def test_the_connection_of_a_live_session(broker: Secured) -> None:
    """Another program of the same principal does not get the name either."""
    with Raw(broker, "ann") as first, Raw(broker, "ann") as second:
        assert first.logon("ann", "one")["cmd"] == "ack"
        assert second.logon("ann", "two")["code"] == "name_in_use"


def test_a_session_is_not_taken_over_by_its_instance(broker: Secured) -> None:
    """GET /clients tells it to its readers, and anybody may use names of this kind."""
    name, secret = "client-of-ann", admin_token(broker)
    with broker.connect("ann", name) as ann, Raw(broker) as eve:
        assert ann.publish("orders", b"1").wait(10)
        rows = json.loads(broker.http(f"/clients?client={name}", secret)[1])["clients"]
        [row] = [one for one in rows if one["door"] == "ingest"]
        assert eve.logon(name, row["instance"])["code"] in ("name_in_use", "not_entitled")
        assert ann.publish("orders", b"2").wait(10)
        rows = json.loads(broker.http(f"/clients?client={name}", secret)[1])["clients"]
        [now] = [one for one in rows if one["door"] == "ingest"]
        assert (now["session"], now["principal"]) == (row["session"], "ann")


def test_guesses_for_another_user_of_a_shared_key(broker: Secured) -> None:
    """Whoever has the key cannot keep its other users out."""
    with Raw(broker, "kim") as guesser, Raw(broker, "kim") as kim:
        for _ in range(3):
            guess = {"user": "lee", "password": "a guess"}
            assert guesser.logon("lee", credentials=guess)["code"] == "auth_failed"
        right = {"user": "kim", "password": CANARY}
        assert kim.logon("kim", credentials=right)["cmd"] == "ack"


def test_sequences_that_make_the_next_ones_duplicates(broker: Secured) -> None:
    """Whoever could publish under ann's name with a huge sequence would silence her for ever."""
    with Raw(broker) as eve:
        hello = eve.logon("eve")
        eve.send({"cmd": "publish", "topic": "open", "seq": 2**62, "ack": ["persisted"]}, b"x")
        assert eve.get()["type"] == "persisted"
        assert hello["publisher"]
    with broker.connect("ann") as ann:
        assert ann.publish("ann-says", b"heard").wait(10)
    assert b"heard" in log_of(broker)


# -- tokens -----------------------------------------------------------------------------------


def test_the_token_of_somebody_else(broker: Secured) -> None:
    with broker.connect("ann") as ann, Raw(broker, listener="delivery") as eve:
        assert eve.ask({"cmd": "logon", "token": token_of(ann)})["code"] == "auth_failed"
        assert eve.ask({"cmd": "ranges", "cid": "r"})["code"] == "not_logged_on"


def test_tokens_that_are_made_up(broker: Secured) -> None:
    with closing(broker.connect("eve")) as client, Raw(broker, listener="delivery") as eve:
        head, _, tail = token_of(client).partition(".")
        key = (broker.broker.data_dir / "run" / "token.key").read_bytes()
        mine = broker.pairs["eve"].public
        now_s = SystemClock().wall_ns() // 10**9
        old = token.make(key, token.Token("eve", "eve", "i", 1, now_s - 1, mine))
        payload = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
        forged = base64.urlsafe_b64encode(payload.replace(b"eve", b"ann")).decode().rstrip("=")
        other = token.make(b"k" * 32, token.Token("a", "ann", "i", 1, now_s + 9, mine))
        for bad in (head, f"{head}.", f".{tail}", f"{forged}.{tail}", old, other, "a.b", "",
                    "x" * 2_000):  # fmt: skip
            assert eve.ask({"cmd": "logon", "token": bad})["code"] == "auth_failed", bad


def test_a_token_over_a_query_or_cookie(broker: Secured) -> None:
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    assert broker.http(f"/status?token={secret}")[0] == 401
    assert broker.http("/status", secret)[0] == 200


def admin_token(broker: Secured) -> str:
    return (broker.broker.data_dir / "run" / "admin.token").read_text().strip()


def shown(broker: Secured, listener: str, token_text: str) -> str:
    """What eve is answered who shows a token on a new connection."""
    with Raw(broker, listener=listener) as eve:
        answer = eve.ask({"cmd": "logon", "token": token_text})
        return str(answer.get("code", answer.get("cmd")))


def test_a_token_from_before_a_disconnect_by_an_operator(broker: Secured) -> None:
    """It ends at every endpoint, also in a process that is restarted; ann's goes on."""
    secret, name = admin_token(broker), "client-of-eve"
    with (
        Raw(broker) as eve,
        Raw(broker, listener="delivery") as reader,
        broker.connect("ann") as ann,
    ):
        old = eve.logon(name)["token"]
        assert reader.ask({"cmd": "logon", "token": old})["cmd"] == "ack"
        assert broker.http("/status", old)[0] == 403, "known, and may not"
        assert broker.http("/clients/disconnect", secret, {"client": name})[0] == 200
        assert (eve.get()["code"], reader.get()["code"]) == ("session_ended", "session_ended")
        for listener in ("delivery", "queues"):
            assert shown(broker, listener, old) == "auth_failed"
        assert broker.http("/status", old)[0] == 401
        for process in ("delivery", "ingest"):
            pid = broker.broker.pids[process]
            os.kill(pid, signal.SIGKILL)
            until_running(broker.broker, process, pid)
            until(lambda: shown(broker, "delivery", old) == "auth_failed", f"{process} is back")
        with Raw(broker, "ann", "delivery") as beside:
            assert beside.ask({"cmd": "logon", "token": token_of(ann)})["cmd"] == "ack"
        with Raw(broker) as again:
            until(lambda: "token" in again.logon(name), "eve may log on again")
            new = again.logon(name)["token"]
        for listener in ("delivery", "queues"):
            assert shown(broker, listener, new) == "ack", "rules and passwords were asked again"
        assert ann.publish("orders", b"served").wait(10)


# -- what a listener does not do ------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["ingest", "delivery"])
@pytest.mark.parametrize(
    "command",
    [
        {"cmd": "append", "incarnation": 1, "ordinal": 1, "entries": []},
        {"cmd": "open", "cid": 1, "incarnation": 1, "name": "ann", "principal": "ann"},
        {"cmd": "remove", "through": 1},
        {"cmd": "retire", "serial": 1},
        {"cmd": "hello", "room": "ingest", "incarnation": 1},
        {"cmd": "beat", "room": "journal", "pid": 1},
        {"cmd": "stop"},
        {"cmd": "disconnect", "client": "ann"},
        {"cmd": "ask_subscriptions", "cid": 1},
    ],
)
def test_verbs_of_the_inside(broker: Secured, listener: str, command: dict[str, Any]) -> None:
    with Raw(broker, listener=listener) as eve:
        assert eve.ask(command)["code"] == "bad_command"


def test_commands_before_a_logon(broker: Secured) -> None:
    with Raw(broker) as eve, Raw(broker, listener="delivery") as reader:
        publish = {"cmd": "publish", "topic": "open", "seq": 1}
        assert eve.ask(publish, b"x")["code"] == "not_logged_on"
        for command in ("subscribe", "ranges", "unsubscribe"):
            answer = reader.ask({"cmd": command, "sid": "s", "topic": "open", "cid": "1"})
            assert answer["code"] == "not_logged_on"


def test_the_subscription_of_another_connection(broker: Secured) -> None:
    with broker.connect("ann") as ann, broker.connect("eve") as client:
        _live = ann.subscribe("secret")
        with Raw(broker, listener="delivery") as eve:
            assert eve.ask({"cmd": "logon", "token": token_of(client)})["cmd"] == "ack"
            for sid in ("s1", "1", "sub-1", "0"):
                for command in ({"cmd": "flow", "bytes": 9}, {"cmd": "unsubscribe", "cid": "u"}):
                    assert eve.ask({**command, "sid": sid})["code"] == "unknown_sid"


# -- what others have staged ------------------------------------------------------------------


def stage(peer: Raw, topic: str, seq: int, token_text: str, payload: bytes) -> None:
    """One message that a commit is to show."""
    publish = {"cmd": "publish", "seq": seq, "topic": topic, "count": 1, "stage": token_text}
    peer.send({**publish, "ack": ["persisted"]}, msgpack.packb([payload]))
    assert peer.get()["type"] == "persisted"


def commit(peer: Raw, app: str, batch: int, token_text: str) -> dict[str, Any]:
    command = {"cmd": "commit", "app": app, "batch": batch, "cid": "c"}
    return peer.ask(command, msgpack.packb([[token_text, 1]]))


def test_what_ann_staged_is_shown_and_forgotten_by_no_one_else(broker: Secured) -> None:
    with Raw(broker, "ann") as ann, Raw(broker) as eve, Raw(broker, "nil") as nil:
        ann.logon("ann-stages")
        stage(ann, "orders", 1, "of-ann", b"when ann wants it")
        for peer, name in ((eve, "eve-stages"), (nil, "nil")):
            assert peer.logon(name)["cmd"] == "ack"
            assert commit(peer, "jobs/nightly", 1, "of-ann")["cmd"] == "error"
            peer.ask({"cmd": "abort", "cid": "a"}, msgpack.packb(["of-ann"]))
        assert b"when ann wants it" not in log_of(broker)
        done = commit(ann, "jobs/nightly", 1, "of-ann")
        assert (done["cmd"], done.get("count"), done.get("already", False)) == (
            "committed",
            1,
            False,
        )
    assert b"when ann wants it" in log_of(broker)


def test_the_numbers_of_somebody_elses_job(broker: Secured) -> None:
    """A batch with the largest number under ann's app would make all of hers old: silent loss."""
    with Raw(broker, "ann") as ann, Raw(broker) as eve, Raw(broker, "nil") as nil:
        for peer, name in ((ann, "ann-job"), (eve, "eve-job"), (nil, "nil-job")):
            assert peer.logon(name)["cmd"] == "ack"
        stage(eve, "open", 1, "of-eve", b"of eve")
        assert commit(eve, "jobs/daily", 2**63 - 1, "of-eve")["cmd"] == "committed"
        stage(ann, "orders", 1, "ann-daily", b"of the day")
        done = commit(ann, "jobs/daily", 1, "ann-daily")
        assert (done["cmd"], done.get("count"), done.get("already", False)) == (
            "committed",
            1,
            False,
        )
        spying = {"cmd": "commit", "app": "jobs/daily", "batch": 2**63 - 1, "cid": "s"}
        assert "position" not in nil.ask(spying, msgpack.packb([]))
    assert b"of the day" in log_of(broker)


# -- what is too much -------------------------------------------------------------------------


def test_a_body_that_grows_when_it_is_unpacked(broker: Secured) -> None:
    bomb = zstandard.compress(msgpack.packb([bytes(64 << 20)]))
    with Raw(broker) as eve:
        eve.logon("eve")
        eve.send({"cmd": "publish", "topic": "open", "seq": 2**62 + 1, "count": 1, "codec": "zstd",
                  "crc": crc32c(bomb)}, bomb)  # fmt: skip
        assert eve.get()["code"] in ("too_large", "bad_frame")


@pytest.mark.parametrize("listener", ["ingest", "delivery", "queues"])
def test_frames_whose_maps_have_keys_that_collide(broker: Secured, listener: str) -> None:
    """Each would hold the listener for seconds, before any logon; it is ended when it is silent."""
    before = broker.broker.pids
    small, big = (header(cmd=b"\xa1x", cid=b"\xa1c", evil=flood(n)) for n in (3_800, 8_000))
    answers = []
    for frame in (small, *[big] * 6):
        with Raw(
            broker, listener=listener
        ) as eve:  # one connection may send 256 KiB before its logon
            eve.socket.send(frame)
            answers.append(eve.get())
    assert [one.get("code") for one in answers] == ["bad_command"] + ["too_large"] * 6
    assert answers[0].get("cid") == "c"
    assert broker.broker.pids == before


@pytest.mark.parametrize(("who", "code"), [("eve", "too_large"), ("nil", "not_entitled")])
def test_an_abort_of_millions_of_stages(broker: Secured, who: str, code: str) -> None:
    """15 MB are refused before they are decoded, also of somebody who may publish."""
    before, count = broker.broker.pids, 5_000_000
    body = b"\xdd" + count.to_bytes(4, "big") + b"\xa2ab" * count
    with Raw(broker, who) as peer, broker.connect("ann", "ann-beside") as ann:
        assert peer.logon(f"{who}-aborts")["cmd"] == "ack"
        for command in ({"cmd": "abort"}, {"cmd": "commit", "app": "a", "batch": 1}):
            assert peer.ask({**command, "cid": "x"}, body)["code"] == code
            assert ann.publish("orders", b"served").wait(10)
    assert broker.broker.pids == before


def test_look_ups_of_what_is_not_here_yet(broker: Secured) -> None:
    """Look-ups beyond a principal's budget are refused; delivery and others go on."""
    before = broker.broker.pids
    with broker.connect("ann") as ann, broker.connect("eve") as client:
        ann.publish("open", b"x").wait(timeout=10)
        with Raw(broker, listener="delivery") as eve:
            assert eve.ask({"cmd": "logon", "token": token_of(client)})["cmd"] == "ack"
            pid = publisher_id(ann.name)
            for i in range(40):  # the first 20 wait: what they name may still be published
                marks = ",".join(f"{pid}|{2**62 + i * 500 + n}|" for n in range(500))
                eve.send({"cmd": "subscribe", "sid": f"s{i}", "topic": "open", "bookmark": marks,
                          "options": {"wait_s": 3e7}})  # fmt: skip
            assert [eve.get().get("code") for _ in range(20)] == ["too_many"] * 20
            for _ in range(5):
                ann.publish("open", b"y").wait(timeout=10)
            assert list(ann.subscribe("open", since="epoch", until="now"))
    assert broker.broker.pids == before


def test_patterns_and_filters_that_would_take_for_ever(broker: Secured) -> None:
    allowed = ("", "bad_topic", "bad_filter", "bad_field", "too_many")  # no more time to compile
    with broker.connect("eve") as eve:
        begun = time.monotonic()
        for pattern in ("(a*)*b" * 20, "(x+x+)+y", "a{1000}{1000}"):
            assert _tried(eve, pattern, regex=True) in allowed
        for content in ("(" * 5_000 + "/a = 1" + ")" * 5_000, "NOT " * 5_000 + "/a = 1",
                        "/a LIKE '" + "%a" * 500 + "'"):  # fmt: skip
            assert _tried(eve, "open", filter=content) in (
                "",
                "bad_filter",
                "bad_field",
                "too_many",
            )
        assert time.monotonic() - begun < 60, "nothing hangs"


def _tried(client: Client, topic: str, **options: Any) -> str:
    try:
        with client.subscribe(topic, since="epoch", until="now", **options) as one:
            list(one)
    except ZBrokerError as error:
        return error.code
    return ""


def test_headers_that_are_nested_deeply(broker: Secured) -> None:
    with Raw(broker) as eve:
        eve.socket.send(b"\x81\xa3cmd" + b"\x91" * 60_000 + b"\x01")
        assert eve.get()["code"] in ("bad_frame", "bad_field")
        eve.socket.send(b"\xdf\xff\xff\xff\xff" + b"\xa1a\x01" * 10)
        assert eve.get()["code"] == "bad_frame"


# -- the machine ------------------------------------------------------------------------------


def sockets_of(broker: Secured) -> Path:
    note = broker.broker.data_dir / "run" / "sockets"
    return Path(note.read_text().rstrip("\n")) / "journal"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: to be another user")
def test_a_second_bind_of_an_inner_socket(broker: Secured) -> None:
    """ZeroMQ lets a second process bind an ipc path and takes its frames: other users may not."""
    journal = sockets_of(broker)
    assert journal.parent.stat().st_mode & 0o777 == 0o700
    program = (
        "import os, sys, zmq; os.setgid(65534); os.setuid(65534); s = zmq.Context().socket("
        "zmq.ROUTER)\ntry: s.bind('ipc://' + sys.argv[1])\nexcept zmq.ZMQError as e: print(e)\n"
        "else: print('bound')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(journal)], capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert "denied" in done.stdout, done


def test_files_that_only_the_owner_may_read(broker: Secured) -> None:
    run = broker.broker.data_dir / "run"
    for name in ("token.key", "admin.token", "admin-read.token"):
        assert (run / name).stat().st_mode & 0o077 == 0, name


@pytest.mark.parametrize(
    "path",
    [
        "/console/../../../run/admin.token",
        "/console/..%2f..%2f..%2frun/admin.token",
        "/console/%2e%2e/%2e%2e/run/token.key",
        "/console//etc/passwd",
        "/actions/../../etc/passwd",
        "/actions/1;ls",
    ],
)
def test_paths_that_lead_elsewhere(broker: Secured, path: str) -> None:
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    status, body = raw_http(broker, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n", secret)
    assert status in (400, 404), (status, body)
    assert b"root:" not in body


def test_path_tricks_in_commands_about_the_journal(broker: Secured) -> None:
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    for body in ({"serials": ["../../etc/passwd"]}, {"serials": [-1]}, {"through": "../1"},
                 {"through": 2**70}, {"through": 1, "directory": "/tmp"}):  # fmt: skip
        for path in ("/journal/archive", "/journal/compress", "/journal/remove"):
            assert broker.http(path, secret, body)[0] == 400, (path, body)


def test_a_page_that_points_its_name_at_this_host(broker: Secured) -> None:
    """DNS rebinding: a browser sends the name of the page, not of this machine."""
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:9105", ""):
        status, _ = raw_http(broker, f"GET /status HTTP/1.1\r\nHost: {host}\r\n", secret)
        assert status in (400, 403), host


def raw_http(broker: Secured, head: str, secret: str) -> tuple[int, bytes]:
    at = endpoints.split(broker.endpoints()["admin"])
    with socket.create_connection((at.host, at.port), timeout=10) as peer:
        peer.sendall(f"{head}Authorization: Bearer {secret}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := peer.recv(65_536):
            answer += piece
    return int(answer.split(b" ", 2)[1]), answer


def test_the_reading_token_changes_nothing(broker: Secured) -> None:
    reading = (broker.broker.data_dir / "run" / "admin-read.token").read_text().strip()
    assert broker.http("/status", reading)[0] == 200
    assert broker.http("/clients/disconnect", reading, {"client": "ann"})[0] == 403


def test_what_was_refused_is_in_the_audit(broker: Secured) -> None:
    """At every listener: a key that no one knows, a name, a topic, a token, a request over HTTP."""
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    with Raw(broker, None, curve=strange(broker)) as stranger:
        assert stranger.get(1_000) == {}
    with Raw(broker) as eve, broker.connect("eve") as client:
        eve.logon("ann-audited")
        with pytest.raises(ZBrokerError, match="not_entitled"):
            client.publish("audited", b"x").wait(10)
        with pytest.raises(ZBrokerError, match="not_entitled"):
            client.subscribe("audited-too")
    broker.http("/status", "no-token")
    wanted = {"connect", "logon ann-audited", "publish audited", "subscribe audited-too", "/status"}

    def missing() -> set[str]:
        reported = json.loads(broker.http("/audit?limit=1000", secret)[1])
        assert reported["intact"]
        return {
            what for what in wanted if not any(what in row["what"] for row in reported["entries"])
        }

    until(lambda: not missing(), "all five are lines of it")


# -- what is reported -----------------------------------------------------------------------------


def test_lines_that_a_client_writes_into_the_log(broker: Secured) -> None:
    """A name with a line break would be a line of its own; the log is read by people and tools."""
    forged = "eve\n2026-01-01 00:00:00 I supervisor: all is well"
    with Raw(broker) as eve:
        assert eve.logon(forged)["cmd"] == "error"
        eve.logon("eve")
        eve.send({"cmd": "publish", "topic": "open\nforged line", "seq": 2**62 + 9}, b"x")
        assert eve.get()["code"] == "bad_topic"
    assert "\n2026-01-01 00:00:00 I supervisor: all is well" not in everything_reported(broker)


def test_secrets_are_reported_nowhere(broker: Secured) -> None:
    """Passwords, keys, tokens, hashes, payloads: not in logs, answers, metrics, files to read."""
    wrong = "wrong-" + CANARY
    with broker.connect("ann") as ann:
        ann.publish("open", PAYLOAD.encode()).wait(10)
        session = token_of(ann)
    pat = Credentials(broker.place / "pat.key_secret", broker.server.public, None, wrong)
    errors = []
    for credentials in (pat, broker.credentials("pat")):
        with pytest.raises(ZBrokerError) as raised:
            connect(broker.url, "pat", credentials=credentials, timeout=5)
        errors.append(f"{raised.value} {raised.value!r} {credentials!r}")
    good = Credentials(broker.place / "pat.key_secret", broker.server.public, None, CANARY)
    until(lambda: _logs_on(broker, good), "the right password is taken, after the wait")
    reported = everything_reported(broker) + "".join(errors)
    run = broker.broker.data_dir / "run"
    secrets = {
        "password": CANARY, "wrong password": wrong, "hash": "scrypt$", "session token": session,
        "admin token": (run / "admin.token").read_text().strip(),
        "reading token": (run / "admin-read.token").read_text().strip(),
        "token key": (run / "token.key").read_bytes().hex(),
        **{name: _text(pair.secret) for name, pair in broker.pairs.items()},
        "server": _text(broker.server.secret),
    }  # fmt: skip
    dumped = admin(broker, "journal", "dump")
    assert PAYLOAD in dumped, "payloads are what it is for"
    assert [name for name, secret in secrets.items() if secret in reported + dumped] == []
    assert PAYLOAD not in reported


def _text(secret: bytes | str) -> str:
    return secret if isinstance(secret, str) else secret.decode()


def _logs_on(broker: Secured, credentials: Credentials) -> bool:
    try:
        connect(broker.url, "pat", credentials=credentials, timeout=5).close()
    except ZBrokerError:
        return False
    return True


def admin(broker: Secured, *words: str) -> str:
    """What `zbroker-admin` prints."""
    given = ["--data-dir", str(broker.broker.data_dir), "--json", *words]
    done = subprocess.run(
        [sys.executable, "-m", "zbroker.cli.admin_main", *given], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def everything_reported(broker: Secured) -> str:
    """The log of all processes, every document of the admin, and what tools can be asked for."""
    secret = (broker.broker.data_dir / "run" / "admin.token").read_text().strip()
    documents = [
        broker.http(path, secret)[1].decode()
        for path in ("/status", "/topics", "/clients", "/subscriptions", "/journal", "/holders",
                     "/actions", "/history", "/metrics", "/audit", "/health", "/nothing")
    ]  # fmt: skip
    assert broker.http("/status", "no-token")[0] == 401, "which is a line of the audit"
    files = [(broker.broker.data_dir / "audit").read_text()]
    files += [admin(broker, *words) for words in (["status"], ["doctor"], ["client", "ls"])]
    return "\n".join([broker.broker.log_tail(1_000_000), *documents, *files])
