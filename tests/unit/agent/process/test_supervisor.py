"""Trainers as processes: what they say, how they end, and that nothing of them hangs or stays."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from agent.process import supervisor
from agent.process.supervisor import Starter, Trainer
from tests.harness.processes import DAEMON, DEADLINE_S, SLEEP, Watched, end, is_over
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.system

DEAF = f"import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def parent(then: str, child: str = SLEEP, *, session: bool = False, marked: bool = True) -> str:
    """A trainer's program that starts a child, prints its process id, and goes on."""
    return (
        "import os, subprocess, sys, time\n"
        f"environment = dict(os.environ) if {marked} else {{}}\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}],"
        f" start_new_session={session}, env=environment)\n"
        f"print(child.pid, flush=True)\n{then}"
    )


def test_lines_and_exit_codes_arrive(starter: Starter, tmp_path: Path) -> None:
    run = Watched(
        starter, tmp_path, "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    )
    assert [run.line(), run.line()] == ["one", "two"]
    assert run.code() == 3
    assert (tmp_path / "trainer.log").read_text() == "one\ntwo\n"


def test_a_line_without_end_is_cut(starter: Starter, tmp_path: Path) -> None:
    run = Watched(
        starter,
        tmp_path,
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe\\n' + b'x' * 100_000 + b'\\nend\\n')",
    )
    assert run.line() == "\ufffd\ufffd"
    assert len(run.line()) == 8192
    while run.line() != "end":
        pass
    assert run.code() == 0


def test_the_log_on_disk_is_bounded(
    starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MAX_LOG_BYTES", 10_000)
    run = Watched(starter, tmp_path, "for n in range(5000): print('line', n)")
    assert run.code() == 0
    assert (tmp_path / "trainer.log").stat().st_size < 11_000


@linux
def test_a_disk_that_refuses_the_log_does_no_harm(starter: Starter, tmp_path: Path) -> None:
    """Lines and exit arrive all the same, or a full disk would hold a slot for ever."""
    full, never = tmp_path / "full", tmp_path / "never"
    full.mkdir()
    (full / "trainer.log").symlink_to("/dev/full")
    (never / "trainer.log").mkdir(parents=True)
    for work in (full, never):
        run = Watched(starter, work, "print('one'); print('two')")
        assert [run.line(), run.line()] == ["one", "two"]
        assert run.code() == 0


@pytest.mark.posix
@pytest.mark.parametrize("code", [75, 255, -9, -11, -15])
def test_the_end_is_the_trainers_own(starter: Starter, tmp_path: Path, code: int) -> None:
    """The keeper between is not seen: exit codes and signals come as they were, and once."""
    how = f"os._exit({code})" if code >= 0 else f"os.kill(os.getpid(), {-code})"
    run = Watched(starter, tmp_path, f"import os; {how}")
    assert run.code() == code
    run.trainer.send_signal(kill=True)
    run.trainer.wait(DEADLINE_S)
    assert run.codes.empty()


@pytest.mark.posix
def test_a_command_that_does_not_exist_says_so(starter: Starter, tmp_path: Path) -> None:
    run = Watched(starter, tmp_path, command=["/nowhere/trainer", "-x"])
    assert "/nowhere/trainer cannot be started: " in run.line()
    assert run.code() == 127


@linux
def test_a_trainer_starts_with_a_clean_slate(starter: Starter, tmp_path: Path) -> None:
    script = "cat; ls -l /proc/$$/fd; cat /proc/self/status"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = Watched(starter, tmp_path, command=["sh", "-c", script])
        assert run.code() == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    lines = list(run.lines.queue)
    signals = dict(line.split(":") for line in lines if line.startswith("Sig"))
    for kind in ("SigBlk", "SigIgn"):  # those above 31 are the C library's own
        assert int(signals[kind], 16) & 0x7FFF_FFFF == 0
    standard_input, output, errors = [line.split(" -> ")[1] for line in lines if " -> " in line]
    assert standard_input == "/dev/null"
    assert output == errors


@pytest.mark.posix
def test_arguments_arrive_as_they_are(starter: Starter, tmp_path: Path) -> None:
    """Empty ones, with line ends, that are no text, and more than a pipe holds."""
    words = ["", " a  b", "x\ny", "\udcff", "z" * 100_000, ""]
    code = "import os, sys; print([len(os.fsencode(word)) for word in sys.argv[1:]])"
    run = Watched(starter, tmp_path, command=[sys.executable, "-c", code, *words])
    assert run.line() == "[0, 5, 3, 1, 100000, 0]"
    assert run.code() == 0


@linux
def test_a_request_reaches_the_whole_group(starter: Starter, tmp_path: Path) -> None:
    """What the trainer has started itself is asked to end, too; the trainer may take its time."""
    then = (
        "import signal; signal.signal(15, lambda *_: os._exit(child.wait() + 90)); time.sleep(600)"
    )
    run = Watched(starter, tmp_path, parent(then))
    child = psutil.Process(int(run.line()))
    wait_until(lambda: _catches_term(run.trainer.pid))
    run.trainer.send_signal(kill=False)
    assert run.code() == 75, "its child has ended by SIGTERM, then it has, by itself"
    assert is_over(child)


def _catches_term(group: int) -> bool:
    """Whether the trainer under a keeper has set its handler."""
    (trainer,) = psutil.Process(group).children()
    caught = Path(f"/proc/{trainer.pid}/status").read_text().split("SigCgt:")[1].split()[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.posix
def test_who_is_deaf_to_the_request_is_ended(starter: Starter, tmp_path: Path) -> None:
    """Trainer and grandchildren alike, and one exit is told."""
    run = Watched(starter, tmp_path, parent(f"exec({DEAF!r})", DEAF))
    said = [run.line() for _ in range(3)]
    assert sorted(said)[1:] == ["deaf", "deaf"]
    child = psutil.Process(int(min(said)))
    run.trainer.send_signal(kill=False)
    run.trainer.wait(0.3)
    assert run.codes.empty()
    assert not is_over(child)

    run.trainer.send_signal(kill=True)
    assert run.code() == -9
    wait_until(lambda: is_over(child))
    run.trainer.wait(DEADLINE_S)
    assert run.codes.empty()


@pytest.mark.posix
@pytest.mark.parametrize(("session", "marked"), [(False, True), (True, True), (False, False)])
def test_a_grandchild_does_not_outlive_the_trainer(
    starter: Starter, tmp_path: Path, session: bool, marked: bool
) -> None:
    """It holds the output open, and has left the group or dropped the mark: ended, exit told."""
    run = Watched(starter, tmp_path, parent("os._exit(3)", session=session, marked=marked))
    child = int(run.line())
    try:
        assert run.code() == 3
        wait_until(lambda: is_over(child))
    finally:
        end(child)


@linux
@pytest.mark.parametrize("how", ["by itself", "ended"])
def test_a_daemon_does_not_outlive_the_trainer(starter: Starter, tmp_path: Path, how: str) -> None:
    """In a session of its own, without environment: when the end is told, it has ended, too."""
    run = Watched(starter, tmp_path, DAEMON + ("os._exit(3)" if how == "by itself" else SLEEP))
    daemon = int(run.line().removeprefix("daemon "))
    if how == "ended":
        run.trainer.send_signal(kill=True)
    try:
        assert run.code() == (3 if how == "by itself" else -9)
        assert is_over(daemon)
    finally:
        end(daemon)


@linux
def test_an_output_held_open_for_ever_hangs_nobody(
    starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "DRAIN_S", 0.2)
    run = Watched(starter, tmp_path, f"import os; print(os.getpid(), flush=True); {SLEEP}")
    held = os.open(f"/proc/{run.line()}/fd/1", os.O_WRONLY)
    try:
        run.trainer.send_signal(kill=False)
        assert run.code() == -signal.SIGTERM
    finally:
        os.close(held)


def test_a_slow_reader_loses_no_line(
    starter: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that wait for room longer than the output is waited for still come before the exit."""
    monkeypatch.setattr(supervisor, "DRAIN_S", 0.02)
    heard: queue.Queue[str] = queue.Queue()
    room = threading.Event()

    def on_line(line: str) -> None:
        assert room.wait(DEADLINE_S)
        heard.put(line)

    command = [sys.executable, "-c", "print('result'); print('end')"]
    ended = [on_line, lambda code: heard.put(str(code)), starter]
    trainer = Trainer(command, os.environ, tmp_path, *ended)
    trainer.wait(0.5)
    room.set()
    assert [heard.get(timeout=DEADLINE_S) for _ in range(3)] == ["result", "end", "0"]
