"""Sentences as people read them in a window, and as programs read them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.service import __main__ as agent_service
from agent.service import snooze
from broker import sentences as prose
from broker.doctor.findings import fail, tell
from broker.embedded import __main__ as server
from broker.sentences import counted, laid_out
from coordinator import cli
from coordinator.admin import __main__ as maintenance
from coordinator.cli import reload
from coordinator.cli.check import problems_to_list
from coordinator.client.contact import NotDone
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.manifest.problems import ManifestError
from coordinator.service import __main__ as coordinator_service

ROOT = Path(__file__).resolve().parents[2]


class _Window(io.StringIO):
    """A terminal, as wide as COLUMNS says."""

    def isatty(self) -> bool:
        return True


TEXT = "pi: nobody came; run `fleet enroll pi` again\n  -H seed: unknown-of-mlp"


def test_no_word_and_no_command_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a window what does not fit goes on below, indented; a program gets a line as a line."""
    monkeypatch.setenv("COLUMNS", "28")
    assert laid_out(TEXT, _Window(), indent=2).splitlines() == [
        "pi: nobody came; run",
        "  `fleet enroll pi` again",
        "  -H seed: unknown-of-mlp",
    ]
    assert laid_out(TEXT, io.StringIO(), indent=2) == TEXT
    long = f"a path is {'long/' * 8}"
    assert laid_out(long, _Window()).splitlines() == ["a path is", "long/" * 8]
    monkeypatch.setenv("COLUMNS", "3")
    assert laid_out("a window that is too narrow", _Window(), least=20).splitlines() == [
        "a window that is too", "narrow"
    ]  # fmt: skip


def test_what_goes_on_hangs_from_where_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that stands further in goes on further in."""
    monkeypatch.setenv("COLUMNS", "28")
    assert laid_out("pi:\n  -H seed: is not a whole number of it", _Window(), indent=2) == (
        "pi:\n  -H seed: is not a whole\n    number of it"
    )
    assert laid_out(f"  {'long/' * 8}", _Window()) == f"  {'long/' * 8}"


@pytest.mark.parametrize("amount", ["2 s", "46.2 GiB", "90 min", "2.5 h", "1,024 B", "180 W"])
def test_no_figure_is_parted_from_its_unit(monkeypatch: pytest.MonkeyPatch, amount: str) -> None:
    """Whatever the window; for a program nothing is changed."""
    text = f"the broker answers, but no coordinator did in {amount}: it is away, 2 such hosts are"
    for width in range(20, 90):
        monkeypatch.setenv("COLUMNS", f"{width}")
        lines = laid_out(text, _Window(), indent=2).splitlines()
        assert any(amount in line for line in lines), lines
        assert " ".join(line.strip() for line in lines) == text
        assert max(map(len, lines)) <= width
    assert laid_out(text, io.StringIO()) == text


def _complaint(window: pytest.MonkeyPatch, told: Callable[[], int]) -> list[str]:
    """What a program says on standard error, in a window of 40 columns."""
    out = _Window()
    window.setenv("COLUMNS", "40")
    window.setattr(sys, "stderr", out)
    assert told() == 2
    return out.getvalue().splitlines()


def test_an_error_is_broken_between_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of `fleet` itself, and of a program that it runs."""
    told = _complaint(monkeypatch, lambda: cli.main(["status", "--broker", "http://pi.lan"]))
    assert len(told) > 1
    assert max(map(len, told)) <= 40, told
    told = _complaint(monkeypatch, lambda: maintenance.main(["fsck", "--state", str(tmp_path)]))
    said = " ".join(line.strip() for line in told)
    assert said.startswith(f"error: {tmp_path}: no ledger is here; name")
    assert len(told) > 2
    assert max(len(line) for line in told if str(tmp_path) not in line) <= 40, told


def _two_identities(folder: Path) -> None:
    for name in ("attic", "desk"):
        made = folder / "fleet" / "identities" / name
        made.mkdir(parents=True)
        (made / "client.crt").touch()


@pytest.mark.parametrize("program", ["agent", "snooze", "coordinator", "broker", "fleet"])
def test_every_program_complains_alike(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between words, and what does not fit goes on two blanks further in."""
    for name in os.environ:
        if name.startswith("FLEET_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    _two_identities(tmp_path)
    far = ["--broker", "mqtts://pi.lan"]
    state = ["--state", str(tmp_path / "state")]
    run: Callable[[], int] = {
        "agent": lambda: agent_service.main([*far, *state]),
        "snooze": lambda: snooze.main(["--time", "soon", "--state", str(tmp_path)]),
        "coordinator": lambda: coordinator_service.main([*far, *state]),
        "broker": lambda: server.main(["--listen", "all the world, at every port of it"]),
        "fleet": lambda: cli.main(["status", "--broker", "http://pi.lan:1883/and/more"]),
    }[program]
    told = _complaint(monkeypatch, run)
    assert told[0].startswith("error:")
    assert len(told) > 1
    assert all(line.startswith("  ") and line[2] != " " for line in told[1:]), told
    # Two blanks before a path that is longer than the window.
    assert max(len(line) for line in told if str(tmp_path) not in line) <= 40, told
    if program == "agent":
        assert "several identities (attic, desk)" in " ".join(line.strip() for line in told)


def test_the_owners_word_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What `fleet snooze --here` has done."""
    out = _Window()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", out)
    assert snooze.main(["--state", str(tmp_path)]) == 0
    told = out.getvalue().splitlines()
    assert len(told) > 1
    assert max(len(line) for line in told if str(tmp_path) not in line) <= 40, told
    assert "takes no jobs until `fleet resume --here`" in " ".join(told)
    assert any("`fleet resume --here`" in line for line in told)


def test_what_make_says_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the first that a newcomer sees."""
    said = ["Next: `fleet up --manifest P` with a", "plan of your own"]
    assert prose.main(said) == 0
    assert capsys.readouterr().out == f"{' '.join(said)}\n"
    out = _Window()
    monkeypatch.setenv("COLUMNS", "28")
    monkeypatch.setattr(sys, "stdout", out)
    assert prose.main(said) == 0
    assert out.getvalue().splitlines() == [
        "Next:", "`fleet up --manifest P` with", "a plan of your own"
    ]  # fmt: skip
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert all(len(line) <= 80 for line in re.findall(r'echo "(.*)"', makefile))
    assert '@echo "Training' not in makefile


def test_an_error_of_a_manifest_looks_alike_wherever_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By `fleet check`, and by `fleet reload` of the manifest that was not taken."""
    bad = tmp_path / "bad.toml"
    bad.write_text(
        'schema_version = 1\n[[jobs]]\nmodel = "mlpp"\nmode = "oracle"\nretries = -1\n', "utf-8"
    )
    out = _Window()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stderr", out)
    assert cli.main(["check", "--offline", str(bad)]) == 1
    checked = out.getvalue().splitlines()
    assert any(line.startswith("  ") for line in checked)
    with pytest.raises(ManifestError) as found:
        load_manifest(bad, builtin_trainers())
    out.seek(0)
    out.truncate()
    errors = {"errors": problems_to_list(found.value.problems)}
    reload._complain(NotDone("it has errors", errors), as_json=False)
    assert out.getvalue().splitlines() == ["error: it has errors", *checked]


def test_a_finding_goes_on_below_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of `fleet doctor` do."""
    out = _Window()
    monkeypatch.setenv("COLUMNS", "44")
    tell(
        "agent",
        [fail("data", "there is no folder", "name another with --data")],
        out,
        as_json=False,
    )
    assert out.getvalue().splitlines() == [
        "fail  data         there is no folder; name",
        "                   another with --data",
        "1 problem: data.",
    ]


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="a terminal of this kind is not there")
def test_what_init_says_is_whole_in_a_real_window(tmp_path: Path) -> None:
    """The first screen that anybody sees: no line of it is broken by the terminal."""
    import pty

    ours, theirs = pty.openpty()
    settings = {name: text for name, text in os.environ.items() if not name.startswith("FLEET_")}
    settings |= {"XDG_CONFIG_HOME": str(tmp_path), "COLUMNS": "60"}
    ran = subprocess.run(
        [sys.executable, "-m", "coordinator.cli", "init", "--broker", "pi.lan"],
        stdout=theirs, stderr=subprocess.PIPE, env=settings, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    os.close(theirs)
    said = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    assert ran.returncode == 0, ran.stderr
    sentences = [line for line in said if str(tmp_path) not in line]
    assert any("keep ca.key safe" in line for line in said)
    assert max(map(len, sentences)) <= 60, said


def test_one_thing_is_not_several() -> None:
    """Wherever things are counted: `1 artifact in FOLDER`."""
    assert [counted(number, "job") for number in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]
