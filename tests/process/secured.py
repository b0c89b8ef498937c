"""A broker with security on, people with keys, and rules that a test may change."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from zbroker.access import keys
from zbroker.client import connect
from zbroker.client.connect_types import Credentials
from zbroker.client.sync import Client
from zbroker.local import LocalBroker

ROOT = "root"
EVERYTHING = '[[role.everything.allow]]\nactions = ["*"]\n'


def token_of(client: Client) -> str:
    """What shows other listeners, and the admin, who this is."""
    session = client._publisher.session
    assert session is not None
    return session.answer.token or ""


class Secured:
    """An instance whose principals are `people` (name -> roles) and "root", who may do all."""

    def __init__(
        self, place: Path, people: dict[str, list[str]], roles: str, **settings: Any
    ) -> None:
        self.place = place
        place.mkdir(exist_ok=True)
        self.server = keys.make(place / "server")
        self.people = {**people, ROOT: ["everything"]}
        self.pairs = {name: keys.make(place / name) for name in self.people}
        self.access = place / "access.toml"
        self.write(self.rules(roles))
        security = {"key": str(place / "server.key_secret"), "access": str(self.access)}
        self.broker = LocalBroker(place / "data", settings={"security": security, **settings})
        self.url = self.broker.url

    def rules(self, roles: str, people: dict[str, list[str]] | None = None) -> str:
        """An access file."""
        tables = []
        for name, roles_of in (self.people if people is None else people).items():
            key = json.dumps(self.pairs[name].public)
            named = (
                f"[principal.{json.dumps(name)}]\nkeys = [{key}]\nroles = {json.dumps(roles_of)}"
            )
            tables.append(named)
        return "\n".join([*tables, roles, EVERYTHING])

    def write(self, text: str) -> None:
        """Puts other rules in the place of the old ones, as an editor does."""
        new = self.access.with_suffix(".new")
        new.write_text(text)
        new.replace(self.access)

    def credentials(self, name: str) -> Credentials:
        """Of one of the people."""
        return Credentials(self.place / f"{name}.key_secret", self.server.public)

    def connect(self, who: str = ROOT, name: str | None = None, **more: Any) -> Client:
        """A client of one of the people, under his own name."""
        return connect(self.url, name or who, credentials=self.credentials(who), **more)

    def endpoints(self) -> dict[str, str]:
        """Where each listener is."""
        found = json.loads((self.broker.data_dir / "run" / "instance.json").read_text())
        return dict(found["endpoints"])

    def http(
        self, path: str, token: str = "", body: dict[str, Any] | None = None
    ) -> tuple[int, Any]:
        """One request to the admin: GET, with a body POST."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoints()["admin"] + path, data, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def refused_keys(self) -> int:
        """How many handshakes ingest refused, as it reported last."""
        return int(self.broker.status()["ingest"]["refused_keys"])

    def close(self) -> None:
        self.broker.close()

    def __enter__(self) -> Secured:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
