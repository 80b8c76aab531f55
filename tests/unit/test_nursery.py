"""The program that stands ready to start trainers: how it ends, and what ends with it."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.nursery import Nursery
from agent.supervisor import Trainer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is for Linux alone")

DEADLINE_S = 20.0
SLEEP = "import time; print('here', flush=True); time.sleep(600)"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={{}})
print(child.pid, flush=True)
{SLEEP}
"""


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    """One that is ended afterwards."""
    made = Nursery()
    yield made
    made.close()


class Watched:
    """A trainer of the nursery whose lines and end a test can wait for."""

    def __init__(self, nursery: Nursery, work: Path, code: str) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self._codes: queue.Queue[int] = queue.Queue()
        command = [sys.executable, "-c", code]
        self.trainer = Trainer(command, os.environ, work, self._lines.put, self._codes.put, nursery)

    def line(self) -> str:
        """Return the next line."""
        return self._lines.get(timeout=DEADLINE_S)

    def code(self) -> int:
        """Return how it ended."""
        return self._codes.get(timeout=DEADLINE_S)


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended, reaped or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def program() -> psutil.Process:
    """The one program that stands ready for this process."""
    (found,) = (one for one in psutil.Process().children() if one.cmdline()[-1:] == ["nursery"])
    return found


def test_one_program_starts_them_all(nursery: Nursery, tmp_path: Path) -> None:
    """Their groups are their own, and each has its own exit code."""
    runs = [Watched(nursery, tmp_path / str(n), f"import sys; sys.exit({n})") for n in range(3)]
    assert [run.code() for run in runs] == [0, 1, 2]
    assert program().is_running()
    assert len({run.trainer.pid for run in runs}) == 3


def test_when_it_is_killed_its_trainers_end_and_another_comes(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Trainer and children alike; the end is told, as that of a killed trainer."""
    run = Watched(nursery, tmp_path / "a", FAMILY)
    child = psutil.Process(int(run.line()))
    assert run.line() == "here"
    program().kill()
    assert run.code() == -signal.SIGKILL
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_over(child):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    other = Watched(nursery, tmp_path / "b", "print('again')")
    assert other.line() == "again"
    assert other.code() == 0


def test_nobody_is_left_unreaped(nursery: Nursery, tmp_path: Path) -> None:
    """An agent runs for years: no zombie stays, of keepers or of what they took in."""
    orphan = (
        "import subprocess, sys, time\n"
        "subprocess.Popen(['sh', '-c', 'sleep 0.05 & exec true'], stdout=subprocess.DEVNULL).wait()"
    )
    for number in range(3):
        assert Watched(nursery, tmp_path / str(number), orphan).code() == 0
    last = Watched(nursery, tmp_path / "last", f"{orphan}\n{SLEEP}")
    assert last.line() == "here"
    deadline_s = time.monotonic() + DEADLINE_S
    while len(found := program().children(recursive=True)) > 2:
        assert time.monotonic() < deadline_s, [(one.cmdline(), one.status()) for one in found]
        time.sleep(0.01)
    assert psutil.STATUS_ZOMBIE not in [one.status() for one in found]
    last.trainer.send_signal(kill=True)
    assert last.code() == -signal.SIGKILL


def test_a_word_with_a_nul_byte_is_refused(nursery: Nursery, tmp_path: Path) -> None:
    """It would be another command by then."""
    with pytest.raises(OSError, match="NUL byte"):
        Trainer(["a\0b"], {}, tmp_path, print, print, nursery)


def test_what_the_system_refuses_is_told(nursery: Nursery, tmp_path: Path) -> None:
    """A work folder that is gone: the trainer is not started elsewhere."""
    work = tmp_path / "work"
    work.mkdir()
    kept = nursery.start([sys.executable, "-c", SLEEP], dict(os.environ), work / "nowhere")
    kept.await_end()
    assert kept.reap() == 127
    kept.let_go()
    kept.output.close()
