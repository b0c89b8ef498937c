"""One process of an instance, from its first line to its exit code.

Exit codes: 0 asked to stop; 78 its config is wrong; 74 its storage failed; 70 a bug.
It can be run by hand: `python -m zbroker.journal --data-dir DIR [-c FILE]`, one terminal each;
the second of several delivery workers: `python -m zbroker.delivery --worker 2 ...`.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

import msgspec
import zmq

from zbroker import config as settings
from zbroker.config import Config, delivery_workers, listen_endpoints
from zbroker.errors import ConfigError, StorageError, ZBrokerError
from zbroker.paths import Paths
from zbroker.server.process import Process, become_process, configure_logs
from zbroker.supervisor import directory
from zbroker.supervisor.core import EX_BUG, EX_CONFIG, EX_STORAGE

_EX_ERROR: Final = 1
_CANNOT_LISTEN: Final = frozenset({errno.ENODEV, errno.EADDRNOTAVAIL, errno.EACCES})


class ProcessModule(Protocol):
    """What a module needs to run as a process."""

    def run(self, process: Process) -> int:
        """Serves until `process.stopping`; returns the exit code."""
        ...


def run(
    name: str, module: str, config: Config, paths: Paths, listen: str, *, supervised: bool = False
) -> int:
    """Runs `module`'s `run` as this process; an exception becomes a log line and an exit code."""
    configure_logs(config.log, name)
    log = logging.getLogger(name)
    process: Process | None = None
    try:
        loop: ProcessModule = import_module(module)
        process = Process(name, _for_this_machine(config), paths, listen)
        process.supervised = supervised
        signal.signal(signal.SIGTERM, lambda *_: process.stop())
        return loop.run(process)
    except ConfigError as error:
        log.error("%s; the instance stops, change the config", error)
        return EX_CONFIG
    except StorageError as error:
        log.error("%s; nothing more is acknowledged by this process", error)
        return EX_STORAGE
    except zmq.ZMQError as error:
        if error.errno not in _CANNOT_LISTEN:
            log.exception("a bug; this process ends and is started again, clients send again")
            return EX_BUG
        log.error("cannot listen on %s: %s; the instance stops, change `listen`", listen, error)
        return EX_CONFIG
    except Exception:
        log.exception("a bug; this process ends and is started again, clients send again")
        return EX_BUG
    finally:
        if process is not None and not process.context.closed:
            process.close()


def _for_this_machine(config: Config) -> Config:
    """Spinning on the only core would keep the one who is waited for from running."""
    if len(os.sched_getaffinity(0)) > 1:
        return config
    return msgspec.structs.replace(config, ingest=settings.IngestConfig(spin_us=0))


def main(name: str) -> None:
    """`python -m zbroker.<name>`: one process by hand, on a data directory without a supervisor."""
    import argparse  # no supervised process reads a command line

    parser = argparse.ArgumentParser(prog=f"python -m zbroker.{name}")
    parser.add_argument("-c", "--config", type=Path, help="the config file")
    parser.add_argument("--data-dir", help="instead of instance.data_dir")
    parser.add_argument("--worker", type=int, default=1, help="which of `delivery.workers`, from 1")
    options = parser.parse_args()
    overrides = {"instance.data_dir": options.data_dir} if options.data_dir else {}
    try:
        config = settings.load(options.config, overrides)
        module, name = f"zbroker.{name}.loop", _named(name, options.worker, config)
        directory.lock(config.paths(0).data, shared=True)
        paths = directory.prepare(config, shared=True)
    except ZBrokerError as error:
        parser.exit(EX_CONFIG if isinstance(error, ConfigError) else _EX_ERROR, f"{error}\n")
    become_process(name, os.getppid())
    sys.exit(run(name, module, config, paths, listen_endpoints(config).get(name, "")))


def _named(name: str, worker: int, config: Config) -> str:
    """The process that this worker of its kind is. Raises: ConfigError."""
    names = delivery_workers(config) if name == "delivery" else (name,)
    if not 1 <= worker <= len(names):
        reason = f"there is no worker {worker} of {name}, the config has {len(names)}"
        raise ConfigError("bad_config", reason, "see delivery.workers")
    return names[worker - 1]
