"""zbroker/config.py: what a file may say, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker import config
from zbroker.config import Config, QueueConfig
from zbroker.config.units import format_micros, parse_micros
from zbroker.errors import ConfigError
from zbroker.server import security

ROOT = Path(__file__).parent.parent
DESTINATION = "[[destination]]\nname = 'b'\nto = ['tcp://h:9104']\n"
SHARED = "[[queue]]\nname = 'q'\nscope = 'distributed'\n"
OWNED = "[[queue]]\nname = 'q'\nscope = 'group-local'\ninitial_owner = 'b'\n"
THIRD = "name = 'c'\nto = ['tcp://i:9104']\n"
TWO_LISTS = (
    f"{DESTINATION}mode = 'sync'\ntopics = ['orders']\n"
    "[[destination]]\nname = 'c'\nto = ['tcp://i:9104']\nmode = 'sync'\n"
)
TWO_FILTERS = TWO_LISTS.replace("topics = ['orders']", "filter = '/n > 1'")
EXAMPLE = ROOT / "conf" / "zbroker.example.toml"


def wrong(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "z.toml")
    return caught.value


def test_the_example_is_what_the_settings_say() -> None:
    assert EXAMPLE.read_text() == config.example(), "run: zbroker config example > conf/..."


def test_the_example_loads_to_the_defaults() -> None:
    assert config.load(EXAMPLE) == Config()


def test_no_file_means_the_defaults() -> None:
    assert config.load() == Config()


def test_accepting_a_loss_changes_nothing_else() -> None:
    settings = config.parse("[journal]\nsegment_size = '8MiB'", "z.toml")
    accepting = settings.accepting(tail_loss=True)
    assert (settings.journal.accept_tail_loss, accepting.journal.accept_tail_loss) == (False, True)
    assert accepting.journal.segment_size == settings.journal.segment_size == 8 << 20


def test_toml_of_settings_loads_to_the_same_settings() -> None:
    name = 'caf\u00e9 "\\ \U0001f600'
    settings = config.parse("", "-", {"instance.name": name, "listen.ingest": "tcp://127.0.0.1:0"})
    assert config.parse(config.to_toml(settings), "z.toml") == settings


@pytest.mark.parametrize(
    ("text", "size"),
    [("1MiB", 1 << 20), ("2 GiB", 2 << 30), ("1048576", 1 << 20), ("64KiB", 1 << 16), ("3B", 3)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert config.parse_size(text) == size


@given(st.integers(0, 1 << 50))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert config.parse_size(config.format_size(size)) == size


@pytest.mark.parametrize("text", ["", "MiB", "1MB", "-1", "1.5GiB", "1 M", "\u0663MiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        config.parse_size(text)


def test_a_size_may_be_a_number() -> None:
    assert config.parse("[journal]\nsegment_size = 2097152", "z").journal.segment_size == 2 << 20


@pytest.mark.seed("004-29")
def test_the_flush_interval_is_30_us_to_100_ms_by_default_100_ms() -> None:
    def interval(text: str) -> int:
        return config.parse(f"[journal]\nflush_interval = {text}", "z.toml").journal.flush_interval

    assert Config().journal.flush_interval == interval('"100ms"') == 100_000
    assert interval('"30us"') == 30
    assert interval("50") == interval('"50ms"') == 50_000, "a plain number is milliseconds, as ever"
    for text in ('"29us"', '"101ms"', '"1s"', "0", "1000"):
        error = wrong(f"[journal]\nflush_interval = {text}")
        assert "z.toml:2: `journal.flush_interval`" in error.reason
        assert "30us to 100ms" in error.hint
    assert "a duration" in wrong('[journal]\nflush_interval = "soon"').reason


@given(st.integers(0, 1 << 50))
def test_formatted_microseconds_read_back(us: int) -> None:
    assert parse_micros(format_micros(us)) == us


@pytest.mark.seed("004-24")
def test_the_number_of_prepared_files_is_two_by_default_and_one_at_least() -> None:
    def files(text: str) -> int:
        return config.parse(f"[journal]\npreallocate = {text}", "z.toml").journal.files_ahead

    assert Config().journal.files_ahead == files("2") == 2
    assert [files(text) for text in ("1", "16", "true", "false")] == [1, 16, 2, 0]
    for text in ("0", "-1", "17", '"2"', "1.5"):
        assert "`journal.preallocate`" in wrong(f"[journal]\npreallocate = {text}").reason


@pytest.mark.seed("004-28")
def test_a_log_that_records_nothing_is_one_key() -> None:
    nothing = config.parse('[journal]\nrecord = "nothing"', "z.toml")
    assert nothing.records_nothing
    assert not Config().records_nothing
    assert not config.parse(
        '[journal]\nrecord = "nothing"\n[[record]]\ntopic = "orders"', "z.toml"
    ).records_nothing
    text = '[journal]\nrecord = "nothing"\n[[queue]]\nname = "w"\ntopic = "t"'
    assert "not recorded" in wrong(text).reason


def test_a_list_of_durations_has_units() -> None:
    text = "[[queue]]\nname = 'a'\nretry_delay = ['1s', 500, '1m']"
    assert config.parse(text, "z").queue[0].retry_delay == [1_000, 500, 60_000]


def test_a_queue_has_its_defaults_and_what_the_file_says() -> None:
    text = "[[queue]]\nname = 'a'\n[[queue]]\nname = 'b'\ntopic = 'a'\nlease = '1m'"
    found = config.parse(text, "z").queue
    assert found == [QueueConfig("a"), QueueConfig("b", topic="a", lease=60_000)]
    assert [queue.max_per_subscription for queue in found] == [0, 0]


def test_toml_of_queues_loads_to_the_same_queues() -> None:
    text = "[[queue]]\nname = 'a'\nretry_delay = ['1s', '90s']\nfilter = '/b = \"c\"'"
    settings = config.parse(text, "z")
    assert config.parse(config.to_toml(settings), "z.toml") == settings
    assert 'retry_delay = ["1s", "90s"]' in config.to_toml(settings)


def test_overrides_win_over_the_file() -> None:
    text = "[instance]\nname = 'a'\ngroup = 'g'"
    settings = config.parse(text, "z.toml", {"instance.name": "b"})
    assert (settings.instance.name, settings.instance.group) == ("b", "g")


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("\n[journal]\nsegmentsize = 1", "z.toml:3: ", "did you mean `segment_size`?"),
        ("[jornal]\nsegment_size = 1", "z.toml:1: ", "did you mean `journal`?"),
        ("[journal]\nqqq = 1", "z.toml:2: ", "there are: directory"),
        ("journal = 3", "z.toml:1: ", "write [journal] above its keys"),
        ("journal = 3\n[listen]\n", "z.toml:1: ", "is a table"),
        ("[journal]\nsegment_size = '3 MB'", "z.toml:2: ", "is not a size"),
        ("[journal]\nsegment_size = '1KiB'", "z.toml:2: ", ">= 1048576"),
        ("[delivery]\n# why\nworkers = '1'", "z.toml:3: ", "Expected `int`, got `str`"),
        ("[delivery]\nworkers = 65", "z.toml:2: ", "64 at most"),
        ("journal.time = 'never'", "z.toml:1: ", "Invalid enum value 'never'"),
        ("listen = {ingest = 'nowhere'}", "z.toml:1: ", "write tcp://127.0.0.1:PORT"),
        ("[listen]\ningest = 'tcp://127.0.0.1:70000'", "z.toml:2: ", "not an address"),
        ("[listen]\nadmin = 'tcp://127.0.0.1:9105'", "z.toml:2: ", "write http://"),
        ("[listen]\nadmin = 'http://0.0.0.0:9105'", "z.toml:2: ", "is not loopback"),
        ("[limits]\nwindow_bytes = '64KiB'", "z.toml:2: ", "holds at least one batch"),
        ("[journal]\n\nsegment_size = ", "z.toml:3: ", "must be TOML"),
        ("[journal]\naccept_tail_loss = true", "z.toml:2: ", "unknown key"),
        ("[record]\ntopic = 'a'", "z.toml:1: ", "write [[record]] above its keys"),
        ("[[record]]\nregex = true", "z.toml:1: ", "missing required field `topic`"),
        ("[[record]]\ntopic = 'a('\nregex = true", "z.toml:2: ", "the pattern cannot be used"),
        ("[[record]]\ntopic = 'a('\n[[record]]\ntopic = '\t'", "z.toml:4: ", "printable"),
        (
            "[[record]]\ntopic = 'a'\n\n[[record]]\ntopic = 'b'\ntype = 'avro'",
            "z.toml:6: ",
            "'avro'",
        ),
        ("[queue]\nname = 'a'", "z.toml:1: ", "write [[queue]] above its keys"),
        ("[[queue]]\ntopic = 'a'", "z.toml:1: ", "missing required field `name`"),
        ("[[queue]]\nname = 'a'\nlease = 'soon'", "z.toml:3: ", "'soon' is not a duration"),
        ("[[queue]]\nname = 'a'\nretry_delay = ['1s', 'x']", "z.toml:3: ", 'write "100ms"'),
        ("[[queue]]\nname = 'a'\nretry_delay = ['1s', -1]", "z.toml:3: ", ">= 0"),
        ("[[queue]]\nname = 'a'\nretry_delay = '1s'", "z.toml:3: ", "Expected `array`"),
        ("[[queue]]\nname = 'a'\nfiltre = 'x'", "z.toml:3: ", "did you mean `filter`?"),
        ("[[queue]]\nname = 'a'\nfilter = '/a >'", "z.toml:3: ", "column 5"),
        ("[[queue]]\nname = 'a'\n[[queue]]\nfilter = ''\nname = 'a'", "z.toml:5: ", "table 1, too"),
        ("[[queue]]\nname = 'a'\n[[queue]]\nlease = '1y'", "z.toml:4: ", "is not a duration"),
        ("[[queue]]\nname = 'a'\n[[queue]]\nleese = 1", "z.toml:4: ", "did you mean `lease`?"),
        (
            "[[queue]]\nmax_backlog = 9\nname = 'a'\n[[queue]]\nmax_per_subscription = 3",
            "z.toml:4: ",
            "missing required field `name`",
        ),
        (
            "[[queue]]\nmax_backlog = 2\nmax_per_subscription = 3\nname = 'a'\n[[queue]]\nname='b'",
            "z.toml:3: ",
            "no consumer can reach",
        ),
        ("[[record]]\ntopic = 'b'\n[[queue]]\nname = 'a'", "z.toml:3: ", "is not recorded"),
        (
            "[[record]]\ntopic = 'a'\n[[queue]]\nname = 'a'\ndead_letter = 'b'",
            "z.toml:5: ",
            "dead letters would be lost",
        ),
        ("[[destination]]\nname = 'b'\nto = ['tcp://*:9104']", "z.toml:3: ", "to connect to"),
        ("[[destination]]\nname = 'b'\nto = ['tcp://h:0']", "z.toml:3: ", "to connect to"),
        ("[[destination]]\nname = 'b'\nto = []", "z.toml:3: ", "`destination.to`"),
        (f"{DESTINATION}{DESTINATION}", "z.toml:5: ", "two destinations are called 'b'"),
        (f"[instance]\nname = 'b'\n{DESTINATION}", "z.toml:4: ", "is this instance"),
        (f"{DESTINATION}downgrade_after = '1s'", "z.toml:4: ", "asynchronous destination"),
        (f"[security]\nkey = 'k'\naccess = 'a'\n{DESTINATION}", "z.toml:4", "public key"),
        (f"{DESTINATION}[replication]\nsync_needed = 1", "z.toml:5: ", "there are 0 synchronous"),
        (f"{DESTINATION}mode = 'sync'\n[replication]\nmin_sync = 2", "z.toml:6: ", "there are 1"),
        (f"{DESTINATION}topics = ['']", "z.toml:4: ", "printable"),
        (f"{TWO_LISTS}[replication]\nsync_needed = 1", "z.toml:11: ", "different topics"),
        (f"{TWO_LISTS}[replication]\nmin_sync = 1", "z.toml:11: ", "different topics"),
        (f"{DESTINATION}topics = ['t']\n{SHARED}", "z.toml:7: ", "no other instance would know"),
        (f"[listen]\nreplication = 'tcp://127.0.0.1:1'\n{SHARED}", "z.toml:5: ", "is acknowledged"),
        (f"{OWNED}{DESTINATION}topics = ['t']\n[[destination]]\n{THIRD}", "z.toml:4: ", "nothing"),
        (OWNED, "z.toml:4: ", "there are no links"),
        (f"{DESTINATION}filter = '/a >'", "z.toml:4: ", "column 5: a field, a value"),
        (f"{DESTINATION}filter = ' '", "z.toml:4: ", "column 2"),
        (f"{DESTINATION}filter = 'USER() = 1'", "z.toml:4: ", "USER cannot be called here"),
        (f"{DESTINATION}filter = '/a LIKE \"a{{300}}\"'", "z.toml:4: ", "steps"),
        (f"{TWO_FILTERS}[replication]\nmin_sync = 1", "z.toml:11: ", "different filters"),
    ],
)
def test_an_error_says_where_and_what_instead(text: str, where: str, part: str) -> None:
    error = wrong(text + "\n")
    assert error.reason.startswith(where)
    assert part in str(error)


def test_a_queue_of_several_instances_needs_one_link_for_the_whole_log() -> None:
    copy = DESTINATION.replace("'b'", "'audit'") + "topics = ['t']\n"
    other = SHARED.replace("'q'", "'r'")
    text = f"{OWNED}{copy}[[destination]]\n{THIRD}{other}"
    assert [one.scope for one in config.parse(text, "z.toml").queue] == [
        "group-local", "distributed",
    ]  # fmt: skip
    alone = config.parse(SHARED, "z.toml")
    assert not alone.replicates, "it may be alone at first"


def test_an_error_in_an_override_blames_the_command_line() -> None:
    with pytest.raises(ConfigError, match=r"the command line: `instance\.name`"):
        config.load(None, {"instance.name": ""})


@pytest.mark.parametrize("listener", ["ingest", "delivery", "queues", "replication"])
@pytest.mark.parametrize("host", ["0.0.0.0", "*", "192.0.2.1", "broker.example", "[::]"])
def test_other_hosts_are_let_in_only_when_allowed(listener: str, host: str) -> None:
    text = f"[listen]\n{listener} = 'tcp://{host}:9191'\n"
    assert "allow_unauthenticated = true" in wrong(text).hint
    allowed = config.parse(text + "[security]\nallow_unauthenticated = true", "z.toml")
    assert getattr(allowed.listen, listener) == f"tcp://{host}:9191"


@pytest.mark.parametrize("listener", ["ingest", "delivery", "queues", "replication"])
def test_a_start_says_which_listener_strangers_reach(listener: str) -> None:
    text = f"[listen]\n{listener} = 'tcp://*:9191'\n[security]\nallow_unauthenticated = true"
    said = security.check(config.parse(text, "z.toml"))
    assert (said.safe, "every client that reaches tcp://*:9191 may" in said.text) == (False, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert config.parse(f"[listen]\ningest = 'tcp://{host}:1'", "z.toml")


def test_delivery_workers_take_consecutive_ports() -> None:
    text = "[listen]\ndelivery = 'tcp://127.0.0.1:9110'\n[delivery]\nworkers = 3"
    settings = config.parse(text, "z.toml")
    assert config.delivery_workers(settings) == ("delivery", "delivery-2", "delivery-3")
    assert config.log_readers(settings) == (*config.delivery_workers(settings), "queues")
    assert config.listen_endpoints(settings) == {
        "ingest": "tcp://127.0.0.1:9101",
        "delivery": "tcp://127.0.0.1:9110",
        "delivery-2": "tcp://127.0.0.1:9111",
        "delivery-3": "tcp://127.0.0.1:9112",
        "queues": "tcp://127.0.0.1:9103",
        "admin": "http://127.0.0.1:9105",
    }


def test_one_delivery_worker_is_called_as_ever() -> None:
    assert config.delivery_workers(Config()) == ("delivery",)
    assert list(config.listen_endpoints(Config())) == ["ingest", "delivery", "queues", "admin"]


def test_with_port_0_each_worker_gets_a_free_one() -> None:
    text = "[listen]\ndelivery = 'tcp://127.0.0.1:0'\n[delivery]\nworkers = 64"
    found = config.listen_endpoints(config.parse(text, "z.toml"))
    assert {found[f"delivery-{worker}"] for worker in range(2, 65)} == {"tcp://127.0.0.1:0"}


def test_a_worker_knows_its_setting_and_its_sockets() -> None:
    assert [config.setting_of(process) for process in ("ingest", "delivery-2", "queues")] == [
        "ingest", "delivery", "queues",
    ]  # fmt: skip
    assert config.socket_of("live", "delivery") == "live"
    assert config.socket_of("live", "delivery-64") == "live-64"


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("[delivery]\nworkers = 2", "z.toml: `listen.queues`", "port 9103"),
        (
            "[listen]\nqueues = 'tcp://127.0.0.1:9105'",
            "z.toml:1: `listen.admin`",
            "queues and admin would both listen on port 9105",
        ),
        ("[listen]\ndelivery = 'tcp://127.0.0.1:9101'", "z.toml:2: `listen.delivery`", "9101"),
        (
            "[listen]\ndelivery = 'tcp://127.0.0.1:65534'\n[delivery]\nworkers = 3",
            "z.toml:2: `listen.delivery`",
            "up to 65536",
        ),
        (
            "[listen]\ningest = 'tcp://*:7002'\ndelivery = 'tcp://127.0.0.1:7001'\n"
            "[security]\nallow_unauthenticated = true\n[delivery]\nworkers = 2",
            "z.toml:3: `listen.delivery`",
            "ingest and delivery-2 would both listen on port 7002",
        ),
    ],
)
def test_two_listeners_do_not_share_a_port(text: str, where: str, part: str) -> None:
    error = wrong(text + "\n")
    assert error.reason.startswith(where)
    assert part in error.reason


def test_two_addresses_may_have_the_same_port() -> None:
    text = "[listen]\ningest = 'tcp://127.0.0.1:7001'\ndelivery = 'tcp://127.0.0.2:7001'"
    assert config.parse(text, "z.toml")


def test_settings_that_no_message_holds_are_refused() -> None:
    tables = [f"[[queue]]\nname = 'q{n}'\ntopic = '{'t' * 200}'\n" for n in range(1_000)]
    assert len(config.parse("".join(tables[:100]), "z.toml").queue) == 100
    assert "bytes as JSON" in wrong("".join(tables)).reason


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config.load(tmp_path / "none.toml")


def test_a_file_of_bytes_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.load(path)


@pytest.mark.seed("004-22")
def test_the_journal_is_in_the_data_directory_unless_another_is_given() -> None:
    settings = config.parse("[instance]\ndata_dir = '/d'", "z.toml")
    assert settings.paths(1).journal == Path("/d/journal")
    elsewhere = config.parse("[journal]\ndirectory = '/fast'", "z.toml")
    assert elsewhere.paths(1).journal == Path("/fast")
