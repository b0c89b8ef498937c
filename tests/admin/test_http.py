"""zbroker/admin/http.py, web.py, http_server.py: one request, one answer, whatever peers send."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from zbroker.access.file import AccessFile
from zbroker.admin import web
from zbroker.admin.answers import Reply
from zbroker.admin.audit import Audit
from zbroker.admin.authentication import Doorkeeper, Secrets
from zbroker.admin.core import TOKEN_HEADER, WRITES
from zbroker.admin.http import Console, Server, Site
from zbroker.admin.web import POLICY, THREADS_MAX
from zbroker.clock import SystemClock
from zbroker.errors import ClientError, StorageError
from zbroker.server.disconnects_file import DisconnectsFile

LIMIT_S = 10.0
AUTH = f"{TOKEN_HEADER}: s3cret"
LOG = logging.getLogger("test")


class Answers:
    """Echoes; raises what a test wants."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.posted: list[tuple[str, bytes]] = []

    def reply(self, path: str, query: str) -> Reply:
        if self.error:
            raise self.error
        return Reply.of({"path": path, "query": query})

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        if self.error:
            raise self.error
        self.posted.append((path, body))
        return {"posted": len(body)}


class Answer(NamedTuple):
    """What a peer gets."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Bench:
    """A server; `console` is a directory with a page."""

    def __init__(self, data: Path) -> None:
        self.answers = Answers()
        answers: Any = self.answers
        clock = SystemClock()
        doorkeeper = Doorkeeper(
            Secrets("s3cret", "r3ad", b"k"), AccessFile(None, clock, LOG), clock,
            DisconnectsFile(data / "disconnects.json", LOG),
        )  # fmt: skip
        self.audit = Audit(data / "audit", clock, LOG)
        place = data / "console"
        place.mkdir()
        (place / "index.html").write_text("<p>hello")
        (place / "a.js").write_text("1")
        (data / "secret.html").write_text("secret")
        self.server = Server(("127.0.0.1", 0), LOG)
        self.server.start(Site(answers, doorkeeper, self.audit, Console(place)))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.server.address, LIMIT_S)

    def send(self, data: bytes, *, end: bool = True) -> Answer | None:
        """None if the connection is closed without an answer."""
        answer = b""
        with self.connect() as peer, suppress(OSError):  # it may be closed while we send
            peer.sendall(data)
            if end:
                peer.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: peer.recv(65_536), b""))
        return answer_of(answer) if answer else None

    def ask(self, request: str, *headers: str, body: bytes = b"") -> Answer:
        lines = [request, "Host: 127.0.0.1", *headers, "", ""]
        found = self.send("\r\n".join(lines).encode() + body)
        assert found is not None
        return found

    def lines(self) -> list[tuple[str, str, str]]:
        """Of the audit log, oldest first."""
        entries = reversed(self.audit.document(100)["entries"])
        return [(entry["who"], entry["what"], entry["outcome"]) for entry in entries]


def is_closed(peer: socket.socket) -> bool:
    """Waits for it, for LIMIT_S."""
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def answer_of(data: bytes) -> Answer:
    head, _, content = data.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in rest)
    return Answer(int(first.split()[1]), headers, content)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    try:
        yield made
    finally:
        made.server.stop()


def test_a_query_string_is_no_part_of_the_path(bench: Bench) -> None:
    found = bench.ask("GET /status?x=1&y=? HTTP/1.0")
    assert (found.status, found.json) == (200, {"path": "/status", "query": "x=1&y=?"})


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "POST", "PROPFIND"])
def test_other_methods_are_refused_as_json(bench: Bench, method: str) -> None:
    found = bench.ask(f"{method} /status HTTP/1.0")
    assert found.status == 405
    assert set(found.json) == {"code", "reason", "hint"}


def test_head_has_no_body(bench: Bench) -> None:
    found = bench.ask("HEAD /status HTTP/1.0")
    assert (found.status, found.body) == (405, b"")


def test_a_body_reaches_who_answers(bench: Bench) -> None:
    found = bench.ask("POST /journal/remove HTTP/1.0", AUTH, "Content-Length: 4", body=b"{  }")
    assert (found.status, found.json) == (200, {"posted": 4})
    assert bench.answers.posted == [("/journal/remove", b"{  }")]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (("Content-Length: 2",), b"{}", 403),
        ((f"{TOKEN_HEADER}: wrong", "Content-Length: 2"), b"{}", 403),
        (("Authorization: Bearer r3ad", "Content-Length: 2"), b"{}", 403),
        (("Authorization: Bearer \xe9", "Content-Length: 2"), b"{}", 403),
        ((AUTH,), b"", 400),
        ((AUTH, "Content-Length: 70000"), b"", 413),
        ((AUTH, "Content-Length: 10"), b"{}", 400),
        ((AUTH, "Content-Length: 2", "Content-Length: 3"), b"{}", 400),
        ((AUTH, "Content-Length: 2x"), b"{}", 400),
        ((AUTH, "Transfer-Encoding: chunked"), b"0\r\n\r\n", 400),
    ],
)
def test_a_bad_post_changes_nothing(
    bench: Bench, headers: tuple[str, ...], body: bytes, status: int
) -> None:
    found = bench.ask("POST /journal/remove HTTP/1.1", *headers, body=body)
    assert found.status == status
    assert found.json["reason"]
    assert bench.answers.posted == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ClientError("not_ready", "later"), 503, "not_ready"),
        (StorageError("disk_error", "broken"), 500, "internal"),
        (ValueError("a bug"), 500, "internal"),
        (OSError("a bug"), 500, "internal"),
    ],
)
def test_an_error_is_typed(bench: Bench, error: Exception, status: int, code: str) -> None:
    bench.answers.error = error
    found = bench.ask("GET /status HTTP/1.0")
    assert (found.status, found.json["code"]) == (status, code)


def test_a_bug_shows_no_traceback_to_the_peer(bench: Bench) -> None:
    bench.answers.error = ValueError("secret detail")
    assert b"secret detail" not in bench.ask("GET /status HTTP/1.0").body


# -- what a browser gets ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/status", "/nope", "/console/a.js"])
def test_every_answer_forbids_what_it_does_not_need(bench: Bench, path: str) -> None:
    headers = bench.ask(f"GET {path} HTTP/1.1").headers
    assert headers["content-security-policy"] == POLICY.lower()
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["connection"] == "close"
    assert not {"server", "access-control-allow-origin"} & set(headers)


def test_another_host_name_is_refused_whatever_a_proxy_says(bench: Bench) -> None:
    data = b"GET /status HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: 127.0.0.1\r\n\r\n"
    found = bench.send(data)
    assert found is not None
    assert (found.status, found.json["code"]) == (403, "forbidden")


def test_a_header_does_not_make_somebody_come_from_elsewhere(bench: Bench) -> None:
    bench.ask("POST /journal/reindex HTTP/1.1", "X-Forwarded-For: 192.0.2.1", "Content-Length: 0")
    [entry] = bench.audit.document(10)["entries"]
    assert entry["from"].startswith("127.0.0.1:")


# -- the console ----------------------------------------------------------------------------------


def test_the_page_is_at_the_root(bench: Bench) -> None:
    found = bench.ask("GET / HTTP/1.1")
    assert (found.status, found.body) == (200, b"<p>hello")
    assert found.headers["content-type"].startswith("text/html")
    found = bench.ask("GET /console/a.js HTTP/1.1")
    assert (found.body, found.headers["content-type"]) == (b"1", "text/javascript; charset=utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "/console/../secret.html", "/console/%2e%2e/secret.html", "/console/..%2fsecret.html",
        "/console//etc/passwd", "/console/", "/console/b.js", "/console/index.html%00",
    ],
)  # fmt: skip
def test_nothing_but_its_files_is_served(bench: Bench, path: str) -> None:
    found = bench.ask(f"GET {path} HTTP/1.1")
    assert (found.status, found.json["code"]) == (404, "not_found")


# -- the audit log --------------------------------------------------------------------------------


def test_every_change_is_a_line(bench: Bench) -> None:
    body = b'{"through": 7}'
    length = f"Content-Length: {len(body)}"
    bench.ask("POST /journal/remove HTTP/1.1", AUTH, length, body=body)
    bench.answers.error = ClientError("disk_full", "no")
    bench.ask("POST /journal/archive HTTP/1.1", AUTH, length, body=body)
    bench.answers.error = ValueError("a bug")
    bench.ask("POST /journal/compress HTTP/1.1", AUTH, length, body=body)
    assert bench.lines() == [
        ("admin.token", "POST /journal/remove through", "done"),
        ("admin.token", "POST /journal/archive through", "disk_full"),
        ("admin.token", "POST /journal/compress through", "internal"),
    ]


def test_every_refused_access_is_a_line(bench: Bench) -> None:
    bench.ask("POST /journal/remove HTTP/1.1", "Content-Length: 0")
    bench.ask("POST /journal/remove HTTP/1.1", "Authorization: Bearer r3ad", "Content-Length: 0")
    bench.ask("GET /nope HTTP/1.1")
    bench.ask("GET /status HTTP/1.1")
    assert bench.lines() == [
        ("", "POST /journal/remove", "forbidden"),
        ("admin-read.token", "POST /journal/remove", "not_entitled"),
    ]
    assert bench.audit.refused == {"forbidden": 1, "not_entitled": 1}


# -- peers that misbehave -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /status HTTP/1.1\r\n\r\n",  # without Host
        b"GET /status HTTP/1.1\r\nHost: a\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 1_000_000,
        b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n",  # without its end
        b"GET /status",
    ],
)
def test_what_is_no_request_is_refused_as_json(bench: Bench, data: bytes) -> None:
    found = bench.send(data)
    assert found is None or (found.status, found.json["code"]) == (400, "bad_frame")
    assert len(data) > 20_000 or found is not None, "only of a long one the rest is not read"


def test_who_says_nothing_gets_nothing(bench: Bench) -> None:
    assert bench.send(b"") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /sta",
        b"POST /journal/remove HTTP/1.1\r\nHost: 127.0.0.1\r\n" + AUTH.encode()
        + b"\r\nContent-Length: 10\r\n\r\n{",
    ],
)  # fmt: skip
def test_a_slow_request_is_cut_off(
    bench: Bench, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "REQUEST_MAX_S", 0.05)
    assert bench.send(data, end=False) is None
    assert bench.answers.posted == []


def test_an_answer_that_no_one_reads_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "CONNECTION_MAX_S", 0.2)
    large = Reply(b"x" * (64 << 20))
    monkeypatch.setattr(bench.answers, "reply", lambda *_: large)
    with bench.connect() as peer:
        peer.sendall(b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        peer.recv(1)
        for _ in range(1_000):
            try:
                peer.send(b"x", socket.MSG_NOSIGNAL)
            except OSError:
                return
            bench.ask("GET /console/a.js HTTP/1.1")
    raise AssertionError("it was kept")


def test_idle_peers_keep_no_one_out(bench: Bench) -> None:
    bench.ask("GET /status HTTP/1.1")
    idle = [bench.connect() for _ in range(web.CONNECTIONS_MAX + 20)]
    try:
        for _ in range(5):
            assert bench.ask("GET /status HTTP/1.1").status == 200
        assert is_closed(idle[0]), "the oldest one goes first"
    finally:
        for peer in idle:
            peer.close()


def test_a_stop_waits_for_no_peer(bench: Bench) -> None:
    at = bench.server.address
    with bench.connect() as idle, bench.connect() as half:
        half.sendall(b"GET /status HTTP/1.1\r\nHo")
        bench.ask("GET /status HTTP/1.1")
        bench.server.stop()
        assert is_closed(idle)
        assert is_closed(half)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(at, LIMIT_S)


def test_a_stop_before_the_first_request_ends_the_thread(bench: Bench) -> None:
    bench.server.stop()
    with pytest.raises(AssertionError, match="HTTP"):
        bench.server.check()


def test_many_at_once_are_all_answered(bench: Bench) -> None:
    peers = [bench.connect() for _ in range(2 * THREADS_MAX)]
    for peer in peers:
        peer.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    for peer in peers:
        with peer:
            found = answer_of(b"".join(iter(lambda at=peer: at.recv(65_536), b"")))
            assert found.status == 200


def test_a_thread_that_ended_is_a_bug(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ask("GET /status HTTP/1.1")
    bench.server.check()
    bench.server.stop()
    with pytest.raises(AssertionError, match="HTTP"):
        bench.server.check()


@pytest.mark.parametrize("path", WRITES)
def test_a_page_of_another_origin_changes_nothing(bench: Bench, path: str) -> None:
    headers = ("Origin: http://evil.example", "Content-Type: text/plain", "Content-Length: 2")
    assert bench.ask(f"POST {path} HTTP/1.1", *headers, body=b"{}").status == 403
    assert bench.answers.posted == []


def test_a_change_of_a_queue_names_it_in_the_audit_log(bench: Bench) -> None:
    body = b'{"all": true}'
    path = "/queues/a%2Fb/purge"
    found = bench.ask(f"POST {path} HTTP/1.0", AUTH, f"Content-Length: {len(body)}", body=body)
    assert (found.status, bench.answers.posted) == (200, [(path, body)])
    assert bench.lines() == [("admin.token", f"POST {path} all", "done")]


def test_one_path_is_read_by_one_method_and_changed_by_the_other(bench: Bench) -> None:
    assert bench.ask("GET /points HTTP/1.0").json == {"path": "/points", "query": ""}
    refused = bench.ask("POST /points HTTP/1.0", "Content-Length: 2", body=b"{}")
    assert (refused.status, bench.answers.posted) == (403, [])
    found = bench.ask("POST /points HTTP/1.0", AUTH, "Content-Length: 2", body=b"{}")
    assert (found.status, bench.answers.posted) == (200, [("/points", b"{}")])
