"""zbroker/admin/core.py: who is answered."""

from __future__ import annotations

import pytest

from zbroker.admin import core
from zbroker.admin.core import NOBODY, Refusal, Request, Who
from zbroker.errors import ClientError

GOOD = Request("GET", "/status", "127.0.0.1:9105", "127.0.0.1")
ADMIN = Who("admin.token", known=True, reads=True, writes=True)
READER = Who("admin-read.token", known=True, reads=True)
IDLE = Who("pricer", known=True)
WRONG = Who(problem="the token has expired")
OPEN = ("/", "/health", "/console/console.js", "/console/nothing/there")


def refuse(request: Request = GOOD, who: Who = NOBODY, *, secured: bool = False) -> Refusal | None:
    return core.refuse(request, who, secured=secured)


def told(refusal: Refusal | None) -> tuple[int, str] | None:
    return None if refusal is None else (refusal.status, refusal.code)


def asked(path: str) -> Request:
    method = "POST" if path in core.WRITES else "GET"
    return GOOD._replace(path=path, method=method)


# -- from where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9105", "localhost", "LOCALHOST:1", "[::1]:9105", "[::1]"]
)
def test_the_loopback_names_are_answered(host: str) -> None:
    assert refuse(GOOD._replace(host=host)) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:9105", "127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("path", ["/status", *OPEN, *core.WRITES])
def test_another_name_for_loopback_is_refused(host: str, path: str) -> None:
    request = asked(path)._replace(host=host)
    assert told(refuse(request, ADMIN, secured=True)) == (403, "forbidden")
    assert told(refuse(request, ADMIN)) == (403, "forbidden")


@pytest.mark.parametrize("peer", ["192.0.2.1", "", "::ffff:192.0.2.1"])
@pytest.mark.parametrize("path", ["/status", *OPEN, *core.WRITES])
def test_a_peer_from_elsewhere_is_refused(peer: str, path: str) -> None:
    assert told(refuse(asked(path)._replace(peer=peer), ADMIN)) == (403, "forbidden")


# -- for what -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nope", "/status/", "/console", "//status", "/Status", ""])
def test_an_unknown_path_says_which_there_are(path: str) -> None:
    refusal = refuse(GOOD._replace(path=path), ADMIN)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (404, "not_found")
    assert all(path in refusal.reason for path in (*core.READS, *core.WRITES))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [*core.READS, "/actions/7", *OPEN])
def test_what_is_read_is_read_by_get_only(method: str, path: str) -> None:
    refusal = refuse(GOOD._replace(method=method, path=path), ADMIN)
    assert refusal is not None
    assert refusal.status == 405


@pytest.mark.parametrize("path", core.WRITES)
@pytest.mark.parametrize("secured", [False, True])
def test_what_changes_something_needs_post(path: str, secured: bool) -> None:
    request = GOOD._replace(path=path)
    refusal = refuse(request, ADMIN, secured=secured)
    assert refusal is not None
    assert refusal.status == 405
    assert refuse(request._replace(method="POST"), ADMIN, secured=secured) is None


# -- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OPEN)
@pytest.mark.parametrize("who", [NOBODY, WRONG, IDLE])
def test_health_and_the_files_of_the_console_are_for_everybody(path: str, who: Who) -> None:
    assert refuse(asked(path), who, secured=True) is None
    assert refuse(asked(path), who) is None


@pytest.mark.parametrize("path", [*core.READS, "/actions/7"])
@pytest.mark.parametrize(
    ("who", "found"),
    [
        (NOBODY, (401, "auth_failed")),
        (WRONG, (401, "auth_failed")),
        (IDLE, (403, "not_entitled")),
        (READER, None),
        (ADMIN, None),
    ],
)
def test_with_security_who_reads_is_asked(
    path: str, who: Who, found: tuple[int, str] | None
) -> None:
    assert told(refuse(asked(path), who, secured=True)) == found
    assert refuse(asked(path), who) is None, "without, reading is free"


@pytest.mark.parametrize("path", core.WRITES)
@pytest.mark.parametrize(
    ("who", "secured", "found"),
    [
        (NOBODY, True, (401, "auth_failed")),
        (WRONG, True, (401, "auth_failed")),
        (IDLE, True, (403, "not_entitled")),
        (READER, True, (403, "not_entitled")),
        (ADMIN, True, None),
        (NOBODY, False, (403, "forbidden")),
        (READER, False, (403, "not_entitled")),
        (ADMIN, False, None),
    ],
)
def test_who_changes_something_is_always_asked(
    path: str, who: Who, secured: bool, found: tuple[int, str] | None
) -> None:
    assert told(refuse(asked(path), who, secured=secured)) == found


def test_why_a_token_does_not_count_is_said() -> None:
    refusal = refuse(GOOD, WRONG, secured=True)
    assert refusal is not None
    assert refusal.reason == "the token has expired"


def test_every_refusal_of_somebody_is_one_for_the_audit_log() -> None:
    codes = {
        refusal.code
        for path in (*core.READS, *core.WRITES)
        for who in (NOBODY, WRONG, IDLE, READER)
        for secured in (False, True)
        if (refusal := refuse(asked(path), who, secured=secured)) is not None
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
     ("auth_failed", 401), ("not_entitled", 403)],
)  # fmt: skip
def test_a_refusal_carries_code_reason_hint(code: str, status: int) -> None:
    found = core.refusal(ClientError(code, "so it is"))
    assert found.status == status
    assert found.body()["code"] == code
    assert found.body()["reason"] == "so it is"
    assert found.body()["hint"]


def test_what_the_audit_log_is_told_has_no_control_characters() -> None:
    request = GOOD._replace(method="GET" * 20, path="/a\n\x1b[2J" + "x" * 1_000)
    found = core.told(request, ["key\r\n"])
    assert found.isprintable()
    assert len(found) < 300
