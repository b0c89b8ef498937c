"""Which package may import which: downward only; the longest name that fits a module counts."""

from __future__ import annotations

from typing import Final

#: Values that everything uses.
_VALUES: Final = (
    "zbroker.__version__",
    "zbroker.checksums",
    "zbroker.clock",
    "zbroker.cpus",
    "zbroker.durable_files",
    "zbroker.endpoints",
    "zbroker.errors",
    "zbroker.heartbeats",
    "zbroker.ids",
    "zbroker.known_log",
    "zbroker.limits",
    "zbroker.link_topics",
    "zbroker.memory_notes",
    "zbroker.paths",
    "zbroker.recording",
    "zbroker.toml_source",
    "zbroker.topics",
    "zbroker.transaction_tokens",
    "zbroker.xids",
    "zbroker",
)
_LANGUAGE: Final = ("zbroker.filters", "zbroker.formats")
_QUEUE_SETTINGS: Final = (
    "zbroker.config.journal", "zbroker.config.queues", "zbroker.config.replication",
    "zbroker.config.tree", "zbroker.config.units",
)  # fmt: skip
#: What every process of an instance may use.
_PROCESS: Final = (
    *_VALUES,
    *_LANGUAGE,
    "zbroker.access",
    "zbroker.config",
    "zbroker.engine",
    "zbroker.exchanges",
    "zbroker.log",
    "zbroker.server",
    "zbroker.sockets",
    "zbroker.wire",
)
#: What programs of users are made of.
_PROGRAM: Final = (
    *_VALUES,
    *_LANGUAGE,
    "zbroker.client",
    "zbroker.config",
    "zbroker.control",
    "zbroker.log",
    "zbroker.wire",
)
_MAIN: Final = ("zbroker.supervisor.child",)

#: What a module may import of ours besides its own package; the longest name that fits counts.
LAYERS: Final[dict[str, tuple[str, ...]]] = {
    # values
    "zbroker": ("*",),
    "zbroker.errors": (),
    "zbroker.limits": (),
    "zbroker.paths": (),
    "zbroker.checksums": (),
    "zbroker.clock": ("zbroker.errors",),
    "zbroker.cpus": (),
    "zbroker.durable_files": (),
    "zbroker.endpoints": ("zbroker.errors",),
    "zbroker.heartbeats": ("zbroker.limits",),
    "zbroker.ids": ("zbroker.clock", "zbroker.errors", "zbroker.limits"),
    "zbroker.known_log": ("zbroker.durable_files", "zbroker.ids"),
    "zbroker.memory_notes": (),
    "zbroker.toml_source": ("zbroker.errors",),
    "zbroker.transaction_tokens": ("zbroker.ids",),
    "zbroker.xids": (),
    "zbroker.topics": ("zbroker.errors", "zbroker.ids", "zbroker.limits"),
    "zbroker.link_topics": ("zbroker.errors", "zbroker.limits", "zbroker.topics"),
    "zbroker.recording": (
        "zbroker.errors",
        "zbroker.filters",
        "zbroker.limits",
        "zbroker.topics",
    ),
    # what payloads, messages and settings mean
    "zbroker.formats": ("zbroker.errors", "zbroker.limits"),
    "zbroker.filters": ("zbroker.clock", "zbroker.errors", "zbroker.formats", "zbroker.limits"),
    "zbroker.wire": _VALUES,
    "zbroker.access": (*_VALUES, *_LANGUAGE),
    "zbroker.config.units": (),
    "zbroker.config.queues": ("zbroker.config.units",),
    "zbroker.config.replication": ("zbroker.config.units",),
    "zbroker.config.journal": ("zbroker.config.units", "zbroker.formats", "zbroker.limits"),
    "zbroker.config.tree": (*_VALUES, *_QUEUE_SETTINGS, "zbroker.formats"),
    "zbroker.config": (*_VALUES, *_LANGUAGE, "zbroker.definitions"),
    "zbroker.definitions": (*_VALUES, *_LANGUAGE, *_QUEUE_SETTINGS),
    "zbroker.definitions.intake": (
        *_VALUES,
        "zbroker.definitions.definition",
        "zbroker.exchanges.route_column",
        "zbroker.filters",
        "zbroker.log",
        "zbroker.queues.work.values",
        "zbroker.wire",
    ),
    "zbroker.queues.work.values": ("zbroker.engine.contract",),
    # the log as files, and what is made of it
    "zbroker.log": (*_VALUES, "zbroker.wire"),
    "zbroker.bookmarks": (*_VALUES, "zbroker.log"),
    "zbroker.exchanges": (*_VALUES, "zbroker.log", "zbroker.wire"),
    "zbroker.blocks": (*_VALUES, "zbroker.filters", "zbroker.log", "zbroker.wire"),
    # processes
    "zbroker.engine.contract": (),
    "zbroker.engine": (*_VALUES, "zbroker.access", "zbroker.wire"),
    "zbroker.sockets": (*_VALUES, "zbroker.wire"),
    "zbroker.server": (
        *_VALUES,
        "zbroker.access",
        "zbroker.config",
        "zbroker.engine",
        "zbroker.sockets",
        "zbroker.wire",
    ),
    "zbroker.journal": (*_PROCESS, "zbroker.bookmarks"),
    "zbroker.ingest": _PROCESS,
    "zbroker.delivery": (*_PROCESS, "zbroker.blocks"),
    "zbroker.queues": (*_PROCESS, "zbroker.blocks", "zbroker.definitions"),
    "zbroker.replication": _PROCESS,
    # the state for an empty log is what a start of the journal would fold
    "zbroker.replication.state_reader": (
        *_PROCESS,
        "zbroker.journal.fold",
        "zbroker.journal.snapshot",
        "zbroker.replication.effects",
    ),
    "zbroker.admin": _PROCESS,
    "zbroker.supervisor": _PROCESS,
    "zbroker.journal.__main__": _MAIN,
    "zbroker.ingest.__main__": _MAIN,
    "zbroker.delivery.__main__": _MAIN,
    "zbroker.queues.__main__": _MAIN,
    "zbroker.replication.__main__": _MAIN,
    "zbroker.admin.__main__": _MAIN,
    "zbroker.supervisor.__main__": ("zbroker.cli.start",),
    # programs that use a broker
    "zbroker.client": (
        *_VALUES,
        "zbroker.access.keys",
        "zbroker.engine",
        "zbroker.log",
        "zbroker.sockets",
        "zbroker.wire",
    ),
    "zbroker.aio": ("zbroker.client",),
    "zbroker.control": (
        *_VALUES,
        "zbroker.client",
        "zbroker.config",
        "zbroker.sockets",
        "zbroker.wire",
    ),
    "zbroker.free_ports": (),
    "zbroker.local": (
        *_VALUES,
        "zbroker.config",
        "zbroker.control",
        "zbroker.server.spawn",
        "zbroker.supervisor.directory",
    ),
    "zbroker.testing": (*_VALUES, "zbroker.client", "zbroker.local"),
    "zbroker.spark": _PROGRAM,
    "zbroker.demo": (*_PROGRAM, "zbroker.free_ports", "zbroker.local", "zbroker.spark"),
    "zbroker.cli": ("*",),
    "pyspark_zbroker": ("zbroker.spark",),
}
