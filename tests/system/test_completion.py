"""What Tab does: the shell's own call, on a real fleet, and without one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli import VERBS
from tests.harness.fleet import ROOT
from tests.harness.verbs import Done, process, verb


def _tab(line: str, shell: str = "bash", **more: str) -> Done:
    """What the script of `shell` calls when Tab is pressed at the end of a line."""
    words = line.split(" ")
    return process(environment=more | {
        "_FLEET_COMPLETE": f"{shell}_complete", "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    })  # fmt: skip


def _offered(done: Done) -> list[str]:
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.text().splitlines() if line]


@pytest.fixture
def tab(fleet: Any) -> Any:
    """Tab, until something is offered: a machine that is busy may miss the short deadline."""

    def press(line: str, shell: str = "bash", *, aimed: bool = True) -> str:
        env = {"FLEET_BROKER": fleet.broker_url, "FLEET_TOPIC_ROOT": fleet.root} if aimed else {}
        deadline_s = time.monotonic() + 30
        while True:
            done = _tab(line, shell, **env)
            assert (done.returncode, done.stderr) == (0, "")
            if done.stdout.strip() or time.monotonic() > deadline_s:
                return done.stdout

    return press


def test_jobs_and_hosts_are_completed(fleet: Any, tab: Any) -> None:
    fleet.plan(
        'model = "gru"\nmode = "oracle"\nrequire_cuda = true',
        'model = "cnn"\nmode = "realistic"\nrequire_cuda = true',
    )
    fleet.coordinator()
    fleet.agent("attic-pi")
    fleet.until("gru-oracle", "pending")
    fleet.cancel("gru-oracle")
    assert tab("fleet show gru-") == "plain,gru-oracle\n"
    here = f"--broker {fleet.broker_url} --root {fleet.root}"
    assert tab(f"fleet {here} show gru-", aimed=False) == "plain,gru-oracle\n"
    assert tab(f"fleet show {here} gru-", aimed=False) == "plain,gru-oracle\n"
    row = next(row for row in fleet.client.list_jobs() if row["name"] != "gru-oracle")
    assert tab(f"fleet why {row['job_id'][:4]}") == f"plain,{row['job_id'][:12]}\n"
    assert tab("fleet cancel ") == "plain,cnn-realistic\n"
    assert tab("fleet drain at") == "plain,attic-pi\n"
    assert tab("fleet snooze at") == "plain,attic-pi\n"
    assert tab("fleet run --on at") == "plain,attic-pi\n"
    assert tab("fleet run --model transformer_") == "plain,transformer_ssl\n"
    assert "gbt\non 1 host" in tab("fleet run --model ", "zsh")
    assert tab("fleet events --host at") == "plain,attic-pi\n"
    assert tab("fleet events --job gru") == "plain,gru-oracle\n"
    assert "gru-oracle\ncancelled" in tab("fleet requeue gru", "zsh")
    assert "plain,attic-pi\tonline" in tab("fleet resume ", "fish")


def test_of_two_jobs_with_one_name_each_is_offered_by_what_means_it(fleet: Any, tab: Any) -> None:
    first = 'model = "gru"\nmode = "oracle"\nrequire_cuda = true'
    fleet.plan(first)
    fleet.coordinator()
    old = fleet.until("gru-oracle", "pending")["job_id"][:12]
    fleet.plan(f"{first}\nseed = 7")
    fleet.reload()
    assert sorted(tab("fleet cancel ").split()) == sorted([f"plain,{old}", "plain,gru-oracle"])
    assert tab("fleet show gru") == "plain,gru-oracle\n"
    assert tab(f"fleet show {old[:6]}") == f"plain,{old}\n"
    fleet.cancel(old)
    assert tab("fleet requeue ") == f"plain,{old}\n", "by its name the pending one is meant"


def test_attempts_are_completed_that_have_brought_something(
    fleet: Any, tab: Any, short: str
) -> None:
    fleet.plan(short)
    fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "completed")
    agent.end(signal.SIGTERM)
    fleet.requeue("gbt-oracle")
    assert tab("fleet get gbt-oracle --attempt ") == "plain,1\n"
    assert tab("fleet get --attempt 1 gbt") == "plain,gbt-oracle\n"
    told = tab("fleet get gbt-oracle --attempt ", "fish")
    assert re.match(r"plain,1\tAUROC 0\.\d{3}, .* KiB, kept until ", told), told


def test_verbs_and_options_are_completed_without_asking_anybody() -> None:
    everything = _offered(_tab("fleet "))
    assert everything == list(VERBS)
    assert _offered(_tab("fleet li")) == ["list"]
    assert _offered(_tab("fleet list --status c")) == ["claimed", "completed", "cancelled"]
    assert _offered(_tab("fleet completion ")) == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    "where", ["mqtt://127.0.0.1:1", "http://nonsense", "mqtts://127.0.0.1:1", "mqtt://192.0.2.1"]
)
def test_nobody_to_ask_is_no_error(where: str) -> None:
    begun_s = time.monotonic()
    assert _offered(_tab(f"fleet --plain --broker {where} show ")) == []
    assert time.monotonic() - begun_s < 60, "a connect alone would be given up after two minutes"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str, tmp_path: Path) -> None:
    """And bash takes it and completes with it."""
    script = verb("completion", shell).text()
    assert f"_FLEET_COMPLETE={shell}_complete" in script
    bash = shutil.which("bash")
    if shell != "bash" or bash is None:
        return
    program = tmp_path / "fleet"
    program.write_text(f'#!{bash}\nexec "{sys.executable}" -m coordinator.cli "$@"\n')
    program.chmod(0o755)
    press = "COMP_WORDS=(fleet oper); COMP_CWORD=1; _fleet_completion fleet oper fleet"
    tried = subprocess.run(
        [bash, "--norc", "-c", f"{script}\n{press}\necho ${{COMPREPLY[@]}}"],
        capture_output=True, text=True, timeout=60, cwd=ROOT, check=False,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    assert tried.stdout == "operator-key\n", tried.stderr
