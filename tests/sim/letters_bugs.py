"""Bugs that can be planted in the world of dead letters to exchanges: each breaks a promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from tests.sim import queues_bugs
from zbroker.queues import dead_letters, letter_routes
from zbroker.queues.core import QueuesCore

Patch = tuple[Any, str, Any]  # where, what, and what it is then


def _bindings_of_the_start(core: Any) -> None:
    """Changes since the first letter are not noticed."""
    known = core.manager.exchanges
    known._routes_by = lambda changes: None


def _not_waited_for(core: Any) -> None:
    """Letters are routed before the journal has said what exchanges there are."""
    core.manager.exchanges.when_known = lambda then: then()


def _in_a_unit_of_their_own(core: Any) -> None:
    queues_bugs.BUGS["letters are apart from their records"](core)


def _goes_back(queues: Any, _passed: Any) -> Any:
    return queues


def _only_the_last(_before: object, queue: str) -> list[str]:
    """Queues that it passed before are forgotten."""
    return [queue]


def _never_begins_again(letter: Any, now: Any) -> Any:
    """A program that rejects it does not begin the list again."""
    made = dead_letters.RoutableLetter(*_LETTER(letter, now))
    passed = (letter.row.headers or {}).get(letter_routes.PASSED)
    if letter.why in letter_routes.SAID and passed:
        return made._replace(passed=passed.split("\n"))
    return made


def _key_of_the_message(letter: Any, now: Any) -> Any:
    """The queue's own key for letters is not looked at."""
    return _LETTER(letter, now)._replace(key=letter.row.key)


def _without_routes(letters: Any, _exchanges: Any) -> Any:
    return [(letters, b"")] if letters else []


def _no_alternate(letters: Any, exchanges: Any) -> Any:
    """What no binding asks for goes nowhere."""
    router, found = exchanges.router, []
    routings = {name: one.exchange for name, one in router._routings.items()}
    for name, one in routings.items():
        router._routings[name].exchange = replace(one, alternate="")
    try:
        found = _ROUTED(letters, exchanges)
    finally:
        for name, one in routings.items():
            router._routings[name].exchange = one
    return found


_LETTER = dead_letters._letter
_ROUTED = letter_routes.routed

PATCHES: Final[dict[str, Patch]] = {
    "letters are not routed": (dead_letters, "routed", _without_routes),
    "a letter goes back to its queue": (letter_routes, "_without_passed", _goes_back),
    "only the last queue is passed": (dead_letters, "passed_by", _only_the_last),
    "a reject does not begin the list again": (dead_letters, "_letter", _never_begins_again),
    "the key for letters is not looked at": (dead_letters, "_letter", _key_of_the_message),
    "letters have no alternate": (dead_letters, "routed", _no_alternate),
}

QUEUES: Final[dict[str, Callable[[QueuesCore], None]]] = {
    "letters go by the bindings of the first one": _bindings_of_the_start,
    "letters do not wait for exchanges": _not_waited_for,
    "letters are apart from their records": _in_a_unit_of_their_own,
}
#: each is found within SEEDS_OF_BUG seeds, or this world proves nothing
BUGS: Final = (*PATCHES, *QUEUES)
