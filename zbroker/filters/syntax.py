"""Pieces of Python's syntax tree, for compiled filters. All names in them are ours."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeVar

Placed = TypeVar("Placed", ast.expr, ast.stmt, ast.arg)


def placed(node: Placed) -> Placed:
    """A node with a place in a text, which Python asks for; there is no text.

    Given to each node where it is made: `ast.fix_missing_locations` takes longer than all the rest.
    """
    node.lineno = node.end_lineno = 1
    node.col_offset = node.end_col_offset = 0
    return node


def load(name: str) -> ast.expr:
    return placed(ast.Name(name, ast.Load()))


def store(name: str) -> ast.expr:
    return placed(ast.Name(name, ast.Store()))


def constant(value: int | bool | None) -> ast.expr:
    return placed(ast.Constant(value))


def assign(name: str, value: ast.expr) -> ast.stmt:
    return placed(ast.Assign([store(name)], value))


def pair(first: str, second: str) -> ast.expr:
    """A target of two names."""
    return placed(ast.Tuple([store(first), store(second)], ast.Store()))


def call(name: str, *items: ast.expr) -> ast.expr:
    return placed(ast.Call(func=load(name), args=list(items), keywords=[]))


def method(of: str, name: str, *items: ast.expr) -> ast.expr:
    """`of.name(*items)`."""
    return placed(ast.Call(func=attribute(of, name), args=list(items), keywords=[]))


def attribute(of: str, name: str) -> ast.expr:
    return placed(ast.Attribute(load(of), name, ast.Load()))


def item(of: str, key: ast.expr) -> ast.expr:
    return placed(ast.Subscript(load(of), key, ast.Load()))


def has_class(name: str, kind: str) -> ast.expr:
    return is_(attribute(name, "__class__"), load(kind))


def is_(left: ast.expr, right: ast.expr) -> ast.expr:
    return placed(ast.Compare(left, [ast.Is()], [right]))


def is_none(name: str) -> ast.expr:
    return is_(load(name), constant(None))


def not_(operand: ast.expr) -> ast.expr:
    return placed(ast.UnaryOp(ast.Not(), operand))


def compare(left: ast.expr, op: type[ast.cmpop], right: ast.expr) -> ast.expr:
    return placed(ast.Compare(left, [op()], [right]))


def and_(*items: ast.expr) -> ast.expr:
    return placed(ast.BoolOp(ast.And(), list(items)))


def or_(*items: ast.expr) -> ast.expr:
    return placed(ast.BoolOp(ast.Or(), list(items)))


def choice(test: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    return placed(ast.IfExp(test, then, otherwise))


def if_(test: ast.expr, then: ast.stmt) -> ast.stmt:
    return placed(ast.If(test, [then], []))


def each(target: ast.expr, items: ast.expr, body: Iterable[ast.stmt]) -> ast.stmt:
    """`for target in items: body`."""
    return placed(ast.For(target, items, list(body), []))


def do(value: ast.expr) -> ast.stmt:
    return placed(ast.Expr(value))


def empty_list() -> ast.expr:
    return placed(ast.List([], ast.Load()))


def give(value: ast.expr) -> ast.stmt:
    return placed(ast.Return(value))


def function(name: str, parameters: list[str], body: list[ast.stmt]) -> ast.Module:
    """A module that is one function."""
    arguments = ast.arguments(
        posonlyargs=[],
        args=[placed(ast.arg(parameter)) for parameter in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    made = placed(ast.FunctionDef(name, arguments, body, decorator_list=[]))
    return ast.Module(body=[made], type_ignores=[])
