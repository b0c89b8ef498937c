"""Functions of one's own: what installed packages offer under `zbroker_functions`, if the config
names it.

    [project.entry-points."zbroker_functions"]        in the package's pyproject.toml
    REGION = "mine.geo:region"                        def region(country: str) -> str | None: ...

An argument that is annotated as `str` is a text, one as `float` or `int` a number; NULL for one of
these gives NULL without a call. Any other gets the value as it is. An exception, or a result that
is not a text, a number or a bool, is NULL.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from zbroker.errors import ClientError
from zbroker.filters.functions import CHANGING, FUNCTIONS, Function, reading
from zbroker.filters.limits import TEXT_MAX_CHARS
from zbroker.filters.tree_builder import SPECIAL
from zbroker.filters.values import fit
from zbroker.filters.vocabulary import CONSTANTS, Vocabulary

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "zbroker_functions"

_NAME: Final = re.compile(r"[A-Z_][A-Z_0-9]{0,63}")
_TAKEN: Final = frozenset({*FUNCTIONS, *CHANGING, *SPECIAL, *CONSTANTS})
_LETTERS: Final[Mapping[object, str]] = {str: "t", float: "n", int: "n"}
_MANY: Final = 100


def vocabulary_of(instance: str, group: str, functions: Sequence[str] = ()) -> Vocabulary:
    """What filters of an instance's subscriptions may call. Raises: ClientError bad_field."""
    constants = {"INSTANCE_NAME": instance, "GROUP_NAME": group}
    return Vocabulary(load(functions), constants=constants)


def load(names: Sequence[str]) -> dict[str, Function]:
    """The functions of these names. Raises: ClientError bad_field."""
    if not names:
        return {}
    from importlib.metadata import entry_points  # a tenth of all imports of a start

    offered = {one.name: one for one in entry_points(group=GROUP)}
    return {name: _loaded(name, offered) for name in names}


def _loaded(name: str, offered: Mapping[str, EntryPoint]) -> Function:
    if not _NAME.fullmatch(name):
        raise _bad(name, "is not a name for a function", "it has A to Z, 0 to 9 and _")
    if name in _TAKEN:
        raise _bad(name, "is a function of the language", "give it another name")
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise _bad(name, f"is offered by no installed package as {GROUP}", f"there are: {known}")
    try:
        found = offered[name].load()
        return function_of(found)
    except Exception as error:  # whatever an import of others raises
        raise _bad(name, f"cannot be loaded: {error!r}", "mend or upgrade its package") from error


def function_of(called: Callable[..., Any]) -> Function:
    """A function of Python as one of the language. Raises: TypeError, ValueError."""
    hints = get_type_hints(called)
    letters, least, most = "", 0, 0
    for one in inspect.signature(called).parameters.values():
        if one.kind is one.KEYWORD_ONLY and one.default is one.empty:
            raise TypeError(f"its parameter {one.name!r} can only be given by name")
        if one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD):
            continue
        letters += _LETTERS.get(hints.get(one.name), "a")
        many = one.kind is one.VAR_POSITIONAL
        least += one.default is one.empty and not many
        most += _MANY if many else 1
    call = reading(partial(_result, called), letters or "a")
    return Function(call, letters or "a", least, most)


def _result(called: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401 - whatever it gives
    try:
        found = called(*given)
        if found.__class__ is str:
            return found if len(found) <= TEXT_MAX_CHARS else None
        if found.__class__ in (int, float):
            return fit(found)
    except Exception:
        return None
    return found if found.__class__ is bool else None


def _bad(name: str, why: str, hint: str) -> ClientError:
    return ClientError("bad_field", f"{name[:64]!r} {why}", hint)
