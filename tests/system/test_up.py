"""`fleet up`: the whole fleet in one command, on its own broker and on somebody else's."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
schema_version = 1
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


def _command(folder: Path, data: Path, state: str, *more: str, port: str = "0") -> list[str]:
    """On a broker of its own; without `port`, on somebody else's."""
    (folder / "plan.toml").write_text(PLAN, "utf-8")
    return [
        sys.executable, "-m", "coordinator.cli", "up", "--agents", "2",
        *(("--port", port) if port else ()),
        "--manifest", str(folder / "plan.toml"), "--data", str(data),
        "--state", str(folder / state), "--prefer-cuda-grace", "1", "--heartbeat", "1", *more,
    ]  # fmt: skip


def _without_agents(folder: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "coordinator.cli", "up", "--agents", "0", "--port", "0",
        "--state", str(folder / "state"), *more,
    ]  # fmt: skip


def _environment(**more: str) -> dict[str, str]:
    bare = {key: value for key, value in os.environ.items() if not key.startswith("FLEET_")}
    return bare | more


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, env=environment, cwd=ROOT, check=False
    )


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
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(folder) in line and "pytest" not in line:
            found.append(line)
    return found


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[str]:
    """A real mosquitto, where it is installed."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
        "max_packet_size 1200000\nmax_queued_messages 100000\n"
    )
    with subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL) as process:
        yield f"mqtt://127.0.0.1:{port}"
        process.terminate()


@pytest.mark.slow
def test_a_plan_gives_the_same_artifacts_again_also_on_mosquitto(
    tmp_path: Path, data: Path, mosquitto: str
) -> None:
    """Run into two state folders, once on each broker: gbt, mlp and cnn come out bit-identical."""
    ids = []
    for state, environment in (("one", {}), ("two", {"FLEET_BROKER": mosquitto})):
        port = "" if environment else "0"
        command = _command(tmp_path, data, state, "--until-idle", "--json", port=port)
        done = _run(command, _environment(**environment))
        assert done.returncode == 0, done.stderr
        assert re.search(r"^gbt-oracle +completed on ", done.stderr, re.MULTILINE), (
            "it says how far it is"
        )
        rows = json.loads(done.stdout)
        states = {row["name"]: row["state"] for row in rows}
        assert states == {
            "gbt-oracle": "completed", "mlp-realistic": "completed", "cnn-oracle": "completed",
            "gru-oracle": "pending",
        }  # fmt: skip
        ids.append({row["name"]: row["artifact_id"] for row in rows})
        assert not _left_of(tmp_path)
    assert ids[0] == ids[1]


@pytest.mark.smoke
@pytest.mark.slow
def test_the_results_say_what_was_stored_and_what_is_left(tmp_path: Path, data: Path) -> None:
    """Progress while it runs, a table at the end, and for what is left over the reason."""
    done = _run(_command(tmp_path, data, "state", "--until-idle"), _environment(COLUMNS="80"))
    assert done.returncode == 0, done.stderr
    assert "gbt-oracle completed on" in done.stdout
    assert "3 artifacts in" in done.stdout
    assert "gru-oracle                 needs CUDA; this host has none" in done.stdout
    stored = list((tmp_path / "state" / "coordinator" / "models").glob("*/*/bundle.tar.zst"))
    assert len(stored) == 3


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_however_it_ends_nothing_is_left_running(tmp_path: Path, data: Path, how: str) -> None:
    """Ctrl-C and SIGTERM stop everything cleanly; even SIGKILL leaves no child behind."""
    command = _command(tmp_path, data, "state")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=_environment(), cwd=ROOT
    ) as up:
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
    """A port that is taken: one message that says what to do, exit code 1, nothing left."""
    port = system_broker.rsplit(":", 1)[1]
    command = _command(tmp_path, data, "state", port=port)
    logs = tmp_path / "state" / "logs"
    logs.mkdir(parents=True)
    (logs / "broker.log").write_text("ERROR: of an earlier run\n")
    done = _run(command, _environment())
    assert done.returncode == 1
    assert "--port 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "of an earlier run" not in done.stderr
    assert not _left_of(tmp_path)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_the_fleet_of_the_configuration_file_is_left_alone(
    tmp_path: Path, system_broker: str, *, tls: bool
) -> None:
    """Whoever tries `fleet up` beside a real fleet gets a broker of their own all the same."""
    url = "mqtts://127.0.0.1:1" if tls else system_broker
    identity = f"identity = '{tmp_path / 'none'}'\n" if tls else ""
    (tmp_path / "fleet.toml").write_text(f"[broker]\nurl = '{url}'\n{identity}", "utf-8")
    command = _without_agents(tmp_path, "--until-idle", "--json")
    named = str(tmp_path / "fleet.toml")
    done = (
        _run([*command, "--config", named], _environment())
        if tls
        else _run(command, _environment(FLEET_CONFIG=named))
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
    assert not _left_of(tmp_path)
    assert (tmp_path / "state" / "logs" / "broker.log").exists()


def test_doors_of_the_configuration_file_are_left_to_its_fleet(tmp_path: Path) -> None:
    """The fleet proper may serve metrics and websockets on this very machine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        (tmp_path / "fleet.toml").write_text(
            f"[broker]\nwebsocket = {one.getsockname()[1]}\n"
            f"[coordinator]\nmetrics = '127.0.0.1:{two.getsockname()[1]}'\n",
            "utf-8",
        )
        command = _without_agents(tmp_path, "--until-idle", "--json")
        done = _run(command, _environment(FLEET_CONFIG=str(tmp_path / "fleet.toml")))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_second_fleet_in_the_folder_of_one_that_runs_leaves_its_logs_alone(
    tmp_path: Path,
) -> None:
    """It is refused before it writes a word, and says who is there."""
    log = tmp_path / "state" / "logs" / "broker.log"
    with subprocess.Popen(
        _without_agents(tmp_path), stdout=subprocess.PIPE, text=True, env=_environment(), cwd=ROOT
    ) as up:
        said = _until_it_serves(up)
        port = said.partition("mqtt://127.0.0.1:")[2].split()[0]
        before = log.stat().st_ino
        with log.open("ab") as grown:
            grown.write(b"x" * 5_000_000)  # a log of this length is begun anew
        command = _without_agents(tmp_path)
        command[command.index("--port") + 1] = port
        second = _run(command, _environment())
        after = log.stat()
        up.terminate()
    assert second.returncode == 2
    assert f"another `fleet up` (process {up.pid}) is using it" in second.stderr
    assert after.st_ino == before
    assert b"in use" not in log.read_bytes()


def test_what_keeps_every_job_away_is_said_at_the_start(tmp_path: Path) -> None:
    """No plan, no data: it starts, and says so; the configuration file may name them."""
    file = tmp_path / "fleet.toml"
    for section, lacks in (
        ("", {"manifest", "data"}),
        (f"[agent]\ndata = '{tmp_path}'", {"manifest"}),
    ):
        file.write_text(section, "utf-8")
        command = _without_agents(tmp_path, "--config", str(file))
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=_environment(), cwd=ROOT
        ) as up:
            said = _until_it_serves(up)
            up.terminate()
        assert {name for name in ("manifest", "data") if f"--{name}" in said} == lacks


@pytest.mark.parametrize("as_json", [False, True], ids=["people", "JSON"])
def test_where_nothing_could_run_it_says_so_and_why(
    tmp_path: Path, data: Path, *, as_json: bool
) -> None:
    """What is left, what speaks against each job, what would help; an exit code of its own."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "schema_version = 1\n"
        "[[jobs]]\nmodel = 'gru'\nmode = 'oracle'\nrequire_cuda = true\n"
        "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nmin_ram_gib = 100000\n",
        "utf-8",
    )
    command = [
        sys.executable, "-m", "coordinator.cli", "up", "--port", "0", "--manifest", str(plan),
        "--data", str(data), "--state", str(tmp_path / "state"), "--host-prefix", "desk",
        "--until-idle",
    ]  # fmt: skip
    done = _run([*command, "--json"] if as_json else command, _environment(COLUMNS="200"))
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


def test_what_is_waited_for_while_nothing_runs_is_said(tmp_path: Path, data: Path) -> None:
    """Once, and then that it runs; to a script on standard error."""
    plan = tmp_path / "plan.toml"
    job = "[[jobs]]\nmodel = 'gbt'\nmode = 'oracle'\nprefer_cuda = true\nhyper.epochs = 5\n"
    plan.write_text(f"schema_version = 1\ndefaults.n_resamples = 50\n{job}", "utf-8")
    done = _run(
        [
            sys.executable, "-m", "coordinator.cli", "up", "--port", "0", "--manifest", str(plan),
            "--data", str(data), "--state", str(tmp_path / "state"), "--prefer-cuda-grace", "20",
            "--until-idle", "--json",
        ],
        _environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("gbt-oracle")]
    assert "waits: prefers CUDA" in said[0], done.stderr
    assert " completed on " in said[-1]
    assert sum("waits" in line for line in said) == 1
    assert "Left over" not in done.stderr
