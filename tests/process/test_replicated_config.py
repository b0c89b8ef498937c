"""conf/replicated.toml is what three instances run with: with other addresses, keys and places."""

from __future__ import annotations

import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.process.instances import LISTENERS, WAIT_S
from tests.process.load import until
from zbroker import config
from zbroker.access import keys
from zbroker.client import Client, connect
from zbroker.client.connect_types import Credentials
from zbroker.free_ports import free_ports
from zbroker.local import LocalBroker

CONF: Final = Path(__file__).parents[2] / "conf"
EXAMPLE: Final = CONF / "replicated.toml"
ACCESS: Final = CONF / "replicated.access.toml"
NAMES: Final = ("a", "b", "c")
COUNT: Final = 200


def test_the_example_is_valid_as_it_is() -> None:
    found = config.load(EXAMPLE)
    assert [one.name for one in found.destination] == ["b", "c"]
    assert found.replication.sync_needed == 1


@pytest.mark.process
@pytest.mark.timeout(300)
def test_three_instances_run_with_the_example(tmp_path: Path) -> None:
    pairs = {name: keys.make(tmp_path / name) for name in (*NAMES, "pricer")}
    text = ACCESS.read_text()
    rules = tomllib.loads(text)
    for name, principal in rules["principal"].items():
        text = text.replace(principal["keys"][0], pairs[name].public)
    access = tmp_path / "access.toml"
    access.write_text(text)
    ports = {name: dict(zip(LISTENERS, free_ports(5), strict=True)) for name in NAMES}

    def settings(name: str) -> dict[str, Any]:
        found: dict[str, Any] = tomllib.loads(EXAMPLE.read_text())
        assert found["instance"]["name"] == "a"
        found["instance"] = {"name": name}
        found["listen"] = {
            each: f"{'http' if each == 'admin' else 'tcp'}://127.0.0.1:{port}"
            for each, port in ports[name].items()
        }
        found["security"] = {"key": str(tmp_path / f"{name}.key_secret"), "access": str(access)}
        others = [other for other in NAMES if other != name]
        for table, other in zip(found["destination"], others, strict=True):
            table["name"], table["server_key"] = other, pairs[other].public
            table["to"] = [f"tcp://127.0.0.1:{ports[other]['replication']}"]
        return found

    def credentials(name: str) -> Credentials:
        return Credentials(key=tmp_path / "pricer.key_secret", server=pairs[name].public)

    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(
                LocalBroker(tmp_path / "data" / name, settings=settings(name))
            )
            for name in NAMES
        }
        with connect(brokers["a"].url, "pricer", credentials=credentials("a")) as client:
            client.publish_many("prices.eu", [b"%d" % n for n in range(COUNT)])
            client.flush(timeout=WAIT_S)
        for name in NAMES[1:]:
            with connect(brokers[name].url, "pricer", credentials=credentials(name)) as client:
                until(lambda client=client: held(client) == COUNT, f"all at {name}", WAIT_S)
        until(lambda: up(brokers["a"]) == 2, "both links", WAIT_S)


def held(client: Client) -> int:
    """How many messages its instance has."""
    return len(list(client.subscribe("prices.eu", since="epoch", until="now")))


def up(broker: LocalBroker) -> int:
    """How many destinations have a session."""
    return int(broker.status()["replication"]["up"] or 0)
