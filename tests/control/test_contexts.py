"""zbroker/control/contexts.py: files of contexts, and which of them counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from zbroker.control import contexts
from zbroker.control.contexts import Context, Login, resolve
from zbroker.errors import ConfigError, ZBrokerError

LOGIN = Login("/k/me.key_secret", "/k/broker.key", "ann", "/k/password")
FULL = Context("tcp://h:1", "", "", LOGIN)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "context", [FULL, Context(data_dir='/a "b"\té'), Context(config="/c.toml"), Context()]
)
def test_what_is_saved_is_loaded(context: Context) -> None:
    contexts.save("one", context)
    assert contexts.load("one") == context
    assert contexts.names() == ["one"]


def test_files_are_for_their_owner_only() -> None:
    path = contexts.save("one", FULL)
    contexts.use("one")
    assert [mode_of(path), mode_of(path.parent)] == [0o600, 0o700]
    assert mode_of(path.parent.parent / "context") == 0o600
    assert sorted(one.name for one in path.parent.iterdir()) == ["one.toml"]


def test_a_context_is_not_replaced_by_mistake() -> None:
    contexts.save("one", FULL)
    with pytest.raises(ZBrokerError, match="exists"):
        contexts.save("one", Context())
    assert contexts.load("one") == FULL
    contexts.save("one", Context(url="tcp://h:2"), force=True)
    assert contexts.load("one").url == "tcp://h:2"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc/x", "-a", ".a", "a b", "a\n", "ä", "a" * 65, "a\0b"],
)
def test_a_name_leads_nowhere_else(name: str) -> None:
    for function in (contexts.load, contexts.remove, contexts.use):
        with pytest.raises(ZBrokerError) as caught:
            function(name)
        assert caught.value.code == "bad_field"
    with pytest.raises(ZBrokerError):
        contexts.save(name, FULL)


def test_an_unknown_one_names_those_that_are_there() -> None:
    contexts.save("here", FULL)
    with pytest.raises(ZBrokerError) as caught:
        contexts.load("there")
    assert caught.value.code == "not_found"
    assert "here" in caught.value.reason


@pytest.mark.parametrize(
    "text", ["url = 1", "colour = 'red'", "url = ", "[credentials]\nsecret='x'"]
)
def test_a_broken_file_is_an_error_with_its_path(text: str) -> None:
    path = contexts.save("one", FULL)
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"one\.toml"):
        contexts.load("one")


def test_a_file_that_others_may_write_is_refused() -> None:
    path = contexts.save("one", FULL)
    path.chmod(0o620)
    with pytest.raises(ConfigError) as caught:
        contexts.load("one")
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_relative_directory_of_settings_is_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "settings")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts.directory() == tmp_path / ".config" / "zbroker" / "contexts"


def test_files_are_found_from_any_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    made = contexts.absolute(Context(data_dir="d", credentials=Login("k", "b.key", "u", "p")))
    assert made.data_dir == str(tmp_path / "d")
    assert made.credentials == Login(
        str(tmp_path / "k"), str(tmp_path / "b.key"), "u", str(tmp_path / "p")
    )
    key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    assert contexts.absolute(Context(credentials=Login(server=key))).credentials.server == key


# -- which one counts -----------------------------------------------------------------------------


def test_without_any_context_it_is_what_was_given() -> None:
    assert resolve(Context(url="tcp://x:1")) == Context(url="tcp://x:1")
    assert resolve(Context()) == Context()


def test_the_one_in_use_counts_where_no_place_is_given() -> None:
    contexts.save("one", FULL)
    contexts.use("one")
    assert resolve(Context()) == FULL
    assert resolve(Context(url=FULL.url)) == FULL


@pytest.mark.parametrize("given", [Context(url="tcp://x:1"), Context(data_dir="/d")])
def test_the_one_in_use_steps_aside_for_another_place(given: Context) -> None:
    contexts.save("one", FULL)
    contexts.use("one")
    assert resolve(given) == given


def test_one_that_is_named_gives_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.save("one", FULL)
    assert resolve(Context(url="tcp://x:1"), "one") == Context("tcp://x:1", "", "", LOGIN)
    assert resolve(Context(data_dir="/d"), "one") == Context("", "/d", "", LOGIN)
    monkeypatch.setenv(contexts.ENVIRONMENT, "one")
    mine = Login(key="/other")
    found = resolve(Context(credentials=mine))
    assert found.url == FULL.url
    assert found.credentials == Login("/other", *LOGIN_REST)


LOGIN_REST = (LOGIN.server, LOGIN.user, LOGIN.password_file)


def test_the_option_wins_over_the_environment_and_that_over_the_one_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, name in enumerate(("used", "env", "option")):
        contexts.save(name, Context(url=f"tcp://h:{number}"))
    contexts.use("used")
    assert resolve(Context()).url == "tcp://h:0"
    monkeypatch.setenv(contexts.ENVIRONMENT, "env")
    assert resolve(Context()).url == "tcp://h:1"
    assert resolve(Context(), "option").url == "tcp://h:2"


def test_a_broken_one_in_use_does_not_stop_who_says_where() -> None:
    contexts.save("one", FULL).write_text("broken")
    (contexts.directory().parent / "context").write_text("one\n")
    assert resolve(Context(url="tcp://x:1")).url == "tcp://x:1"
    with pytest.raises(ConfigError):
        resolve(Context())


def test_what_is_in_the_note_of_the_one_in_use_is_no_path() -> None:
    contexts.save("one", FULL)
    (contexts.directory().parent / "context").write_text("../../etc/passwd\n")
    assert contexts.current() == ""
    assert resolve(Context()) == Context()


# -- credentials ----------------------------------------------------------------------------------


def test_no_login_is_no_credentials() -> None:
    assert Login().credentials() is None


@pytest.mark.parametrize("login", [Login(key="/k"), Login(server="/s"), Login(user="u")])
def test_half_of_it_is_an_error(login: Login) -> None:
    with pytest.raises(ConfigError, match="is missing"):
        login.credentials()


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_bytes("héllo \r\nmore".encode())
    assert contexts.read_password(path) == "héllo "
    found = Login("/k", "/s", "ann", str(path)).credentials()
    assert found is not None
    assert (found.user, found.password) == ("ann", "héllo ")
    assert "héllo" not in repr(found)


def test_a_password_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("secret")
    path.chmod(0o640)
    with pytest.raises(ConfigError) as caught:
        contexts.read_password(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_password_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        contexts.read_password(tmp_path / "none")
