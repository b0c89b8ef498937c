"""Which instance `zbroker-admin` is about, and how its admin is asked.

By `--url` the instance tells at logon where its admin is; by `-c` or `--data-dir` the file
run/instance.json of the running instance does.
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

_TIMEOUT_S: Final = 5.0


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
        return get(self._admin_url(), path)

    def _admin_url(self) -> str:
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


def get(base: str, path: str) -> dict[str, Any]:
    """GET on a loopback address, past any proxy. Raises: ZBrokerError."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(base + path, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        with error:
            told = json.loads(error.read() or b"{}")
        code = "not_found" if error.code == 404 else told.get("code", "internal")
        raise ZBrokerError(code, f"{base}{path}: {told.get('reason', error.reason)}") from None
    except (urllib.error.URLError, OSError) as error:
        reason = f"nobody answers at {base}: {getattr(error, 'reason', error)}"
        raise ZBrokerError("not_found", reason, "is the instance running on this host?") from None


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
