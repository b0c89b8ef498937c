"""What compiled filters load: constants through globals, fields and headers in the loop."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from zbroker.filters import syntax
from zbroker.filters.nodes import Field, Header, Loaded
from zbroker.filters.paths import Path, as_number
from zbroker.formats.xml import Element

_EMPTY: Final[dict[str, Any]] = {}


class Scope:
    """Names of a function: `constants` are its globals, `loads` the first statements of its loop.

    A row has an attribute for each first name of a path, as `columns` says, or, if that is None,
    is a decoded payload. `numbers`: a map may have numbers for keys.
    """

    def __init__(self, columns: dict[str, str] | None, *, numbers: bool) -> None:
        self.constants: dict[str, Any] = {}
        self.loads: list[ast.stmt] = []
        self._columns = columns
        self._numbers = numbers
        self._names: dict[Any, str] = {}
        self._loaded: dict[Loaded, str] = {}
        if columns is None:
            self.loads.append(syntax.assign("row", self._map_or_empty()))

    def use(self, function: Callable[..., Any], *items: ast.expr) -> ast.expr:
        return syntax.placed(ast.Call(self.constant(function), list(items), []))

    def constant(self, value: Any) -> ast.expr:  # noqa: ANN401 - whatever code may need
        key = (value.__class__, id(value) if callable(value) else repr(value))
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"c{len(self._names)}"
            self.constants[name] = value
        return syntax.load(name)

    def load(self, node: Loaded) -> str:
        """The variable that holds a field or header; the loop loads it once per message."""
        name = self._loaded.get(node)
        if name is None:
            name = self._loaded[node] = f"v{len(self._loaded)}"
            if isinstance(node, Field):
                self._load_field(name, node.path)
            elif isinstance(node, Header):
                self._load_header(name, node.name)
        return name

    def _load_header(self, name: str, header: str) -> None:
        found = syntax.method("about", "header", syntax.load("i"), self.constant(header))
        self.loads.append(syntax.assign(name, found))

    def _load_field(self, name: str, path: Path) -> None:
        top, *others = path.steps
        if self._columns is None:
            self._load_name(name, "row", str(top))
        else:
            column = self._columns[str(top)]
            self.loads.append(syntax.assign(name, syntax.attribute("row", column)))
        for step in others:
            self._load_step(name, step)

    def _load_step(self, name: str, step: int | str) -> None:
        if isinstance(step, int):
            found = syntax.item(name, syntax.constant(step))
            length = syntax.call("len", syntax.load(name))
            is_there = syntax.compare(length, ast.Gt, syntax.constant(step))
            found_or_none = syntax.choice(
                syntax.and_(syntax.has_class(name, "list"), is_there), found, syntax.constant(None)
            )
            self.loads.append(syntax.assign(name, found_or_none))
        else:
            empty = self.constant(_EMPTY)
            self.loads.append(
                syntax.assign(name, syntax.choice(self._is_map(name), syntax.load(name), empty))
            )
            self._load_name(name, name, step)

    def _is_map(self, name: str) -> ast.expr:
        element = syntax.is_(syntax.attribute(name, "__class__"), self.constant(Element))
        return syntax.or_(syntax.has_class(name, "dict"), element)

    def _load_name(self, name: str, of: str, key: str) -> None:
        """`name = of.get(key)`, and by number where that is a key too."""
        number = as_number(key) if self._numbers else None
        keep = "m" if number is not None else of
        if keep != of:
            self.loads.append(syntax.assign(keep, syntax.load(of)))
        self.loads.append(syntax.assign(name, syntax.method(keep, "get", self.constant(key))))
        if number is not None:
            again = syntax.assign(name, syntax.method(keep, "get", syntax.constant(number)))
            self.loads.append(syntax.if_(syntax.is_none(name), again))

    def _map_or_empty(self) -> ast.expr:
        return syntax.choice(
            syntax.has_class("row", "dict"), syntax.load("row"), self.constant(_EMPTY)
        )
