"""Floods against a real instance: what strangers can cost, and that an honest client goes on.

Each flood grows the memory of the listener's process by no more than the page says
(docs/explanation/limits-before-authentication.md). How long publishing takes beside it is printed.
"""

from __future__ import annotations

import json
import resource
import socket as tcp
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgpack
import psutil
import pytest
import zmq

from tests.process.floods import (
    COMMAND,
    LISTEN_V6,
    MORE,
    Keyed,
    Stranger,
    announced,
    crowd,
    frame,
    greeting,
    ready,
)
from tests.process.load import until
from tests.process.secured import ROOT, Secured
from zbroker.access import keys
from zbroker.client import Client, connect
from zbroker.client.connect_types import Credentials
from zbroker.control.target import get
from zbroker.limits import KIB, MIB
from zbroker.local import LocalBroker
from zbroker.server.listener.guard import WAITING_MAX_BYTES

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

WAIT_S: Final = 60.0
SAMPLE_S: Final = 0.01
BASE_S: Final = 2.0
WINDOW_BYTES: Final = 1 * MIB
MESSAGE_BYTES: Final = 1 * MIB
READY_BYTES: Final = 43  # of a ROUTER without keys
#: maps in maps, deeper than any stack
NESTED: Final = b"\x81\xa1a" * 20_000 + b"\xc0"

ACCESS: Final = """\
[principal.honest]
keys = ["{honest}"]
roles = ["all"]
[[role.all.allow]]
actions = ["*"]
"""


class Place(NamedTuple):
    """An instance, and what an honest client needs for it."""

    broker: LocalBroker
    credentials: Credentials | None
    server_key: bytes | None

    def connect(self, name: str) -> Client:
        return connect(self.broker.url, name, credentials=self.credentials)

    def pids(self) -> dict[str, int]:
        """Who asks for a status shows a token where security is on."""
        run = self.broker.data_dir / "run"
        admin = json.loads((run / "instance.json").read_text())["endpoints"]["admin"]
        token = (run / "admin-read.token").read_text().strip()
        reported = get(admin, "/status", {"Authorization": f"Bearer {token}"})["processes"]
        return {one["room"]: one["pid"] for one in reported}


@pytest.fixture(scope="module", autouse=True)
def descriptors() -> Iterator[None]:
    """As many as the kernel grants, for us and for the instance, which inherits them."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def open_place(descriptors: None) -> Iterator[Place]:
    limits = {"window_bytes": WINDOW_BYTES, "message_bytes": MESSAGE_BYTES}
    with LocalBroker(settings={"limits": limits}) as broker:
        yield from lives(Place(broker, None, None))


@pytest.fixture
def place_of_ipv6(descriptors: None) -> Iterator[Place]:
    with LocalBroker(settings={"listen": LISTEN_V6}) as broker:
        yield from lives(Place(broker, None, None))


@pytest.fixture
def secure_place(tmp_path: Path, descriptors: None) -> Iterator[Place]:
    directory = tmp_path / "keys"
    directory.mkdir()
    server, honest = (keys.make(directory / name) for name in ("server", "honest"))
    access = directory / "access.toml"
    access.write_text(ACCESS.format(honest=honest.public))
    security = {"key": str(directory / "server.key_secret"), "access": str(access)}
    credentials = Credentials(directory / "honest.key_secret", server.public)
    with LocalBroker(settings={"security": security}) as broker:
        yield from lives(Place(broker, credentials, server.public.encode()))


def lives(place: Place) -> Iterator[Place]:
    before = place.pids()
    yield place
    assert place.pids() == before, "a process died"


class Honest:
    """Publishes one message after the other, and notes how long each took to be persisted."""

    def __init__(self, place: Place) -> None:
        self._client = place.connect("honest")
        self.took_s: list[float] = []
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        self._client.close()
        if self._error is not None:
            raise self._error

    def goes_on(self) -> None:
        """Waits for some more that are persisted."""
        wanted = len(self.took_s) + 20
        end = time.monotonic() + WAIT_S
        while len(self.took_s) < wanted:
            assert self._error is None, self._error
            assert time.monotonic() < end, "an honest client is not served"
            time.sleep(SAMPLE_S)

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.001):
                begun = time.perf_counter()
                self._client.publish("honest", b"x" * 100, timeout=WAIT_S)
                self._client.flush(WAIT_S)
                self.took_s.append(time.perf_counter() - begun)
        except BaseException as error:
            self._error = error


class Memory:
    """The most that a process had while it was watched."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.before = self.most = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)

    @property
    def growth(self) -> int:
        return self.most - self.before

    def _run(self) -> None:
        with suppress(psutil.NoSuchProcess):  # then the test says that a process died
            while not self._stop.wait(SAMPLE_S):
                self.most = max(self.most, self._process.memory_info().rss)


def p99_ms(took_s: list[float]) -> float:
    return sorted(took_s)[len(took_s) * 99 // 100] * 1_000


def endure(place: Place, what: str, flood: Callable[[str], None], growth_max: int) -> None:
    """Runs a flood beside an honest client."""
    pid = place.pids()["ingest"]
    with Honest(place) as honest:
        time.sleep(BASE_S)
        honest.goes_on()
        base, honest.took_s = honest.took_s, []
        with Memory(pid) as memory:
            begun = time.monotonic()
            flood(place.broker.url)
            honest.goes_on()
        took_s = time.monotonic() - begun
        during = honest.took_s
    sys.stdout.write(
        f"\n{what}: {took_s:.1f} s, +{memory.growth / MIB:.1f} MiB; p99 {p99_ms(base):.1f} ms "
        f"before, {p99_ms(during):.1f} ms ({max(during) * 1_000:.0f} at most) beside it\n"
    )
    assert place.pids()["ingest"] == pid, "it lives"
    assert memory.growth < growth_max


# -- before the handshake -------------------------------------------------------------------------


def silent(url: str) -> None:
    """5,000 that only connect; each is cut within the handshake's two seconds."""
    with crowd(url, 5_000) as strangers:
        until_cut(strangers)


def until_cut(strangers: list[Stranger]) -> None:
    end = time.monotonic() + WAIT_S
    left = strangers
    while left:
        assert time.monotonic() < end, f"{len(left)} of {len(strangers)} are still connected"
        left = [each for each in left if not each.is_cut()]
        time.sleep(SAMPLE_S)


def garbage(url: str) -> None:
    """2,000 that speak something else, of several kinds."""
    said = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" + bytes(512), b"\xff" * 200,
            bytes(200), greeting(b"PLAIN") + bytes(50), greeting() + b"\x04\xff" * 100,
            greeting(b"CURVE") + frame(b"\x05HELLO" + bytes(194), COMMAND)]  # fmt: skip
    for at in range(2):
        with crowd(url, 1_000) as strangers:
            for number, each in enumerate(strangers):
                each.say(said[(at + number) % len(said)])
            until_cut(strangers)


def drip(url: str) -> None:
    """500 that say a byte at a time: each is always about to go on."""
    said = greeting() + ready()
    with crowd(url, 500) as strangers:
        left = strangers
        for at in range(len(said)):
            left = [each for each in left if each.say(said[at : at + 1])]
            time.sleep(0.05)
        until_cut(strangers)


def announce(url: str) -> None:
    """500 that announce frames and commands up to 2**63 - 1 bytes, and send some of it."""
    sizes = [(1 << 63) - 1, 1 << 62, 1 << 40, (1 << 32) + 1, 1 << 31, 64 * MIB, 16 * MIB, 900 * KIB]
    with crowd(url, 500) as strangers:
        for number, each in enumerate(strangers):
            flags = COMMAND if number % 2 else 0
            opening = greeting() + (ready() if number % 3 else b"")
            each.say(opening + announced(sizes[number % len(sizes)], flags) + bytes(512))
        until_cut(strangers)


@pytest.mark.long
@pytest.mark.parametrize("flood", [silent, garbage, drip, announce])
def test_strangers_before_a_handshake_cost_little(
    open_place: Place, flood: Callable[[str], None]
) -> None:
    endure(open_place, flood.__name__, flood, 64 * MIB)


@pytest.mark.long
@pytest.mark.parametrize("flood", [silent, garbage, drip, announce])
def test_strangers_from_ipv6_cost_little(
    place_of_ipv6: Place, flood: Callable[[str], None]
) -> None:
    endure(place_of_ipv6, f"{flood.__name__}, IPv6", flood, 64 * MIB)


@pytest.mark.long
@pytest.mark.parametrize("flood", [silent, garbage, drip, announce])
def test_strangers_before_a_curve_handshake_cost_little(
    secure_place: Place, flood: Callable[[str], None]
) -> None:
    endure(secure_place, f"{flood.__name__}, CURVE", flood, 64 * MIB)


@pytest.mark.long
def test_a_thousand_unknown_keys_cost_little(secure_place: Place) -> None:
    server_key = secure_place.server_key
    assert server_key is not None
    with zmq.Context() as context:

        def knock(url: str) -> None:
            for _ in range(10):
                knocks = [knocker(context, url, server_key) for _ in range(100)]
                for dealer, reported in knocks:
                    assert reported.poll(WAIT_S * 1_000), "it was not refused in time"
                    dealer.disable_monitor()
                    reported.close(0)
                    dealer.close(0)

        endure(secure_place, "unknown keys", knock, 64 * MIB)


def knocker(
    context: zmq.Context[zmq.Socket[bytes]], url: str, server_key: bytes
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A client with a key that no one knows, and who tells that it was refused."""
    made = context.socket(zmq.DEALER)
    public, secret = zmq.curve_keypair()
    made.setsockopt(zmq.CURVE_PUBLICKEY, public)
    made.setsockopt(zmq.CURVE_SECRETKEY, secret)
    made.setsockopt(zmq.CURVE_SERVERKEY, server_key)
    reported = made.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    made.connect(url)
    return made, reported


# -- before the logon -----------------------------------------------------------------------------


def million_frames(url: str) -> None:
    """20 that send a million frames of one message, or as many as they can."""
    part = frame(b"x", MORE) * 10_000
    with crowd(url, 20) as strangers:
        for each in strangers:
            each.shake()
        left = strangers
        for _ in range(100):
            left = [each for each in left if each.say(part)]
        for each in left:
            each.say(frame(b""))
        until_cut(strangers)


def nested(url: str) -> None:
    """500 whose header is maps in maps in maps."""
    with crowd(url, 500) as strangers:
        for each in strangers:
            each.shake()
            for _ in range(3):
                each.say(frame(NESTED) + frame(b"\x91" * 60_000) + frame(b"\xdd\xff\xff\xff\xff"))
        until_cut(strangers)


def big_bodies(url: str) -> None:
    """200 that send a body of a megabyte without a logon, again and again."""
    body = msgpack.packb({"cmd": "publish", "seq": 1, "topic": "t"})
    part = frame(body, MORE) + frame(bytes(MESSAGE_BYTES))
    with crowd(url, 200) as strangers:
        left = [each for each in strangers if each.shake()]
        while left:
            left = [each for each in left if each.say(part)]


@pytest.mark.long
@pytest.mark.parametrize("flood", [million_frames, nested, big_bodies])
def test_strangers_before_a_logon_cost_no_more_than_is_documented(
    open_place: Place, flood: Callable[[str], None]
) -> None:
    endure(open_place, flood.__name__, flood, 384 * MIB)


# -- after it -------------------------------------------------------------------------------------


def logged_on(url: str, name: str) -> Stranger:
    """A raw connection with a session."""
    stranger = Stranger(url)
    assert stranger.shake()
    logon = {"cmd": "logon", "client": name, "instance": "1", "cid": "1"}
    assert stranger.say(frame(msgpack.packb(logon)))
    assert stranger.hears(READY_BYTES + 20)  # and the beginning of an answer
    return stranger


def endless(url: str) -> None:
    """Sends one message that does not end, until it is cut."""
    stranger = logged_on(url, "endless")
    part = frame(bytes(64 * KIB), MORE)
    sent = 0
    while stranger.say(part):
        sent += len(part)
        assert sent < 1 << 30, "it is read for ever"
    stranger.close()
    assert sent > WAITING_MAX_BYTES, "it was logged on"


def pushy(url: str) -> None:
    """Sends 512 MiB, sees no ack and keeps to no window. It is read, refused or cut."""
    stranger = logged_on(url, "pushy")
    for seq in range(1, 8 * 1_024):
        header = msgpack.packb({"cmd": "publish", "seq": seq, "topic": "t"})
        if not stranger.say(frame(header, MORE) + frame(bytes(64 * KIB))):
            break
    stranger.close()


def babbling(url: str) -> None:
    """Sends 96 MiB of messages of one byte, faster than they can be read."""
    stranger = logged_on(url, "babbling")
    part = frame(b"x") * 100_000
    for _ in range(320):
        if not stranger.say(part):
            break
    stranger.close()


@pytest.mark.long
@pytest.mark.parametrize(("flood", "mib"), [(endless, 256), (pushy, 256), (babbling, 512)])
def test_a_client_that_says_more_than_is_read_costs_no_more_than_is_documented(
    open_place: Place, flood: Callable[[str], None], mib: int
) -> None:
    endure(open_place, flood.__name__, flood, mib * MIB)


# -- with a valid key -----------------------------------------------------------------------------

KEYED: Final = """
[[role.eve.allow]]
actions = ["publish", "subscribe", "replay", "consume"]
topics = ["open", "work"]
"""
LONG_FILTER: Final = " OR ".join(f"/field{n} = {n}" for n in range(200))  # 45 ms of the budget
FEW_COMMANDS, MANY_COMMANDS = 200, 5_000
HARMLESS: Final[dict[str, dict[str, Any]]] = {
    "delivery": {"cmd": "ranges", "topic": "open"},
    "queues": {"cmd": "browse", "queue": "work"},
}


@pytest.fixture
def keyed(tmp_path: Path, descriptors: None) -> Iterator[Secured]:
    settings: dict[str, Any] = {
        "queue": [{"name": "work", "topic": "open"}],
        "limits": {"compile_ms_per_principal": 50},  # so that a slow machine comes to it, too
    }
    with Secured(tmp_path / "keyed", {"eve": ["eve"]}, KEYED, **settings) as secured:
        for _ in lives(Place(secured.broker, None, None)):
            yield secured


def dear(n: int) -> str:
    return f"{LONG_FILTER} OR /n = {n}"


def subscribing(n: int, _token: str) -> dict[str, Any]:
    """Filters that are dear to compile, each another one."""
    return {"cmd": "subscribe", "sid": f"s{n}", "topic": "open", "filter": dear(n)}


def replacing(n: int, _token: str) -> dict[str, Any]:
    """The same in one subscription, so that no limit of their number is met."""
    if n == 0:
        return {"cmd": "subscribe", "sid": "s", "topic": "open"}
    return {"cmd": "replace", "sid": "s", "filter": dear(n)}


def browsing(n: int, _token: str) -> dict[str, Any]:
    return {"cmd": "browse", "queue": "work", "filter": dear(n)}


def consuming(n: int, _token: str) -> dict[str, Any]:
    return {"cmd": "consume", "sid": f"s{n}", "queue": "work", "filter": dear(n)}


def logging_on(_n: int, token: str) -> dict[str, Any]:
    """The session of the same connection begins again and again."""
    return {"cmd": "logon", "token": token}


def strange_tokens(n: int, token: str) -> dict[str, Any]:
    return {"cmd": "logon", "token": f"{token[:-8]}{n:08d}"}


@pytest.mark.parametrize("count", [
    FEW_COMMANDS, pytest.param(MANY_COMMANDS, marks=pytest.mark.long),
])  # fmt: skip
@pytest.mark.parametrize(("listener", "command", "code"), [
    ("delivery", subscribing, "too_many"),
    ("delivery", replacing, "too_many"),
    ("delivery", logging_on, ""),
    ("delivery", strange_tokens, "auth_failed"),
    ("queues", browsing, "too_many"),
    ("queues", consuming, "too_many"),
    ("queues", logging_on, ""),
    ("queues", strange_tokens, "auth_failed"),
])  # fmt: skip
def test_a_flood_with_a_valid_key_leaves_others_served(
    keyed: Secured,
    listener: str,
    command: Callable[[int, str], dict[str, Any]],
    code: str,
    count: int,
) -> None:
    pids = Place(keyed.broker, None, None).pids()
    with keyed.connect() as root:
        root.publish("open", b'{"n": 1}').wait(WAIT_S)
    with Keyed(keyed, ROOT, listener) as honest, Keyed(keyed, "eve", listener) as eve:

        def served() -> None:
            assert honest.flood([HARMLESS[listener]]) == {"": 1}

        until(lambda: honest.flood([HARMLESS[listener]]) == {"": 1}, "it is ready", WAIT_S)
        with Memory(pids[listener]) as memory:
            commands = (command(n, eve.token) for n in range(count))
            codes = eve.flood(commands, served)
    sys.stdout.write(f"\n{command.__name__}: +{memory.growth / MIB:.1f} MiB, {dict(codes)}\n")
    assert codes[code] >= count // 4, "it comes to the bound, and not against something else"
    assert memory.growth < 128 * MIB


# -- few descriptors

FEW: Final = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from zbroker.local import LocalBroker
with LocalBroker() as broker:
    for _ in sys.stdin:
        print(json.dumps([broker.status()["endpoints"], broker.pids]), flush=True)
"""


def test_a_burst_where_descriptors_are_few_ends_no_process(descriptors: None) -> None:
    """Each process has 256. Without a bound of its own libzmq would take them all in one burst."""
    command = [sys.executable, "-c", FEW]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as instance:
        assert instance.stdin is not None
        assert instance.stdout is not None
        try:
            instance.stdin.write(b"\n")
            instance.stdin.flush()
            endpoints, before = json.loads(instance.stdout.readline())
            with ExitStack() as stack:
                for door in ("ingest", "delivery", "queues"):
                    for _ in range(600):
                        one = stack.enter_context(tcp.socket())
                        one.setblocking(False)
                        one.connect_ex(("127.0.0.1", int(endpoints[door].rpartition(":")[2])))
                with connect(endpoints["ingest"], "honest", timeout=WAIT_S) as client:
                    client.publish("t", b"in the crowd").wait(WAIT_S)
                    assert client.subscribe("t", since="epoch").next(WAIT_S) is not None
                instance.stdin.write(b"\n")
                instance.stdin.flush()
                assert json.loads(instance.stdout.readline())[1] == before, "a process died"
        finally:
            instance.stdin.close()
            instance.wait(WAIT_S)
