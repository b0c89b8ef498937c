"""Parts of the reference that are made from the code: `python -m tests.docs.generate` writes them.

Such a part stands between `<!-- made from code: NAME -->` and `<!-- end -->`; a test compares it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Final

import click

import zbroker
from tests.docs import seeds
from tests.docs.pages import ROOT, Page, read_pages
from zbroker import aio, client, config, spark
from zbroker.cli.admin_main import main as admin_main
from zbroker.cli.main import main
from zbroker.errors import CODES, LOCAL_CODES, TEMPORARY, ZBrokerError, class_of, tree
from zbroker.supervisor.processes import PROCESSES

_CLASSES: Final = (
    "Client",
    "Receipt",
    "Subscription",
    "Combined",
    "Message",
    "Consumer",
    "QueueMessage",
    "Worker",
    "Session",
    "Transaction",
    "ConnectionState",
    "ServerChooser",
    "ListChooser",
)
#: of what both clients have: what the one with threads gives
_VARIABLES: Final = {"S": "Subscription", "C": "Consumer", "W": "Worker", "X": "Session"}
_LOOPED: Final = (
    "AsyncClient", "AsyncReceipt", "AsyncSubscription", "AsyncCombined", "AsyncConsumer",
    "AsyncWorker", "AsyncSession",
)  # fmt: skip
_OBJECTS: Final = ("Command", "MemoryBookmarkStore", "FileBookmarkStore", "LocalBroker", "Reject")
_MADE_BY_USERS: Final = frozenset(
    {"zbroker.client.ListChooser", *(f"zbroker.{name}" for name in _OBJECTS)}
)
#: a client without the library; its sections stand in the page about it
BY_HAND: Final = ROOT / "docs/howto/by_hand.py"
_SECTIONS: Final = ("connection", "publisher", "subscriber", "consumer")
_PART: Final = re.compile(r"(<!-- made from code: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def codes() -> str:
    """The table of error codes."""
    rows = [
        f"| `{code}`{' (again)' if code in TEMPORARY else ''} | {what} | {do} |"
        for code, (what, do) in CODES.items()
    ]
    return _table("| code | what happened | what to do |", rows)


def local_codes() -> str:
    """The table of codes that never cross the wire, with the class of each."""
    rows = [
        f"| `{code}` | {class_of(code).__name__} | {what} | {do} |"
        for code, (what, do) in LOCAL_CODES.items()
    ]
    return _table("| code | class | what happened | what to do |", rows)


def errors() -> str:
    """The tree of classes, each with its codes."""
    rows = []
    for kind in tree():
        codes = ", ".join(f"`{code}`" for code in sorted(kind.codes))
        if kind is ZBrokerError:
            codes = "`internal`, and what is not named here"
        reported = " ".join(inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].split())
        rows.append(f"| {'· ' * _depth(kind)}`{kind.__name__}` | {reported} | {codes} |")
    return _table("| class | when, and what to do | codes |", rows)


def _depth(kind: type[ZBrokerError]) -> int:
    """How far below ZBrokerError it stands."""
    return sum(issubclass(base, ZBrokerError) for base in kind.__mro__) - 1


def settings() -> str:
    """A table of every setting per table of the file."""
    defaults = config.Config()
    parts = []
    for section in config.sections():
        rows = []
        table = None if section.many else getattr(defaults, section.name)
        for key, _, meta, _ in config.fields(section.type):
            value = config.default_of(section.type, key) if table is None else getattr(table, key)
            shown = "" if value is None else f"`{config.toml_value(value, meta)}`"
            reported = (meta.description or "").replace("\n", " ")
            rows.append(f"| `{key}` | {shown} | {reported} |")
        name = f"[[{section.name}]]" if section.many else f"[{section.name}]"
        head = f"### {name}\n\n{section.purpose}\n\n"
        parts.append(head + _table("| key | default | what it is |", rows))
    return "\n".join(parts)


def commands() -> str:
    """What every command is for and takes; not click's own text, which differs by its version."""
    parts = []
    for program in (main, admin_main):
        for path, command in walk(program, str(program.name)):
            parts.append(f"### {path}\n\n{inspect.cleandoc(command.help or '')}\n\n")
            arguments = [
                p.human_readable_name for p in command.params if p.param_type_name == "argument"
            ]
            if arguments:
                parts.append(f"Arguments: {', '.join(f'`{name}`' for name in arguments)}.\n\n")
            rows = [_option(p) for p in command.params if isinstance(p, click.Option)]
            rows = [row for row in rows if not row.startswith("| `--version`")]
            if rows:
                parts.append(_table("| option | what it does |", rows) + "\n")
    return "".join(parts).rstrip() + "\n"


def _option(option: click.Option) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    reported = f" Default: `{option.default}`." if option.show_default else ""
    return f"| {flags} | {option.help or ''}{reported} |"


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with what is typed to reach them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, f"{path} {name}")


def processes() -> str:
    """What each process says of itself."""
    modules = [("supervisor", "zbroker.supervisor.loop"), *((p.name, p.module) for p in PROCESSES)]
    parts = []
    for name, module in modules:
        doc = (import_module(module).__doc__ or "").strip()
        parts.append(f"### {name}\n\n`{module}`\n\n```text\n{doc}\n```\n")
    return "\n".join(parts)


def python() -> str:
    """Signatures and docstrings of what users call."""
    return "\n".join(_item(name, item) for name, item in public())


def public() -> list[tuple[str, Any]]:
    """Names of the public API and what they are."""
    found: list[tuple[str, Any]] = [("zbroker.connect", client.connect)]
    for name in _CLASSES:
        kind = getattr(client, name)
        found.append((f"zbroker.client.{name}", kind))
        found += [(f"{name}.{member}", item) for member, item in _members(kind)]
    found.append(("zbroker.aio.connect", aio.connect))
    for name in _LOOPED:  # what it shares with the one above stands there
        kind = getattr(aio, name)
        found.append((f"zbroker.aio.{name}", kind))
        own = [(f"aio.{name}.{member}", item) for member, item in _members(kind)]
        found += [(path, item) for path, item in own if _is_looped(item)]
    for name in _OBJECTS:
        kind = getattr(zbroker, name)
        found.append((f"zbroker.{name}", kind))
        found += [(f"{name}.{member}", item) for member, item in _members(kind)]
    found += [(f"zbroker.spark.{name}", getattr(spark, name)) for name in spark.__all__]
    return found


def _is_looped(item: Any) -> bool:
    """True for what is written for an event loop."""
    function = item.fget if isinstance(item, property) else item
    there = function.__module__.startswith("zbroker.client.aio.")
    return there or inspect.iscoroutinefunction(inspect.unwrap(function))


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """What it has itself, then what it has from classes of ours that it is made of."""
    seen: set[str] = set()
    for base in kind.__mro__:
        for name, item in vars(base).items() if base.__module__.startswith("zbroker") else ():
            if name in seen or name.startswith("_"):
                continue
            seen.add(name)
            reported = inspect.isfunction(inspect.unwrap(item)) and item.__doc__
            if reported or isinstance(item, property):
                yield name, item


def _item(name: str, item: Any) -> str:
    doc = inspect.cleandoc(item.__doc__ or "")
    if inspect.isclass(item):
        head = f"class {name.rpartition('.')[2]}"
        if name in _MADE_BY_USERS:
            head += _call(item.__init__).removesuffix(" -> None")
            doc += "\n\n" + inspect.cleandoc(item.__init__.__doc__ or "")
        return f"### {name}\n\n```text\n{head}\n\n{textwrap.indent(doc, '    ')}\n```\n"
    if isinstance(item, property):
        doc = doc or "See the class."
        kind = _shown(inspect.signature(item.fget).return_annotation)  # type: ignore[arg-type]
        return f"#### {name}\n\n```text\n{name.rpartition('.')[2]}: {kind}\n\n    {doc}\n```\n"
    level = "###" if name.startswith("zbroker.") else "####"
    kind = "async " if inspect.iscoroutinefunction(inspect.unwrap(item)) else ""
    head = f"{kind}{name.rpartition('.')[2]}{_call(item)}"
    return f"{level} {name}\n\n```text\n{head}\n\n{textwrap.indent(doc, '    ')}\n```\n"


def _call(function: Callable[..., object]) -> str:
    """Its parameters and what it returns, a parameter per line where they are many."""
    signature = inspect.signature(function)
    given = [p for p in signature.parameters.values() if p.name != "self"]
    end = signature.return_annotation
    arrow = "" if end is inspect.Signature.empty else f" -> {_shown(end)}"
    line = f"({', '.join(_parameters(given))}){arrow}"
    if len(line) <= 80:
        return line
    return "(\n" + "".join(f"    {text},\n" for text in _parameters(given)) + f"){arrow}"


def _parameters(given: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for parameter in given:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        star = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        kind = (
            "" if parameter.annotation is parameter.empty else f": {_shown(parameter.annotation)}"
        )
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"{star}{parameter.name}{kind}{default}"


def _shown(annotation: object) -> str:
    """As it is written; modules' names add nothing, and variables stand for the client's own."""
    shown = str(annotation).replace("points.", "")
    return re.sub(r"^[SCW]\b", lambda found: _VARIABLES[found[0]], shown)


def by_hand(section: str) -> str:
    """A section of the client that is made by hand."""
    text = BY_HAND.read_text()
    found = re.search(rf"^# -- {section} -+\n\n(.*?)(?=^# -- |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{BY_HAND.name} has no section {section}"
    return f"```python\n{found[1].strip()}\n```\n"


def _table(head: str, rows: list[str]) -> str:
    line = "|" + "---|" * (head.count("|") - 1)
    return "\n".join([head, line, *rows]) + "\n"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "codes": codes,
    "errors": errors,
    "local codes": local_codes,
    "settings": settings,
    "commands": commands,
    "processes": processes,
    "python": python,
    "requirements": seeds.tables,
    **{f"by hand {name}": partial(by_hand, name) for name in _SECTIONS},
}


def parts_of(page: Page) -> dict[str, str]:
    """The made parts that stand in a page, by name."""
    return {match[2]: match[3] for match in _PART.finditer(page.text)}


def renewed(page: Page) -> str:
    """The page's text with its made parts as they should be."""
    return _PART.sub(lambda match: match[1] + PARTS[match[2]]() + match[4], page.text)


if __name__ == "__main__":
    for each in read_pages():
        each.path.write_text(renewed(each))
