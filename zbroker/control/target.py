"""Which instance `zbroker-admin` is about, where its files are, and how its admin is asked.

By `--url` the instance tells at logon where its admin is; by `-c` or `--data-dir` the file
run/instance.json of the running instance does. With credentials it is the session token of a logon
that says who asks. Without, what changes something shows the admin the token in
<data>/run/admin.token, and reading shows none unless it is asked for one (admin-read.token): files
that only the user of the instance can read.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from zbroker import config as settings
from zbroker.config import Config
from zbroker.errors import ZBrokerError
from zbroker.paths import Paths

if TYPE_CHECKING:
    from zbroker.control.contexts import Login


import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

import zmq

from zbroker import endpoints, sockets
from zbroker.client import link
from zbroker.client.effects import Lost, Rejected
from zbroker.wire import messages as m

if TYPE_CHECKING:
    from zbroker.client.connect_types import Credentials


TIMEOUT_S: Final = 5.0
_PLAN_TIMEOUT_S: Final = 60.0  # a plan of what is done with a long log reads many headers
_TOKEN_HEADER: Final = "X-ZBroker-Token"
_READ_TOKEN: Final = "admin-read.token"
_WRITE_TOKEN: Final = "admin.token"


@dataclass(slots=True)
class Target:
    """The options of `zbroker-admin` before the command, and its context."""

    url: str | None
    config_path: Path | None
    data_dir: str | None
    as_json: bool
    login: Login | None = None
    _admin: Admin | None = field(default=None, repr=False, compare=False)

    def config(self) -> Config:
        """The settings of the instance. Raises: ConfigError."""
        overrides = {"instance.data_dir": self.data_dir} if self.data_dir else {}
        return settings.load(self.config_path, overrides)

    def ask(
        self, path: str, wanted: Mapping[str, str | int] | None = None, *, contents: bool = False
    ) -> dict[str, Any]:
        """What the admin answers to GET `path` about what is `wanted`; see `Admin.ask`."""
        query = urlencode({key: value for key, value in (wanted or {}).items() if value})
        return self.admin().ask(f"{path}?{query}" if query else path, contents=contents)

    def admin(self) -> Admin:
        """The admin of the running instance. Raises: ZBrokerError not_found, auth_failed."""
        if self._admin is None:
            self._admin = self._find_admin()
        return self._admin

    def paths(self) -> Paths:
        """Where this instance keeps what, on this host. Raises: ZBrokerError, ConfigError."""
        if not self.url:
            return self.config().paths(0)
        status, journal = self.ask("/status"), self.ask("/journal")
        data = Path(str(status.get("data_dir", "")))
        paths = Paths(
            data, Path(journal["directory"]), Path(journal["archive_directory"]),
            int(str(journal["instance"]), 16),
        )  # fmt: skip
        if not status.get("data_dir") or not paths.journal.is_dir():
            reason = f"the log of {self.url} is in {paths.journal}, not on this host"
            raise ZBrokerError("not_found", reason, "run this on the host of the instance")
        return paths

    def running(self) -> Admin | None:
        """The admin, if the instance runs and answers: it is asked to do things, not its files."""
        if self.url:
            return self.admin()
        try:
            admin = self.admin()
            its_directory = admin.ask("/status").get("data_dir")
        except ZBrokerError as error:
            if error.code != "not_found":
                raise
            return None
        # the port of an instance that was killed may be another one's by now
        mine = self.config().paths(0).data.resolve()
        is_mine = not its_directory or Path(str(its_directory)).resolve() == mine
        return admin if is_mine else None

    def _find_admin(self) -> Admin:
        credentials = self.login.credentials() if self.login else None
        if self.url is None and credentials is None:
            data = self.config().paths(0).data
            return Admin(str(self._running("endpoints", "admin")), data)
        return admin_at(self.url or str(self._running("url")), credentials)

    def _running(self, *keys: str) -> Any:  # noqa: ANN401 - a value of JSON
        """What run/instance.json says under these keys. Raises: ZBrokerError not_found."""
        running = self.config().paths(0).running
        try:
            found = json.loads(running.read_text())
            for key in keys:
                found = found[key]
        except (FileNotFoundError, NotADirectoryError):
            reason = f"no instance runs on {running.parent.parent}"
            raise ZBrokerError("not_found", reason, "see --data-dir, -c and --url") from None
        except PermissionError:
            reason = f"{running} may be read by its owner only"
            raise ZBrokerError("forbidden", reason, "be that user, or give --url") from None
        except (KeyError, TypeError, ValueError):
            reason = f"{running} does not say where the admin is"
            raise ZBrokerError("not_found", reason, "it is starting: try again") from None
        return found


@dataclass(slots=True)
class Admin:
    """The admin of a running instance, at `base`.

    data: its data directory, as far as that is known: the files of its tokens are below it.
    log_on: gives a session token, if there are credentials; token: the newest one.
    """

    base: str
    data: Path | None = None
    log_on: Callable[[], str] | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)

    def ask(self, path: str, *, contents: bool = False) -> dict[str, Any]:
        """What it answers to GET `path`. Raises: ZBrokerError.

        contents: it tells what messages say, which needs the token that changing needs.
        """
        name = _WRITE_TOKEN if contents else _READ_TOKEN
        return self._with_token(lambda headers: get(self.base, path, headers), name)

    def tell(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What it answers to POST `path`, which changes something. Raises: ZBrokerError."""
        if self.log_on is None:
            return post(self.base, path, body, {_TOKEN_HEADER: self._file_token(_WRITE_TOKEN)})
        return self._with_token(lambda headers: post(self.base, path, body, headers), _READ_TOKEN)

    def _with_token(
        self, send: Callable[[dict[str, str]], dict[str, Any]], name: str
    ) -> dict[str, Any]:
        """Sends with the newest token, and once more with a newer one if it is not accepted.

        name: the file of the token, if there are no credentials.
        """
        try:
            return send(_bearer(self.token))
        except ZBrokerError as error:
            if error.code != "auth_failed":
                raise
            if self.log_on is not None:
                self.token = self.log_on()
            elif self.data is not None:
                self.token = self._file_token(name)
            else:
                hint = "give --data-dir on its host, or --key and --server-key"
                raise ZBrokerError(error.code, error.reason, hint) from None
        return send(_bearer(self.token))

    def _file_token(self, name: str) -> str:
        data = self.data or Path(str(self.ask("/status").get("data_dir", "")))
        path = data / "run" / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            reason = f"{path} is not there"
            raise ZBrokerError(
                "not_found", reason, "run this on the host of the instance"
            ) from None
        except PermissionError:
            reason = f"{path} may be read by its owner only"
            hint = "run this as the user of the instance, or give credentials"
            raise ZBrokerError("forbidden", reason, hint) from None


def get(
    base: str, path: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> dict[str, Any]:
    """GET on a loopback address, past any proxy. Raises: ZBrokerError."""
    return _answer(urllib.request.Request(base + path, headers=dict(headers or {})), timeout_s)


def post(base: str, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """POST of a JSON body, with the headers that say who asks. Raises: ZBrokerError."""
    said = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), said)
    return _answer(request, _PLAN_TIMEOUT_S)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _answer(request: urllib.request.Request, timeout_s: float) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(request, error) from None
    except (urllib.error.URLError, OSError) as error:
        reason = f"no answer at {request.host}: {getattr(error, 'reason', error)}"
        raise ZBrokerError("not_found", reason, "is the instance running on this host?") from None


def _refused(request: urllib.request.Request, error: urllib.error.HTTPError) -> ZBrokerError:
    """What the admin said, in its own words."""
    try:
        answer = json.loads(error.read() or b"{}")
    except ValueError:
        answer = {}
    code = "not_found" if error.code == 404 else str(answer.get("code", "internal"))
    if "reason" in answer:
        return ZBrokerError(code, str(answer["reason"]), str(answer.get("hint", "")))
    return ZBrokerError(code, f"{request.full_url}: {error.reason}")


LOGON_TIMEOUT_S: Final = 5.0
_KEYS: Final = "compare the broker's public key: zbroker-admin key show"


class AdminSession(NamedTuple):
    """Where the admin of the broker is, and what is shown to it."""

    admin: str
    token: str

    def __repr__(self) -> str:
        return f"Session(admin={self.admin!r})"


def admin_at(url: str, credentials: Credentials | None = None) -> Admin:
    """The admin of the instance at this ingest URL; with credentials a session's token is shown.

    Raises: as `log_on`.
    """
    session = log_on(url, credentials)
    if credentials is None:
        return Admin(session.admin)
    return Admin(session.admin, None, lambda: log_on(url, credentials).token, session.token)


def log_on(url: str, credentials: Credentials | None = None) -> AdminSession:
    """Logs on at the ingest listener `url`, and off again. Raises: ZBrokerError, ConfigError."""
    url = endpoints.ingest_url(url)
    if (error := link.impossible(url)) is not None:
        raise error
    curve = credentials.curve() if credentials else None
    context: link.Context = zmq.Context()
    try:
        connection = link.ClientLink(context, url, curve=curve)
        connection.send(_logon(credentials))
        answer = _broker_answer(connection, url)
        connection.send(m.Logoff())
        connection.close(sockets.LINGER_MS)
    finally:
        context.destroy(linger=sockets.LINGER_MS)
    return _session(answer, url)


def _logon(credentials: Credentials | None) -> m.Logon:
    name, instance = f"zbroker-admin-{secrets.token_hex(4)}", secrets.token_hex(8)
    given = credentials.given() if credentials is not None else None
    return m.Logon(client=name, instance=instance, cid="1", credentials=given)


def _broker_answer(connection: link.ClientLink, url: str) -> object:
    """What the broker says. Raises: ZBrokerError not_found, auth_failed."""
    deadline, closed = time.monotonic() + LOGON_TIMEOUT_S, False
    while (left_s := deadline - time.monotonic()) > 0:
        connection.wait(int(left_s * 1000) + 1)
        if (received := connection.receive()) is not None:
            return received[0]
        for event in connection.events():
            if isinstance(event, Rejected):
                raise ZBrokerError("auth_failed", f"{url}: {event.why}", event.hint)
            closed |= isinstance(event, Lost)  # it may be starting: ZeroMQ tries again
    if closed:
        raise ZBrokerError("auth_failed", f"{url} ends each connection at its handshake", _KEYS)
    why = link.probe(url)
    reason = f"no answer at {url}" + (f": {why}" if why else "")
    raise ZBrokerError("not_found", reason, "is the instance running?")


def _session(answer: object, url: str) -> AdminSession:
    if isinstance(answer, m.Error):
        raise ZBrokerError(answer.code, answer.reason, answer.hint)
    if isinstance(answer, m.Ack) and (admin := (answer.endpoints or {}).get("admin")):
        return AdminSession(admin, answer.token or "")
    raise ZBrokerError("not_found", f"{url} does not say where its admin is", "try again")
