"""The program that stands ready to start trainers: how it ends, and what ends with it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.process.forkserver import Nursery
from agent.process.supervisor import Trainer
from tests.harness.processes import is_over

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="it is for Linux alone"),
]

DEADLINE_S = 60.0
SLEEP = "import time; print('here', flush=True); time.sleep(600)"
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
print(child.pid, flush=True)
"""
FAMILY = f"{CHILD}{SLEEP}"


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


def await_end(process: psutil.Process) -> None:
    """Wait until a process that is not ours has ended."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_over(process):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def program() -> psutil.Process:
    """The one program that stands ready for this process."""
    (found,) = (one for one in psutil.Process().children() if one.cmdline()[-1:] == ["nursery"])
    return found


def test_the_process_that_is_named_is_the_trainers(nursery: Nursery, tmp_path: Path) -> None:
    """Also of the next that the same keeper keeps: it is what one looks for on that machine."""
    for _ in range(2):
        watched = Watched(nursery, tmp_path, "import os; print(os.getpid(), flush=True); input()")
        assert watched.line() == str(watched.trainer.trainer_pid)
        watched.code()


def test_one_program_starts_them_all(nursery: Nursery, tmp_path: Path) -> None:
    """Their groups are their own, and each has its own exit code."""
    waits = (
        "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15]);"
        "print('here', flush=True); signal.sigwait([15])"
    )
    runs = [Watched(nursery, tmp_path / str(n), f"{waits}; sys.exit({n})") for n in range(3)]
    assert [run.line() for run in runs] == ["here"] * 3
    assert len({run.trainer.pid for run in runs}) == 3
    for run in runs:
        run.trainer.send_signal(kill=False)
    assert [run.code() for run in runs] == [0, 1, 2]
    assert program().is_running()


def test_a_keeper_keeps_the_next_trainer(nursery: Nursery, tmp_path: Path) -> None:
    """In its own folder and environment, with an exit code of its own, and nobody else's signal."""
    first = Watched(nursery, tmp_path / "a", "import os; os._exit(3)")
    assert first.code() == 3
    tells = "import os; print(os.getcwd(), os.environ['TRAINER_WORK_FOLDER'], flush=True)"
    second = Watched(nursery, tmp_path / "b", f"{tells}; {SLEEP}")
    assert second.line() == f"{tmp_path / 'b'} {tmp_path / 'b'}"
    assert second.trainer.pid == first.trainer.pid
    first.trainer.send_signal(kill=True)  # it has ended: nothing
    second.trainer.send_signal(kill=False)
    assert second.code() == -signal.SIGTERM
    third = Watched(nursery, tmp_path / "c", "print('on')")
    assert (third.line(), third.code()) == ("on", 0)


def test_a_keeper_ends_what_its_trainer_has_left(nursery: Nursery, tmp_path: Path) -> None:
    """What was left has ended before the end is told, and the keeper keeps the next trainer."""
    run = Watched(nursery, tmp_path / "a", f"{CHILD}sys.exit(5)")
    child = int(run.line())
    assert run.code() == 5
    assert is_over(child)
    other = Watched(nursery, tmp_path / "b", "pass")
    assert other.code() == 0
    assert other.trainer.pid == run.trainer.pid


def test_a_keeper_that_does_not_listen_is_ended(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is stopped: a job that is cancelled ends."""
    monkeypatch.setattr("agent.process.forkserver._END_S", 0.5)
    run = Watched(nursery, tmp_path, SLEEP)
    assert run.line() == "here"
    keeper, over = psutil.Process(run.trainer.pid), threading.Event()
    trainer = psutil.Process(run.trainer.trainer_pid)

    def stop() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            while not over.is_set():
                keeper.suspend()

    thread = threading.Thread(target=stop)
    thread.start()
    run.trainer.send_signal(kill=True)
    try:
        assert run.code() == -signal.SIGKILL
    finally:
        over.set()
        thread.join()
    await_end(trainer)


def test_a_trainers_priority_is_its_own(nursery: Nursery, tmp_path: Path) -> None:
    """Whatever it has done to its whole group: the next one starts with the agent's."""
    was = os.getpriority(os.PRIO_PROCESS, 0)
    nice = f"import os; os.setpriority(os.PRIO_PGRP, 0, {min(was + 1, 19)})"
    assert Watched(nursery, tmp_path / "a", nice).code() == 0
    tells = "import os; print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)"
    other = Watched(nursery, tmp_path / "b", tells)
    assert (other.line(), other.code()) == (str(was), 0)


def test_a_keeper_that_was_killed_while_it_waited_is_replaced(
    nursery: Nursery, tmp_path: Path
) -> None:
    """The system may end it for its memory; the next trainer is started all the same."""
    run = Watched(nursery, tmp_path / "a", "pass")
    assert run.code() == 0
    os.kill(run.trainer.pid, signal.SIGKILL)
    other = Watched(nursery, tmp_path / "b", "print('again')")
    assert (other.line(), other.code()) == ("again", 0)


def test_when_it_is_killed_its_trainers_end_and_another_comes(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Trainer and children alike; the end is told, as that of a killed trainer."""
    run = Watched(nursery, tmp_path / "a", FAMILY)
    child = psutil.Process(int(run.line()))
    assert run.line() == "here"
    program().kill()
    assert run.code() == -signal.SIGKILL
    await_end(child)
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
