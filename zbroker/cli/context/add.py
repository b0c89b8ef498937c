"""`zbroker-admin context add`: keeps how an instance is reached.

The file, $XDG_CONFIG_HOME/zbroker/contexts/NAME.toml, names files of secrets and holds none.

    zbroker-admin context add here --data-dir /var/lib/zbroker
    zbroker-admin context add trading --url tcp://10.0.0.5:9101 --key me.key_secret \\
        --server-key broker.key
"""

from __future__ import annotations

import click

from zbroker.cli import reaching, show
from zbroker.control import contexts
from zbroker.control.contexts import Context, Login
from zbroker.control.target import Target


@click.command()
@click.argument("name")
@click.option("--url", help="The ingest URL of the instance.")
@click.option("--data-dir", help="Its data directory, if it is on this host.")
@click.option("-c", "--config", help="Its config file, if it is on this host.")
@reaching.login_options
@click.option("--use", "at_once", is_flag=True, help="Use it from now on.")
@click.option("--force", is_flag=True, help="Replace one of that name.")
@show.json_option
@click.pass_obj
def add(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    *,
    name: str,
    url: str | None,
    data_dir: str | None,
    config: str | None,
    key: str | None,
    server_key: str | None,
    user: str | None,
    password_file: str | None,
    at_once: bool,
    force: bool,
    json_here: bool,
) -> None:
    """Keep how an instance is reached, as NAME.

    Say where it is by one of --url, --data-dir and -c; either there or before the command.

    Example: zbroker-admin context add here --data-dir /var/lib/zbroker --use
    """
    before = target.login or Login()
    login = Login(
        key or before.key, server_key or before.server, user or before.user,
        password_file or before.password_file,
    )  # fmt: skip
    places = (url or target.url, data_dir or target.data_dir, config or target.config_path)
    if sum(place is not None for place in places) != 1:
        raise click.UsageError("say where it is by one of --url, --data-dir and -c")
    if bool(login.key) != bool(login.server):
        raise click.UsageError("--key and --server-key go together")
    at, data, path_of_config = (str(place or "") for place in places)
    made = contexts.absolute(Context(at, data, path_of_config, login))
    path = contexts.save(name, made, force=force)
    if at_once:
        contexts.use(name)
    if show.wants_json(target, json_here):
        show.as_json({"context": name, "file": str(path), "in_use": contexts.current() == name})
    else:
        click.echo(f"{name}: kept in {path}{', in use' if at_once else ''}")
