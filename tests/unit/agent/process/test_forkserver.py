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
from agent.trainer.common.config import TRAINERS
from tests.harness.fleet import prepared_data
from tests.harness.processes import DEADLINE_S, SLEEP, Watched, is_over
from tests.harness.waiting import wait_until
from tests.unit.agent.process.conftest import HAS_IT, Loaded

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


def program(starter: Starter) -> psutil.Process:
    """The fork server of this process that starts the programs which are files."""
    called = "fleet trainers" if isinstance(starter, Loaded) else "keeper.py"
    (found,) = (one for one in psutil.Process().children() if called in " ".join(one.cmdline()))
    return found


def test_the_process_that_is_named_is_the_trainers(starter: Starter, tmp_path: Path) -> None:
    watched = Watched(starter, tmp_path, "import os; print(os.getpid())")
    assert watched.line() == str(watched.trainer.trainer_pid)
    assert watched.code() == 0


def test_one_program_starts_them_all(starter: Starter, tmp_path: Path) -> None:
    tells = "import os; print(os.getcwd(), os.environ['TRAINER_WORK_FOLDER'])"
    runs = [Watched(starter, tmp_path / str(n), f"{tells}\n{WAITS}sys.exit({n})") for n in range(3)]
    for n, run in enumerate(runs):
        assert run.line() == f"{tmp_path / str(n)} {tmp_path / str(n)}"
        assert run.line() == "here"
    assert len({run.trainer.pid for run in runs}) == 3
    for run in runs:
        run.trainer.send_signal(kill=False)
    assert [run.code() for run in runs] == [0, 1, 2]
    assert program(starter).is_running()


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
    wait_until(lambda: is_over(trainer))


def test_without_it_trainers_go_on_and_another_comes(starter: Starter, tmp_path: Path) -> None:
    """The system may end it for its memory: what runs can still be asked to end."""
    run = Watched(starter, tmp_path / "a", f"{WAITS}sys.exit(3)")
    assert run.line() == "here"
    program(starter).kill()
    other = Watched(starter, tmp_path / "b", "print('again')")
    assert (other.line(), other.code()) == ("again", 0)
    run.trainer.send_signal(kill=False)
    assert run.code() == 3


def test_one_that_does_not_answer_is_replaced(
    starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Watched(starter, tmp_path / "a", f"print('here')\n{SLEEP}")
    assert first.line() == "here"
    program(starter).suspend()
    with monkeypatch.context() as patch:
        patch.setattr("agent.process.forkserver._PATIENCE_S", 0.2)
        with pytest.raises(OSError, match="timed out"):
            Watched(starter, tmp_path / "b", "")
    run = Watched(starter, tmp_path / "c", "print('again')")
    assert (run.line(), run.code()) == ("again", 0)
    first.trainer.send_signal(kill=True)
    assert first.code() == -signal.SIGKILL


def test_a_keeper_is_given_the_next_trainer(tmp_path: Path) -> None:
    """But not one that was killed meanwhile, and none outlives who has started it."""
    starter, keepers = Starter(), []
    for number in range(3):
        run = Watched(starter, tmp_path / str(number), "import os; print(os.getcwd())")
        assert (run.line(), run.code()) == (str(tmp_path / str(number)), 0)
        keepers.append(psutil.Process(run.trainer.pid))
        if number == 1:
            keepers[1].kill()
            keepers[1].wait(DEADLINE_S)
    assert keepers[0] == keepers[1] != keepers[2]
    assert keepers[2].is_running()
    starter.close()
    wait_until(lambda: is_over(keepers[2].pid))


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
    wait_until(
        lambda: len(program(starter).children(recursive=True)) == 2, "a keeper and its trainer"
    )
    last.trainer.send_signal(kill=True)
    assert last.code() == -signal.SIGKILL


def test_a_word_with_a_nul_byte_is_refused(starter: Starter, tmp_path: Path) -> None:
    """It would be another command by then."""
    with pytest.raises(OSError, match="NUL byte"):
        Trainer(["a\0b"], {}, tmp_path, print, print, starter)


def test_what_cannot_be_started_is_told(starter: Starter, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the keeper has ended"):
        starter.start([sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / "nowhere")


LOOKS = """
import os, pathlib, random, sys, numpy
here = pathlib.Path("/proc/self")
print(here.joinpath("cmdline").read_text().split("\\0")[0] == " ".join(COMMAND))
print(("TRAINER_WORK_FOLDER=" + os.getcwd()).encode() in here.joinpath("environ").read_bytes())
print(sys.argv[1:], sys.path[0] == os.path.dirname(__file__), __name__, sys.stdin.read() == "")
print(sorted(os.listdir("/proc/self/fd"))[:3], len(os.listdir("/proc/self/fd")))
print(here.joinpath("oom_score_adj").read_text().strip(), "LEFT" in os.environ)
print(random.random(), numpy.random.random())
os.environ["LEFT"] = "by the first"
random.seed(1)
raise SystemExit(7)
"""


def test_a_loaded_trainer_is_as_one_of_its_own(loaded: Loaded, tmp_path: Path) -> None:
    score = Path("/proc/self/oom_score_adj").read_text().strip()
    drawn = set()
    for number in range(2):
        work = tmp_path / str(number)
        work.mkdir()
        file = work / "looks.py"
        command = [sys.executable, str(file), "a", "b c"]
        file.write_text(f"COMMAND = {command}\n{LOOKS}")
        loaded.modules = ["asyncio", "numpy.random"]  # they change what a fork inherits
        loaded.get_ready(tmp_path / "ready", "import sys; print('numpy' in sys.modules)")
        run = Watched(loaded, work, command=command)
        assert [run.line(), run.line()] == ["True", "True"]
        assert run.line() == "['a', 'b c'] True __main__ True"
        assert [run.line(), run.line()] == ["['0', '1', '2'] 4", f"{score} False"]
        drawn.update(run.line().split())
        assert run.code() == 7
    assert len(drawn) == 4


def test_a_loaded_interpreter_has_no_thread(loaded: Loaded, tmp_path: Path) -> None:
    """Another one may hold a lock at the time of a fork, and the child has only the lock."""
    loaded.modules = ["pyarrow.parquet"]
    loaded.get_ready(tmp_path / "ready", "import sys; print('pyarrow' in sys.modules)")
    servers = [one for one in psutil.Process().children() if "pyarrow" in str(one.cmdline())]
    assert {one.num_threads() for one in servers} == {1}


def test_a_loaded_interpreter_ends_when_nobody_needs_it(tmp_path: Path) -> None:
    with contextlib.closing(Loaded(idle_s=2.0)) as starter:
        starter.get_ready(tmp_path / "ready")
        one = program(starter)
        wait_until(lambda: not one.is_running())
        late = Watched(starter, tmp_path / "late", HAS_IT)
        assert (late.line(), late.code()) == ("False", 0)


def test_a_module_that_cannot_be_imported_costs_one_attempt(tmp_path: Path) -> None:
    with contextlib.closing(Loaded()) as starter:
        starter.modules = ["no_such_module"]
        Watched(starter, tmp_path / "first", "").code()
        before = {one.pid for one in psutil.Process().children()}
        Watched(starter, tmp_path / "second", "").code()
        tried = [one for one in psutil.Process().children() if one.pid not in before]
        wait_until(lambda: all(is_over(one) for one in tried))
        for number in range(3):
            run = Watched(starter, tmp_path / str(number), "print('here')")
            assert (run.line(), run.code()) == ("here", 0)
        assert {one.pid for one in psutil.Process().children()} <= before


@pytest.mark.slow
@pytest.mark.parametrize("model", TRAINERS)
def test_an_artifact_has_the_bytes_of_a_fresh_interpreter(
    loaded: Loaded, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, model: str
) -> None:
    trainer, data = TRAINERS[model], prepared_data(tmp_path_factory.mktemp("data"))
    loaded.modules = trainer.modules
    library = "xgboost" if model == "gbt" else "torch"
    loaded.get_ready(tmp_path / "ready", f"import sys; print({library!r} in sys.modules)")
    made = []
    for name in ("fresh", "loaded"):
        work = tmp_path / name
        command = [
            sys.executable, *([] if name == "loaded" else ["-s"]), "-m", trainer.module,
            f"--model={model}", "--mode=oracle", f"--data={data}", f"--out-dir={work / 'out'}",
            f"--reports-dir={work / 'out'}", "--epochs=2", "--n-resamples=100", "--threads=1",
        ]  # fmt: skip
        run = Watched(loaded, work, command=command)
        assert run.code() == 0, list(run.lines.queue)
        made.append({file.name: file.read_bytes() for file in (work / "out").iterdir()})
    assert made[0] == made[1]
    assert made[0]
