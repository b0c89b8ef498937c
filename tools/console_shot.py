"""Makes docs/images/console.png: the console of an instance that lived for a minute or two.

    python -m tools.console_shot docs/images/console.png [--seconds 90]

Three publishers whose rates rise and fall, small segments that are packed and archived soon, and
subscribers of each kind: one that keeps up, one that is paced, one that does not read. Needs
chromium and chromedriver on the path, and selenium. What is written: a PNG of about 250 KB.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import zbroker
from tools.chromium import chromium

WIDTH: Final = 1280
HEIGHT: Final = 1700
LOOK_S: Final = 7.0  # so that each section was reported twice
STEP_S: Final = 0.25
WAVE_S: Final = 40.0  # from one peak of a publisher to the next
REGIONS: Final = ("EU", "US", "APAC")
SETTINGS: Final = {
    "instance": {"name": "emea-1"},
    "journal": {"segment_size": "4MiB"},
    "retention": {"every": "2s", "compress_after": "20s", "archive_after": "45s"},
}


class Feed(NamedTuple):
    """A publisher: messages per second on average, and how far its wave is ahead (radians)."""

    client: str
    topics: tuple[str, ...]
    rate: int
    ahead: float


FEEDS: Final = (
    Feed("pricer", ("quotes.fx", "quotes.rates"), 4_000, 0.0),
    Feed("order-gateway", ("orders.eu", "orders.us", "orders.apac"), 1_500, 2.0),
    Feed("matching", ("trades",), 600, 4.0),
)


def main() -> int:
    """Starts the instance, lets it live, takes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0)
    given = parser.parse_args()
    with zbroker.LocalBroker(settings=SETTINGS) as broker, ExitStack() as stack:
        url = broker.status()["endpoints"]["admin"]
        publishers = [stack.enter_context(zbroker.connect(broker.url, f.client)) for f in FEEDS]
        subscriptions = subscribe(stack, broker.url)
        ended = threading.Event()
        thread = threading.Thread(target=publish, args=(publishers, ended))
        thread.start()
        try:
            time.sleep(given.seconds)
            shoot(url, given.file)
        finally:
            ended.set()
            thread.join()
            for subscription in subscriptions:
                subscription.close()
    return 0


def publish(publishers: list[Any], ended: threading.Event) -> None:
    """Until `ended`, each feed at its own pace."""
    chance = random.Random(1)
    begun = time.monotonic()
    while not ended.wait(STEP_S):
        for feed, client in zip(FEEDS, publishers, strict=True):
            turn = (time.monotonic() - begun) / WAVE_S * math.tau + feed.ahead
            count = int(feed.rate * STEP_S * (1 + 0.5 * math.sin(turn) + 0.1 * chance.random()))
            for topic in feed.topics:
                part = count // len(feed.topics)
                client.publish_many(topic, [message(chance) for _ in range(part)])


def message(chance: random.Random) -> bytes:
    """Some 90 bytes of JSON."""
    region, price = chance.choice(REGIONS), chance.randrange(10_000, 99_999)
    return b'{"region":"%s","price":%d,"quantity":%d,"account":"A-%06d","venue":"XLON"}' % (
        region.encode(), price, chance.randrange(1, 500), chance.randrange(1_000_000)
    )  # fmt: skip


def subscribe(stack: ExitStack, url: str) -> list[Any]:
    """One that keeps up, one behind a filter, one at a pace, one that does not read."""
    client = {
        name: stack.enter_context(zbroker.connect(url, name))
        for name in ("risk", "surveillance", "reporting", "blotter")
    }
    large = "/region = 'EU' AND /quantity > 400"
    orders = r"orders\..*"
    return [
        client["risk"].subscribe("trades", handler=ignore),
        client["surveillance"].subscribe(orders, regex=True, filter=large, handler=ignore),
        client["reporting"].subscribe("orders.us", since="epoch", rate=300, handler=ignore),
        client["blotter"].subscribe("orders.eu", since="epoch", credit=100_000),
    ]


def ignore(_: object) -> None:
    """What most of them do with a message."""


def shoot(url: str, file: Path) -> None:
    """Takes the picture. Raises: WebDriverException."""
    with chromium("--hide-scrollbars") as driver:
        metrics = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(url)
        time.sleep(LOOK_S)
        driver.save_screenshot(str(file))


if __name__ == "__main__":
    sys.exit(main())
