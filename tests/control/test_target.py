"""zbroker/control/target.py: which token is shown to an admin, and when it is asked for again."""

from __future__ import annotations

import pytest

from tests.cli.admins import TOKEN, FakeAdmin
from zbroker.control.target import Admin, Target
from zbroker.errors import ZBrokerError


def target_of(fake: FakeAdmin) -> Target:
    return Target(None, None, str(fake.data), False)


def test_reading_shows_no_token_where_none_is_wanted(fake: FakeAdmin) -> None:
    (fake.data / "run" / "admin.token").unlink()
    assert target_of(fake).ask("/status")["state"] == "ready"
    assert fake.asked == ["/status"]


def test_reading_shows_the_token_of_readers_where_one_is_wanted(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    (fake.data / "run" / "admin-read.token").write_text("reader\n")
    target = target_of(fake)
    assert target.ask("/status")["state"] == "ready"
    assert target.ask("/status")["state"] == "ready"
    assert len(fake.asked) == 3  # it is kept


def test_a_token_that_was_made_anew_is_read_again(fake: FakeAdmin) -> None:
    fake.readers = {"second"}
    (fake.data / "run" / "admin-read.token").write_text("second\n")
    admin = Admin(fake.url, fake.data, token="first")
    assert admin.ask("/status")["state"] == "ready"


def test_without_any_token_the_refusal_says_what_to_give(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    with pytest.raises(ZBrokerError) as caught:
        Admin(fake.url).ask("/status")
    assert caught.value.code == "auth_failed"
    assert "--key" in caught.value.hint


def test_a_token_that_is_not_there_is_said_with_its_path(fake: FakeAdmin) -> None:
    fake.readers = {"reader"}
    with pytest.raises(ZBrokerError, match=r"admin-read\.token is not there"):
        target_of(fake).ask("/status")


def test_changing_shows_the_token_of_the_owner(fake: FakeAdmin) -> None:
    fake.answers["POST /x"] = {"id": 1}
    assert target_of(fake).admin().tell("/x", {"a": 1}) == {"id": 1}
    assert fake.told == [("/x", {"a": 1})]


def test_the_directory_of_the_token_is_asked_for_where_it_is_not_known(fake: FakeAdmin) -> None:
    fake.answers["POST /x"] = {"id": 1}
    assert Admin(fake.url).tell("/x", {}) == {"id": 1}


@pytest.mark.parametrize("writes", [False, True])
def test_a_session_that_ended_is_begun_again_once(fake: FakeAdmin, writes: bool) -> None:
    fake.readers = {"new"}
    fake.answers["POST /x"] = {"id": 1}
    logons: list[str] = []

    def log_on() -> str:
        logons.append("new")
        return "new"

    admin = Admin(fake.url, None, log_on, "old")
    if writes:
        assert admin.tell("/x", {}) == {"id": 1}
    else:
        assert admin.ask("/status")["state"] == "ready"
    assert logons == ["new"]
    admin.ask("/status")
    assert logons == ["new"]


def test_a_session_that_is_refused_again_is_an_error(fake: FakeAdmin) -> None:
    fake.readers = {"another"}
    with pytest.raises(ZBrokerError, match="auth_failed"):
        Admin(fake.url, None, lambda: "new", "old").ask("/status")


def test_tokens_are_not_shown_by_repr(fake: FakeAdmin) -> None:
    assert TOKEN not in repr(Admin(fake.url, fake.data, lambda: TOKEN, TOKEN))
    assert "old" not in repr(Target("u", None, None, False, None, Admin("b", token="old")))
