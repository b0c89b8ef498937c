"""`zbroker start`: run an instance in the foreground.

Prints one line `ready <url>` on stdout once clients can be served; logs go where `[log]` says.
SIGTERM and SIGINT stop it cleanly, exit 0. Exit 78: the config is wrong; 74: the storage cannot be
used; 1: another instance runs on the data directory.

    zbroker start --data-dir /var/lib/zbroker
"""

from __future__ import annotations

import gc
from pathlib import Path

import click


@click.command()
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="The config file.")
@click.option("--data-dir", help="Where everything is kept; instead of instance.data_dir.")
@click.option("--name", help="The instance's name; instead of instance.name.")
@click.option(
    "--accept-tail-loss",
    is_flag=True,
    help="Give up acknowledged messages at the end of a damaged log; says which, asks no more.",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Go on without the oldest segments, which are not where they should be; says which.",
)
@click.option(
    "--until-stdin-closes",
    is_flag=True,
    help="Stop when standard input is closed, too: so it ends with the program that started it.",
)
def start(
    path: Path | None,
    data_dir: str | None,
    name: str | None,
    accept_tail_loss: bool,
    accept_missing: bool,
    until_stdin_closes: bool,
) -> None:
    """Run an instance in the foreground."""
    gc.disable()  # imports leave little that is dead, and finding it takes 10 ms
    try:
        from zbroker import config as settings  # not for a text of help
        from zbroker.supervisor import loop
    finally:
        gc.enable()
    wanted = {"instance.data_dir": data_dir, "instance.name": name}
    overrides = {key: value for key, value in wanted.items() if value is not None}
    config = settings.load(path, overrides)
    config = config.accepting(tail_loss=accept_tail_loss, missing=accept_missing)
    status = loop.run(config, lambda url: click.echo(f"ready {url}"), stdin=until_stdin_closes)
    click.get_current_context().exit(status)
