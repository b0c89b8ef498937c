"""`zbroker-admin replication compare`: do instances hold the same messages of each origin?

Each URL is the ingest URL of an instance on this host, or the address of its admin, as in
`http://127.0.0.1:9105`; the admin of another host is reached by a tunnel. Answer: `state`, `code`,
`instances`, `origins` with what each instance has, and their first difference. Exit code: 0 equal,
1 not equal (`lag` or `different`), 3 it could not be found out.

    zbroker-admin replication compare tcp://127.0.0.1:9101 http://127.0.0.1:9115
    ssh -N -L 9205:127.0.0.1:9105 b.example &
    zbroker-admin replication compare http://127.0.0.1:9105 http://127.0.0.1:9205 --json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from msgspec import to_builtins

from zbroker.cli import progress, show
from zbroker.cli.check import VerdictCommand
from zbroker.cli.check.verdict import UNKNOWN
from zbroker.control.log_comparison import (
    ComparedLog,
    ComparedOrigin,
    FirstDifference,
    LogComparison,
    compare_logs,
)
from zbroker.control.target import Admin, Target, admin_at
from zbroker.errors import ZBrokerError

NOT_EQUAL: Final = 1
COLUMNS: Final = show.columns(
    "origin:0 instance:0 state:0 last:1 lag:1 messages:2 ties:4 missing:1 newest:3"
)
EMPTY: Final = "equal: none of them holds a message"
_MEANS: Final = {
    "equal": "equal: all of them hold the same messages of each origin",
    "lag": "lag: what all of them hold is equal so far, and some lack the newest messages",
    "different": "different: they do not hold the same; see the first difference of each origin",
}


@click.command(cls=VerdictCommand)
@click.argument("urls", metavar="URL URL [URL]...", nargs=-1)
@click.option(
    "--token-file", "tokens", multiple=True, type=click.Path(path_type=Path),
    help="A file with a token that may read; one for all URLs, or one for each, in order.",
)  # fmt: skip
def compare(target: Target, urls: tuple[str, ...], tokens: tuple[Path, ...]) -> None:
    """Say whether instances hold the same messages, and where they begin to differ.

    For each origin: how far each instance holds it, which one is newer, how many messages it
    has less than others, and the first position at which they differ. Messages published
    meanwhile are not looked at. A message counts by publisher, sequence and the CRC of its
    content; whether a body is damaged on its disk is found by journal verify.

    Example: zbroker-admin replication compare http://127.0.0.1:9105 http://127.0.0.1:9205
    """
    try:
        logs = list(_logs(target, urls, tokens))
        with progress.bar() as step:
            found = compare_logs(logs, step)
    except ZBrokerError as error:
        show.warn(f"replication compare: {error}")
        sys.exit(UNKNOWN)
    document = document_of(found)
    show.answer(target.as_json, document, lambda: _show(found, document))
    sys.exit(int(document["code"]))


def _logs(target: Target, urls: tuple[str, ...], tokens: tuple[Path, ...]) -> Iterator[ComparedLog]:
    """Raises: UsageError, ZBrokerError."""
    if len(set(urls)) < 2:
        raise _usage("give the URLs of two instances or more")
    if len(tokens) not in (0, 1, len(urls)):
        raise _usage("give one token file, or one for each URL")
    for at, url in enumerate(urls):
        if url.startswith(("http://", "https://")):
            token = _token(tokens[at % len(tokens)]) if tokens else ""
            admin = Admin(url.rstrip("/"), token=token)
        else:
            admin = admin_at(url, target.login.credentials() if target.login else None)
        yield ComparedLog(url, admin.ask)


def _usage(reason: str) -> click.UsageError:
    error = click.UsageError(reason)
    setattr(error, "exit_code", UNKNOWN)  # noqa: B010 - click has it in the class
    return error


def _token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise ZBrokerError("not_found", f"{file}: {error.strerror}") from None


def document_of(found: LogComparison) -> dict[str, Any]:
    """The answer as JSON."""
    state = found.state
    return {
        "state": state,
        "code": 0 if state == "equal" else NOT_EQUAL,
        "instances": [
            {
                "url": log.name, "instance": log.instance, "log_start": log.log_start,
                "persisted": log.limit, "damaged": log.damaged,
            }
            for log in found.logs
        ],
        "origins": [to_builtins(one) for one in found.origins],
    }  # fmt: skip


def _show(found: LogComparison, document: dict[str, Any]) -> None:
    rows = [
        {
            "origin": one.origin, "instance": held.name, "state": _state(one, held.lag),
            "last": held.last, "lag": held.lag, "messages": held.messages, "ties": held.ties,
            "missing": held.missing, "newest": held.name in one.newest,
        }
        for one in found.origins
        for held in one.held
    ]  # fmt: skip
    if rows:
        show.table(COLUMNS, rows)
    for one in found.origins:
        if one.difference is not None:
            click.echo(f"origin {one.origin} differs first at position {_text(one.difference)}")
    for log in found.logs:
        if log.damaged:
            first, end = log.damaged[0]
            click.echo(
                f"{log.name}: its log cannot be read from position {first} to {end - 1}, and in "
                f"{len(log.damaged) - 1} other places; see zbroker-admin journal verify"
            )
    click.echo(_MEANS[document["state"]] if rows else EMPTY)


def _state(origin: ComparedOrigin, lag: int) -> str:
    """The state of one instance: the others may lag and this one be the newest."""
    return "equal" if origin.state == "lag" and not lag else origin.state


def _text(difference: FirstDifference) -> str:
    parts = [
        f"{name} has nothing" if one is None else
        f"{name} has message {one.publisher}:{one.sequence}, content {one.crc:08x}"
        f"{' (as a tie)' if one.tie else ''}"
        for name, one in difference.found.items()
    ]  # fmt: skip
    return f"{difference.position}: {'; '.join(parts)}"
