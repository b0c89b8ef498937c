"""What happens to hosts and instances in a round; drawn by a seed.

Each fault is (begin, end) in one: `strike` does it, waits, and undoes what is not undone by healing
the network. At most one of a round takes a disk.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.process.load import until
from tests.torture.network import HERE, Network
from tests.torture.replicated_host import HostedPeer

WAIT_S: Final = 60.0
PROCESSES: Final = ("journal", "replication", "ingest", "delivery", "supervisor", "zygote")
REFUSAL: Final = "same instance id"


class Scene(NamedTuple):
    """What a fault acts on. mode: sync or async."""

    network: Network
    peers: Sequence[HostedPeer]
    rng: random.Random
    log: Callable[[str], None]
    scale: float  # of all waits

    def pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.rng.uniform(least_s, most_s) * self.scale)

    def others(self, peer: HostedPeer) -> list[HostedPeer]:
        return [one for one in self.peers if one is not peer]


Fault = Callable[[Scene, HostedPeer], None]


def cut_two_ways(scene: Scene, peer: HostedPeer) -> None:
    """From all others, as if the cable was pulled or a switch dropped everything."""
    if scene.rng.random() < 0.5:
        scene.network.pull(peer.name)
    else:
        scene.network.cut_off(peer.name)
    scene.pause(1, 6)


def cut_one_way(scene: Scene, peer: HostedPeer) -> None:
    """It hears, and is not heard; or the other way round."""
    sends = scene.rng.random() < 0.5
    scene.log(f"{peer.name} is not {'heard' if sends else 'reached'}")
    scene.network.cut_off(peer.name, sends=sends, receives=not sends)
    scene.pause(1, 6)


def cut_a_pair(scene: Scene, peer: HostedPeer) -> None:
    """Between two hosts only, in one direction or both."""
    other = scene.rng.choice(scene.others(peer))
    both = scene.rng.random() < 0.5
    scene.log(f"{peer.name} -> {other.name}{' and back' if both else ''}")
    scene.network.cut(peer.name, other.name)
    if both:
        scene.network.cut(other.name, peer.name)
    scene.pause(1, 8)


def cut_from_clients(scene: Scene, peer: HostedPeer) -> None:
    """Its clients go on elsewhere, its links do not notice."""
    scene.network.cut(HERE, peer.name)
    scene.network.cut(peer.name, HERE)
    scene.pause(2, 6)


def kill_process(scene: Scene, peer: HostedPeer, processes: Sequence[str] = PROCESSES[:4]) -> None:
    """One or several, one after the other."""
    for _ in range(scene.rng.randint(1, 3)):
        name = scene.rng.choice(processes)
        scene.log(f"{peer.name}: {name} is killed")
        peer.kill_process(name)
        scene.pause(0, 1)


def kill_instance(scene: Scene, peer: HostedPeer) -> None:
    """All of it; it comes back after a while."""
    peer.kill()
    scene.pause(0, 5)
    peer.start()


def reboot_instance(scene: Scene, peer: HostedPeer) -> None:
    """As kill_instance, and the notes in memory are gone: it begins a new generation."""
    peer.kill()
    peer.forget_memory()
    scene.pause(0, 5)
    peer.start()


def lose_directory(scene: Scene, peer: HostedPeer) -> None:
    """With its disk; it comes back with an empty one."""
    peer.kill()
    peer.lose()
    scene.pause(0, 5)
    peer.start()


def restore_older(scene: Scene, peer: HostedPeer) -> None:
    """Its disk is put back to a copy that was made a while before."""
    peer.kill()
    copy = peer.set_aside()
    peer.start()
    scene.pause(1, 5)
    peer.kill()
    peer.put_back(copy)
    scene.pause(0, 3)
    peer.start()


def serve_a_copy(scene: Scene, peer: HostedPeer) -> None:
    """A copy of its directory is started beside it: all others refuse it."""
    peer.start_twin(scene.peers)
    try:

        def refused() -> bool:
            problems = peer.twin_problems()
            return len(problems) == len(scene.peers) and all(REFUSAL in one for one in problems)

        until(refused, f"the copy of {peer.name} to be refused: {peer.twin_problems()}", WAIT_S)
    finally:
        peer.stop_twin()


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        cut_two_ways, cut_one_way, cut_a_pair, cut_from_clients, kill_process, kill_instance,
        lose_directory, restore_older, serve_a_copy,
    )
}  # fmt: skip
LOSES_A_DISK: Final = frozenset({"lose_directory", "restore_older"})
CUTS: Final = frozenset(name for name in FAULTS if name.startswith("cut_"))


class DrawnFault(NamedTuple):
    """A fault, and the instance that it happens to."""

    name: str
    peer: str


def draw(rng: random.Random, peers: Sequence[str], allowed: Sequence[str]) -> list[DrawnFault]:
    """One or two of them; two are of different instances."""
    first = DrawnFault(rng.choice(allowed), rng.choice(peers))
    left = [name for name in allowed if fit(first.name, name)]
    if rng.random() < 0.5 or not left:
        return [first]
    others = [peer for peer in peers if peer != first.peer]
    return [first, DrawnFault(rng.choice(left), rng.choice(others))]


def fit(one: str, other: str) -> bool:
    """A round takes one disk at most. A copy hears that it is refused only where nothing is cut."""
    both = {one, other}
    copied = "serve_a_copy" in both and both & CUTS
    return not copied and not (one in LOSES_A_DISK and other in LOSES_A_DISK)


def strike(scene: Scene, faults: Sequence[DrawnFault], known: Mapping[str, Fault]) -> None:
    """The second one begins while the first is there. Each has random numbers of its own."""
    errors: list[BaseException] = []

    def one(fault: DrawnFault, mine: Scene) -> None:
        peer = next(one for one in scene.peers if one.name == fault.peer)
        scene.log(f"{fault.name} {fault.peer}")
        try:
            known[fault.name](mine, peer)
            scene.log(f"{fault.name} {fault.peer}: done")
        except BaseException as error:
            errors.append(error)

    threads = []
    for fault in faults:
        mine = scene._replace(rng=random.Random(scene.rng.random()))
        thread = threading.Thread(target=one, args=(fault, mine), daemon=True)
        thread.start()
        threads.append(thread)
        scene.pause(0, 2)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
