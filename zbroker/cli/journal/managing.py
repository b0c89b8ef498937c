"""What archive, compress and remove have in common: a plan, its table, the work, its outcome.

With a running instance its admin plans and works; without one this process does, under the lock of
the journal directory. Both say the same:

    {action, dry_run, id, serials: [{serial, bytes, why}], skipped: [{serial, reason}],
     result, reason, bytes, took_s}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import click

from zbroker.cli import progress, show
from zbroker.cli.journal import offline, opened
from zbroker.cli.journal.following import follow
from zbroker.cli.journal.selecting import Find, Selection
from zbroker.control.target import Admin, Target
from zbroker.errors import ZBrokerError, unknown_point

PLANNED: Final = (
    show.number("serial"),
    show.TableColumn("what"),
    show.byte_size("bytes"),
    show.TableColumn("why"),
)
SKIPPED_SHOWN: Final = 20  # in text, unless it is a dry run; JSON has all

Document = dict[str, Any]


class ActionOptions(NamedTuple):
    """How it is done and reported."""

    dry_run: bool
    wait: bool
    in_json: bool


def rewrite(
    target: Target, action: Literal["archive", "compress"], selection: Selection, how: ActionOptions
) -> None:
    """Archives or compresses the oldest segments, by the instance or here. Raises: ZBrokerError."""
    admin = target.running()
    with progress.bar("bytes") as step:
        if admin is None:
            found = offline.rewrite(
                opened.find(target), action, selection, dry_run=how.dry_run, step=step
            )
        else:
            rows = admin.ask("/journal")["segments"]
            through = selection.last(rows, places_of(admin))
            body = {"through": through, "dry_run": how.dry_run}
            found = (
                by_admin(admin, action, body, step, wait=how.wait) if through else nothing(action)
            )
    say(found, plan_rows(found), in_json=how.in_json)


def places_of(admin: Admin) -> Find:
    """Where the points of a running instance are."""

    def find(name: str) -> int:
        for row in admin.ask("/points")["points"]:
            if row["name"] == name:
                return int(row["position"])
        raise unknown_point(name)

    return find


def nothing(action: str, **more: Any) -> Document:  # noqa: ANN401 - values of JSON
    """The outcome when no segment is old enough."""
    return {
        "action": action, "dry_run": False, "id": None, "serials": [], "skipped": [],
        "result": "nothing to do",
    } | more  # fmt: skip


def by_admin(
    admin: Admin, action: str, body: dict[str, Any], step: progress.Step, *, wait: bool
) -> Document:
    """Asks the running instance, and waits until it is done. Raises: ZBrokerError."""
    reply = admin.tell(f"/journal/{action}", body)
    found: Document = {"action": action, "dry_run": bool(body.get("dry_run"))} | reply
    number = reply.get("id")
    if number is None:
        found["result"] = "dry run" if found["dry_run"] else "nothing to do"
    elif wait:
        done = follow(admin, str(number), step)
        found |= {key: done[key] for key in ("result", "reason", "bytes", "took_s")}
    else:
        found["result"] = "queued"
    return found


def say(found: Document, rows: Sequence[dict[str, Any]], *, in_json: bool) -> None:
    """The outcome; `rows` are the plan. Raises: ZBrokerError if it failed."""
    if in_json:
        show.as_json(found)
    else:
        if rows:
            show.table(PLANNED, rows)
        click.echo(summary(found))
    check(found)


def check(found: Document) -> None:
    """Raises: ZBrokerError if it failed or was refused."""
    if found["result"] in ("failed", "refused"):
        reason = f"action {found['id']}: {found.get('reason') or 'the log of the admin says why'}"
        raise ZBrokerError(str(found["result"]), reason)


def plan_rows(found: Document) -> list[dict[str, Any]]:
    """The plan for each segment, and why others are left out."""
    done = [row | {"what": found["action"]} for row in found["serials"]]
    left = [
        {"serial": row["serial"], "what": "skip", "why": row["reason"]}
        for row in found.get("skipped", ())
    ]
    if not found["dry_run"] and len(left) > SKIPPED_SHOWN:
        left = []
    return sorted(done + left, key=lambda row: int(row["serial"]))


def summary(found: Document) -> str:
    """One line for people."""
    number, skipped = len(found["serials"]), len(found.get("skipped", ()))
    what = f"{found['action']}: {number} segment{'' if number == 1 else 's'}"
    size = sum(row["bytes"] for row in found["serials"] if isinstance(row, dict))
    if size or found.get("bytes"):
        what += f", {show.size(size or found['bytes'])}"
    if skipped:
        what += f", {skipped} skipped"
    result = found["result"]
    if found.get("took_s"):
        result += f" in {found['took_s']:.1f} s"
    if result == "queued":
        result = f"queued as action {found['id']}; see `action show {found['id']}`"
    return f"{what}: {result}"
