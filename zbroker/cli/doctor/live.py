"""Checks of what a running instance says of itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import zbroker
from zbroker.cli.doctor.case import RUNNING, Case, Finding, quoted
from zbroker.errors import ZBrokerError

RESTARTS_MIN: Final = 3  # fewer is bad luck
HEALTHY_S: Final = 300  # running for this long: earlier problems are over
LOOK_AGAIN_S: Final = 1.0  # a reader that reads gives credit within that
STUCK_NAMED: Final = 5
_ASK: Final = "/subscriptions?limit=1000"

Document = Mapping[str, Any]
Waiting = Mapping[tuple[str, str, str], Document]  # by worker, client and sid


def answer(case: Case) -> Iterator[Finding]:
    """Whether it answers this program."""
    error = case.status_error
    if error is None:
        return
    if error.code not in ("not_found", "not_ready"):
        yield Finding(
            f"it does not answer this: {error}",
            "the instance serves its clients; only this program is refused",
            error.hint or "zbroker-admin --help: --key, --server-key, --context",
        )
    elif case.target.url:
        yield Finding(
            error.reason,
            "clients cannot publish or read there; publishers keep unacknowledged messages",
            "on its host: systemctl status zbroker, or zbroker start",
        )


def processes(case: Case, status: Document) -> Iterator[Finding]:
    """Whether its processes run, and keep running."""
    for one in status.get("processes", ()):
        restarts, name = int(one.get("restarts") or 0), one.get("room")
        young = one.get("state") != "ready" or int(one.get("uptime_s") or 0) < HEALTHY_S
        if restarts >= RESTARTS_MIN and young:
            yield Finding(
                f"{name} is in a crash loop: {restarts} restarts, now {one.get('state')}",
                "nothing acknowledged is lost; what this process does is interrupted again and "
                "again",
                f"its last lines before each end say why: see [log] file, or journalctl -u zbroker "
                f"| grep ' {name}: '",
            )
        elif one.get("state") == "starting" and one.get("progress"):
            yield Finding(
                f"{name} starts: {one['progress']}",
                "clients wait; a long log takes a while after a kill",
                case.command("top") + " shows how far it is",
            )


def version(case: Case, status: Document) -> Iterator[Finding]:
    """Whether it runs the release that is installed."""
    runs = status.get("version")
    if runs and runs != zbroker.__version__:
        yield Finding(
            f"the instance runs {runs}, this program is {zbroker.__version__}",
            "nothing is wrong with the data; new messages are not there yet",
            f"restart it: kill {case.lock_pid or 'PID'}, then {case.start()}",
        )


def alarms(case: Case, status: Document) -> Iterator[Finding]:
    """Whatever it says itself; its clock, disk and damage alarms count as these checks."""
    for alarm in status.get("alarms", ()):
        if alarm.get("code") == "access_file":
            continue  # `rules` says it
        yield Finding(
            f"{alarm.get('what')} (since {alarm.get('since')})",
            str(alarm.get("means") or "see docs/reference/admin.md"),
            str(alarm.get("next") or case.command("status")),
            str(alarm.get("code")),
        )


def rules(_: Case, status: Document) -> Iterator[Finding]:
    """Whether it goes by the access file as that is now."""
    security = status.get("security") or {}
    if security.get("problem"):
        yield Finding(
            f"the access file was changed and cannot be used: {security['problem']}",
            "the rules before it hold on; changes since then have no effect",
            "mend it; zbroker-admin access check FILE says when it is right",
        )


def stuck_subscriptions(case: Case, _: Document) -> Iterator[Finding]:
    """Whether readers stopped reading."""
    first = without_credit(case.target.ask(_ASK)["subscriptions"])
    if not first:
        return
    time.sleep(LOOK_AGAIN_S)
    yield from stuck(first, without_credit(case.target.ask(_ASK)["subscriptions"]), case)


def without_credit(rows: Sequence[Document]) -> Waiting:
    """Subscriptions that wait for their readers."""
    return {
        (str(row.get("worker")), str(row.get("client")), str(row.get("sid"))): row
        for row in rows
        if row.get("state") == "no credit" and row.get("lag")
    }


def stuck(first: Waiting, second: Waiting, case: Case) -> Iterator[Finding]:
    """Those that got nothing in between."""
    found = [
        row
        for key, row in second.items()
        if key in first and first[key].get("sent_messages") == row.get("sent_messages")
    ]
    for row in found[:STUCK_NAMED]:
        client = str(row.get("client"))
        yield Finding(
            f"{client} does not read {row.get('topic')!r}: a lag of {row.get('lag')} messages, "
            "without credit",
            "it gets no more and does not delay others; the log is kept from its position on",
            f"look at that program; {case.command(f'client disconnect {quoted(client)} --dry-run')}"
            " shows what it has open",
        )


def held(case: Case, _: Document) -> Iterator[Finding]:
    """Whether somebody who cannot be asked holds up the removal of old segments."""
    try:
        silent = case.target.ask("/holders").get("silent", ())
    except ZBrokerError as error:
        if error.code == "not_ready":
            return  # the journal starts; `processes` tells
        raise
    if silent and case.instance == RUNNING:
        yield Finding(
            f"{', '.join(map(str, silent))} did not say what part of the log is needed",
            "nothing is lost; no segment is removed until it does, and the disk may fill up",
            case.command("journal holders") + "; restart the instance if it lasts",
        )
