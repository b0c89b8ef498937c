"""`zbroker-admin queue info`: one queue, all that it is, and who consumes it.

Asks the running instance (GET /queues/NAME, /queues/NAME/consumers). Answer: `queue`, its numbers
and its definition; `consumers`; `left_out`, how many more there are. Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue info work
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import name_argument, path_of
from zbroker.cli.queue.ls import shown
from zbroker.control.target import Target

COLUMNS: Final = (
    show.TableColumn("client"),
    show.TableColumn("sid"),
    show.TableColumn("address"),
    show.number("backlog"),
    show.number("held"),
    show.byte_size("credit"),
    show.number("delivered"),
    show.number("acked"),
    show.number("next_end_ms"),
    show.TableColumn("filter"),
    show.TableColumn("gone"),
)
_SIZES: Final = ("bytes", "memory_bytes")


@click.command()
@name_argument
@show.json_option
@click.pass_obj
def info(target: Target, name: str, json_here: bool) -> None:
    """Show the queue NAME: its numbers, its definition, its consumers.

    `held` of a consumer is leased to it, `backlog` is how much that may be. A consumer that is
    `gone` has lost its connection; what it holds waits for it until the leases end.

    Example: zbroker-admin queue info work
    """
    queue = target.ask(path_of(name))
    told = target.ask(path_of(name, "consumers"))
    if show.wants_json(target, json_here):
        show.as_json({"queue": queue, **told})
        return
    show.facts(numbers(queue), _SIZES)
    show.facts({f"definition.{key}": value for key, value in definition(queue).items()})
    if told["consumers"]:
        show.table(COLUMNS, told["consumers"], "consumers")
    else:
        click.echo("it has no consumer")
    if told["left_out"]:
        show.warn(f"{told['left_out']} more consumers")


def numbers(queue: dict[str, Any]) -> dict[str, Any]:
    """Everything but its definition, flat."""
    flat = shown(queue)
    return {key: value for key, value in flat.items() if key not in ("definition", "rates")}


def definition(queue: dict[str, Any]) -> dict[str, Any]:
    """Its definition, with units; settings without a value are left out."""
    from zbroker.config.queues import QueueConfig
    from zbroker.config.tree import fields
    from zbroker.config.units import BYTES, DURATION, format_duration, format_size

    formats = {BYTES["unit"]: format_size, DURATION["unit"]: format_duration}
    units = {one.name: (one.meta.extra or {}).get("unit", "") for one in fields(QueueConfig)}
    found = {}
    for key, value in queue.get("definition", {}).items():
        told = formats.get(units.get(key, ""), str)
        if value in ("", [], False):
            continue
        found[key] = [told(each) for each in value] if isinstance(value, list) else told(value)
    return found
