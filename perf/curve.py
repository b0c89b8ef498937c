"""What encryption and rights cost: the same publishing and replay with security on and off.

On: CURVE on every connection, and a role with a pattern, so that topics are looked up. One more
line is a reader who may not see all of each batch: its bodies are packed again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import zbroker
from perf.harness import Cpu, Result, Setup, payloads
from perf.reading import read
from zbroker.access import keys
from zbroker.client.connect_types import Credentials

LIMIT: Final = "the same without security"
FLUSH_S: Final = 120.0
ONE_BY_ONE: Final = 1_000
MIXED: Final = 4  # topics of a batch, of which the last reader may see all but one

RULES: Final = """
[principal.perf]
keys = ["{perf}"]
roles = ["all"]
[principal.some]
keys = ["{some}"]
roles = ["some"]
[[role.all.allow]]
actions = ["publish", "subscribe", "replay"]
topics = ["perf*"]
[[role.some.allow]]
actions = ["replay"]
[[role.some.deny]]
actions = ["replay"]
topics = ["perf-0"]
"""


class Place:
    """A broker, with who may use it: a client has to show nothing where security is off."""

    def __init__(self, setup: Setup, broker: zbroker.LocalBroker, *, secure: bool) -> None:
        self.broker = broker
        server = setup.directory / "server.key"
        self._of = {
            name: Credentials(setup.directory / f"{name}.key_secret", server) if secure else None
            for name in ("perf", "some")
        }

    def connect(self, who: str = "perf", name: str = "") -> zbroker.client.Client:
        """A client of one of them."""
        return zbroker.connect(self.broker.url, name or who, credentials=self._of[who])


@contextmanager
def places(setup: Setup) -> Iterator[dict[str, Place]]:
    """The same broker twice."""
    security = _rules(setup.directory)
    with setup.broker() as plain, setup.broker({"security": security}) as secured:
        yield {
            "off": Place(setup, plain, secure=False), "on": Place(setup, secured, secure=True),
        }  # fmt: skip


def _rules(directory: Path) -> dict[str, str | int | bool]:
    keys.make(directory / "server")
    public = {name: keys.make(directory / name).public for name in ("perf", "some")}
    (directory / "access.toml").write_text(RULES.format(**public))
    return {
        "key": str(directory / "server.key_secret"), "access": str(directory / "access.toml"),
    }  # fmt: skip


def cost(setup: Setup) -> list[Result]:
    """Publishing one by one and in lists, one at a time, replays."""
    bodies = payloads(setup.messages)
    ours: dict[str, dict[str, list[float]]] = {}
    cpu: dict[str, float] = {}
    with places(setup) as both:
        for _ in setup.each_round("curve"):
            for security, place in both.items():
                for what, value in _round(place, bodies, cpu if security == "on" else {}):
                    ours.setdefault(what, {}).setdefault(security, []).append(value)
    return [_result(what, values, cpu) for what, values in ours.items()]


def _result(what: str, values: dict[str, list[float]], cpu: dict[str, float]) -> Result:
    slow = what.endswith("p50")
    notes = {"cpu_us_per_message": cpu[what]} if what in cpu else {}
    return Result(
        f"{what}, CURVE", "us" if slow else "messages/s", values["on"], values["off"], LIMIT, "",
        lower_is_better=slow, notes=notes,
    )  # fmt: skip


def _round(place: Place, bodies: list[bytes], cpu: dict[str, float]) -> Iterator[tuple[str, float]]:
    with place.connect() as client:
        begun, used = time.perf_counter(), Cpu(place.broker)
        for body in bodies:
            client.publish("perf", body)
        client.flush(FLUSH_S)
        yield "publish()", len(bodies) / (time.perf_counter() - begun)
        cpu["publish()"] = sum(used.per_message_us(len(bodies)).values())
        start, begun = _end(client), time.perf_counter()
        client.publish_many("perf", bodies)
        client.flush(FLUSH_S)
        yield "publish_many()", len(bodies) / (time.perf_counter() - begun)
        yield "publish, one at a time, p50", _p50(client, bodies[0])
        yield "replay", _replay(place, "perf", start, "perf", len(bodies))
        start = _end(client)
        for n, body in enumerate(bodies[: len(bodies) // 4]):
            client.publish(f"perf-{n % MIXED}", body)
        client.flush(FLUSH_S)
        count = len(bodies) // 4 * (MIXED - 1) // MIXED
        yield "replay of a part of each batch", _replay(place, "some", start, "perf-[1-9]", count)


def _end(client: zbroker.client.Client) -> str:
    """A point after all that was published."""
    return client.publish("perf", b"end of a step").wait(FLUSH_S)


def _p50(client: zbroker.client.Client, body: bytes) -> float:
    taken = []
    for _ in range(ONE_BY_ONE):
        begun = time.perf_counter()
        client.publish("perf", body).wait(FLUSH_S)
        taken.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(taken)


def _replay(place: Place, who: str, since: str, topic: str, count: int) -> float:
    with place.connect(who, f"{who}-reader") as client:
        begun = time.perf_counter()
        with client.subscribe(topic, regex="[" in topic, since=since) as subscription:
            read(subscription, count)
        return count / (time.perf_counter() - begun)
