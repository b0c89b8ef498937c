"""zbroker/admin/http.py: one request, one JSON answer, whatever the peer sends."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from zbroker.admin.core import TOKEN_HEADER
from zbroker.admin.http import Server
from zbroker.errors import ClientError, StorageError

LIMIT_S = 10.0
AUTH = f"{TOKEN_HEADER}: s3cret"


class Answers:
    """Echoes; raises what a test wants."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.posted: list[tuple[str, bytes]] = []

    def get(self, path: str, query: str) -> dict[str, Any]:
        if self.error:
            raise self.error
        return {"path": path, "query": query}

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        self.posted.append((path, body))
        return {"posted": len(body)}


class Bench:
    def __init__(self) -> None:
        self.answers = Answers()
        answers: Any = self.answers
        self.server = Server(("127.0.0.1", 0), answers, "s3cret", logging.getLogger("test"))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def raw(self, request: str, *headers: str, body: bytes = b"") -> tuple[int, bytes]:
        lines = [request, "Host: 127.0.0.1", *headers, "", ""]
        with socket.create_connection(self.server.server_address[:2], LIMIT_S) as peer:
            peer.sendall("\r\n".join(lines).encode() + body)
            peer.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: peer.recv(65_536), b""))
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), content

    def ask(self, request: str, *headers: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        status, content = self.raw(request, *headers, body=body)
        return status, json.loads(content)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(LIMIT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    try:
        yield made
    finally:
        made.close()


def test_a_query_string_is_no_part_of_the_path(bench: Bench) -> None:
    told = {"path": "/status", "query": "x=1&y=?"}
    assert bench.ask("GET /status?x=1&y=? HTTP/1.0") == (200, told)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
def test_other_methods_are_refused_as_json(bench: Bench, method: str) -> None:
    status, found = bench.ask(f"{method} /status HTTP/1.0")
    assert status == 405
    assert set(found) == {"code", "reason", "hint"}


def test_head_has_no_body(bench: Bench) -> None:
    assert bench.raw("HEAD /status HTTP/1.0") == (405, b"")


def test_a_body_reaches_who_answers(bench: Bench) -> None:
    found = bench.ask("POST /journal/remove HTTP/1.0", AUTH, "Content-Length: 4", body=b"{  }")
    assert found == (200, {"posted": 4})
    assert bench.answers.posted == [("/journal/remove", b"{  }")]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        (("Content-Length: 2",), b"{}", 403),
        ((f"{TOKEN_HEADER}: wrong", "Content-Length: 2"), b"{}", 403),
        ((AUTH,), b"", 400),
        ((AUTH, "Content-Length: 70000"), b"", 413),
        ((AUTH, "Content-Length: 10"), b"{}", 400),
        ((AUTH, "Transfer-Encoding: chunked"), b"0\r\n\r\n", 400),
    ],
)
def test_a_bad_post_changes_nothing(
    bench: Bench, headers: tuple[str, ...], body: bytes, status: int
) -> None:
    found, answer = bench.ask("POST /journal/remove HTTP/1.0", *headers, body=body)
    assert found == status
    assert answer["reason"]
    assert bench.answers.posted == []


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ClientError("not_ready", "later"), 503, "not_ready"),
        (StorageError("disk_error", "broken"), 500, "internal"),
        (ValueError("a bug"), 500, "internal"),
    ],
)
def test_an_error_is_typed(bench: Bench, error: Exception, status: int, code: str) -> None:
    bench.answers.error = error
    found, answer = bench.ask("GET /status HTTP/1.0")
    assert (found, answer["code"]) == (status, code)


def test_a_bug_shows_no_traceback_to_the_peer(bench: Bench) -> None:
    bench.answers.error = ValueError("secret detail")
    _, content = bench.raw("GET /status HTTP/1.0")
    assert b"secret detail" not in content
