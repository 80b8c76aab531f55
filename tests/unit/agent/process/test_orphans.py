"""What becomes of a trainer and its children when their agent is killed, and of whom it is not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from agent.process.orphans import MARK, end_orphan, record
from tests.harness.processes import DAEMON, is_over

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
SOON_S = 5.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="a parent-death signal is Linux's")
posix = pytest.mark.skipif(os.name != "posix", reason="process groups are a POSIX matter")

AGENT = """
import os, pathlib, sys, time
from agent.process.forkserver import Nursery
from agent.process.supervisor import Trainer
say = lambda line: print(line, flush=True)
command = [sys.executable, "-c", sys.argv[2]]
nursery = Nursery() if sys.argv[3] == "nursery" else None
trainer = Trainer(command, os.environ, pathlib.Path(sys.argv[1]), say, say, nursery)
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

    def __init__(self, work: Path, how: str) -> None:
        command = [sys.executable, "-c", AGENT, str(work), TRAINER, how]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.agent = psutil.Process(self.process.pid)
        self.members: dict[str, psutil.Process] = {}
        for _ in range(5):
            name, pid = self.process.stdout.readline().split()
            self.members[name.decode()] = psutil.Process(int(pid))
        # One that has just been started shows no environment before its program is loaded.
        marked = [one for name, one in self.members.items() if name != "daemon"]
        assert until(lambda: all(one.environ() for one in marked))

    def kill_agent(self) -> None:
        """SIGKILL it; nothing of its own can run any more."""
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def alive(self) -> set[str]:
        """Who has not ended, by name."""
        return {name for name, process in self.members.items() if not is_over(process)}

    def close(self) -> None:
        """End everybody."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        for process in self.members.values():
            if not is_over(process):
                process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(params=["alone", "nursery"] if sys.platform == "linux" else ["alone"])
def family(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Family]:
    """A family in the test's folder; its keeper was started anew, or forked."""
    made = Family(tmp_path, request.param)
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, not for long; tell whether it came."""
    end_s = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def sleeper(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def put_on_record(work: Path, pid: int) -> dict[str, str]:
    """Record a process as a trainer's; return the record."""
    record(work, pid)
    found: dict[str, str] = json.loads((work / "process.json").read_bytes())
    return found


@linux
def test_all_of_a_trainer_ends_with_a_killed_agent(family: Family, tmp_path: Path) -> None:
    """Without anybody's help, wherever it has gone; the next agent finds nothing."""
    assert family.alive() == {"keeper", "trainer", "child", "escaped", "daemon"}
    family.kill_agent()
    assert until(lambda: family.alive() == set()), family.alive()
    assert not end_orphan(tmp_path)


@linux
def test_a_trainer_ends_with_a_killed_keeper(family: Family) -> None:
    """By the system's own signal, for the agent is frozen and does nothing."""
    family.agent.suspend()
    assert until(lambda: family.agent.status() == psutil.STATUS_STOPPED)
    family.members["keeper"].kill()
    assert until(lambda: "trainer" not in family.alive())
    assert "child" in family.alive(), "it is the agent that ends the group of a killed keeper"
    family.agent.resume()
    assert until(lambda: family.alive() == {"daemon"}), "only the keeper knew of it"


@posix
@pytest.mark.parametrize("torn", ["", '{"pid": 12', "[]", '{"pid": "x"}', '{"pid": 1e999}', None])
def test_children_without_agent_and_keeper_are_found(
    family: Family, tmp_path: Path, torn: str | None
) -> None:
    """Both are killed at once: the next agent ends who is left, whatever the record says."""
    family.members["keeper"].suspend()
    family.kill_agent()
    family.members["keeper"].kill()
    assert until(lambda: family.alive() <= {"child", "escaped", "daemon"})
    if torn is None:
        (tmp_path / "process.json").unlink()
    else:
        (tmp_path / "process.json").write_text(torn)
    assert end_orphan(tmp_path)
    assert family.alive() == {"daemon"}, "only the keeper knew of it"


@posix
def test_a_frozen_orphan_is_ended(family: Family, tmp_path: Path) -> None:
    """The keeper is stopped, so all are alive when the next agent starts."""
    for process in family.members.values():
        process.suspend()
    family.kill_agent()
    assert family.alive() == {"keeper", "trainer", "child", "escaped", "daemon"}
    assert end_orphan(tmp_path)
    assert family.alive() == set()


@posix
def test_a_group_is_ended_by_its_record_alone(tmp_path: Path) -> None:
    """Should a trainer's processes have dropped the mark, the group on record has them."""
    with sleeper(os.environ) as leader:
        put_on_record(tmp_path, leader.pid)
        assert end_orphan(tmp_path)
        assert leader.wait(DEADLINE_S) == -signal.SIGKILL


@posix
def test_a_process_that_has_the_number_now_is_left_alone(tmp_path: Path) -> None:
    """Its birth tells it apart: from another time, or another boot; and so does the mark."""
    with sleeper(os.environ | {MARK: str(tmp_path / "elsewhere")}) as stranger:
        known = put_on_record(tmp_path, stranger.pid)
        # On Linux the boot is in front and the time behind; elsewhere both are the time.
        for born in ("x" + known["born"][1:], known["born"][:-1] + "x"):
            (tmp_path / "process.json").write_text(json.dumps(known | {"born": born}))
            assert not end_orphan(tmp_path)
            assert stranger.poll() is None


def test_nothing_is_found_where_nothing_was(tmp_path: Path) -> None:
    """No record, and a record of a process that has ended."""
    assert not end_orphan(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ended:
        put_on_record(tmp_path, ended.pid)
    assert not end_orphan(tmp_path)
