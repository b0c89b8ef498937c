"""Contexts: how an instance is reached, kept under a name.

    $XDG_CONFIG_HOME/zbroker/contexts/NAME.toml   0600: url, data_dir, config, [credentials]
    $XDG_CONFIG_HOME/zbroker/context              the name of the one in use

A named context (--context, ZBROKER_CONTEXT) supplies everything that no option gives. The one in
use is ignored if another place is given: its keys are for its own broker. Secrets are in files of
their own; only their names are kept here.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from zbroker.errors import ConfigError, ZBrokerError

if TYPE_CHECKING:
    from zbroker.client.connect_types import Credentials

ENVIRONMENT: Final = "ZBROKER_CONTEXT"
PASSWORD_MAX_BYTES: Final = 1_024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Login(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What credentials are made of; secrets by the names of their files.

    server: the broker's public key, or the file that holds it.
    """

    key: str = ""
    server: str = ""
    user: str = ""
    password_file: str = ""

    @property
    def given(self) -> bool:
        """True if there is anything of it."""
        return self != NO_LOGIN

    def credentials(self) -> Credentials | None:
        """What a connection is made with; None without any. Raises: ConfigError."""
        if not self.given:
            return None
        if not self.key or not self.server:
            missing = "--server-key" if self.key else "--key"
            reason = (
                f"credentials are a secret key and the broker's public one: {missing} is missing"
            )
            raise ConfigError("bad_config", reason, "give both, or --context")
        from zbroker.client.connect_types import Credentials

        password = read_password(Path(self.password_file)) if self.password_file else None
        return Credentials(Path(self.key), self.server, self.user or None, password)


NO_LOGIN: Final = Login()


class Context(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where an instance is, and how to log on there. One of url, data_dir, config says where."""

    url: str = ""
    data_dir: str = ""
    config: str = ""
    credentials: Login = field(default=NO_LOGIN)

    @property
    def has_place(self) -> bool:
        """True if it says where the instance is."""
        return bool(self.url or self.data_dir or self.config)

    def over(self, other: Context) -> Context:
        """This one; what it does not say is as in `other`. A place counts as a whole."""
        mine = {key: value for key, value in asdict(self.credentials).items() if value}
        login = replace(other.credentials, **mine)
        return replace(self if self.has_place else other, credentials=login)


def resolve(given: Context, name: str | None = None) -> Context:
    """The `given` options, over the context `name`, that of the environment, or in use.

    Raises: ZBrokerError, ConfigError.
    """
    named = name or os.environ.get(ENVIRONMENT, "")
    if named:
        return given.over(load(named))
    in_use = current()
    if not in_use or (given.has_place and not given.url):
        return given
    try:
        context = load(in_use)
    except ZBrokerError:
        if given.has_place:
            return given
        raise
    return given.over(context) if given.url in ("", context.url) else given


# -- files ------------------------------------------------------------------------------------


def directory() -> Path:
    """Where contexts are kept."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # the specification says that a relative one is to be ignored
    root = Path(base) if base.startswith("/") else Path.home() / ".config"
    return root / "zbroker" / "contexts"


def names() -> list[str]:
    """The names of all contexts."""
    found = directory().glob("*.toml")
    return sorted(path.stem for path in found if _NAME.fullmatch(path.stem))


def load(name: str) -> Context:
    """Raises: ZBrokerError not_found, ConfigError."""
    path = _path(name)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            tree = tomllib.load(file)
    except FileNotFoundError:
        known = ", ".join(names()) or "none"
        reason = f"there is no context {name!r}; there are: {known}"
        raise ZBrokerError("not_found", reason, "zbroker-admin context add makes one") from None
    except (OSError, ValueError) as error:
        raise ConfigError("bad_config", f"{path}: {error}", _again(name)) from None
    if mode & _OTHERS_WRITE:
        raise ConfigError("bad_config", f"others may write {path}", f"chmod 600 {path}")
    try:
        return msgspec.convert(tree, Context)
    except msgspec.ValidationError as error:
        raise ConfigError("bad_config", f"{path}: {error}", _again(name)) from None


def save(name: str, context: Context, *, force: bool = False) -> Path:
    """Where it is kept. Raises: ZBrokerError bad_field, exists; ConfigError."""
    path = _path(name)
    if path.exists() and not force:
        raise ZBrokerError("exists", f"there is a context {name!r} already", "--force replaces it")
    _write(path, to_toml(context))
    return path


def remove(name: str) -> None:
    """It is not in use any more, either. Raises: ZBrokerError not_found, bad_field."""
    path = _path(name)
    if not path.exists():
        load(name)
    path.unlink(missing_ok=True)
    if current() == name:
        use_none()


def use(name: str) -> None:
    """Makes it the one that counts where none is named. Raises: ZBrokerError, ConfigError."""
    load(name)
    _write(_current_path(), name + "\n")


def use_none() -> None:
    """From now on no context counts where none is named."""
    _current_path().unlink(missing_ok=True)


def current() -> str:
    """The name of the one in use, "" if there is none."""
    try:
        name = _current_path().read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
    return name if _NAME.fullmatch(name) else ""


def document(context: Context) -> dict[str, Any]:
    """With every key, for JSON."""
    return {**asdict(context), "credentials": asdict(context.credentials)}


def to_toml(context: Context) -> str:
    """As it is kept: only what is set."""
    tree = msgspec.to_builtins(context)
    login = tree.pop("credentials", {})
    lines = _keys(tree)
    if login:
        lines += ["", "[credentials]", *_keys(login)]
    return "\n".join(lines) + "\n"


def absolute(context: Context) -> Context:
    """With files that are found from any directory. A public key stays what it is."""
    login = context.credentials
    server = login.server
    if server and (Path(server).exists() or server.endswith(".key")):
        server = _absolute(server)
    login = replace(
        login, key=_absolute(login.key), server=server,
        password_file=_absolute(login.password_file),
    )  # fmt: skip
    return replace(
        context, data_dir=_absolute(context.data_dir), config=_absolute(context.config),
        credentials=login,
    )  # fmt: skip


def read_password(path: Path) -> str:
    """The first line of a file that its owner alone can read. Raises: ConfigError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            line = file.readline(PASSWORD_MAX_BYTES)
        password = line.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"the password file {path}: {getattr(error, 'strerror', None) or 'is not UTF-8'}"
        raise ConfigError(
            "bad_config", reason, "--password-file names a file with one line"
        ) from None
    if mode & _OTHERS:
        raise ConfigError("bad_config", f"others may read {path}", f"chmod 600 {path}")
    return password


def check_name(name: str) -> str:
    """Raises: ZBrokerError bad_field."""
    if not _NAME.fullmatch(name):
        reason = f"{name!r} is not a name for a context"
        hint = "1 to 64 letters, digits, '-', '_' and '.', a letter or digit first"
        raise ZBrokerError("bad_field", reason, hint)
    return name


def _path(name: str) -> Path:
    return directory() / f"{check_name(name)}.toml"


def _current_path() -> Path:
    return directory().parent / "context"


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""


def _keys(tree: dict[str, Any]) -> list[str]:
    # a string of JSON is one of TOML
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in tree.items()]


def _again(name: str) -> str:
    return f"zbroker-admin context add {name} --force overwrites it"


def _write(path: Path, text: str) -> None:
    """The whole file or none of it, for its owner only. Raises: ConfigError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        reason = f"{error.filename or path}: {error.strerror}"
        raise ConfigError("bad_config", reason, "see XDG_CONFIG_HOME") from None
