"""`zbroker sub` (zbroker/cli/sub.py)."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import zbroker
from zbroker.cli.sub import point, sub, write

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def message(data: bytes, position: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        topic="t", bookmark=f"5|{position}|", position=position, time=NOW, data=data
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


def test_plain_output_is_a_payload_per_line():
    out = io.BytesIO()
    write([[message(b"a"), message(b"\xff")], [message(b"")]], out, None, as_json=False)
    assert out.getvalue() == b"a\n\xff\n\n"


def test_output_stops_at_the_limit():
    out = io.BytesIO()
    batches = iter(
        [[message(b"a"), message(b"b")], [message(b"c"), message(b"d")], [message(b"e")]]
    )
    write(batches, out, 3, as_json=False)
    assert out.getvalue() == b"a\nb\nc\n"
    assert len(next(batches)) == 1, "nothing was read behind the limit"


def test_json_output_has_one_object_per_line():
    out = io.BytesIO()
    write([[message("é".encode(), 7), message(b"\xff")]], out, None, as_json=True)
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {
        "topic": "t", "bookmark": "5|7|", "position": 7, "time": NOW.isoformat(), "data": "é",
    }  # fmt: skip
    assert second["data_base64"] == "/w=="
    assert "data" not in second


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
    assert asked == {"topic": "a.*", "until": "now", "regex": True}
