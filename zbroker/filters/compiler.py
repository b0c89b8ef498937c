"""A tree of a filter to one Python function that goes over a batch.

The function is made as a syntax tree whose only names are made here; constants and helpers come in
through its globals, so the code never contains text of a filter. It looks like this, for
`/price > 100`:

    def run(at, rows, about, data):
        found = []
        take = found.append
        for i, row in zip(at, rows):
            v0 = row.f0
            if v0 > c0 if v0.__class__ is int or v0.__class__ is float else c1(v0, c0):
                take(i)
        return found

Logic has three values, but a filter only asks whether it is True. So an operand is compiled for
one question, "is it True" or "is it False", and no None is handled where a field or a header meets
a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from zbroker.filters import nodes, runtime, syntax, values
from zbroker.filters.arithmetic import OPERATORS
from zbroker.filters.nodes import Loaded, Node
from zbroker.filters.patterns import Where
from zbroker.filters.variable_loads import Scope

#: indices, their rows, About, payloads -> the indices that match
Run = Callable[[Sequence[int], Iterable[Any], Any, Sequence[bytes]], list[int]]
#: the same -> the value for each index
Values = Callable[[Sequence[int], Iterable[Any], Any, Sequence[bytes]], list[Any]]

_COMPARE: Final[dict[str, type[ast.cmpop]]] = {
    "=": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
}
_TURNED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ASKED: Final = {
    "TOPIC_NAME": "topic",
    "BOOKMARK": "bookmark",
    "LAST_UPDATED": "time_ns",
    "KEY": "key",
}
#: The conversion of an answer to a value.
_MADE: Final[dict[str, Callable[..., Any]]] = {
    "LAST_UPDATED": runtime.in_seconds,
    "KEY": runtime.key_text,
}


def compile_run(tree: Node, columns: dict[str, str] | None, *, numbers: bool) -> Run:
    """The function of a tree.

    Rows are objects with an attribute for each first name of a path, as `columns` says, or, if
    that is None, decoded payloads. `numbers`: a map may have numbers for keys.
    """
    code = _Code(columns, numbers=numbers)
    condition = code.true(tree)
    take = syntax.do(syntax.call("take", syntax.load("i")))
    run: Run = _loop(code, syntax.if_(condition, take))
    return run


def compile_values(tree: Node, *, numbers: bool) -> Values:
    """The function that gives a tree's value for each row, which is a decoded payload."""
    code = _Code(None, numbers=numbers)
    value = code.value(tree)
    run: Values = _loop(code, syntax.do(syntax.call("take", value)))
    return run


def _loop(code: _Code, last: ast.stmt) -> Callable[..., Any]:
    """A function that loads what `code` asks for, then does `last`, for each row."""
    loop = syntax.each(
        syntax.pair("i", "row"),
        syntax.call("zip", syntax.load("at"), syntax.load("rows")),
        [*code.loads, last],
    )
    body = [
        syntax.assign("found", syntax.empty_list()),
        syntax.assign("take", syntax.attribute("found", "append")),
        loop,
        syntax.give(syntax.load("found")),
    ]
    module = syntax.function("run", ["at", "rows", "about", "data"], body)
    scope = dict(code.constants)
    exec(compile(module, "<filter>", "exec"), scope)  # made of our own names only
    return scope["run"]  # type: ignore[no-any-return]


class _Code(Scope):
    """Expressions for nodes."""

    # -- questions ----------------------------------------------------------------------------

    def true(self, node: Node) -> ast.expr:
        """An expression that holds if the node is True."""
        match node:
            case nodes.Not(item):
                return self.false(item)
            case nodes.And(items):
                return syntax.and_(*map(self.true, items))
            case nodes.Or(items):
                return syntax.or_(*map(self.true, items))
            case nodes.If(condition, then, otherwise):
                return syntax.choice(self.true(condition), self.true(then), self.true(otherwise))
        return self._short(node, asked=True) or self.truth(node)

    def false(self, node: Node) -> ast.expr:
        """An expression that holds if the node is False."""
        match node:
            case nodes.Not(item):
                return self.true(item)
            case nodes.And(items):
                return syntax.or_(*map(self.false, items))
            case nodes.Or(items):
                return syntax.and_(*map(self.false, items))
            case nodes.If(condition, then, otherwise):
                return syntax.choice(self.true(condition), self.false(then), self.false(otherwise))
        return self._short(node, asked=False) or syntax.is_(
            self.truth(node), syntax.constant(False)
        )

    def truth(self, node: Node) -> ast.expr:
        """An expression that is the node as a condition: True, False or None."""
        match node:
            case nodes.Not() | nodes.And() | nodes.Or():
                return self._logic(node)
            case nodes.Compare(op, left, right):
                return self.use(values.ORDERS[op], self.value(left), self.value(right))
            case nodes.Between(item, low, high):
                return self.use(values.between, *map(self.value, (item, low, high)))
            case nodes.In(item, choices):
                return self.use(values.one_of, self.value(item), *map(self.value, choices))
            case nodes.IsNull(item):
                return self.use(values.is_null, self.value(item))
            case nodes.IsNan(item):
                return self.use(values.is_nan, self.value(item))
            case nodes.Like(item, pattern):
                return self.use(pattern.truth, self.value(item))
            case nodes.Affix(item):
                test = self.constant(_text_test(node))
                return self.use(values.of_text, self.value(item), test)
        return self.use(values.truth, self.value(node))

    def _logic(self, node: nodes.Not | nodes.And | nodes.Or) -> ast.expr:
        if isinstance(node, nodes.Not):
            return self.use(values.not_, self.truth(node.item))
        logic = values.and_ if isinstance(node, nodes.And) else values.or_
        return self.use(logic, *map(self.truth, node.items))

    def value(self, node: Node) -> ast.expr:
        """An expression that is the node's value."""
        match node:
            case nodes.Literal(value):
                return self.constant(value)
            case Loaded():
                return syntax.load(self.load(node))
            case nodes.Arithmetic(op, left, right):
                return self.use(OPERATORS[op], self.value(left), self.value(right))
            case nodes.If(condition, then, otherwise):
                return syntax.choice(self.true(condition), self.value(then), self.value(otherwise))
            case nodes.Coalesce(items):
                return self.use(runtime.coalesce, *map(self.value, items))
            case nodes.Call(_, call, items):
                return self.use(call, *map(self.value, items))
            case nodes.OfMessage(what):
                return self._of_message(what)
        return self.truth(node)

    def _of_message(self, what: str) -> ast.expr:
        if what == "MESSAGE_SIZE":
            return self.use(len, syntax.item("data", syntax.load("i")))
        found = syntax.method("about", _ASKED[what], syntax.load("i"))
        return self.use(_MADE[what], found) if what in _MADE else found

    # -- a field, or a header, and a constant -------------------------------------------------

    def _short(self, node: Node, *, asked: bool) -> ast.expr | None:
        """`true` or `false` where what is loaded meets a constant; None: there is no short way.

        A value of the constant's type is compared at once, everything else by the helper.
        """
        match node:
            case nodes.Compare(op, Loaded() as item, nodes.Literal(value)):
                return self._short_compare(op, item, value, asked=asked)
            case nodes.Compare(op, nodes.Literal(value), Loaded() as item):
                return self._short_compare(_TURNED[op], item, value, asked=asked)
            case nodes.In(Loaded() as item, choices) if asked:
                return self._short_in(item, choices)
            case nodes.Between(Loaded() as item, nodes.Literal(low), nodes.Literal(high)):
                return self._short_between(item, low, high, asked=asked)
            case nodes.Like(Loaded() as item) | nodes.Affix(Loaded() as item):
                return self._short_text(item, node, asked=asked)
            case nodes.IsNull(Loaded() as item):
                field = self.load(item)
                if asked:
                    return syntax.or_(
                        syntax.is_none(field), self.use(values.is_null, syntax.load(field))
                    )
                return syntax.and_(
                    syntax.not_(syntax.is_none(field)),
                    syntax.not_(self.use(values.is_null, syntax.load(field))),
                )
        return None

    def _short_compare(
        self,
        op: str,
        item: Loaded,
        value: object,
        *,
        asked: bool,
    ) -> ast.expr | None:
        kind = value.__class__
        if kind not in (int, float, str) or value == "":
            return None
        field, constant = self.load(item), self.constant(value)
        quick = syntax.compare(syntax.load(field), _COMPARE[op], constant)
        quick = quick if asked else syntax.not_(quick)
        if kind is str:
            same_kind = syntax.has_class(field, "str")
            if not (op == "=" and asked):
                quick = syntax.and_(syntax.load(field), quick)  # empty text is NULL
        else:
            same_kind = _is_number(field)
        slow = self.use(values.ORDERS[op], syntax.load(field), constant)
        return syntax.choice(same_kind, quick, self._slow(field, slow, asked=asked))

    def _short_in(self, item: Loaded, choices: tuple[Node, ...]) -> ast.expr | None:
        """Texts of a set are found at once; everything else is asked one by one."""
        literals = [each.value for each in choices if isinstance(each, nodes.Literal)]
        if len(literals) < len(choices):
            return None
        texts = frozenset(each for each in literals if isinstance(each, str) and each)
        field = self.load(item)
        slow = self.use(runtime.among(literals), syntax.load(field))
        if any(type(each) in (int, float, bool) for each in literals):
            return self._slow(field, slow, asked=True)
        quick = syntax.compare(syntax.load(field), ast.In, self.constant(texts))
        return syntax.choice(
            syntax.has_class(field, "str"), quick, self._slow(field, slow, asked=True)
        )

    def _short_between(
        self, item: Loaded, low: object, high: object, *, asked: bool
    ) -> ast.expr | None:
        if {type(low), type(high)} - {int, float}:
            return None
        field = self.load(item)
        ends = self.constant(low), self.constant(high)
        quick = syntax.and_(
            syntax.compare(ends[0], ast.LtE, syntax.load(field)),
            syntax.compare(syntax.load(field), ast.LtE, ends[1]),
        )
        quick = quick if asked else syntax.not_(quick)
        slow = self.use(values.between, syntax.load(field), *ends)
        return syntax.choice(_is_number(field), quick, self._slow(field, slow, asked=asked))

    def _short_text(self, item: Loaded, node: nodes.Like | nodes.Affix, *, asked: bool) -> ast.expr:
        field = self.load(item)
        test = _text_test(node)
        quick = self._plain_text(field, node)
        if quick is not None:
            quick = quick if asked else syntax.not_(quick)
        else:  # True, False, or None where the text is too long
            quick = self.use(test, syntax.load(field))
            quick = quick if asked else syntax.is_(quick, syntax.constant(False))
        quick = syntax.and_(syntax.load(field), quick)
        if isinstance(node, nodes.Like):
            slow = self.use(node.pattern.truth, syntax.load(field))
        else:
            slow = self.use(values.of_text, syntax.load(field), self.constant(test))
        slow = self._slow(field, slow, asked=asked)
        return syntax.choice(syntax.has_class(field, "str"), quick, slow)

    def _plain_text(self, field: str, node: nodes.Like | nodes.Affix) -> ast.expr | None:
        """The test of a text without a call of ours; None if it takes a regular expression."""
        wanted: str | tuple[str, ...]
        where: Where
        if isinstance(node, nodes.Affix):
            wanted, where = node.texts, node.at
        elif node.pattern.plain is None:
            return None
        else:
            wanted, where = node.pattern.plain
        constant = self.constant(wanted)
        if where == "anywhere":
            return syntax.compare(constant, ast.In, syntax.load(field))
        if where == "whole":
            return syntax.compare(syntax.load(field), ast.Eq, constant)
        return syntax.method(field, "startswith" if where == "begin" else "endswith", constant)

    def _slow(self, field: str, truth: ast.expr, *, asked: bool) -> ast.expr:
        wanted = truth if asked else syntax.is_(truth, syntax.constant(False))
        return syntax.and_(syntax.not_(syntax.is_none(field)), wanted)


def _is_number(field: str) -> ast.expr:
    return syntax.or_(syntax.has_class(field, "int"), syntax.has_class(field, "float"))


def _text_test(node: nodes.Like | nodes.Affix) -> Callable[[str], values.Truth]:
    if isinstance(node, nodes.Like):
        return node.pattern.search
    return runtime.affix_test(node.texts, node.at)
