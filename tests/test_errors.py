"""Claims about errors: each code is known, has one class, and survives a way to another process."""

from __future__ import annotations

import ast
import asyncio
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from zbroker import errors
from zbroker.errors import CODES, LOCAL_CODES, ClientError, StorageError, ZBrokerError

KNOWN = [*CODES, *LOCAL_CODES]
KINDS = errors.tree()
MAKERS = ("ZBrokerError", "ClientError", "StorageError", "ConfigError", "FormatError", "BadRule")


def test_no_code_has_two_meanings() -> None:
    assert set(CODES) & set(LOCAL_CODES) == set()


def test_each_code_has_at_most_one_class_and_each_class_known_codes() -> None:
    claimed = [code for kind in KINDS for code in kind.codes]
    assert sorted(claimed) == sorted(set(claimed))
    assert set(claimed) <= set(KNOWN)


def test_what_clients_get_from_a_broker_has_a_class_of_its_own() -> None:
    plain = [code for code in CODES if errors.class_of(code) is ZBrokerError]
    assert plain == ["internal"]


@pytest.mark.parametrize("code", KNOWN)
def test_the_plain_class_makes_the_one_of_the_code(code: str) -> None:
    error = ZBrokerError(code, "why")
    assert type(error) is errors.class_of(code)
    assert (error.code, error.reason) == (code, "why")
    assert error.hint == {**CODES, **LOCAL_CODES}[code][1]


def test_a_class_of_fault_stays_what_it_is() -> None:
    assert type(ClientError("too_large", "x")) is errors.Refused
    assert type(ClientError("disk_full", "x")) is ClientError
    assert type(StorageError("disk_full", "x")) is StorageError
    assert type(StorageError("store_damaged", "x")) is errors.StoreDamaged


def test_a_class_that_was_asked_for_is_made_whatever_the_code_is() -> None:
    assert type(errors.Closed("timeout", "x")) is errors.Closed


def test_a_code_of_a_newer_broker_is_an_error_too() -> None:
    error = ZBrokerError("of tomorrow", "why", "do")
    assert type(error) is ZBrokerError
    assert str(error) == "of tomorrow: why (do)"


def test_a_subclass_of_elsewhere_is_kept() -> None:
    class Other(ClientError):
        pass

    assert type(Other("bad_topic", "x")) is Other


@pytest.mark.parametrize("code", [*KNOWN, "of tomorrow"])
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_the_way_to_another_process(code: str, again) -> None:  # type: ignore[no-untyped-def]
    error = ZBrokerError(code, "why", "do")
    other = again(error)
    assert type(other) is type(error)
    assert (str(other), other.args) == (f"{code}: why (do)", error.args)
    assert (other.code, other.reason, other.hint) == (code, "why", "do")


def test_a_time_out_is_one_of_python_too() -> None:
    with pytest.raises(TimeoutError, match="timeout: slow"):
        raise ZBrokerError("timeout", "slow")
    assert isinstance(ZBrokerError("timeout", "slow"), asyncio.TimeoutError)


# -- every call in the package --------------------------------------------------------------------


def test_every_code_that_is_raised_is_known() -> None:
    unknown = [(code, where) for code, where in raised() if code not in KNOWN]
    assert unknown == []


def test_every_local_code_is_raised() -> None:
    made_of_words = {"failed", "refused"}  # the result of an action is its code
    found = {code for code, _ in raised()} | made_of_words
    assert [code for code in LOCAL_CODES if code not in found] == []


def raised() -> Iterator[tuple[str, str]]:
    """Codes that are written where an error is made, and where; also those in a constant."""
    for path in sorted((ROOT / "zbroker").rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = dict(_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in MAKERS and node.args:
                code = node.args[0]
                text = constants.get(code.id) if isinstance(code, ast.Name) else _text(code)
                if text is not None:
                    yield text, f"{path.relative_to(ROOT)}:{node.lineno}"


def _constants(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            text = _text(node.value)  # type: ignore[attr-defined]
            if isinstance(target, ast.Name) and target.id.isupper() and text is not None:
                yield target.id, text


def _text(node: ast.expr | None) -> str | None:
    known = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if known else None  # type: ignore[union-attr]


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def test_the_docstring_names_every_class() -> None:
    doc = Path(errors.__file__).read_text().partition('"""\n\n')[0]
    assert [kind.__name__ for kind in KINDS if kind.__name__ not in doc] == []
