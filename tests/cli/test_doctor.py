"""`zbroker-admin doctor`: each test plants one fault, and it is found with a way to mend it."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli import journals
from tests.cli.admins import FakeAdmin
from tests.cli.journals import INSTANCE, Maker, flip, segments, ten_batches
from zbroker import LocalBroker, config
from zbroker.access import keys
from zbroker.cli.admin_main import main
from zbroker.cli.doctor import files, lines, live, machine
from zbroker.cli.doctor.case import Case, DoctorOptions, Finding
from zbroker.clock import SystemClock
from zbroker.control.target import Target
from zbroker.log.disk import RealDisk, holder_in
from zbroker.log.segments import segment_name
from zbroker.paths import Paths
from zbroker.supervisor import directory

ACCESS = """
[principal.ann]
keys = ["{key}"]
roles = ["feed"]

[[role.feed.allow]]
actions = ["publish"]
"""
SUBSCRIPTION: dict[str, Any] = {
    "worker": "delivery", "client": "slow one", "sid": "s1", "topic": "orders", "lag": 60,
    "state": "no credit", "sent_messages": 39,
}  # fmt: skip


class Patient:
    """An instance that does not run, and what the doctor says of it."""

    def __init__(self, maker: Maker, folder: Path) -> None:
        self.maker = maker
        self.data = maker.directory.parent
        self.config = folder / "z.toml"
        self.tables: dict[str, dict[str, Any]] = {
            "instance": {"data_dir": str(self.data)},
            "listen": {
                "ingest": "tcp://127.0.0.1:0",
                "delivery": "tcp://127.0.0.1:0",
                "queues": "tcp://127.0.0.1:0",
                "admin": "http://127.0.0.1:0",
            },
        }
        self.identity(INSTANCE)

    @property
    def paths(self) -> Paths:
        return Paths(self.data, self.maker.directory, self.data / "archive", INSTANCE)

    def identity(self, instance: int) -> None:
        (self.data / "instance.json").write_text(directory.identity(instance))

    def doctor(self, *arguments: str, before: tuple[str, ...] = ()) -> dict[str, Any]:
        self.maker.close()
        self.config.write_text(
            "\n".join(
                line
                for name, table in self.tables.items()
                for line in (f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items()))
            )
        )
        program = ["-c", str(self.config), *before, "doctor", "--json", "--disk-warning", "100"]
        result = CliRunner().invoke(main, [*program, *arguments])
        found: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (1 if found["findings"] else 0), result.output
        return found

    def only(self, check: str, *arguments: str, before: tuple[str, ...] = ()) -> dict[str, str]:
        """The one finding that there is."""
        found = self.doctor(*arguments, before=before)["findings"]
        assert [one["check"] for one in found] == [check], found
        assert all(found[0].values())
        finding: dict[str, str] = found[0]
        return finding


@pytest.fixture
def patient(maker: Maker, tmp_path: Path) -> Patient:
    ten_batches(maker)
    return Patient(maker, tmp_path)


@pytest.fixture
def running(patient: Patient) -> Iterator[FakeAdmin]:
    """The same, and its admin answers."""
    admin = FakeAdmin(patient.data)
    (patient.data / "run" / "admin.token").chmod(0o600)
    admin.answers |= {
        "GET /subscriptions?limit=1000": {"subscriptions": []},
        "GET /holders": {"silent": []},
    }
    yield admin
    admin.close()


def change(admin: FakeAdmin, **status: Any) -> None:
    admin.answers["GET /status"] |= status


# -- nothing is wrong -----------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is_wrong(patient: Patient) -> None:
    found = patient.doctor()
    assert (found["findings"], found["instance"]) == ([], "stopped")
    assert found["not_checked"] == []
    assert len(found["checked"]) >= 14


def test_nothing_is_found_at_an_instance_that_runs(patient: Patient, running: FakeAdmin) -> None:
    found = patient.doctor()
    assert (found["findings"], found["instance"]) == ([], "running")
    assert found["not_checked"] == []
    assert len(found["checked"]) >= 20


def test_where_no_instance_ever_was_nothing_is_wrong(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data-dir", str(tmp_path / "none"), "doctor"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("nothing is wrong")


def test_a_finding_is_three_lines() -> None:
    text = lines([Finding("full", "bad", "rm x", "disk")])
    assert text == ["disk: full", "  means: bad", "  do: rm x"]


# -- settings, keys, access -----------------------------------------------------------------------


def test_a_config_that_is_wrong(patient: Patient) -> None:
    patient.tables["jornal"] = {"segment_size": "1MiB"}
    found = patient.only("config")
    assert f"{patient.config}:8" in found["what"]
    assert "did you mean `journal`" in found["fix"]
    assert f"zbroker config check -c {patient.config}" in found["fix"]


def secured(patient: Patient, folder: Path) -> keys.KeyPair:
    """Security is on; the key of the only principal."""
    keys.make(folder / "broker")
    client = keys.make(folder / "client")
    (folder / "access.toml").write_text(ACCESS.format(key=client.public))
    (folder / "access.toml").chmod(0o600)
    patient.tables["security"] = {
        "key": str(folder / "broker.key_secret"),
        "access": str(folder / "access.toml"),
    }
    return client


def credentials(folder: Path, key: str = "client", server: str = "broker.key") -> tuple[str, ...]:
    return ("--key", str(folder / f"{key}.key_secret"), "--server-key", str(folder / server))


def test_keys_that_are_right(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    assert patient.doctor(before=credentials(tmp_path))["findings"] == []


def test_a_secret_key_that_others_can_read(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    path = tmp_path / "broker.key_secret"
    path.chmod(0o644)
    assert patient.only("security_key")["fix"] == f"chmod 600 {path}"


def test_a_secret_key_that_is_not_there(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    (tmp_path / "broker.key_secret").unlink()
    assert "key new" in patient.only("security_key")["fix"]


def test_an_access_file_that_is_broken(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    with (tmp_path / "access.toml").open("a") as file:
        file.write('\n[principal.bob]\nroles = ["nobody"]\n')
    found = patient.only("access_file")
    assert "access.toml" in found["what"]
    assert "zbroker-admin access check" in found["fix"]


def test_an_access_file_that_others_can_write(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    (tmp_path / "access.toml").chmod(0o666)
    assert "chmod go-w" in patient.only("access_file")["fix"]


def test_a_client_key_that_no_principal_has(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    stranger = keys.make(tmp_path / "stranger")
    found = patient.only("client_key", before=credentials(tmp_path, "stranger"))
    assert "belongs to no principal of" in found["what"]
    assert stranger.public in found["fix"]
    assert stranger.secret not in json.dumps(found)


def test_a_client_key_of_another_principal(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    found = patient.only("client_key", before=(*credentials(tmp_path), "--user", "bob"))
    assert "'bob'" in found["what"]


def test_the_key_of_another_broker(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    keys.make(tmp_path / "other")
    found = patient.only("client_key", before=credentials(tmp_path, server="other.key"))
    assert "key show" in found["fix"]


def test_a_client_key_that_others_can_read(patient: Patient, tmp_path: Path) -> None:
    secured(patient, tmp_path)
    path = tmp_path / "client.key_secret"
    path.chmod(0o640)
    assert patient.only("client_key", before=credentials(tmp_path))["fix"] == f"chmod 600 {path}"


# -- places ---------------------------------------------------------------------------------------


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    result = CliRunner().invoke(main, ["--data-dir", str(tmp_path / "data"), "--json", "doctor"])
    (found,) = json.loads(result.stdout)["findings"]
    assert found["check"] == "data_directory"
    assert "is not a directory" in found["what"]


def test_a_data_directory_that_cannot_be_written() -> None:
    place = files.PathFacts(Path("/d"), exists=True, is_directory=True, writable=False, owner="bob")
    (found,) = files.unusable(place, Path("/d"), "ann")
    assert "belongs to bob and cannot be written by ann" in found.what


def test_an_identity_that_is_damaged(patient: Patient) -> None:
    (patient.data / "instance.json").write_text("{")
    assert "journal info" in patient.only("identity")["fix"]


def test_an_identity_that_is_missing_beside_a_log(patient: Patient) -> None:
    (patient.data / "instance.json").unlink()
    assert "is not there" in patient.only("identity")["what"]


def test_an_identity_of_a_newer_release(patient: Patient) -> None:
    (patient.data / "instance.json").write_text('{"version": 99, "instance": "1"}')
    assert "version 99" in patient.doctor()["findings"][0]["what"]


def test_an_archive_directory_that_is_not_mounted(patient: Patient, tmp_path: Path) -> None:
    archive = tmp_path / "mnt" / "archive"
    patient.tables["journal"] = {"archive_directory": str(archive)}
    assert f"mkdir -p {archive}" in patient.only("archive_directory")["fix"]


def test_a_sockets_directory_that_others_can_enter(patient: Patient, tmp_path: Path) -> None:
    place = tmp_path / "sockets"
    place.mkdir(mode=0o700)
    patient.paths.run.mkdir(exist_ok=True)
    patient.paths.sockets_note.write_text(f"{place}\n")
    assert patient.doctor()["findings"] == []
    place.chmod(0o755)
    assert patient.only("sockets_directory")["fix"] == f"chmod 700 {place}"


def test_a_sockets_directory_that_is_gone_is_made_by_the_next_start(
    patient: Patient, tmp_path: Path
) -> None:
    patient.paths.run.mkdir(exist_ok=True)
    patient.paths.sockets_note.write_text(f"{tmp_path / 'gone'}\n")
    assert patient.doctor()["findings"] == []


def test_a_token_that_others_can_read(patient: Patient, running: FakeAdmin) -> None:
    path = patient.data / "run" / "admin.token"
    path.chmod(0o644)
    assert f"chmod 600 {path}" in patient.only("secrets")["fix"]


# -- processes ------------------------------------------------------------------------------------


def test_an_instance_that_was_killed(patient: Patient) -> None:
    running = patient.data / "run" / "instance.json"
    running.parent.mkdir()
    running.write_text('{"pid": 4000000, "endpoints": {"admin": "http://127.0.0.1:9"}}')
    found = patient.only("stale")
    assert "pid 4000000" in found["what"]
    assert found["fix"] == f"zbroker start -c {patient.config}"


def test_a_lock_of_a_process_that_does_not_answer(patient: Patient) -> None:
    held = directory.lock(patient.data)
    try:
        assert f"process {os.getpid()} " in patient.only("lock")["what"]
    finally:
        os.close(held)


def test_a_lock_of_a_tool_on_the_journal(patient: Patient) -> None:
    disk = RealDisk(patient.maker.directory)
    disk.lock()
    try:
        assert f"ps -fp {os.getpid()}" in patient.only("journal_lock")["fix"]
    finally:
        disk.close()


def test_a_port_that_another_process_has(patient: Patient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        patient.tables["listen"]["delivery"] = f"tcp://127.0.0.1:{port}"
        found = patient.only("ports")
    assert f"tcp://127.0.0.1:{port}, the listener of delivery" in found["what"]
    assert found["fix"] == f"kill {os.getpid()}"


@pytest.mark.parametrize(
    ("listener", "host", "is_taken"),
    [
        ("tcp://127.0.0.1:5", "127.0.0.1", True),
        ("tcp://127.0.0.1:5", "0.0.0.0", True),
        ("tcp://*:5", "10.0.0.1", True),
        ("tcp://[::1]:5", "::1", True),
        ("tcp://localhost:5", "127.0.0.1", True),
        ("tcp://127.0.0.1:5", "10.0.0.1", False),
        ("tcp://127.0.0.1:6", "127.0.0.1", False),
        ("tcp://127.0.0.1:0", "127.0.0.1", False),
    ],
)
def test_who_listens_where_takes_a_listener(listener: str, host: str, is_taken: bool) -> None:
    listening = SimpleNamespace(laddr=SimpleNamespace(ip=host, port=5), pid=None)
    found = list(machine.taken({"ingest": listener}, [listening]))
    assert bool(found) == is_taken
    assert all("ss -ltnp" in one.fix for one in found)


def test_a_lock_is_found_by_its_inode() -> None:
    text = (
        "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n"
        "2: -> FLOCK  ADVISORY  WRITE 13 fe:00:78 0 EOF\n"
        "3: FLOCK  ADVISORY  WRITE -1 fe:00:79 0 EOF\n"
    )
    assert [holder_in(text, inode) for inode in (77, 78, 79)] == [12, None, 0]


# -- files ----------------------------------------------------------------------------------------


def test_a_segment_that_is_missing_between_others(patient: Patient) -> None:
    segments(patient.maker, 4)
    (patient.maker.directory / segment_name(2)).unlink()
    found = patient.doctor()["findings"]
    assert found[0]["check"] == "segments"
    assert "segment 2 is missing between others" in found[0]["what"]


def test_old_segments_that_no_one_removed(patient: Patient) -> None:
    segments(patient.maker, 4)
    patient.maker.close()
    for serial in (1, 2):
        (patient.maker.directory / segment_name(serial)).unlink()
    found = patient.doctor()["findings"]
    assert "segments 1 to 2 are not there" in found[0]["what"]
    assert "--accept-missing" in found[0]["fix"]


def test_segments_of_another_instance(patient: Patient) -> None:
    patient.identity(INSTANCE + 1)
    assert f"{INSTANCE:016x}" in patient.only("foreign_segments")["what"]


def test_a_log_that_is_damaged(patient: Patient) -> None:
    batch = patient.maker.batches[4]
    flip(patient.maker, 1, offset_of(patient.maker, bytes(batch.body or b"")))
    found = patient.only("damage")
    assert "journal/0000000001.journal at " in found["what"]
    assert found["means"].startswith("3 positions cannot be read")
    assert "journal repair --output" in found["fix"]


def offset_of(maker: Maker, body: bytes) -> int:
    return (maker.directory / segment_name(1)).read_bytes().index(body)


def test_a_long_log_is_read_only_if_that_is_wanted(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbroker.cli.doctor.files.READ_MAX_BYTES", 10)
    (left,) = patient.doctor()["not_checked"]
    assert left["check"] == "damage"
    assert "journal verify" in left["why"]
    assert patient.doctor("--full")["not_checked"] == []


def test_an_index_that_is_damaged(patient: Patient) -> None:
    index = patient.data / "index"
    index.mkdir()
    (index / "data.mdb").write_bytes(b"nonsense" * 1000)
    found = patient.only("index")
    assert "no LMDB header" in found["what"]
    assert found["fix"].startswith("zbroker start")


def test_tables_of_queues_that_are_damaged(patient: Patient) -> None:
    tables = patient.data / "queues"
    tables.mkdir()
    (tables / "data.mdb").write_bytes(b"nonsense" * 1000)
    found = patient.only("queue_tables")
    assert "no LMDB header" in found["what"]
    assert found["fix"].startswith(f"rm -r {tables}; ")


def test_a_clock_far_behind_the_log(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "TIME_NS", SystemClock().wall_ns() + 3_600 * 10**9)
    patient.maker.batch([b"from the future"])
    assert "timedatectl" in patient.only("clock")["fix"]


def test_times_of_publishers_say_nothing_of_the_clock(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "TIME_NS", SystemClock().wall_ns() + 3_600 * 10**9)
    patient.maker.batch([b"from the future"])
    patient.tables["journal"] = {"time": "publisher"}
    assert patient.doctor()["findings"] == []


# -- machine --------------------------------------------------------------------------------------


def test_a_disk_that_is_fuller_than_it_should_be(patient: Patient) -> None:
    found = patient.only("disk", "--disk-warning", "0.001")
    assert "% full" in found["what"]
    assert f"zbroker-admin -c {patient.config} journal compress" in found["fix"]


def test_a_disk_without_space_for_a_copy_is_not_compressed() -> None:
    case = Case(Target(None, None, None, False), DoctorOptions())
    case.config = config.parse("", "z")
    segment = case.config.journal.segment_size
    [roomy] = machine.full(Path("/j"), 90.0, 3 * segment, case)
    [tight] = machine.full(Path("/j"), 90.0, segment, case)
    assert "journal compress --all-sealed --dry-run" in roomy.fix
    assert "compress" not in tight.fix
    assert "journal remove --before -7d --dry-run" in tight.fix


def test_the_queue_that_needs_most_of_the_log_is_named(
    patient: Patient, running: FakeAdmin
) -> None:
    change(running, journal={"bytes": 30 << 20})
    rows = [{"name": "small", "bytes": 1 << 20}, {"name": "rare", "bytes": 29 << 20}]
    running.answers["GET /queues"] = {"queues": rows}
    fix = patient.only("disk", "--disk-warning", "0.001")["fix"]
    assert fix.startswith("queue rare needs 29 MiB of the log")
    assert f"zbroker-admin -c {patient.config} queue explain rare" in fix


def test_an_access_file_that_cannot_be_used_is_one_finding(
    patient: Patient, running: FakeAdmin
) -> None:
    alarm = {"code": "access_file", "since": "T", "what": "w", "means": "m", "next": "n"}
    change(running, security={"on": True, "problem": "access.toml:3: x"}, alarms=[alarm])
    assert "access.toml:3: x" in patient.only("rules")["what"]


def test_too_few_open_files(patient: Patient) -> None:
    patient.tables["limits"] = {"connections": 1 << 40}
    assert "LimitNOFILE=" in patient.only("open_files")["fix"]


@pytest.mark.parametrize("listener", ["ingest", "delivery", "queues"])
def test_a_listener_that_others_reach_needs_many_open_files(listener: str) -> None:
    listen = {f"listen.{listener}": "tcp://0.0.0.0:0", "security.allow_unauthenticated": True}
    assert machine.needed(config.parse("", "z", listen)) > machine.OPEN_FILES_MIN
    assert machine.needed(config.Config()) == machine.OPEN_FILES_MIN


def test_as_many_open_files_as_are_needed() -> None:
    assert list(machine.too_few(1_024, 1_024)) == []
    assert len(list(machine.too_few(1_023, 1_024))) == 1


# -- what an instance says ------------------------------------------------------------------------


def process(**more: Any) -> dict[str, Any]:
    return {"room": "delivery", "pid": 9, "state": "ready", "restarts": 0, "uptime_s": 9} | more


def test_a_process_in_a_crash_loop(patient: Patient, running: FakeAdmin) -> None:
    change(running, processes=[process(restarts=7)])
    assert "delivery is in a crash loop: 7 restarts" in patient.only("rooms")["what"]


@pytest.mark.parametrize("well", [{"restarts": 2}, {"restarts": 9, "uptime_s": 300}])
def test_a_process_that_recovered_is_well(
    patient: Patient, running: FakeAdmin, well: dict[str, int]
) -> None:
    change(running, processes=[process(**well)])
    assert patient.doctor()["findings"] == []


def test_a_process_that_is_still_starting(patient: Patient, running: FakeAdmin) -> None:
    change(running, processes=[process(room="journal", state="starting", progress="40 %")])
    assert "journal starts: 40 %" in patient.only("rooms")["what"]


def test_another_release(patient: Patient, running: FakeAdmin) -> None:
    change(running, version="0.0.1")
    assert "the instance runs 0.0.1" in patient.only("version")["what"]


def test_an_alarm_of_the_instance(patient: Patient, running: FakeAdmin) -> None:
    alarm = {"code": "held", "since": "T", "what": "9 GiB", "means": "m", "next": "end spark"}
    change(running, alarms=[alarm])
    assert patient.only("held") == {
        "check": "held", "what": "9 GiB (since T)", "means": "m", "fix": "end spark",
    }  # fmt: skip


def test_rules_that_could_not_be_read_again(patient: Patient, running: FakeAdmin) -> None:
    change(running, security={"on": True, "access_version": 3, "problem": "line 7"})
    assert "line 7" in patient.only("rules")["what"]


def test_a_subscription_that_is_stuck_without_credit(
    patient: Patient, running: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_AGAIN_S", 0)
    running.answers["GET /subscriptions?limit=1000"] = {"subscriptions": [SUBSCRIPTION]}
    found = patient.only("stuck_subscriptions")
    assert "slow one does not read 'orders': a lag of 60 messages" in found["what"]
    assert "client disconnect 'slow one' --dry-run" in found["fix"]


def test_a_subscription_that_moves_is_not_stuck() -> None:
    case = Case(Target(None, None, None, False), DoctorOptions())
    first = live.without_credit([SUBSCRIPTION])
    for later in ({"sent_messages": 40}, {"state": "sending"}, {"lag": 0}, {"sid": "s2"}):
        second = live.without_credit([SUBSCRIPTION | later])
        assert list(live.stuck(first, second, case)) == []


def test_readers_that_do_not_say_what_they_need(patient: Patient, running: FakeAdmin) -> None:
    running.answers["GET /holders"] = {"silent": ["delivery-2"]}
    assert "delivery-2" in patient.only("held")["what"]


def test_an_instance_that_does_not_let_us_ask(patient: Patient, running: FakeAdmin) -> None:
    running.readers = {"someone"}
    path = patient.data / "run" / "admin-read.token"
    path.touch(0o600)
    path.write_text("other")
    found = patient.doctor()["findings"]
    assert [one["check"] for one in found][-1] == "answer"


def test_no_one_at_a_url() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"tcp://127.0.0.1:{other.getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zbroker.control.target.TIMEOUT_S", 0.1)
        result = CliRunner().invoke(main, ["--url", url, "--json", "doctor"])
    (found,) = json.loads(result.stdout)["findings"]
    assert (found["check"], result.exit_code) == ("answer", 1)


def test_a_check_that_fails_is_said_and_stops_no_other(
    patient: Patient, running: FakeAdmin
) -> None:
    running.answers["GET /holders"] = (500, {"code": "internal", "reason": "a bug"})
    found = patient.doctor()
    (left,) = found["not_checked"]
    assert left["check"] == "held"
    assert left["why"].startswith("it failed: internal: a bug")
    assert "clock" in found["checked"]


@pytest.mark.process
def test_a_real_instance_is_well_and_found_killed_afterwards(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        for place in (["--data-dir", str(data)], ["--url", broker.url]):
            result = CliRunner().invoke(main, [*place, "--json", "doctor", "--disk-warning", "100"])
            found = json.loads(result.stdout)
            assert (result.exit_code, found["instance"]) == (0, "running"), found
        running = (data / "run" / "instance.json").read_text()
    (data / "run" / "instance.json").write_text(running)
    result = CliRunner().invoke(main, ["--data-dir", str(data), "--json", "doctor"])
    assert "stale" in [one["check"] for one in json.loads(result.stdout)["findings"]]
    shutil.rmtree(data)
