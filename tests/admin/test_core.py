"""zbroker/admin/core.py: who is answered."""

from __future__ import annotations

import pytest

from zbroker.admin import core
from zbroker.admin.core import ANONYMOUS, AdminRequest, Caller, Refusal
from zbroker.errors import ClientError

GOOD = AdminRequest("GET", "/status", "127.0.0.1:9105", "127.0.0.1")
ADMIN = Caller("admin.token", known=True, reads=True, writes=True)
READER = Caller("admin-read.token", known=True, reads=True)
IDLE = Caller("pricer", known=True)
WRONG = Caller(problem="the token has expired")
OPEN = ("/", "/health", "/console/console.js", "/console/nothing/there")


def refuse(
    request: AdminRequest = GOOD, who: Caller = ANONYMOUS, *, secured: bool = False
) -> Refusal | None:
    return core.refuse(request, who, secured=secured)


def reported(refusal: Refusal | None) -> tuple[int, str] | None:
    return None if refusal is None else (refusal.status, refusal.code)


#: by GET, and by POST; `/points`, `/exchanges` and `/bindings` are both
READS = [
    *core.READS,
    "/actions/7",
    "/queues/work",
    *(f"/queues/work/{w}" for w in core.QUEUE_READS),
]
WRITES = [
    *core.WRITES,
    *(f"/queues/work/{what}" for what in core.QUEUE_WRITES),
    *(f"/replication/b/{what}" for what in core.LINK_WRITES),
]


def asked(path: str) -> AdminRequest:
    return GOOD._replace(path=path)


def posted(path: str) -> AdminRequest:
    return GOOD._replace(path=path, method="POST")


# -- from where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9105", "localhost", "LOCALHOST:1", "[::1]:9105", "[::1]"]
)
def test_the_loopback_names_are_answered(host: str) -> None:
    assert refuse(GOOD._replace(host=host)) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:9105", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/status", *OPEN, *WRITES])
def test_another_name_for_loopback_is_refused(host: str, path: str) -> None:
    request = (posted(path) if path in WRITES else asked(path))._replace(host=host)
    assert reported(refuse(request, ADMIN, secured=True)) == (403, "forbidden")
    assert reported(refuse(request, ADMIN)) == (403, "forbidden")


@pytest.mark.parametrize("peer", ["192.0.2.1", "", "::ffff:192.0.2.1"])
@pytest.mark.parametrize("path", ["/status", *OPEN, *WRITES])
def test_a_peer_from_elsewhere_is_refused(peer: str, path: str) -> None:
    request = (posted(path) if path in WRITES else asked(path))._replace(peer=peer)
    assert reported(refuse(request, ADMIN)) == (403, "forbidden")


# -- for what -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/nope", "/status/", "/console", "//status", "/Status", "", "/queues/", "/queues/a/",
     "/queues//", "/queues/a/fly", "/queues/a/b/explain", "/queues/%ff", "/queues/" + 256 * "a",
     "/replication/", "/replication/b", "/replication//pause", "/replication/b/fly",
     "/replication/%ff/pause"],
)  # fmt: skip
def test_an_unknown_path_says_which_there_are(path: str) -> None:
    refusal = refuse(GOOD._replace(path=path), ADMIN)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (404, "not_found")
    known = (*core.READS, *core.WRITES, *core.QUEUE_PATHS, *core.LINK_PATHS)
    assert all(path in refusal.reason for path in known)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [path for path in (*READS, *OPEN) if path not in WRITES])
def test_what_is_read_is_read_by_get_only(method: str, path: str) -> None:
    refusal = refuse(GOOD._replace(method=method, path=path), ADMIN)
    assert refusal is not None
    assert refusal.status == 405


@pytest.mark.parametrize("path", [path for path in WRITES if path not in READS])
@pytest.mark.parametrize("secured", [False, True])
def test_what_changes_something_needs_post(path: str, secured: bool) -> None:
    refusal = refuse(asked(path), ADMIN, secured=secured)
    assert refusal is not None
    assert refusal.status == 405
    assert refuse(posted(path), ADMIN, secured=secured) is None


@pytest.mark.parametrize("path", ["/points", "/exchanges", "/bindings"])
def test_what_is_read_by_get_is_set_by_post(path: str) -> None:
    assert (core.kind_of(path), core.kind_of(path, "POST")) == ("read", "write")
    refusal = refuse(asked(path)._replace(method="PUT"), ADMIN)
    assert refusal is not None
    assert refusal.status == 405


# -- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OPEN)
@pytest.mark.parametrize("who", [ANONYMOUS, WRONG, IDLE])
def test_health_and_the_files_of_the_console_are_for_everybody(path: str, who: Caller) -> None:
    assert refuse(asked(path), who, secured=True) is None
    assert refuse(asked(path), who) is None


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize(
    ("who", "found"),
    [
        (ANONYMOUS, (401, "auth_failed")),
        (WRONG, (401, "auth_failed")),
        (IDLE, (403, "not_entitled")),
        (READER, None),
        (ADMIN, None),
    ],
)
def test_with_security_who_reads_is_asked(
    path: str, who: Caller, found: tuple[int, str] | None
) -> None:
    assert reported(refuse(asked(path), who, secured=True)) == found
    assert refuse(asked(path), who) is None, "without, reading is free"


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    ("who", "secured", "found"),
    [
        (ANONYMOUS, True, (401, "auth_failed")),
        (WRONG, True, (401, "auth_failed")),
        (IDLE, True, (403, "not_entitled")),
        (READER, True, (403, "not_entitled")),
        (ADMIN, True, None),
        (ANONYMOUS, False, (403, "forbidden")),
        (READER, False, (403, "not_entitled")),
        (ADMIN, False, None),
    ],
)
def test_who_changes_something_is_always_asked(
    path: str, who: Caller, secured: bool, found: tuple[int, str] | None
) -> None:
    assert reported(refuse(posted(path), who, secured=secured)) == found


@pytest.mark.parametrize("query", ["data=1", "filter=%2Fx%3D1", "limit=1&data=true", "dat%61="])
def test_who_may_only_read_numbers_sees_nothing_of_messages(query: str) -> None:
    request = asked("/queues/work/browse")._replace(query=query)
    for who, found in [(ANONYMOUS, (401, "auth_failed")), (READER, (403, "not_entitled"))]:
        assert reported(refuse(request, who, secured=True)) == found
    assert refuse(request, ADMIN, secured=True) is None
    assert refuse(request, ANONYMOUS) is None, "without security whoever is here may read the log"


def test_where_messages_are_is_for_readers() -> None:
    request = asked("/queues/work/browse")._replace(query="limit=5&after=7&state=leased")
    assert refuse(request, READER, secured=True) is None


def test_why_a_token_does_not_count_is_said() -> None:
    refusal = refuse(GOOD, WRONG, secured=True)
    assert refusal is not None
    assert refusal.reason == "the token has expired"


def test_every_refusal_of_somebody_is_one_for_the_audit_log() -> None:
    codes = {
        refusal.code
        for request in (*map(asked, READS), *map(posted, WRITES))
        for who in (ANONYMOUS, WRONG, IDLE, READER)
        for secured in (False, True)
        if (refusal := refuse(request, who, secured=secured)) is not None
    }
    assert codes == core.REFUSED


@pytest.mark.parametrize(
    ("authorization", "header", "shown"),
    [
        ("Bearer abc", "", "abc"),
        ("bearer  abc ", "xyz", "abc"),
        ("", "xyz", "xyz"),
        ("Basic abc", "xyz", "xyz"),
        ("Bearer", "xyz", ""),
        ("", "", ""),
    ],
)
def test_a_token_comes_in_one_of_two_headers(authorization: str, header: str, shown: str) -> None:
    assert core.bearer(authorization, header) == shown


# -- details --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "number"),
    [("/actions/7", 7), ("/actions", None), ("/actions/", None), ("/actions/x", None),
     ("/actions/-1", None), ("/actions/" + "9" * 30, None), ("/actions/7/8", None)],
)  # fmt: skip
def test_an_action_is_named_by_its_number(path: str, number: int | None) -> None:
    assert core.action_number(path) == number


@pytest.mark.parametrize(
    ("path", "name", "what"),
    [("/queues/a", "a", ""), ("/queues/a%2Fb/explain", "a/b", "explain"),
     ("/queues/purge", "purge", ""), ("/queues/purge/purge", "purge", "purge"),
     ("/queues/%C3%A4+%20", "ä+ ", ""), ("/queues/" + 255 * "%C3%A4", 255 * "ä", "")],
)  # fmt: skip
def test_a_queue_is_named_as_in_any_url(path: str, name: str, what: str) -> None:
    assert core.queue_of(path) == (name, what)


def test_a_link_is_named_as_in_any_url() -> None:
    assert core.link_of("/replication/b%2F%20c/pause") == ("b/ c", "pause")
    assert core.link_of("/replication/b") is None


@pytest.mark.parametrize(
    ("length", "encoding", "code"),
    [("", "", "bad_field"), ("x", "", "bad_field"), ("-1", "", "bad_field"),
     ("\u0663", "", "bad_field"), ("65537", "", "too_large"), ("9" * 400, "", "too_large"),
     ("2", "chunked", "bad_field")],
)  # fmt: skip
def test_a_body_without_an_honest_length_is_refused(length: str, encoding: str, code: str) -> None:
    with pytest.raises(ClientError) as caught:
        core.body_length(length, encoding)
    assert caught.value.code == code


def test_a_body_may_have_its_limit() -> None:
    assert core.body_length("65536", "") == core.BODY_MAX_BYTES


@pytest.mark.parametrize(
    ("code", "status"),
    [("not_ready", 503), ("too_many", 429), ("segment_held", 409), ("bookmark_expired", 400),
     ("auth_failed", 401), ("not_entitled", 403), ("unknown_queue", 404), ("unknown_point", 404),
     ("queue_exists", 409), ("bad_queue", 400)],
)  # fmt: skip
def test_a_refusal_carries_code_reason_hint(code: str, status: int) -> None:
    found = core.refusal(ClientError(code, "so it is"))
    assert found.status == status
    assert found.body()["code"] == code
    assert found.body()["reason"] == "so it is"
    assert found.body()["hint"]


def test_what_the_audit_log_is_given_has_no_control_characters() -> None:
    request = GOOD._replace(method="GET" * 20, path="/a\n\x1b[2J" + "x" * 1_000)
    found = core.audit_text(request, ["key\r\n"])
    assert found.isprintable()
    assert len(found) < 300
