"""Which instance `zbroker-admin` is about, where its files are, and how its admin is asked.

By `--url` the instance tells at logon where its admin is; by `-c` or `--data-dir` the file
run/instance.json of the running instance does. Reading asks nobody for anything; what changes
something shows the admin the token in <data>/run/admin.token, which only its owner can read.
"""

from __future__ import annotations

import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zbroker import config as settings
from zbroker import endpoints
from zbroker.config import Config
from zbroker.errors import ClientError, ZBrokerError
from zbroker.paths import Paths

_TIMEOUT_S: Final = 5.0
_PLAN_TIMEOUT_S: Final = 60.0  # a plan of what is done with a long log reads many headers
_TOKEN_HEADER: Final = "X-ZBroker-Token"


@dataclass(slots=True, frozen=True)
class Target:
    """The options of `zbroker-admin` that stand before the command."""

    url: str | None
    config_path: Path | None
    data_dir: str | None
    as_json: bool

    def config(self) -> Config:
        """The settings of the instance. Raises: ConfigError."""
        overrides = {"instance.data_dir": self.data_dir} if self.data_dir else {}
        return settings.load(self.config_path, overrides)

    def ask(self, path: str) -> dict[str, Any]:
        """What the admin answers to GET `path`. Raises: ZBrokerError."""
        return self.admin().ask(path)

    def admin(self) -> Admin:
        """The admin of the running instance. Raises: ZBrokerError not_found."""
        return Admin(self.admin_url())

    def paths(self) -> Paths:
        """Where this instance keeps what, on this host. Raises: ZBrokerError, ConfigError."""
        if not self.url:
            return self.config().paths(0)
        base = self.admin_url()
        status, journal = get(base, "/status"), get(base, "/journal")
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
            told = admin.ask("/status").get("data_dir")
        except ZBrokerError as error:
            if error.code != "not_found":
                raise
            return None
        # the port of an instance that was killed may be another one's by now
        mine = self.config().paths(0).data.resolve()
        return admin if not told or Path(str(told)).resolve() == mine else None

    def admin_url(self) -> str:
        """Where its admin listens. Raises: ZBrokerError not_found."""
        if self.url:
            return admin_url_of(self.url)
        running = self.config().paths(0).running
        try:
            return str(json.loads(running.read_text())["endpoints"]["admin"])
        except FileNotFoundError:
            reason = f"no instance runs on {running.parent.parent}"
            raise ZBrokerError("not_found", reason, "see --data-dir, -c and --url") from None
        except (KeyError, ValueError):
            reason = f"{running} does not say where the admin is"
            raise ZBrokerError("not_found", reason, "it is starting: try again") from None


@dataclass(slots=True, frozen=True)
class Admin:
    """The admin of a running instance, at `base`."""

    base: str

    def ask(self, path: str) -> dict[str, Any]:
        """What it answers to GET `path`. Raises: ZBrokerError."""
        return get(self.base, path)

    def tell(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What it answers to POST `path`, which changes something. Raises: ZBrokerError."""
        return post(self.base, path, body, self._token())

    def _token(self) -> str:
        data = Path(str(self.ask("/status").get("data_dir", "")))
        path = Paths(data, data, data, 0).admin_token
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            reason = f"{path} is not there"
            raise ZBrokerError(
                "not_found", reason, "run this on the host of the instance"
            ) from None
        except PermissionError:
            reason = f"{path} may be read by its owner only"
            raise ZBrokerError(
                "forbidden", reason, "run this as the user of the instance"
            ) from None


def get(base: str, path: str) -> dict[str, Any]:
    """GET on a loopback address, past any proxy. Raises: ZBrokerError."""
    return _answer(urllib.request.Request(base + path), _TIMEOUT_S)


def post(base: str, path: str, body: dict[str, Any], token: str) -> dict[str, Any]:
    """POST of a JSON body, with the token that changes need. Raises: ZBrokerError."""
    headers = {"Content-Type": "application/json", _TOKEN_HEADER: token}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    return _answer(request, _PLAN_TIMEOUT_S)


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
        reason = f"nobody answers at {request.host}: {getattr(error, 'reason', error)}"
        raise ZBrokerError("not_found", reason, "is the instance running on this host?") from None


def _refused(request: urllib.request.Request, error: urllib.error.HTTPError) -> ZBrokerError:
    """What the admin said, in its own words."""
    try:
        told = json.loads(error.read() or b"{}")
    except ValueError:
        told = {}
    code = "not_found" if error.code == 404 else str(told.get("code", "internal"))
    if "reason" in told:
        return ZBrokerError(code, str(told["reason"]), str(told.get("hint", "")))
    return ZBrokerError(code, f"{request.full_url}: {error.reason}")


def admin_url_of(url: str) -> str:
    """Where the instance with this ingest URL has its admin. Raises: ZBrokerError."""
    import zmq  # only this way of asking needs them

    from zbroker import sockets
    from zbroker.wire import codec
    from zbroker.wire import messages as m

    try:
        endpoints.split(url)
    except ClientError as error:
        raise ZBrokerError("bad_url", error.reason, "write tcp://127.0.0.1:9101") from None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = sockets.dealer(context, url)
        name = f"zbroker-admin-{secrets.token_hex(4)}"
        dealer.send(codec.encode(m.Logon(client=name, instance=secrets.token_hex(8), cid="1")))
        if not dealer.poll(int(_TIMEOUT_S * 1000)):
            raise ZBrokerError("not_found", f"nobody answers at {url}", "is the instance running?")
        frames = sockets.receive(dealer)
        answer = codec.decode(codec.ANSWERS, frames[0].buffer) if frames else None
        dealer.send(codec.encode(m.Logoff()))
    finally:
        context.destroy(linger=sockets.LINGER_MS)
    if isinstance(answer, m.Error):
        raise ZBrokerError(answer.code, answer.reason, answer.hint)
    told = (answer.endpoints or {}).get("admin") if isinstance(answer, m.Ack) else None
    if not told:
        raise ZBrokerError("not_found", f"{url} does not say where its admin is", "try again")
    return told
