"""What a new user is told who does the unexpected: what is wrong, and what to do."""

from __future__ import annotations

import importlib
import json
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.cli import main
from tests.unit.coordinator.cli.conftest import Say

ROOT = Path(__file__).resolve().parents[4]


def test_a_broker_at_another_port_is_handed_out_with_it(
    home: Path, done: Say, refused: Say
) -> None:
    said = refused("init", "--broker", "pi.lan:28883", "--operator", "alice")
    assert "write a name or an address alone" in said
    assert 'put `url = "mqtts://NAME:PORT"` into [broker] of fleet.toml' in said
    (home / "fleet.toml").write_text('[broker]\nurl = "mqtts://pi.lan:28883"\n')
    said = done("init", "--broker", "pi.lan", "--operator", "alice")
    assert "fleet broker --listen 0.0.0.0:28883" in said
    written = (home / "identities" / "coordinator" / "broker.url").read_text()
    assert written == "mqtts://pi.lan:28883\n"


@pytest.mark.system
@pytest.mark.posix  # ulimit is a shell's
@pytest.mark.parametrize("program", ["coordinator", "agent"])
def test_a_disk_that_takes_nothing_is_named(home: Path, program: str) -> None:
    """Whoever starts a program learns which folder it is about."""
    state = home / "state"
    ran = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -f 0; exec "$0" -m "$1" --state "$2"', sys.executable,
         f"{program}.service", str(state)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr == f"error: {state / 'lock'}: File too large\n"


@pytest.mark.parametrize("program", ["coordinator", "agent"])
@pytest.mark.parametrize("below", ["", "state"])
def test_a_file_where_a_folder_is_wanted_is_called_so(
    home: Path, program: str, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "plan.toml"
    file.write_text("precious")
    run = importlib.import_module(f"{program}.service.__main__").main
    assert run(["--state", str(file / below)]) == 2
    said = capsys.readouterr().err
    assert said == f"error: {file}: is a file, and a folder is wanted; name another\n"
    assert file.read_text() == "precious"


@pytest.mark.system
def test_scripts_can_make_a_fleet(home: Path, done: Say, tmp_path: Path) -> None:
    """Each verb of the certificates answers in JSON, with what comes next, as a shell takes it."""
    own, file, folder = tmp_path / "my fleet", tmp_path / "the pi.fleet", tmp_path / "the pi"
    at = ("--home", str(own), "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEET_BROKER", "mqtts://127.0.0.1:1")
        said = json.loads(done("init", "--broker", "pi.lan", "--operator", "alice", *at))
        assert said["ok"]
        assert [Path(one["path"]).name for one in said["made"]] == [
            "ca", "broker", "coordinator", "operator@alice"
        ]  # fmt: skip
        next_ = [shlex.split(line) for lines in said["next"].values() for line in lines]
        words = {word for one in next_ for word in one}
        assert {str(own / "broker"), str(own / "ca"), str(own), "HOST"} <= words
        said = json.loads(done("enroll", "pi", "-o", str(file), *at))
        run = said.pop("run")
        assert said == {"ok": True, "name": "pi", "file": str(file)}
        assert shlex.split(run) == ["fleet", "join", "the pi.fleet"]
        said = json.loads(done("join", str(file), "-o", str(folder), "--json"))
        assert (said["name"], said["made"]) == ("pi", True)
        agent = ["fleet", "agent", "--identity", str(folder), "--data", "DIR"]
        assert shlex.split(said["next"]) == agent
        said = json.loads(done("revoke", "pi", *at))
        assert [one["revoked_now"] for one in said["certificates"]] == [True]
        assert (said["jobs"], said["connection"]) == (None, "unreachable")
    said = json.loads(done("operator-key", "-o", str(tmp_path / "key"), "--json"))
    assert said == {"ok": True, "file": str(tmp_path / "key"), "config": str(home / "fleet.toml")}


def test_an_enrolment_is_two_lines_of_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--broker", "pi.lan", "--operator", "alice"]) == 0
    capsys.readouterr()
    wait = ("--address", "127.0.0.1:0", "--for", "0.1s", "--json")
    assert main(["enroll", "pi", *wait]) == 1
    first, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first["run"].startswith("fleet join 127.0.0.1:")
    assert "--replace" not in first["run"]
    assert (first["name"], first["within_s"]) == ("pi", 0.1)
    assert not last["ok"]
    assert "nobody has come for the certificate of pi" in last["message"]
    assert "run `fleet enroll pi` again" in last["message"]
    assert main(["enroll", "pi", "-o", str(home / "pi.fleet")]) == 0
    capsys.readouterr()
    assert main(["enroll", "pi", "--replace", *wait]) == 1
    first, said = capsys.readouterr().out.splitlines()
    assert json.loads(first)["run"].endswith(" --replace"), "the host may have another"
    assert "run `fleet enroll pi --replace` again" in said, "without, it would be refused"


def test_several_operators_on_the_machine_of_the_ca_are_no_riddle(
    home: Path, done: Say, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FLEET_BROKER", "mqtts://127.0.0.1:1")
    done("init", "--broker", "pi.lan", "--operator", "alice")
    said = done("enroll", "operator:bob", "-o", str(tmp_path / "bob.fleet"))
    assert "carry it to the machine of operator:bob, and there\n" in said, "nothing runs on a name"
    done("join", str(tmp_path / "bob.fleet"))
    assert main(["enroll", "pi", "-o", str(tmp_path / "pi.fleet")]) == 0
    out, said = capsys.readouterr()
    assert "carry it to pi, and there\n" in out
    assert "not recorded at the coordinator yet: the broker is not reachable" in said
    assert "several identities" not in said


def test_a_folder_of_data_that_is_not_there_is_no_start(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the command line it is mistyped, and would keep every job from this host."""
    run = importlib.import_module("agent.service.__main__").main
    assert run(["--state", str(home / "state"), "--data", str(home / "nope")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: --data {home / 'nope'}: there is no such folder; ")
    assert not (home / "state").exists()


@pytest.mark.system
@pytest.mark.parametrize("program", ["coordinator", "agent"])
def test_a_broker_that_is_not_there_is_told_once_with_what_to_do(
    home: Path, tmp_path: Path, program: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", f"{program}.service", "--broker", url]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path / "s")],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as ran:  # fmt: skip
        assert home.is_dir()
        assert ran.stderr is not None
        said: list[str] = []
        while sum("trying again" in line for line in said) < 2:
            said.append(ran.stderr.readline())
            assert said[-1], "it ended by itself"
        ran.terminate()
    advice = [line for line in said if "is that its address" in line]
    assert len(advice) == 1
    assert "--broker names another" in advice[0]
    assert ("fleet join" in advice[0]) == (program == "agent")


def test_what_comes_next_in_a_fleet_that_is_there(
    home: Path, done: Say, refused: Say
) -> None:  # fmt: skip
    assert "--operator Bad Name" in refused("init", "--broker", "pi.lan", "--operator", "Bad Name")
    assert [*home.iterdir()] == [], "nothing is half made"
    assert "fleet enroll HOST" in done("init", "--broker", "pi.lan", "--operator", "alice")
    said = done("init", "--operator", "bob")
    folder = home / "identities" / "operator@bob"
    assert f"made  {folder}: the certificate of operator:bob" in said
    assert f"for operator:bob: carry the folder {folder} to their machine" in said
    assert "~/.config/fleet/identities/operator@bob" in said
    commands = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert commands == ["fleet status", f"fleet status --identity {folder}"]
    assert "fleet enroll HOST" not in said
    assert "fleet coordinator" not in said
    said = done("init", "--broker", "192.0.2.7")
    assert f"another broker wants a copy of {home / 'broker'}, and a restart" in said
    assert "fleet enroll HOST" not in said
    assert "operator" not in said
    made = json.loads(done("init", "--operator", "carol", "--json"))
    assert made["next"]["there"] == ["fleet status"]
    assert json.loads(done("init", "--operator", "carol", "--json"))["next"] == {}


def test_a_second_init_says_where_hosts_are_sent_and_what_changes_that(
    home: Path, done: Say
) -> None:
    file, key = home / "fleet.toml", 'write `url = "mqtts://attic.lan:8883"` into [broker] of'
    assert "go to" not in done("init", "--broker", "pi.lan", "--operator", "alice")
    for _ in range(2):
        said = " ".join(done("init", "--broker", "attic.lan").split())
        assert "the programs here, go to mqtts://pi.lan:8883 all the same;" in said
        assert f"{key} {file}" in said
    assert "go to" not in done("init", "--broker", "pi.lan")
    file.write_text('[broker]\nurl = "mqtts://attic.lan:8883"\n')
    assert "go to" not in done("init", "--broker", "attic.lan")


def test_a_second_init_says_which_addresses_it_has_left_as_they_were(home: Path, done: Say) -> None:
    done("init", "--broker", "pi.lan", "--operator", "alice")
    (home / "fleet.toml").write_text('[broker]\nurl = "mqtts://pi.lan:28883"\n')
    said = " ".join(done("init").split())
    assert "nothing was changed" in said
    for name in ("coordinator", "operator@alice"):
        path = home / "identities" / name / "broker.url"
        assert f"{path} says mqtts://pi.lan:8883 and was left so" in said
        path.write_text("mqtts://pi.lan:28883\n")
    assert "write mqtts://pi.lan:28883 into it" in said
    assert "was left so" not in done("init")


@pytest.mark.words
def test_a_manifest_is_checked_on_a_hosts_machine(home: Path, done: Say) -> None:
    (home / "identities" / "pi").mkdir(parents=True)
    (home / "identities" / "pi" / "client.crt").touch()
    plan = home / "plan.toml"
    plan.write_text("schema_version = 1\n")
    assert "0 jobs, no errors" in done("check", str(plan))


def test_people_and_hosts_are_each_sent_to_their_port(home: Path, done: Say) -> None:
    config = ("broker", "config", "mosquitto", "-o", str(home / "files"))
    ports = ("--port", "21883", "--people-port", "21884")
    done("init", "--broker", "127.0.0.1", "--operator", "alice")
    assert "people's programs to 21884" in " ".join(done(*config, *ports).split())
    for name, port in (("coordinator", 21883), ("operator@alice", 21884)):
        path = home / "identities" / name / "broker.url"
        assert path.read_text() == f"mqtts://127.0.0.1:{port}\n"
    urls = ("", "url = 'mqtts://127.0.0.1:21883'", "url = 'mqtts://localhost:21884'")
    for number, said in enumerate(urls):
        (home / "fleet.toml").write_text(f"[broker]\n{said}\n")
        for name, port in ((f"pi-{number}", 21883), (f"observer:bob-{number}", 21884)):
            bundle = home / f"{port}-{number}.fleet"
            done("enroll", name, "-o", str(bundle))
            assert json.loads(bundle.read_text())["broker"].endswith(f":{port}")
