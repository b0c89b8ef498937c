"""`zbroker-admin queue takeover`: what an instance owns that is away is offered by this one.

Answer: `queue`, `dry_run`, `count`, `text`; with --all `queues`, a list of these, and `refused`:
`queue`, `code`, `reason`.

    zbroker-admin queue takeover work --from a --dry-run
    zbroker-admin queue takeover --all --from a --yes
    zbroker-admin queue takeover work --from 10b714bc24174273 --yes
    zbroker-admin queue takeover work --from a --until-back --yes
    zbroker-admin queue takeover work --from a --end --yes
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final, NamedTuple

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_queue
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.options import dry_run_option, flag_option
from zbroker.cli.queue.changes import change, messages, report
from zbroker.control.target import Target
from zbroker.errors import ClientError, ZBrokerError

_ID: Final = re.compile("[0-9a-f]{16}")


@click.command(cls=AdminCommand)
@click.argument("name", required=False, default="", shell_complete=complete_queue)
@click.option(
    "--from", "owner", required=True, metavar="INSTANCE", help="Its name, or its 16 hex digits."
)
@flag_option("--all", "What it owns of every queue, instead of one.", "every")
@flag_option("--until-back", "Also what comes of it later, until its log comes here again.")
@flag_option("--end", "Take over no more of what comes.")
@flag_option("--may-duplicate", "Also of an at-most-once queue: some may come twice.")
@dry_run_option
@flag_option("--yes", "Do not ask.")
def takeover(  # noqa: PLR0913 - click passes each option by itself
    target: Target, name: str, owner: str, every: bool, until_back: bool, end: bool,
    may_duplicate: bool, dry_run: bool, yes: bool,
) -> None:  # fmt: skip
    """Offer here what another instance owns of the queue NAME, which is away.

    All of it is flagged `redelivered`: the other instance may have delivered some. It keeps what is
    published there later. If it is not away, it stops to offer these messages when it reads the
    record, and a message may be with a consumer of each until then. Messages whose acknowledgement
    there has not arrived here yet come again: wait for the links to other instances first.

    With --until-back this instance acts for it: each message of it that arrives later is taken
    over, too, until the log of that instance comes here again, or until --end. Give it on one
    instance only.

    With --all each queue is taken over by itself; one that refuses it is named, and the others go
    on. The exit code is 1 then.

    Example: zbroker-admin queue takeover work --from a --dry-run
    """
    if every is bool(name):
        raise click.UsageError("name a queue, or give --all")
    if (end or until_back) and (every or end is until_back):
        raise click.UsageError("--until-back and --end are for one queue, one of them")
    instance, called = _instance(target, owner)
    body = {"instance": instance, "called": called, "may_duplicate": may_duplicate}
    if end:
        found = change(target, name, "takeover", body | {"end": True})
        report(target, found, f"messages of {owner} that come are taken over no more")
        return
    if until_back:
        body["until_back"] = True
    names = [name] if name else _others(target)
    if dry_run or not yes:
        if not dry_run and (target.as_json or not sys.stdin.isatty()):
            raise click.UsageError("messages may come twice: give --yes, or --dry-run first")
        planned = _each(target, names, body | {"dry_run": True}, every)
        if dry_run:
            _report(target, planned, "would be taken over", every)
            return
        count = sum(one["count"] for one in planned.queues)
        text = f"{messages(count)} of {name or f'{len(planned.queues)} queues'} come from here"
        click.confirm(f"{text}, flagged; go on?", abort=True)
    _report(target, _each(target, names, body, every), "taken over", every)


class _Done(NamedTuple):
    """The outcome of each queue. refused: those that cannot be taken over, and why."""

    queues: list[dict[str, Any]]
    refused: list[dict[str, Any]]


def _others(target: Target) -> list[str]:
    """Queues with messages that belong to other instances."""
    return [row["name"] for row in target.ask("/queues")["queues"] if row["elsewhere"]]


def _each(target: Target, names: list[str], body: dict[str, Any], every: bool) -> _Done:
    """Takes over each by itself. Raises: ZBrokerError; a refusal of one of many is kept."""
    done = _Done([], [])
    for name in names:
        try:
            found = change(target, name, "takeover", body)
        except ClientError as error:
            if not every:
                raise
            done.refused.append({"queue": name, "code": error.code, "reason": error.reason})
            continue
        if found["count"] or not every:
            done.queues.append(found)
    return done


def _report(target: Target, done: _Done, what: str, every: bool) -> None:
    if not every:
        [found] = done.queues
        report(target, found, f"{messages(found['count'])} {what}")
        return
    lines = [f"{one['queue']}: {messages(one['count'])} {what}" for one in done.queues]
    lines += [f"{one['queue']}: refused: {one['reason']}" for one in done.refused]
    show.answer(target.as_json, done._asdict(), "\n".join(lines) or "it owns no message here")
    if done.refused:
        raise SystemExit(EX_ERROR)


def _instance(target: Target, owner: str) -> tuple[str, str]:
    """Id and name of an instance. Raises: ZBrokerError, if no link knows it."""
    links = target.ask("/replication")["links"]
    for link in links:
        if owner in (link["name"], link["instance"]) and link["instance"]:
            return link["instance"], link["name"]
    if _ID.fullmatch(owner):
        return owner, ""
    raise ZBrokerError(
        "not_found", f"no link knows the id of {owner!r}",
        "give its 16 hex digits: `instance.json` in its data directory has them",
    )  # fmt: skip
