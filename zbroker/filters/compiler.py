"""A tree of a filter to one Python function that goes over a batch.

The source of the function has no names but those that are made here; constants and helpers come in
through its globals, so it never contains text of a filter. It looks like this, for `/price > 100`:

    def run(at, rows, about, data):
        found = []
        take = found.append
        for i, row in zip(at, rows):
            v0 = row.f0
            if (v0 > c0 if v0.__class__ is int or v0.__class__ is float else
                v0 is not None and c1(v0, c0)): take(i)
        return found

Logic has three values, but a filter only asks whether it is True. So an operand is compiled for
one question, "is it True" or "is it False", and no None is handled where a field or a header meets
a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any, Final

from zbroker.filters import nodes, values
from zbroker.filters.arithmetic import OPERATORS
from zbroker.filters.nodes import Loaded, Node, below
from zbroker.filters.paths import Path, as_number
from zbroker.filters.values import Truth
from zbroker.formats.xml import Element

#: indices, their rows, MessageMetadata, payloads -> the indices that match
Run = Callable[[Sequence[int], Iterable[Any], Any, Sequence[bytes]], list[int]]
#: the same -> the value for each index
Values = Callable[[Sequence[int], Iterable[Any], Any, Sequence[bytes]], list[Any]]

_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_Helpers = dict[type[Node], Callable[..., Truth]]
_LOGIC: Final[_Helpers] = {nodes.Not: values.not_, nodes.And: values.and_, nodes.Or: values.or_}
_TESTS: Final[_Helpers] = {
    nodes.Between: values.between,
    nodes.In: values.one_of,
    nodes.IsNull: values.is_null,
    nodes.IsNan: values.is_nan,
}
_AFFIX: Final = {"begin": "startswith", "end": "endswith"}
_EMPTY: Final[dict[str, Any]] = {}


def compile_run(tree: Node, columns: dict[str, str] | None, *, numbers: bool) -> Run:
    """The function of a tree.

    Rows are objects with an attribute for each first name of a path, as `columns` says, or, if
    that is None, decoded payloads. `numbers`: a map may have numbers for keys.
    """
    code = _Code(columns, numbers=numbers)
    run: Run = _loop(code, f"if {code.asks(tree, True)}: take(i)")
    return run


def compile_values(tree: Node, *, numbers: bool) -> Values:
    """The function that gives a tree's value for each row, which is a decoded payload."""
    code = _Code(None, numbers=numbers)
    run: Values = _loop(code, f"take({code.value(tree)})")
    return run


def _loop(code: _Code, last: str) -> Callable[..., Any]:
    """A function that loads what `code` asks for, then does `last`, for each row."""
    lines = [
        "def run(at, rows, about, data):",
        "    found = []",
        "    take = found.append",
        "    for i, row in zip(at, rows):",
        *(f"        {line}" for line in [*code.loads, last]),
        "    return found",
    ]
    scope = dict(code.constants)
    exec(compile("\n".join(lines), "<filter>", "exec"), scope)  # made of our own names only
    return scope["run"]  # type: ignore[no-any-return]


class _Code:
    """Expressions for nodes, each in parentheses, a call or a name, so that they can be combined.

    `constants` are globals of the function, `loads` the first statements of its loop.
    """

    def __init__(self, columns: dict[str, str] | None, *, numbers: bool) -> None:
        self.constants: dict[str, Any] = {}
        self.loads: list[str] = []
        self._columns = columns
        self._numbers = numbers
        self._names: dict[Any, str] = {}
        self._loaded: dict[Loaded, str] = {}
        if columns is None:
            self.loads.append(f"row = row if row.__class__ is dict else {self._constant(_EMPTY)}")

    # -- questions ----------------------------------------------------------------------------

    def asks(self, node: Node, asked: bool) -> str:
        """An expression that holds if the node is True, or False: `asked`; it is never None."""
        match node:
            case nodes.Not(item):
                return self.asks(item, not asked)
            case nodes.And(items) | nodes.Or(items):
                word = "and" if isinstance(node, nodes.And) == asked else "or"
                return f"({f' {word} '.join(self.asks(item, asked) for item in items)})"
            case nodes.If(condition, then, otherwise):
                test = self.asks(condition, True)
                return _choice(test, self.asks(then, asked), self.asks(otherwise, asked))
        short = self._short(node, asked=asked)
        if short is not None:
            return short
        return self.truth(node) if asked else f"({self.truth(node)} is False)"

    def truth(self, node: Node) -> str:
        """An expression that is the node as a condition: True, False or None."""
        match node:
            case nodes.Not() | nodes.And() | nodes.Or():
                return self._call(_LOGIC[type(node)], *map(self.truth, below(node)))
            case nodes.Compare(op, left, right):
                return self._call_of(values.ORDERS[op], left, right)
            case nodes.Between() | nodes.In() | nodes.IsNull() | nodes.IsNan():
                return self._call_of(_TESTS[type(node)], *below(node))
            case nodes.Like(item, pattern):
                return self._call_of(pattern.truth, item)
            case nodes.Affix(item):
                return self._call(
                    values.of_text, self.value(item), self._constant(_text_test(node))
                )
        return self._call(values.truth, self.value(node))

    def value(self, node: Node) -> str:
        """An expression that is the node's value."""
        match node:
            case nodes.Literal(value):
                return self._constant(value)
            case Loaded():
                return self._load(node)
            case nodes.Arithmetic(op, left, right):
                return self._call_of(OPERATORS[op], left, right)
            case nodes.If(condition, then, otherwise):
                return _choice(self.asks(condition, True), self.value(then), self.value(otherwise))
            case nodes.Coalesce(items):
                return self._call_of(_coalesce, *items)
            case nodes.Call(_, call, items):
                return self._call_of(call, *items)
            case nodes.OfMessage(what):
                return self._of_message(what)
        return self.truth(node)

    def _of_message(self, what: str) -> str:
        match what:
            case "MESSAGE_SIZE":
                return "len(data[i])"
            case "TOPIC_NAME":
                return "about.topic(i)"
            case "BOOKMARK":
                return "about.bookmark(i)"
            case "LAST_UPDATED":
                return self._call(_in_seconds, "about.time_ns(i)")
        return self._call(_key_text, "about.key(i)")

    def _call_of(self, function: Callable[..., Any], *items: Node) -> str:
        return self._call(function, *map(self.value, items))

    def _call(self, function: Callable[..., Any], *items: str) -> str:
        return f"{self._constant(function)}({', '.join(items)})"

    def _constant(self, value: Any) -> str:  # noqa: ANN401 - whatever code may need
        key = (value.__class__, id(value) if callable(value) else repr(value))
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"c{len(self._names)}"
            self.constants[name] = value
        return name

    # -- a field, or a header, and a constant -------------------------------------------------

    def _short(self, node: Node, *, asked: bool) -> str | None:
        """The same where a field or a header meets a constant; None: there is no short way.

        A value of the constant's type is compared at once, everything else by the helper.
        """
        match node:
            case nodes.Compare(op, Loaded() as item, nodes.Literal(value)):
                return self._short_compare(op, item, value, asked=asked)
            case nodes.Compare(op, nodes.Literal(value), Loaded() as item):
                return self._short_compare(_TURNED.get(op, op), item, value, asked=asked)
            case nodes.In(Loaded() as item, choices) if asked:
                return self._short_in(item, choices)
            case nodes.Between(Loaded() as item, nodes.Literal(low), nodes.Literal(high)):
                return self._short_between(item, low, high, asked=asked)
            case nodes.Like(Loaded() as item) | nodes.Affix(Loaded() as item):
                return self._short_text(item, node, asked=asked)
            case nodes.IsNull(Loaded() as item):
                field = self._load(item)
                is_null = f"({field} is None or {self._call(values.is_null, field)})"
                return is_null if asked else f"(not {is_null})"
        return None

    def _short_compare(self, op: str, item: Loaded, value: object, *, asked: bool) -> str | None:
        kind = value.__class__
        if kind not in (int, float, str) or value == "":
            return None
        field, constant = self._load(item), self._constant(value)
        quick = _asked(f"{field} {'==' if op == '=' else op} {constant}", asked)
        if kind is str and not (op == "=" and asked):
            quick = f"{field} and {quick}"  # empty text is NULL
        slow = self._call(values.ORDERS[op], field, constant)
        same_kind = _is_text(field) if kind is str else _is_number(field)
        return _choice(same_kind, quick, _slow(field, slow, asked))

    def _short_in(self, item: Loaded, choices: tuple[Node, ...]) -> str | None:
        """Texts of a set are found at once; everything else is asked one by one."""
        literals = [each.value for each in choices if isinstance(each, nodes.Literal)]
        if len(literals) < len(choices):
            return None
        texts = frozenset(each for each in literals if isinstance(each, str) and each)
        field = self._load(item)
        slow = _slow(field, self._call(_among(literals), field), asked=True)
        if any(type(each) in (int, float, bool) for each in literals):
            return f"({slow})"
        return _choice(_is_text(field), f"{field} in {self._constant(texts)}", slow)

    def _short_between(self, item: Loaded, low: object, high: object, *, asked: bool) -> str | None:
        if {type(low), type(high)} - {int, float}:
            return None
        field, least, most = self._load(item), self._constant(low), self._constant(high)
        quick = _asked(f"{least} <= {field} <= {most}", asked)
        slow = self._call(values.between, field, least, most)
        return _choice(_is_number(field), quick, _slow(field, slow, asked))

    def _short_text(self, item: Loaded, node: nodes.Like | nodes.Affix, *, asked: bool) -> str:
        field, test = self._load(item), _text_test(node)
        plain = self._plain_text(field, node)
        if plain is not None:
            quick = _asked(plain, asked)
        else:  # True, False, or None where the text is too long
            quick = self._call(test, field) + ("" if asked else " is False")
        if isinstance(node, nodes.Like):
            slow = self._call(node.pattern.truth, field)
        else:
            slow = self._call(values.of_text, field, self._constant(test))
        return _choice(_is_text(field), f"{field} and {quick}", _slow(field, slow, asked))

    def _plain_text(self, field: str, node: nodes.Like | nodes.Affix) -> str | None:
        """The test of a text without a call of ours; None if it takes a regular expression."""
        found = (node.texts, node.at) if isinstance(node, nodes.Affix) else node.pattern.plain
        if found is None:
            return None
        wanted, where = self._constant(found[0]), found[1]
        if where in ("anywhere", "whole"):
            return f"{wanted} {'in' if where == 'anywhere' else '=='} {field}"
        return f"{field}.{_AFFIX[where]}({wanted})"

    # -- fields and headers -------------------------------------------------------------------

    def _load(self, node: Loaded) -> str:
        """The variable that holds a field or header; the loop loads it once per message."""
        name = self._loaded.get(node)
        if name is None:
            name = self._loaded[node] = f"v{len(self._loaded)}"
            if isinstance(node, nodes.Field):
                self._load_field(name, node.path)
            elif isinstance(node, nodes.Header):
                self.loads.append(f"{name} = about.header(i, {self._constant(node.name)})")
        return name

    def _load_field(self, name: str, path: Path) -> None:
        top, *others = path.steps
        if self._columns is None:
            self._look_up(name, "row", str(top))
        else:
            self.loads.append(f"{name} = row.{self._columns[str(top)]}")
        for step in others:
            if isinstance(step, int):
                is_there = f"{name}.__class__ is list and len({name}) > {step}"
                self.loads.append(f"{name} = {name}[{step}] if {is_there} else None")
            else:
                element, empty = self._constant(Element), self._constant(_EMPTY)
                is_map = f"{name}.__class__ is dict or {name}.__class__ is {element}"
                self.loads.append(f"{name} = {name} if {is_map} else {empty}")
                self._look_up(name, name, step)

    def _look_up(self, name: str, of: str, key: str) -> None:
        """`name = of.get(key)`, and by number where that is a key too."""
        number = as_number(key) if self._numbers else None
        found = f"{of}.get({self._constant(key)})"
        if number is None:
            self.loads.append(f"{name} = {found}")
        else:  # `name` and `of` may be the same variable
            self.loads += [f"m = {found}", f"{name} = {of}.get({number}) if m is None else m"]


# -- pieces of expressions --------------------------------------------------------------------


def _choice(test: str, then: str, otherwise: str) -> str:
    return f"({then} if {test} else {otherwise})"


def _asked(comparison: str, asked: bool) -> str:
    return comparison if asked else f"not {comparison}"


def _slow(field: str, truth: str, asked: bool) -> str:
    return f"{field} is not None and {truth}" + ("" if asked else " is False")


def _is_text(field: str) -> str:
    return f"{field}.__class__ is str"


def _is_number(field: str) -> str:
    return f"{field}.__class__ is int or {field}.__class__ is float"


# -- helpers that the function calls ----------------------------------------------------------


def _text_test(node: nodes.Like | nodes.Affix) -> Callable[[str], Truth]:
    if isinstance(node, nodes.Like):
        return node.pattern.search
    return methodcaller(_AFFIX[node.at], node.texts)


def _coalesce(*items: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    """The first that is not NULL."""
    return next((item for item in items if not values.is_null(item)), None)


def _in_seconds(time_ns: int) -> float | None:
    """A log time as seconds since 1970; 0 is none."""
    return time_ns / 1_000_000_000 if time_ns else None


def _key_text(key: bytes | None) -> str | bytes | None:
    """A key as text; one that is not UTF-8 is opaque."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


def _among(literals: Sequence[Any]) -> Callable[[Any], Truth]:
    """IN of constants: by two sets, whatever the value is."""
    known = [each for each in literals if not values.is_null(each)]
    missed = None if len(known) < len(literals) else False
    texts = frozenset(each for each in known if isinstance(each, str))
    own = frozenset(each for each in known if not isinstance(each, str))
    spelled = own | {n for n in map(values.number_in, texts) if n is not None}

    def test(item: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
        if item.__class__ is list:
            return values.any_of(map(plain, item)) if item else None
        return plain(item)

    def plain(item: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
        found = values.scalar(item)
        if found is None:
            return None
        if found.__class__ is not str:
            return found in spelled or missed
        if found in texts:
            return True
        number = values.number_in(found) if own else None
        return (number is not None and number in own) or missed

    return test
