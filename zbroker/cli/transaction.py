"""`zbroker-admin transaction`: distributed transactions that wait for a decision.

zbroker-admin --data-dir /var/lib/zbroker transaction ls --principal shop
zbroker-admin transaction rollback 7:transfer-1:broker --principal shop --dry-run
zbroker-admin transaction forget 7:transfer-1:broker --principal shop --yes
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from zbroker.admin import words
from zbroker.admin.requests import ROWS_MAX
from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import dry_run_option, flag_option, limit_option, text_option
from zbroker.control.target import Target

Document = dict[str, Any]

COLUMNS: Final = show.columns(
    "principal:0 xid:0 state:0 age:1 instance:2 messages:1 locked:1 queues:3 session:4 prepared:5"
)
_THEN: Final = (
    "The transaction manager gets that answer when it asks. Once it has asked: zbroker-admin "
    "transaction forget"
)
_principal_option = text_option("--principal", "Whose it is; without security there is none.")
_force_option = flag_option("--force", "Also what another instance prepared, which is gone.")
_instance_option = text_option(
    "--instance", "The one that this instance prepared, as `ls --json` says it."
)
_yes_option = flag_option("--yes", "Do not ask.")


@click.group(cls=AdminGroup)
def transaction() -> None:
    """See distributed transactions that wait for a decision; decide one.

    Normally their transaction manager decides. If that is gone for good, find out what the other
    systems of the transaction did, and do the same here.

    XID is FORMAT:GTRID:BQUAL, as `ls` prints it: a colon, a percent sign or a space of the last two
    is %3A, %25 or %20. An empty BQUAL may be left out with its colon.
    """


@transaction.command()
@text_option("--principal", "Only of this principal.")
@limit_option(ROWS_MAX, ROWS_MAX)
def ls(target: Target, principal: str, limit: int) -> None:
    """List distributed transactions that are not over, by principal and xid.

    `state`: prepared; or committed or rolled_back by an operator, and not forgotten. `instance`
    prepared it, and alone can commit it. `messages` were published, and are not visible yet;
    `locked` ones of these queues go to no consumer. `age` is since it was prepared.

    Example: zbroker-admin transaction ls --principal shop
    """
    found = target.ask("/transactions", {"principal": principal, "limit": limit})
    count = found["left_out"]
    notes = [f"{count} more; see transaction ls --principal"] if count else []
    rows = [
        row | {
            "age": words.duration(int(row["age_s"] * 1_000)),
            "instance": "here" if row["here"] else row["instance"],
        }
        for row in found["transactions"]
    ]  # fmt: skip
    show.listing(
        target.as_json, found, COLUMNS, rows, "no distributed transaction waits for a decision",
        notes,
    )  # fmt: skip


@transaction.command()
@click.argument("xid")
@_principal_option
@dry_run_option
@_yes_option
def commit(target: Target, xid: str, principal: str, dry_run: bool, yes: bool) -> None:
    """Commit the prepared transaction XID in place of its transaction manager.

    Its messages become visible, and the messages that it locked leave their queues, for good. If
    another system of the transaction rolls back, the two contradict each other. It is committed
    where it was prepared only.

    The transaction manager gets that answer when it asks; forget it after that.

    Example: zbroker-admin transaction commit 7:transfer-1:broker --principal shop --dry-run
    """
    body = {"xid": xid, "principal": principal, "dry_run": dry_run}
    _decide(target, "commit", body, yes)


@transaction.command()
@click.argument("xid")
@_principal_option
@_force_option
@_instance_option
@dry_run_option
@_yes_option
def rollback(  # noqa: PLR0913 - one for each option
    target: Target, xid: str, principal: str, force: bool, instance: str, dry_run: bool, yes: bool
) -> None:
    """Roll back the prepared transaction XID in place of its transaction manager.

    Its messages are never visible, and the messages that it locked come back to their queues, as
    delivered before. If another system of the transaction commits, the two contradict each other.
    Where several instances have prepared one of that name, name the --instance.

    The transaction manager gets that answer when it asks; forget it after that.

    Example: zbroker-admin transaction rollback 7:transfer-1:broker --principal shop --dry-run
    """
    body = {"xid": xid, "principal": principal, "force": force, "dry_run": dry_run}
    _decide(target, "rollback", body | _of(instance), yes)


@transaction.command()
@click.argument("xid")
@_principal_option
@_force_option
@_instance_option
@dry_run_option
@_yes_option
def forget(  # noqa: PLR0913 - one for each option
    target: Target, xid: str, principal: str, force: bool, instance: str, dry_run: bool, yes: bool
) -> None:
    """Forget the transaction XID, which an operator has decided.

    No message is touched. A transaction manager that asks later does not learn how it was decided,
    only that there is no such transaction: so first let it ask.

    Example: zbroker-admin transaction forget 7:transfer-1:broker --principal shop
    """
    body = {"xid": xid, "principal": principal, "force": force, "dry_run": dry_run}
    _decide(target, "forget", body | _of(instance), yes)


def _of(instance: str) -> Document:
    """An earlier release does not know the key."""
    return {"instance": instance} if instance else {}


def _decide(target: Target, decision: str, body: Document, yes: bool) -> None:
    path = f"/transactions/{decision}"
    if not (body["dry_run"] or yes):
        if target.as_json or not sys.stdin.isatty():
            raise click.UsageError("this cannot be undone: give --yes, or --dry-run first")
        planned = target.admin().tell(path, body | {"dry_run": True})
        question = f"{planned['xid']}: {_outcome(planned, 'is', '')}"
        click.confirm(f"{question}. {_MEANS[decision]}; go on?", abort=True)
    found = target.admin().tell(path, body)
    done = _outcome(found, "would be", " (dry run)") if body["dry_run"] else _outcome(found, "", "")
    show.answer(target.as_json, found, f"{found['xid']}: {done}")
    if target.as_json or body["dry_run"]:
        return
    if found["mixed"]:
        show.warn("it had locked more: another instance had delivered them, or their queue is gone")
    if decision != "forget":
        show.warn(_THEN)


_MEANS: Final = {
    "commit": "That is final; it is wrong if another system of the transaction rolls back",
    "rollback": "That is final; it is wrong if another system of the transaction commits",
    "forget": "A transaction manager that asks later does not learn how it was decided",
}
_DONE: Final = {"commit": "committed", "rollback": "rolled back", "forget": "forgotten"}


def _outcome(found: Document, how: str, note: str) -> str:
    """In words, such as `committed; 2 messages visible, 3 gone from their queues`."""
    decision, locked = found["decision"], _messages(found["locked"])
    head = f"{how} {_DONE[decision]}{note}".strip()
    if decision == "commit":
        return f"{head}; {_messages(found['messages'])} visible, {locked} gone from queues"
    return f"{head}; {locked} back in queues" if decision == "rollback" else head


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
