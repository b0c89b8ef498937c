"""`zbroker sub` (zbroker/cli/sub.py)."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from inspect import signature
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import zbroker
from tests.client.fakes import FakeBroker
from zbroker.cli.main import main
from zbroker.cli.sub import point, sub, write
from zbroker.client import Client
from zbroker.client.subscriber.options import subscribe_options
from zbroker.client.subscriber.points import Range

DEFAULTS = {
    "until": None, "limit": None, "regex": False, "filter": None, "select": None, "rate": None,
    "rate_max_gap": None, "conflation": None, "conflation_key": (), "conflation_clock": None,
    "delivery": "persisted", "bookmark_not_found": "fail", "bookmark_wait": "0s", "topic": "a",
}  # fmt: skip

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def message(data: bytes, position: int = 1, **extra: object) -> SimpleNamespace:
    given = {"key": None, "headers": {}, "expires": None} | extra
    return SimpleNamespace(
        topic="t", bookmark=f"5|{position}|", position=position, time=NOW, data=data, **given
    )


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("-1h", {"hours": 1}),
        ("-90s", {"seconds": 90}),
        ("-1.5d", {"days": 1.5}),
        ("-5m", {"minutes": 5}),
    ],
)
def test_a_span_is_a_time_before_now(text, ago):
    assert point(text, NOW) == NOW - timedelta(**ago)


@pytest.mark.parametrize("text", ["epoch", "now", "5|1|", "20260102T000000", "-1", "1h", ""])
def test_anything_else_is_left_to_the_client(text):
    assert point(text, NOW) == text


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("[-1h:now)", Range(NOW - timedelta(hours=1), "now", "[)")),
        ("(5|1|:5|9|]", Range("5|1|", "5|9|", "(]")),
        ("[:-5m)", Range(None, NOW - timedelta(minutes=5), "[)")),
        ("[epoch:)", Range("epoch", None, "[)")),
    ],
)
def test_a_range_may_have_spans_as_its_ends(text, range_):
    assert point(text, NOW) == range_


@pytest.mark.parametrize("text", ["[-1h", "[a:b:c)", "a:b", "{a:b}"])
def test_what_is_no_range_is_left_to_the_client(text):
    assert point(text, NOW) == text


def test_plain_output_is_a_payload_per_line():
    out = io.BytesIO()
    write([[message(b"a"), message(b"\xff")], [message(b"")]], out, as_json=False)
    assert out.getvalue() == b"a\n\xff\n\n"


def test_json_output_has_one_object_per_line():
    out = io.BytesIO()
    write([[message("é".encode(), 7), message(b"\xff")]], out, as_json=True)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "topic": "t", "bookmark": "5|7|", "position": 7, "time": NOW.isoformat(), "data": "é",
    }  # fmt: skip
    assert second["data_base64"] == "/w=="
    assert "data" not in second


def test_json_output_has_key_headers_and_expires_where_a_message_has_them():
    out = io.BytesIO()
    headers = {"a": 1, "b": b"\xff", "c": float("nan"), "d": None}
    extra = {"key": b"k", "headers": headers, "expires": NOW}
    write([[message(b"x", **extra), message(b"y", key=b"\xff")]], out, as_json=True)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["key"], first["expires"]) == ("k", NOW.isoformat())
    assert first["headers"] == {"a": 1, "b": {"base64": "/w=="}, "c": None, "d": None}
    assert second["key_base64"] == "/w=="
    assert second.keys().isdisjoint({"key", "headers", "expires"})


def test_the_command_passes_its_options_to_the_client(monkeypatch):
    asked = {}

    class Client:
        def __enter__(self):
            return self

        __exit__ = close = lambda *_: None

        def subscribe(self, topic, **options):
            asked.update(options, topic=topic)
            return self

        def batches(self):
            return iter([[message(b"x")]])

    monkeypatch.setattr(zbroker, "connect", lambda url: Client())
    args = ["tcp://h:1", "a.*", "--since", "-1h", "--until", "now", "--regex", "--limit", "1"]
    result = CliRunner().invoke(sub, args)
    assert (result.exit_code, result.output) == (0, "x\n")
    assert isinstance(asked.pop("since"), datetime)
    given = {"topic": "a.*", "until": "now", "regex": True, "limit": 1}
    assert asked == {**DEFAULTS, **given}
    asked.clear()
    args = ["tcp://h:1", "a", "--filter", "/a > 1", "--rate", "2X", "--rate-max-gap", "10s"]
    args += ["--conflation", "1s", "--conflation-key", "/id", "--conflation-key", "/x"]
    args += ["--conflation-clock", "log"]
    args += ["--select", "-/,+/a", "--delivery", "fully_durable", "--bookmark-not-found", "epoch"]
    args += ["--bookmark-wait", "5s", "--since", "[5|1|:)"]
    assert CliRunner().invoke(sub, args).exit_code == 0
    assert asked.pop("since") == Range("5|1|", None, "[)")
    assert asked == DEFAULTS | {
        "topic": "a", "filter": "/a > 1", "rate": "2X", "rate_max_gap": "10s", "conflation": "1s",
        "conflation_key": ("/id", "/x"), "conflation_clock": "log", "select": "-/,+/a",
        "delivery": "fully_durable", "bookmark_not_found": "epoch", "bookmark_wait": "5s",
    }  # fmt: skip


def test_its_defaults_are_those_of_the_client():
    subscribe_options(**{**DEFAULTS, "topic": "a"})
    known = signature(Client.subscribe).parameters
    assert DEFAULTS.keys() | {"since"} <= known.keys()


def test_an_option_that_cannot_be_is_an_error_with_its_code():
    with FakeBroker() as broker:
        for args, code in (
            (["--rate", "fast"], "bad_field"), (["--filter", "bad"], "bad_filter"),
            (["--conflation-key", "/id"], "bad_field"), (["--since", "[0"], "bad_bookmark"),
        ):  # fmt: skip
            result = CliRunner().invoke(main, ["sub", broker.url, "a", *args])
            assert result.exit_code == 1
            assert code in result.stderr
    assert CliRunner().invoke(main, ["sub", "tcp://h:1", "a", "--delivery", "soon"]).exit_code == 2


def test_the_broker_ends_it_at_the_limit():
    with FakeBroker() as broker:
        for number in range(5):
            broker.append("a", b"%d" % number)
        args = ["sub", broker.url, "a", "--since", "epoch", "--limit", "3", "--filter", ""]
        result = CliRunner().invoke(main, args)
        assert (result.exit_code, result.stdout) == (0, "0\n1\n2\n")
        assert broker.subscribes[-1].options.limit == 3
