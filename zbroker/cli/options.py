"""Options that several commands have: how a broker is reached, and what its answer is like."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from zbroker.control.contexts import Context, Login, names, resolve
from zbroker.limits import U63_MAX

if TYPE_CHECKING:
    from zbroker.client.connect_types import Credentials

Command = Callable[..., Any]
F = TypeVar("F", bound=Command)

POSITION: Final = click.IntRange(min=1, max=U63_MAX)


def flag_option(name: str, what: str, *into: str) -> Callable[[F], F]:
    """An option that is given or not. into: the argument that it becomes, if not of its name."""
    return click.option(name, *into, is_flag=True, help=what)


def text_option(name: str, what: str, *into: str, **more: Any) -> Callable[[F], F]:  # noqa: ANN401
    """An option with a text, "" where it is not given."""
    return click.option(name, *into, default="", help=what, **more)


def count_option(name: str, what: str, *into: str, **more: Any) -> Callable[[F], F]:  # noqa: ANN401
    """An option with a number from 1 on; None where it is not given."""
    return click.option(name, *into, type=click.IntRange(min=1), help=what, **more)


json_option = flag_option("--json", "Answer in JSON with stable keys.", "json_here")
dry_run_option = flag_option("--dry-run", "Only say what would be done, and why.")
output_option = click.option(
    "--output",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The new data directory; must not exist.",
)
url_argument = click.argument("url", metavar="[URL]", required=False)


def with_default(
    name: str, default: object, what: str, kind: click.ParamType[Any] | None = None, *into: str
) -> Callable[[F], F]:
    """An option whose help says its default, if there is one."""
    shown = default is not None
    return click.option(name, *into, type=kind, default=default, show_default=shown, help=what)


def limit_option(
    default: int, maximum: int | None = None, what: str = "So many at most."
) -> Callable[[F], F]:
    """`--limit` of a list."""
    return with_default("--limit", default, what, click.IntRange(1, maximum))


def collecting(
    name: str, make: Callable[..., object], *options: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """Adds options to a command, which gets what `make` makes of their values as `name`."""
    taken = signature(make).parameters

    def decorate(function: Command) -> Command:
        @wraps(function)
        def collected(*args: object, **values: object) -> object:
            made = make(**{key: values.pop(key) for key in taken})
            return function(*args, **{name: made}, **values)

        command: Command = collected
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# -- how a broker is reached ------------------------------------------------------------------


def complete_context(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of contexts, for a shell."""
    return [CompletionItem(name) for name in names() if name.startswith(incomplete)]


class ConnectionOptions(NamedTuple):
    """What those options said."""

    context: str | None
    login: Login

    def resolve(self, url: str = "", data_dir: str = "", config: str = "") -> Context:
        """With the place that was given, over the context. Raises: ZBrokerError, ConfigError."""
        return resolve(Context(url, data_dir, config, self.login), self.context)


class Broker(NamedTuple):
    """What to connect to; `options` are those of `connect()`."""

    url: str
    credentials: Credentials | None

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.credentials is None else {"credentials": self.credentials}


#: Adds the options of credentials to a command, which gets them as `login`.
login_options: Final = collecting(
    "login",
    Login,
    text_option("--key", "Your secret key file, for a broker that encrypts."),
    text_option("--server-key", "The broker's public key, or the file that holds it.", "server"),
    text_option("--user", "The principal, where the key does not say it."),
    text_option("--password-file", "The file with your password, readable by you only."),
)
#: Adds `--context` and those of credentials to a command, which gets them as `given`.
connection_options: Final = collecting(
    "given",
    ConnectionOptions,
    click.option(
        "--context",
        help="How the broker is reached, by a name: `zbroker-admin context`.",
        shell_complete=complete_context,
    ),
    login_options,
)


def broker_of(given: ConnectionOptions, url: str | None) -> Broker:
    """The broker at `url`, or that of the context. Raises: UsageError, ZBrokerError."""
    context = given.resolve(url or "")
    if not context.url:
        raise click.UsageError("give the URL of a broker, or a context that has one")
    return Broker(context.url, context.credentials.credentials())


def topic_of(
    given: ConnectionOptions, url: str | None, topic: str | None, what: str = "TOPIC"
) -> tuple[Broker, str]:
    """Where the URL may be left out, the only argument is the topic. Raises: UsageError."""
    if topic is None:
        url, topic = None, url
    if topic is None or "://" in topic:
        raise click.UsageError(f"Missing argument '{what}'.")
    return broker_of(given, url), topic
