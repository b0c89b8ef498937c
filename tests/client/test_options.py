"""zbroker/client/options.py: the parameters of a function are those of what builds its options."""

from __future__ import annotations

from inspect import signature

import pytest

import zbroker
import zbroker.aio
from zbroker.client import Client
from zbroker.client.options import connect_options, method_takes, takes
from zbroker.client.subscriber.options import consume_options, subscribe_options


def built(a, *, b=2):
    return a, b


@takes(built)
def function(options) -> str:
    """What it does."""
    return f"{options()}"


class Holder:
    name = "holder"

    @method_takes(built)
    def method(self, options) -> str:
        """What it does."""
        return f"{self.name} {options()}"


def test_what_is_given_goes_to_what_builds_the_options():
    assert function(1, b=3) == "(1, 3)"
    assert Holder().method(1) == "holder (1, 2)"


def test_they_are_built_when_the_function_asks_for_them():
    later = takes(built)(lambda options: options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        later(1, c=3)()


def test_the_signature_is_theirs_and_the_docstring_its_own():
    assert str(signature(function)) == "(a, *, b=2) -> 'str'"
    assert str(signature(Holder.method)) == "(self, a, *, b=2) -> 'str'"
    assert (function.__name__, function.__doc__) == ("function", "What it does.")


@pytest.mark.parametrize(
    ("called", "options", "own"),
    [
        (zbroker.connect, connect_options, []),
        (zbroker.aio.connect, connect_options, []),
        (Client.subscribe, subscribe_options, ["self"]),
        (Client.consume, consume_options, ["self"]),
    ],
)
def test_every_option_is_listed_once(called, options, own):
    assert [*signature(called).parameters] == [*own, *signature(options).parameters]
