"""The settings of an instance: a tree of defaults, read from TOML and written to it.

A wrong file raises a ConfigError that says file, line and what to write instead.
"""

from zbroker.config.journal import JournalConfig, RecordConfig
from zbroker.config.queues import QueueConfig
from zbroker.config.replication import DestinationConfig, ReplicationConfig
from zbroker.config.toml_reader import load, parse
from zbroker.config.toml_writer import example, to_toml, toml_value
from zbroker.config.tree import (
    REPLICATION,
    Config,
    DeliveryConfig,
    IngestConfig,
    InstanceConfig,
    LimitsConfig,
    ListenConfig,
    LogConfig,
    RetentionConfig,
    default_of,
    delivery_workers,
    fields,
    listen_endpoints,
    log_readers,
    sections,
    setting_of,
    socket_of,
)
from zbroker.config.units import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "REPLICATION",
    "Config",
    "DeliveryConfig",
    "DestinationConfig",
    "IngestConfig",
    "InstanceConfig",
    "JournalConfig",
    "LimitsConfig",
    "ListenConfig",
    "LogConfig",
    "QueueConfig",
    "RecordConfig",
    "ReplicationConfig",
    "RetentionConfig",
    "default_of",
    "delivery_workers",
    "example",
    "fields",
    "format_duration",
    "format_size",
    "listen_endpoints",
    "load",
    "log_readers",
    "parse",
    "parse_duration",
    "parse_size",
    "sections",
    "setting_of",
    "socket_of",
    "to_toml",
    "toml_value",
]
