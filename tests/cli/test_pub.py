"""`zbroker pub`: lines become messages, and it ends when they are persisted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import zbroker
from zbroker.cli.journal import journal
from zbroker.cli.main import main
from zbroker.cli.pub import InputPosition, Throttle, pub, send, summary
from zbroker.control.target import Target


class Client:
    """Remembers what was published."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []

    def publish(self, topic: str, data: bytes) -> None:
        self.published.append((topic, data))


def test_each_line_is_a_message_without_its_line_feed() -> None:
    client = Client()
    sent = send(client, "orders", [b"one\n", b"\n", b"\xff\r\n", b"last"])
    assert client.published == [
        ("orders", b"one"), ("orders", b""), ("orders", b"\xff\r"), ("orders", b"last"),
    ]  # fmt: skip
    assert (sent.messages, sent.bytes, sent.interrupted) == (4, 9, False)


def test_ctrl_c_ends_the_input_only() -> None:
    def lines() -> Iterator[bytes]:
        yield b"one\n"
        raise KeyboardInterrupt

    client = Client()
    sent = send(client, "orders", lines())
    assert client.published == [("orders", b"one")]
    assert sent.interrupted


def test_a_pace_sleeps_until_the_next_one_is_due() -> None:
    clock, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        clock[0] += seconds

    pace = Throttle(4.0, lambda: clock[0], sleep)
    send(Client(), "t", [b"\n"] * 5, pace)
    assert slept == [0.25] * 4
    clock[0] += 10
    pace.wait(6)
    assert len(slept) == 4  # it is behind: nothing to wait for


def test_a_high_rate_does_not_sleep_for_each_message() -> None:
    slept: list[float] = []
    pace = Throttle(1_000_000, lambda: 0.0, slept.append)
    for sent in range(1_000):
        pace.wait(sent)
    assert slept == []


def test_the_summary_is_one_line() -> None:
    sent = InputPosition()
    sent.messages, sent.bytes = 2_000, 5_000
    start = "published 2000 messages, 5000 bytes in 0.50 s (4,000/s), "
    assert summary(sent, 0.5, 0, True) == start + "all persisted"
    assert summary(sent, 0.5, 7, False) == start + "7 of them not confirmed"
    assert summary(sent, 0.5, 0, False) == start + "some of them refused"


def test_a_url_that_is_none_is_an_error_without_a_traceback() -> None:
    result = CliRunner().invoke(main, ["pub", "nonsense", "orders"], input=b"x\n")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.process
def test_lines_are_persisted_and_can_be_dumped(tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1_000))
    (tmp_path / "lines").write_bytes(lines)
    with zbroker.LocalBroker() as broker:
        run = CliRunner().invoke
        result = run(pub, [broker.url, "a", "--count", "500"], input=lines)
        assert result.exit_code == 0, result.output
        assert result.stderr.startswith("published 500 messages")
        assert result.stderr.endswith("all persisted\n")
        result = run(pub, [broker.url, "a", "--file", str(tmp_path / "lines"), "--name", "me"])
        assert result.exit_code == 0, result.output
        result = run(pub, [broker.url, "bad\0topic"], input=b"x\n")
        assert result.exit_code != 0
        target = Target(None, None, str(broker.data_dir), False)
        verified = run(journal, ["verify"], obj=target)
        assert verified.exit_code == 0, verified.output
        dumped = run(journal, ["dump"], obj=target)
        assert dumped.exit_code == 0
        assert dumped.stdout.count('"topic":"a"') == 1_500
