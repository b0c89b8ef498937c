"""Settings as TOML that reads back, and the commented example."""

from __future__ import annotations

import msgspec
from msgspec import Meta, Struct

from zbroker.config.tree import Config, Section, default_of, fields, sections
from zbroker.config.units import UNITS


def to_toml(config: Config, *, comments: bool = False) -> str:
    """`config` as TOML that `load` reads back; `comments`: with what each field is for above it."""
    lines: list[str] = []
    for section in sections():
        found = getattr(config, section.name)
        if comments:
            lines += [f"# {part}".rstrip() for part in section.purpose.splitlines()]
        if section.many and not found:
            lines += _sample(section) if comments else []
            continue
        for table in found if section.many else [found]:
            lines += [f"[[{section.name}]]" if section.many else f"[{section.name}]"]
            lines += [*_table(table, comments=comments), ""]
    return "\n".join(lines[:-1]) + "\n"


def _table(table: Struct, *, comments: bool) -> list[str]:
    lines: list[str] = []
    for one in fields(type(table)):
        lines += _comment(one.meta) if comments else []
        lines += [f"{one.name} = {toml_value(getattr(table, one.name), one.meta)}"]
    return lines


def _sample(section: Section) -> list[str]:
    """A table that may be there any number of times, as a comment: by default there is none."""
    lines = [f"# [[{section.name}]]"]
    for one in fields(section.type):
        default = default_of(section.type, one.name)
        value = "orders" if default is None else default
        lines += [*(f"#{line}" for line in _comment(one.meta))]
        lines += [f"# {one.name} = {toml_value(value, one.meta)}"]
    return [*lines, ""]


def _comment(meta: Meta) -> list[str]:
    return [f"# {part}" for part in (meta.description or "").splitlines()]


def example() -> str:
    """The text of conf/zbroker.example.toml."""
    head = "# Every setting of zbroker with its default. Made by `zbroker config example`.\n\n"
    return head + to_toml(Config(), comments=True)


def toml_value(value: object, meta: Meta) -> str:
    """One value as the file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(toml_value(each, meta) for each in value)}]"
    if isinstance(value, int):
        unit = UNITS.get((meta.extra or {}).get("unit", ""))
        if unit is None:
            return str(value)
        value = unit.format(value)
    return msgspec.json.encode(value).decode()  # a JSON string is a TOML string
