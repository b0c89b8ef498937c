"""Puts peers that come in no wheel into a cache directory, for `scripts/perf --sides`.

    python -m perf.brokers.install --cache DIR              kafka and rabbitmq
    python -m perf.brokers.install --cache DIR kafka

Kafka's jars come by Maven, RabbitMQ and Erlang as Debian's packages, which are unpacked and not
installed: no service starts, and nothing outside the directory changes. NATS and Redis come with
the extra `perf`. What cannot be had is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from perf import brokers
from perf.sides import cache_directory

KAFKA_VERSION: Final = "4.3.0"
FETCH_S: Final = 900
POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>perf</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class NotToBeHadError(Exception):
    """A peer cannot be installed here; the text says why."""


def main() -> None:
    """Exit code 0 also where something was skipped: it is not measured then."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.brokers.install",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(INSTALLERS))
    parser.add_argument("--cache", help="the directory; default: as for scripts/perf")
    wanted = parser.parse_args()
    unknown = [name for name in wanted.peers if name not in INSTALLERS]
    if unknown:
        parser.error(f"no peer {unknown[0]!r}; there are {', '.join(INSTALLERS)}")
    cache = cache_directory(wanted.cache)
    for name in wanted.peers or INSTALLERS:
        install, kind = INSTALLERS[name]
        try:
            if brokers.missing(kind, cache):
                install(cache)
            reason = brokers.missing(kind, cache)
        except NotToBeHadError as error:
            reason = str(error)
        print(f"{name}: " + (f"skipped, {reason}" if reason else f"ready in {cache}"))


def kafka(cache: Path) -> None:
    """Its jars, and those that they need."""
    place = cache / "kafka"
    place.mkdir(parents=True, exist_ok=True)
    (place / "pom.xml").write_text(POM.format(version=KAFKA_VERSION))
    maven = _program("mvn", "Maven")
    _fetch([
        maven, "-q", "-B", "-f", str(place / "pom.xml"), "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={place / 'lib'}",
    ])  # fmt: skip


def rabbitmq(cache: Path) -> None:
    """The packages of the server and of what it needs, unpacked."""
    packages, place = cache / "debian-packages", cache / "rabbitmq"
    (packages / "partial").mkdir(parents=True, exist_ok=True)
    apt, dpkg = _program("apt-get", "a Debian"), _program("dpkg", "a Debian")
    _fetch([
        apt, "install", "--yes", "--no-install-recommends", "--download-only", "--reinstall",
        "-o", f"Dir::Cache::archives={packages}", "-o", "Debug::NoLocking=1", "rabbitmq-server",
    ])  # fmt: skip
    for package in sorted(packages.glob("*.deb")):
        _fetch([dpkg, "-x", str(package), str(place)])
    for script in ("erl", "start"):
        path = place / "usr/lib/erlang/bin" / script
        if path.exists():
            path.write_text(relocated(path.read_text(), place))


def relocated(script: str, place: Path) -> str:
    """A script of Erlang that looks for its files below `place`."""
    return re.sub(r"^(\s*ROOTDIR=)/usr/lib/erlang$", rf"\g<1>{place}/usr/lib/erlang", script,
                  flags=re.MULTILINE)  # fmt: skip


INSTALLERS: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "kafka": (kafka, "kafka"),
    "rabbitmq": (rabbitmq, "rabbitmq-quorum"),
}


def _program(name: str, needed: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotToBeHadError(f"there is no {name}: it needs {needed}")
    return found


def _fetch(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=FETCH_S,
    )  # fmt: skip
    if done.returncode:
        end = done.stdout.decode(errors="replace")[-500:].strip()
        raise NotToBeHadError(f"{Path(command[0]).name} ended with {done.returncode}: {end}")


if __name__ == "__main__":
    sys.exit(main())
