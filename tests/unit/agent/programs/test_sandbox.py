"""The sandbox against programs that try to get out of it. They run under the real bubblewrap."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.process.supervisor import Starter
from agent.programs import sandbox
from broker.system import children
from tests.harness.processes import DEADLINE_S, Watched, is_over
from tests.harness.waiting import wait_until
from tests.unit.agent.programs.conftest import Room

pytestmark = pytest.mark.system

# Prints which of the paths can be read, or written.
READ = """
import os
for path in {paths!r}:
    try:
        print(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError:
        print("-")
"""
WRITE = """
for path in {paths!r}:
    try:
        with open(path, "r+" if {exists} else "x"):
            print(path)
    except OSError:
        pass
"""
# Two forks and a new session, as a daemon does it. A test finds it by the mark in its command line.
OUTLIVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}])
    os._exit(0)
os.wait()
print("ready", flush=True)
time.sleep(600)
"""
WRITES_CHECKPOINT = """
import pathlib, signal, sys, time
def leave_off(*_):
    pathlib.Path({file!r}).write_text("epoch 3")
    print("left off", flush=True)
    sys.exit(4)
signal.signal(signal.SIGTERM, leave_off)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def starter() -> Iterator[Starter]:
    made = Starter()
    yield made
    made.close()


def daemons(mark: str) -> list[psutil.Process]:
    """Return the processes that run with a mark on their command line, whoever has started them."""
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if mark in (one.info["cmdline"] or ())[-1:] and not is_over(one)]


def test_it_reads_its_parcel_and_neither_the_key_nor_another_job(room: Room) -> None:
    (room.parcel / "data.csv").write_text("1,2", "utf-8")
    paths = [
        str(one) for one in (room.parcel / "data.csv", room.key, room.other, room.other.parent)
    ]
    assert room.run(READ.format(paths=paths)).splitlines() == ["1,2", "-", "-", "-"]


def test_it_sees_no_home_and_nothing_of_the_system_but_programs(room: Room) -> None:
    home = str(Path.home())
    hidden = ["/etc/shadow", "/etc/fleet", "/var/log", "/run", "/sys/kernel", "/dev/mem",
              "/dev/kmsg", f"{home}/.ssh", f"{home}/.config", f"{home}/.bashrc"]  # fmt: skip
    assert set(room.run(READ.format(paths=hidden)).splitlines()) == {"-"}


def test_of_a_home_that_holds_the_interpreter_it_sees_the_interpreter_only(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin" / "tool").write_text("of the interpreter", "utf-8")
    (home / ".ssh" / "key").write_text("the user's key", "utf-8")
    own = sandbox.interpreter()
    monkeypatch.setattr(sys, "prefix", str(home))
    room.reads = (*own, *sandbox.interpreter())
    paths = [str(home / "bin" / "tool"), str(home / ".ssh" / "key")]
    assert room.run(READ.format(paths=paths)).splitlines() == ["of the interpreter", "-"]


def test_it_runs_the_agents_python_with_its_packages(room: Room) -> None:
    code = "import sys, numpy; print(sys.prefix, numpy.zeros(2).tolist())"
    assert room.run(code) == f"{sys.prefix} [0.0, 0.0]"


def test_it_is_given_no_variables_but_those_meant_for_it(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_OPERATOR_KEY", "secret")
    code = "import os; print(os.environ['GIVEN'], 'FLEET_OPERATOR_KEY' in os.environ)"
    assert room.run(code) == "yes False"


@pytest.mark.parametrize("name", ["env", "bwrap"])
def test_a_script_among_its_packages_does_not_run_outside_the_sandbox(
    room: Room, name: str, tmp_path: Path
) -> None:
    """The folder of its packages comes first in its PATH."""
    scripts, ran = tmp_path / "packages", tmp_path / "ran"
    scripts.mkdir()
    (scripts / name).write_text(f"#!/bin/sh\necho yes > {ran}\n", "utf-8")
    (scripts / name).chmod(0o755)
    given = {"PATH": f"{scripts}:{os.environ['PATH']}"}
    answer = children.answer_of(room.command("print('trains')"), DEADLINE_S, given)
    assert (answer.output, ran.exists()) == ("trains\n", False)


def test_it_inherits_no_open_file_of_the_agent(room: Room, starter: Starter) -> None:
    code = "import os; print(*sorted(os.listdir('/proc/self/fd')))"
    with (room.key.parent / "client.key").open("rb"):
        run = Watched(starter, room.out.parent, command=room.command(code))
        assert run.line() == "0 1 2 3", "its input, output, errors, and the listing itself"
    assert run.code() == 0


def test_it_writes_its_output_and_its_own_tmp(room: Room) -> None:
    paths = [str(room.out / "model.bin"), "/tmp/scratch", "/dev/shm/shared"]  # noqa: S108
    assert room.run(WRITE.format(paths=paths, exists=False)).splitlines() == paths
    assert (room.out / "model.bin").exists()
    assert not Path("/tmp/scratch").exists()  # noqa: S108


def test_it_writes_neither_its_parcel_nor_the_interpreter_nor_the_system(room: Room) -> None:
    folders = [room.parcel, Path(sys.prefix) / "lib", Path("/usr"), Path("/etc"), Path("/")]
    new = [str(folder / "made by a program") for folder in folders]
    assert room.run(WRITE.format(paths=new, exists=False)) == ""
    assert not any(Path(path).exists() for path in new)


def test_it_sets_no_parameter_of_the_kernel_even_as_root(room: Room) -> None:
    """Who may write core_pattern names a program that the host's root then runs."""
    files = ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"]
    assert room.run(WRITE.format(paths=files, exists=True)) == ""


def test_it_sees_no_other_process(room: Room) -> None:
    found = room.run(
        "import os; print(*sorted(int(n) for n in os.listdir('/proc') if n.isdigit()))"
    )
    assert found == "1 2", "bwrap, and the program"


def test_a_gpu_is_shown_by_its_number_in_dev(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a container that was given the third and the fourth GPU alone."""
    for address, minor in (("0000:3b:00.0", 2), ("0000:5e:00.0", 3)):
        (tmp_path / address).mkdir()
        (tmp_path / address / "information").write_text(f"Model: x\nDevice Minor: \t {minor}\n")
    monkeypatch.setattr(sandbox, "_GPUS", tmp_path)
    command = sandbox.sandboxed(["true"], sandbox.View(tmp_path, (), (), gpu=1))
    assert "/dev/nvidia3" in command
    assert not {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"} & {*command}


@pytest.mark.parametrize("network", [False, True])
def test_it_reaches_the_network_only_where_the_owner_says_so(room: Room, *, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = (
            "import socket\n"
            f"try: socket.create_connection({server.getsockname()!r}, 5); print('connected')\n"
            "except OSError: print('refused')"
        )
        assert room.run(code, network=network) == ("connected" if network else "refused")


def test_sigterm_to_the_group_lets_it_write_a_checkpoint(room: Room, starter: Starter) -> None:
    file = room.out / "checkpoint"
    command = room.command(WRITES_CHECKPOINT.format(file=str(file)))
    run = Watched(starter, room.out.parent, command=command)
    assert run.line() == "ready"
    run.trainer.send_signal(kill=False)
    assert run.line() == "left off"
    assert run.code() == 4
    assert file.read_text("utf-8") == "epoch 3"


def test_sigterm_ends_one_that_does_not_handle_it(room: Room, starter: Starter) -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    run = Watched(starter, room.out.parent, command=room.command(code))
    assert run.line() == "ready"
    run.trainer.send_signal(kill=False)
    assert sandbox.exit_code(run.code()) == -15


def test_its_daemon_ends_when_the_agent_kills_the_job(room: Room, starter: Starter) -> None:
    mark = str(room.out)
    run = Watched(starter, room.out.parent, command=room.command(OUTLIVES.format(mark=mark)))
    assert run.line() == "ready"
    wait_until(lambda: len(daemons(mark)) == 1)
    run.trainer.send_signal(kill=True)
    run.code()
    wait_until(lambda: not daemons(mark))


def test_its_daemon_ends_when_bubblewrap_is_killed(room: Room) -> None:
    """Without the agent's keeper, which would look for it, too."""
    mark = str(room.out)
    process = children.start(room.command(OUTLIVES.format(mark=mark)))
    with contextlib.closing(process.stdout) as output:  # type: ignore[arg-type]
        assert output.readline() == b"ready\n"
        wait_until(lambda: len(daemons(mark)) == 1)
        process.kill()
        assert children.has_ended(process, DEADLINE_S)
    wait_until(lambda: not daemons(mark))


def test_its_daemon_ends_with_the_program(room: Room, starter: Starter) -> None:
    mark = str(room.out)
    code = OUTLIVES.format(mark=mark).replace("time.sleep(600)\n", "")
    run = Watched(starter, room.out.parent, command=room.command(code))
    assert run.code() == 0
    wait_until(lambda: not daemons(mark))


@pytest.mark.parametrize(("told", "code"), [(0, 0), (3, 3), (137, -9), (143, -15), (255, 255)])
def test_an_exit_code_tells_of_a_signal_as_without_a_sandbox(told: int, code: int) -> None:
    assert sandbox.exit_code(told) == code
