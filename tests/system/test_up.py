"""`fleet up`: the whole fleet in one command, on its own broker and on somebody else's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.brokers import find_program, mosquitto
from tests.harness.verbs import Done, process, started

PLAN = """
[defaults]
n_resamples = 50
[[jobs]]
model = "gbt"
mode = "oracle"
priority = 100
hyper.epochs = 20
[[jobs]]
model = "mlp"
mode = "realistic"
hyper.epochs = 2
[[jobs]]
model = "cnn"
mode = "oracle"
prefer_cuda = true
hyper.epochs = 1
[[jobs]]
model = "gru"
mode = "oracle"
require_cuda = true
"""


def _of_plan(folder: Path, data: Path, plan: str, *more: str) -> list[str]:
    (folder / "plan.toml").write_text(f"schema_version = 1\n{plan}", "utf-8")
    return [
        "up", "--manifest", str(folder / "plan.toml"), "--data", str(data),
        "--state", str(folder / "state"), *more,
    ]  # fmt: skip


def _command(folder: Path, data: Path, *more: str, port: str = "0") -> list[str]:
    """Two agents, on a broker of its own."""
    options = ("--agents=2", "--port", port, "--prefer-cuda-grace=1", "--heartbeat=1")
    return _of_plan(folder, data, PLAN, *options, *more)


def _without_agents(folder: Path, *more: str) -> list[str]:
    return ["up", "--agents", "0", "--port", "0", "--state", str(folder / "state"), *more]


def _until_it_serves(up: subprocess.Popen[str]) -> str:
    """What `fleet up` has said by the time all of it runs."""
    assert up.stdout is not None
    said = ""
    while "Ctrl-C" not in said:
        line = up.stdout.readline()
        assert line, "fleet up ended by itself"
        said += line
    return said


def _left_of(folder: Path) -> list[str]:
    """Processes that still work for a state folder."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = " ".join(one.info["cmdline"] or [])
        if str(folder) in line and "pytest" not in line:
            found.append(line)
    return found


@pytest.mark.smoke
@pytest.mark.slow
def test_the_results_say_what_was_stored_and_what_is_left(tmp_path: Path, data: Path) -> None:
    done = process(*_command(tmp_path, data, "--until-idle"))
    assert done.returncode == 0, done.stderr
    assert "gbt-oracle completed on" in done.stdout
    assert "3 artifacts in" in done.stdout
    assert "gru-oracle                 needs CUDA; this host has none" in done.stdout
    stored = list((tmp_path / "state" / "coordinator" / "models").glob("*/*/bundle.tar.zst"))
    assert len(stored) == 3


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_however_it_ends_nothing_is_left_running(tmp_path: Path, data: Path, how: str) -> None:
    """Ctrl-C and SIGTERM stop everything cleanly; even SIGKILL leaves no child behind."""
    command = _command(tmp_path, data)
    with started(*command) as up:
        _until_it_serves(up)
        services = psutil.Process(up.pid).children(recursive=True)
        assert len(services) >= 4
        up.send_signal(getattr(signal, how))
        up.wait(60)
    _, alive = psutil.wait_procs(services, timeout=30)
    assert not alive
    if how != "SIGKILL":
        assert up.returncode == 0


def test_a_service_that_dies_is_told_with_the_end_of_its_log(
    tmp_path: Path, data: Path, system_broker: Any
) -> None:
    port = system_broker.rsplit(":", 1)[1]
    command = _command(tmp_path, data, port=port)
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "broker.log").write_text("ERROR: of an earlier run\n")
    done = process(*command)
    assert done.returncode == 1
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "of an earlier run" not in done.stderr
    assert not _left_of(tmp_path)


@pytest.mark.parametrize("what", ["broker", "TLS", "doors"])
def test_the_fleet_of_the_configuration_file_is_left_alone(
    tmp_path: Path, system_broker: str, what: str
) -> None:
    """Its broker, and the doors that it may have open on this very machine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        text = {
            "broker": f"[broker]\nurl = '{system_broker}'\n",
            "TLS": f"[broker]\nurl = 'mqtts://127.0.0.1:1'\nidentity = '{tmp_path / 'none'}'\n",
            "doors": f"[broker]\nwebsocket = {one.getsockname()[1]}\n"
            f"[coordinator]\nmetrics = '127.0.0.1:{two.getsockname()[1]}'\n",
        }[what]
        config = tmp_path / "fleet.toml"
        config.write_text(text, "utf-8")
        command = _without_agents(tmp_path, "--until-idle", "--json")
        if what == "TLS":
            done = process(*command, "--config", str(config))
        else:
            done = process(*command, environment={"FLEET_CONFIG": str(config)})
    assert done.json() == []
    assert not _left_of(tmp_path)
    assert (tmp_path / "state" / "logs" / "broker.log").exists()


def test_a_second_fleet_in_the_folder_of_one_that_runs_leaves_its_logs_alone(
    tmp_path: Path,
) -> None:
    log = tmp_path / "state" / "logs" / "broker.log"
    with started(*_without_agents(tmp_path)) as up:
        said = _until_it_serves(up)
        port = said.partition("mqtt://127.0.0.1:")[2].split()[0]
        before = log.stat().st_ino
        with log.open("ab") as grown:
            grown.write(b"x" * 5_000_000)  # a log of this length is begun anew
        command = _without_agents(tmp_path)
        command[command.index("--port") + 1] = port
        second = process(*command)
        after = log.stat()
        up.terminate()
    assert second.returncode == 2
    assert f"another `fleet up` (process {up.pid}) is using it" in second.stderr
    assert after.st_ino == before
    assert b"in use" not in log.read_bytes()


def test_what_keeps_every_job_away_is_said_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    for section, lacks in (
        ("", {"manifest", "data"}),
        (f"[agent]\ndata = '{tmp_path}'", {"manifest"}),
    ):
        file.write_text(section, "utf-8")
        command = _without_agents(tmp_path, "--config", str(file))
        with started(*command) as up:
            said = _until_it_serves(up)
            up.terminate()
        assert {name for name in ("manifest", "data") if f"--{name}" in said} == lacks


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "JSON"])
def test_where_nothing_could_run_it_says_so_and_why(
    tmp_path: Path, data: Path, *, as_json: bool
) -> None:
    """What is left, what speaks against each job, what would help; an exit code of its own."""
    jobs = (
        "[[jobs]]\nmodel = 'gru'\nmode = 'oracle'\nrequire_cuda = true\n"
        "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nmin_ram_gib = 100000\n"
    )
    options = ("--port=0", "--host-prefix=desk", "--until-idle", *["--json"] * as_json)
    command = _of_plan(tmp_path, data, jobs, *options)
    done = process(*command, environment={"COLUMNS": "200"})
    assert done.returncode == 5, done.stderr
    said = done.stderr if as_json else done.stdout
    assert "2 pending; 1 host is online" in said
    assert "Nothing could run." in said
    assert "Left over (2), since no host here can run them:" in said
    assert "gru-oracle                 needs CUDA; this host has none" in said
    assert "gru-oracle: if it did not say require_cuda, desk-1 could take it" in said
    assert "ARTIFACT" not in said
    if as_json:
        rows = {row["name"]: row for row in json.loads(done.stdout)}
        assert rows["gru-oracle"]["waits"] == ["needs CUDA; this host has none"]
        assert "require_cuda" in rows["gru-oracle"]["would_help"][0]
        assert "100000" in rows["gbt-oracle"]["waits"][0]


def test_what_is_waited_for_while_nothing_runs_is_said(
    tmp_path: Path, data: Path, system_broker: str
) -> None:
    """By the agents on somebody else's broker, too."""
    job = "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nprefer_cuda = true\nhyper.epochs = 5\n"
    plan = f"defaults.n_resamples = 50\n{job}"
    command = _of_plan(tmp_path, data, plan, "--prefer-cuda-grace=20", "--until-idle", "--json")
    given = {"FLEET_BROKER": system_broker, "FLEET_TOPIC_ROOT": f"waits-{os.getpid()}"}
    done = process(*command, environment=given)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("gbt-oracle")]
    assert "prefers CUDA" in said[0], done.stderr
    assert " completed on " in said[-1]
    assert sum("waits" in line for line in said) == 1
    assert "Left over" not in done.stderr
    assert not _left_of(tmp_path)


def test_behind_a_job_that_failed_no_job_is_waited_for(tmp_path: Path, data: Path) -> None:
    """What comes after one that is completed is done; exit code 1: a job failed."""
    jobs = {"good": "", "bad": "train_hosts = ['nobody']\n"}
    jobs |= {
        f"after-{name}": f"after = ['{name}']\nseed = 1\n{more}" for name, more in jobs.items()
    }
    job = "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nhyper.epochs = 5\n"
    tables = (f"{job}name = '{name}'\n{more}" for name, more in jobs.items())
    plan = "defaults.n_resamples = 50\n" + "".join(tables)
    done = process(*_of_plan(tmp_path, data, plan, "--port=0", "--until-idle", "--json"))
    assert done.returncode == 1, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "good": "completed", "bad": "failed", "after-good": "completed", "after-bad": "pending",
    }  # fmt: skip
    assert rows["after-good"]["started_at"] >= rows["good"]["finished_at"]
    waits = rows["after-bad"]
    assert (waits["waits_for"]["job"], waits["waits_for"]["state"]) == ("bad", "failed")
    assert waits["waits"] == ["waits for bad, which failed; `fleet requeue bad` tries it again"]
    assert waits["would_help"] == ["after `fleet requeue bad` it may go on"]
    assert "the jobs before them were not completed" in done.stderr


def test_an_earlier_start_in_the_same_folder_does_not_count(tmp_path: Path, data: Path) -> None:
    """Neither its manifest, if this one has errors, nor a failure of a job that is gone."""
    good = "defaults.n_resamples = 50\n[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nhyper.epochs = 5\n"
    starts = [
        process(*_of_plan(tmp_path, data, plan, "--port=0", "--until-idle"))
        for plan in (f"{good}train_hosts = ['nobody']", f"{good}hyper.epoch = 3", good)
    ]
    assert [done.returncode for done in starts] == [1, 1, 0]
    assert "hyper.epoch: unknown parameter" in starts[1].stderr
    assert "failed*" in starts[2].stdout


def _elsewhere(folder: Path, *more: str, **given: str) -> Done:
    """`fleet up` on somebody else's broker, with a coordinator alone."""
    words = ("up", "--agents", "0", "--state", str(folder / "state"), *more)
    return process(*words, environment=given)


@pytest.mark.parametrize("named_by", ["FLEET_BROKER", "--broker"])
def test_whose_broker_is_used_is_said_first_and_that_nobody_listens_there(
    tmp_path: Path, named_by: str
) -> None:
    with socket.socket() as taken:  # and does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{taken.getsockname()[1]}"
        given = {"FLEET_BROKER": url} if named_by == "FLEET_BROKER" else {}
        more = [] if given else ["--broker", url]
        done = _elsewhere(tmp_path, *more, **given)
        as_json = _elsewhere(tmp_path, *more, "--json", **given)
    assert done.returncode == as_json.returncode == 1, done.stderr
    assert done.stdout == f"using the broker of {named_by}: {url}\n"
    assert f"the broker of {named_by} does not do for a fleet: " in done.stderr
    remedy = "`unset FLEET_BROKER`" if given else "without --broker"
    assert remedy in done.stderr
    assert json.loads(as_json.stdout)["ok"] is False
    assert as_json.stderr.startswith(done.stdout)
    assert not (tmp_path / "state").exists()


def test_a_broker_of_somebody_else_is_used_and_a_port_for_it_is_refused(
    tmp_path: Path, system_broker: str
) -> None:
    """None is started beside it, so there is nothing that could listen at `--port`."""
    given = {"FLEET_BROKER": system_broker, "FLEET_TOPIC_ROOT": f"up-{os.getpid()}"}
    done = _elsewhere(tmp_path, "--until-idle", **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"using the broker of FLEET_BROKER: {system_broker}\n")
    assert not (tmp_path / "state" / "logs" / "broker.log").exists()
    refused = _elsewhere(tmp_path, "--port", "1883", **given)
    assert refused.returncode == 2
    words = " ".join(refused.stderr.split())
    assert "--port is of a broker of its own, and FLEET_BROKER names another" in words
    assert "`unset FLEET_BROKER`" in words


@pytest.fixture
def with_password(tmp_path: Path) -> Iterator[str]:
    """A broker that lets ann in, by her password, and nobody else: its HOST:PORT."""
    keep = find_program("mosquitto_passwd")
    passwords = tmp_path / "passwords"
    subprocess.run([keep, "-b", "-c", str(passwords), "ann", "right"], check=True)
    broker = mosquitto(tmp_path, f"allow_anonymous false\npassword_file {passwords}\n")
    broker.start()
    yield f"127.0.0.1:{broker.port}"
    broker.end()


def _refusal(folder: Path, url: str) -> str:
    """What `fleet up` says of a broker that does not do; it has started nothing."""
    begun_s = time.monotonic()
    done = _elsewhere(folder, FLEET_BROKER=url, COLUMNS="10000")
    assert done.returncode == 1, done.stderr
    assert time.monotonic() - begun_s < 60, "a program that waits for its broker tries on"
    assert "the broker of FLEET_BROKER does not do for a fleet: " in done.stderr
    assert "`unset FLEET_BROKER`, and `fleet up` starts one of its own" in done.stderr
    assert not (folder / "state").exists()
    return done.stdout + done.stderr


def test_a_broker_that_wants_a_password_is_told_before_anything_is_started(
    tmp_path: Path, with_password: str
) -> None:
    said = _refusal(tmp_path, f"mqtt://{with_password}")
    assert "refused the connection: Not authorized" in said
    assert "write mqtt://USER:PASSWORD@HOST" in said
    said = _refusal(tmp_path, f"mqtt://ann:hunter22@{with_password}")
    assert "refused the connection: Not authorized" in said
    assert "see that the user and the password in the address are right" in said
    assert "hunter22" not in said
    said = _refusal(tmp_path, f"mqtts://ann:right@{with_password}")
    assert "does that port speak TLS? if not, write mqtt://" in said
    assert "certificate" not in said
    given = {"FLEET_BROKER": f"mqtt://ann:right@{with_password}"}
    done = _elsewhere(tmp_path, "--until-idle", **given)
    assert done.returncode == 0, done.stderr
