"""What becomes of a trainer and its children when their agent is killed, and of whom it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.process.orphans import MARK, end_marked
from tests.harness.processes import DAEMON, DEADLINE_S, is_over
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[4]
SOON_S = 5.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="a parent-death signal is Linux's")

AGENT = """
import os, pathlib, sys, time
from agent.process.supervisor import Starter, Trainer
say = lambda line: print(line, flush=True)
command = [sys.executable, "-c", sys.argv[2]]
trainer = Trainer(command, os.environ, pathlib.Path(sys.argv[1]), say, say, Starter())
say(f"keeper {trainer.pid}")
time.sleep(600)
"""
TRAINER = f"""
import os, subprocess, sys, time
{DAEMON}
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
print("trainer", os.getpid(), flush=True)
print("child", subprocess.Popen(sleep).pid, flush=True)
print("escaped", subprocess.Popen(sleep, start_new_session=True).pid, flush=True)
time.sleep(600)
"""


class Family:
    """An agent, the keeper of its trainer, the trainer, and its family.

    That is a child, one that left the group, and a daemon with an empty environment.
    """

    def __init__(self, work: Path) -> None:
        command = [sys.executable, "-c", AGENT, str(work), TRAINER]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.agent = psutil.Process(self.process.pid)
        self.members: dict[str, psutil.Process] = {}
        for _ in range(5):
            name, pid = self.process.stdout.readline().split()
            self.members[name.decode()] = psutil.Process(int(pid))
        # One that has just been started shows no environment before its program is loaded.
        marked = [one for name, one in self.members.items() if name != "daemon"]
        wait_until(lambda: all(one.environ() for one in marked), deadline_s=SOON_S)

    def kill_agent(self) -> None:
        """SIGKILL it; nothing of its own can run any more."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def alive(self) -> set[str]:
        return {name for name, process in self.members.items() if not is_over(process)}

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for process in self.members.values():
            if not is_over(process):
                process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    made = Family(tmp_path)
    yield made
    made.close()


@linux
def test_all_of_a_trainer_ends_with_a_killed_agent(family: Family, tmp_path: Path) -> None:
    assert family.alive() == {"keeper", "trainer", "child", "escaped", "daemon"}
    family.kill_agent()
    wait_until(lambda: family.alive() == set(), family.alive, SOON_S)
    assert not end_marked([tmp_path])


@linux
def test_a_trainer_ends_with_a_killed_keeper(family: Family) -> None:
    """By the system's own signal, for the agent is frozen and does nothing."""
    family.agent.suspend()
    wait_until(lambda: family.agent.status() == psutil.STATUS_STOPPED, deadline_s=SOON_S)
    family.members["keeper"].kill()
    wait_until(lambda: "trainer" not in family.alive(), deadline_s=SOON_S)
    assert "child" in family.alive(), "it is the agent that ends the group of a killed keeper"
    family.agent.resume()
    wait_until(lambda: family.alive() == {"daemon"}, "only the keeper knew of it", SOON_S)


def test_nothing_is_found_where_nothing_was(tmp_path: Path) -> None:
    assert not end_marked([])
    command = [sys.executable, "-c", "input()"]
    environment = os.environ | {MARK: str(tmp_path / "elsewhere")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as stranger:
        assert not end_marked([tmp_path])
        assert stranger.poll() is None
