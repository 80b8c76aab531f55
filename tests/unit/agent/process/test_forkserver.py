"""The fork server: what it starts, how it ends, and who goes on then."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from agent.process.supervisor import Starter, Trainer
from tests.harness.processes import DEADLINE_S, SLEEP, Watched, is_over, until

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux has them"),
]

WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
print("here", flush=True)
signal.sigwait([15])
"""


def program() -> psutil.Process:
    """The fork server of this process."""
    (found,) = (one for one in psutil.Process().children() if "keeper.py" in one.cmdline()[-1])
    return found


def test_the_process_that_is_named_is_the_trainers(starter: Starter, tmp_path: Path) -> None:
    """It is what one looks for on that machine."""
    watched = Watched(starter, tmp_path, "import os; print(os.getpid())")
    assert watched.line() == str(watched.trainer.trainer_pid)
    assert watched.code() == 0


def test_one_program_starts_them_all(starter: Starter, tmp_path: Path) -> None:
    """Each in its own group, folder and environment, with its own exit code."""
    tells = "import os; print(os.getcwd(), os.environ['TRAINER_WORK_FOLDER'])"
    runs = [Watched(starter, tmp_path / str(n), f"{tells}\n{WAITS}sys.exit({n})") for n in range(3)]
    for n, run in enumerate(runs):
        assert run.line() == f"{tmp_path / str(n)} {tmp_path / str(n)}"
        assert run.line() == "here"
    assert len({run.trainer.pid for run in runs}) == 3
    for run in runs:
        run.trainer.send_signal(kill=False)
    assert [run.code() for run in runs] == [0, 1, 2]
    assert program().is_running()


def test_a_keeper_that_does_not_listen_is_ended(
    starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is stopped: a job that is cancelled ends."""
    monkeypatch.setattr("agent.process.forkserver._END_S", 0.5)
    run = Watched(starter, tmp_path, f"print('here'); {SLEEP}")
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
        thread.join(DEADLINE_S)
    assert until(lambda: is_over(trainer))


def test_without_it_trainers_go_on_and_another_comes(starter: Starter, tmp_path: Path) -> None:
    """The system may end it for its memory: what runs can still be asked to end."""
    run = Watched(starter, tmp_path / "a", f"{WAITS}sys.exit(3)")
    assert run.line() == "here"
    program().kill()
    other = Watched(starter, tmp_path / "b", "print('again')")
    assert (other.line(), other.code()) == ("again", 0)
    run.trainer.send_signal(kill=False)
    assert run.code() == 3


def test_nobody_is_left_unreaped(starter: Starter, tmp_path: Path) -> None:
    """An agent runs for years: no zombie stays, of keepers or of what they adopted."""
    orphan = (
        "import subprocess, sys, time\n"
        "subprocess.Popen(['sh', '-c', 'sleep 0.05 & exec true'], stdout=subprocess.DEVNULL).wait()"
    )
    for number in range(3):
        assert Watched(starter, tmp_path / str(number), orphan).code() == 0
    last = Watched(starter, tmp_path / "last", f"{orphan}\nprint('here')\n{SLEEP}")
    assert last.line() == "here"
    assert until(lambda: len(program().children(recursive=True)) == 2), "a keeper and its trainer"
    last.trainer.send_signal(kill=True)
    assert last.code() == -signal.SIGKILL


def test_a_word_with_a_nul_byte_is_refused(starter: Starter, tmp_path: Path) -> None:
    """It would be another command by then."""
    with pytest.raises(OSError, match="NUL byte"):
        Trainer(["a\0b"], {}, tmp_path, print, print, starter)


def test_what_cannot_be_started_is_told(starter: Starter, tmp_path: Path) -> None:
    """A work folder that is gone: the trainer is not started elsewhere."""
    with pytest.raises(OSError, match="the keeper has ended"):
        starter.start([sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / "nowhere")
