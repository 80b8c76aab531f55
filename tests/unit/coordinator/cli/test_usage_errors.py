"""What is said of a command line that was typed wrongly."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

from coordinator.cli import main
from tests.harness.verbs import process
from tests.unit.coordinator.cli.conftest import Say


class Window(io.StringIO):
    """A terminal, of as many columns as COLUMNS says."""

    def isatty(self) -> bool:
        return True


def _said(*typed: str) -> str:
    with contextlib.redirect_stderr(Window()) as window:
        assert main([*typed]) == 2
    return window.getvalue()


@pytest.mark.parametrize("typed", [("snooze", "pi", "3 x"), ("snooze", "pi", "3h", "--off")])
def test_a_complaint_is_broken_between_words(
    typed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    help_, _, complaint = _said(*typed).partition("\n\n")
    assert help_.splitlines()[-1] == "Try 'fleet snooze --help' for help."
    lines = complaint.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 50 for line in lines)
    assert lines[0].startswith("error: ")
    monkeypatch.setenv("COLUMNS", "500")
    assert complaint.split() == _said(*typed).partition("\n\n")[2].split(), "no word was cut"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("jobs", "list"), ("hosts", "workers"), ("stauts", "status"), ("stat", "stats"),
     ("wrokers", "workers"), ("lst", "list")],
)  # fmt: skip
def test_a_verb_of_another_name_is_found(refused: Say, typed: str, meant: str) -> None:
    """By what it is called elsewhere, else by its letters."""
    assert f"No such command '{typed}'. Did you mean '{meant}'?" in refused(typed)
    said = refused("restore")
    assert ("revoke" in said, "stop the coordinator" in said) == (False, True), "how it is done"


@pytest.mark.system
def test_a_value_that_looks_like_an_option_is_one_all_the_same(home: Path) -> None:
    ran = process("agent", "--host", "-x")
    assert ran.returncode == 2
    assert home.is_dir()
    assert "usage:" not in ran.stderr
    assert "-x" in ran.stderr
    assert "host" in ran.stderr


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("list --statsu failed", "--status"),
        ("show", "fleet show --help"),
        ("status --broker localhost:18883", "write mqtts://localhost:18883"),
        ("status --broker pi.lan", "write mqtts://pi.lan"),
        ("init", "--broker NAME: say by which name or address"),
        ("init --broker mqtt://pi", "--broker mqtt://pi: write a name or an address"),
        ("init --broker pi --operator A*B", "--operator A*B: write it with a-z"),
        ("enroll pi", "there is no CA here; make one with `fleet init`"),
        ("revoke pi", "there is no CA here; make one with `fleet init`"),
        ("join 192.0.2.7", "its port is wanted, too: fleet join 192.0.2.7:8885"),
        ("join pi:99999 x", "there is no such file, and it is no address such as"),
        ("join 127.0.0.1:1 abc", "the token is not whole"),
        ("join no-such-file.json", "there is no such file"),
        *(
            pytest.param(f"{verb} ~nobody-of-this-name/x", "~nobody", marks=pytest.mark.posix)
            for verb in ("operator-key -o", "init --broker pi.lan --home", "status --identity")
        ),
        ("predict gbt-oracle", "give --raw and --out, or --stream"),
        ("predict gbt-oracle --raw new.csv", "give --raw and --out, or --stream"),
        ("predict gbt-oracle --stream --raw new.csv --out scores.csv", "give --raw and --out, or"),
        ("up --data .", "--data .: holds no prepared data; `python -m agent.trainer.prepare"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_the_next_step(refused: Say, typed: str, said: str) -> None:
    told = refused(*typed.split())
    assert "error: " in told
    assert said in told
    assert "Errno" not in told
    assert "Traceback" not in told


def test_run_without_a_model_says_which_there_are(refused: Say) -> None:
    """Those that are built in, where nobody can be asked about the hosts; with an example."""
    said = refused("run", "--broker", "mqtt://127.0.0.1:1")
    assert "error: Missing option '--model': no host could be asked; built in are " in said
    assert ", gbt, " in said
    assert "for example: `fleet run --model " in said
    assert "--mode oracle`" in said


def test_a_folder_without_an_identity_is_told_with_where_one_comes_from(
    home: Path, refused: Say, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ("--identity", str(tmp_path / "nope"), "--broker", "mqtts://pi.lan")
    file = tmp_path / "nope" / "client.crt"
    said = (
        f"{file}: cannot be read: No such file or directory; docs/how-to/identity.md tells "
        "how to get"
    )
    assert home.is_dir()
    assert said in refused("status", *at)
    assert main(["doctor", "--role", "operator", *at]) == 1
    line = next(one for one in capsys.readouterr().out.splitlines() if "client.crt" in one)
    assert said in line
    assert line.count("docs/how-to/identity.md") == 1


@pytest.mark.system
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.posix  # a shell closes it
def test_a_stream_that_is_closed_changes_no_exit_code(home: Path, stream: str) -> None:
    plan = home / "plan.toml"
    plan.write_text("schema_version = 1\n")
    closing = f'exec "$@" {1 if stream == "stdout" else 2}>&-'
    shell = ("/bin/sh", "-c", closing, "sh")
    ran = process("check", "--offline", "--json", str(plan), prefix=shell)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.system
def test_what_a_pipe_gets_is_utf_8_on_each_system(home: Path) -> None:
    ran = process("check", "--offline", "\N{CJK UNIFIED IDEOGRAPH-65E5}.toml", encoding="utf-8")
    assert ran.stderr.startswith("\N{CJK UNIFIED IDEOGRAPH-65E5}.toml: ")


def test_who_cannot_score_is_told_what_is_missing(
    refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    said = refused("predict", "gbt-oracle", "--raw", "new.csv", "--out", "scores.csv")
    assert said.startswith("error: numpy is not installed here: pip install 'training-fleet[tra")


@pytest.mark.system
def test_a_snooze_ends_by_off_where_pause_does(home: Path, refused: Say) -> None:
    for typed in ((), ("--here", "3h"), ("gaming-pc", "3h"), ("gaming-pc", "--now")):
        assert "--off in place of a time" in refused("snooze", *typed, "--off")
    state = home / "agent"
    state.mkdir()
    (state / "snooze").touch()
    ran = process("snooze", "--here", "--off", "--state", str(state), environment={"COLUMNS": ""})
    assert (ran.returncode, ran.stdout) == (0, f"the agent of {state} takes jobs again\n")
    assert not (state / "snooze").exists()
