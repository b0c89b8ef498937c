"""`zbroker-admin queue create | alter | delete | requeue`: changes that the running instance makes.

Answer: `queue`, `dry_run`, `count`, `text`. The log has the definition of a queue that was created,
so it is there after a restart; it needs no [[queue]] table.

    zbroker-admin --data-dir /var/lib/zbroker queue create work --topic orders --set lease=1m
    zbroker-admin queue create audit --topic 'orders[.].*' --set regex=true --set kind=replayable
    zbroker-admin queue alter work --set lease=5m --dry-run
    zbroker-admin queue delete work --yes
    zbroker-admin queue requeue work --bookmark '1683212431|17|'
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from zbroker.admin.requests import BOOKMARKS_MAX, REQUEUED_MAX
from zbroker.cli import show
from zbroker.cli.completion import complete_topic
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import dry_run_option, flag_option, limit_option
from zbroker.cli.queue.queries import name_argument, path_of
from zbroker.control.target import Target
from zbroker.errors import ClientError

Document = dict[str, Any]


def complete_key(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Keys that begin like this, for a shell."""
    from zbroker.admin.documents import keys

    return [CompletionItem(f"{key}=") for key in keys() if key.startswith(incomplete)]


set_option = click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of [[queue]], as in the config: lease=30s; a list by commas. Any number of times.",
    shell_complete=complete_key,
)


@click.command(cls=AdminCommand)
@name_argument
@click.option(
    "--bookmark", "bookmarks", multiple=True, help="Only this dead letter. Any number of times."
)
@limit_option(1_000, REQUEUED_MAX, "The newest ones.")
@dry_run_option
def requeue(
    target: Target, name: str, bookmarks: tuple[str, ...], limit: int, dry_run: bool
) -> None:
    """Bring back to the queue NAME what it gave up, as long as the log holds it.

    They return to their old places in the queue, and their counts begin at 0 again. Copies in the
    `dead_letter` topic stay there.

    Example: zbroker-admin queue requeue work --limit 10 --dry-run
    """
    if len(bookmarks) > BOOKMARKS_MAX:
        raise click.UsageError(f"at most {BOOKMARKS_MAX} bookmarks at once")
    body = {"bookmarks": list(bookmarks), "limit": limit, "dry_run": dry_run}
    found = change(target, name, "requeue", body)
    count = found["count"]
    noun = f"{count} dead letter{'' if count == 1 else 's'}"
    report(target, found, f"{noun} would come back" if dry_run else f"{noun} came back")


@click.command(cls=AdminCommand)
@click.argument("name")
@click.option(
    "--topic",
    help="The topic that it takes; without this the one with its name.",
    shell_complete=complete_topic,
)
@set_option
@dry_run_option
def create(
    target: Target, name: str, topic: str | None, pairs: tuple[str, ...], dry_run: bool
) -> None:
    """Make the queue NAME over a recorded topic.

    It begins with all that the log holds, unless --set recovery_point says otherwise.

    Example: zbroker-admin queue create work --topic orders --set lease=1m --set retry_delay=1s,10s
    """
    definition = definition_of(pairs, {} if topic is None else {"topic": topic})
    found = change(target, name, "create", {"definition": definition, "dry_run": dry_run})
    report(target, found, "it can be made" if dry_run else "made")


@click.command(cls=AdminCommand)
@name_argument
@set_option
@dry_run_option
def alter(target: Target, name: str, pairs: tuple[str, ...], dry_run: bool) -> None:
    """Change settings of the queue NAME; what it holds stays.

    The settings that decide which messages are in it and in which order (topic, filter, priority
    and the like) cannot change: delete the queue and create it again. Its consumers continue. A
    queue of the config is changed there.

    A local queue becomes one of several instances with --set scope=distributed, or with --set
    scope=group-local --set initial_owner=INSTANCE. Messages that are done here are done on all
    of them then.

    Example: zbroker-admin queue alter work --set lease=5m --set max_deliveries=3
    """
    definition = definition_of(pairs)
    if not definition:
        raise click.UsageError("say what changes: --set KEY=VALUE")
    found = change(target, name, "alter", {"definition": definition, "dry_run": dry_run})
    report(target, found, "it can be changed" if dry_run else "changed")


@click.command(cls=AdminCommand)
@name_argument
@dry_run_option
@flag_option("--yes", "Do not ask.")
def delete(target: Target, name: str, dry_run: bool, yes: bool) -> None:
    """Delete the queue NAME. The messages stay in the log, which is not kept for it any more.

    A queue that is created again with this name is another one: acknowledgements of this one do
    not apply to it. A queue of the config is deleted there.

    Example: zbroker-admin queue delete work --dry-run
    """
    if not (dry_run or yes):
        if target.as_json or not sys.stdin.isatty():
            raise click.UsageError("this deletes a queue for good: give --yes, or --dry-run first")
        click.confirm(f"{name} is deleted for good, with {_lost(target, name)}; go on?", abort=True)
    line = f"it would be deleted, with {_lost(target, name)}" if dry_run else "deleted"
    report(target, change(target, name, "delete", {"dry_run": dry_run}), line)


def _lost(target: Target, name: str) -> str:
    """What the queue knows and nothing else does."""
    row = target.ask(path_of(name))
    taken = f", {row['leased']} of them with consumers," if row["leased"] else ""
    return (
        f"{messages(row['depth'])} that are not done yet{taken} and every acknowledgement that "
        "was given here; the messages stay in the log"
    )


def definition_of(pairs: Sequence[str], given: dict[str, str] | None = None) -> dict[str, Any]:
    """The definition that they make, with what other options `given`. Raises: UsageError."""
    from zbroker.admin.documents import read_definition  # it reads the whole config

    texts = dict(given or {})
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise click.UsageError(f"--set {pair!r}: write KEY=VALUE")
        if key in texts:
            raise click.UsageError(f"--set {pair!r}: {key} is given twice")
        texts[key] = value
    try:
        return read_definition(texts, texts=True)
    except ClientError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise click.UsageError(f"--set: {error.reason}{hint}") from None


def change(target: Target, name: str, what: str, body: Document) -> Document:
    """Has the instance change the queue; its answer. Raises: ZBrokerError."""
    return target.admin().tell(path_of(name, what), body)


def report(target: Target, found: Document, line: str) -> None:
    """The outcome of a change; a dry run is marked, and additions of the instance follow."""
    text = f"{found['queue']}: {line}{' (dry run)' if found['dry_run'] else ''}"
    show.answer(target.as_json, found, "\n".join(filter(None, (text, found.get("text")))))


def messages(count: int) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} message{'' if count == 1 else 's'}"
