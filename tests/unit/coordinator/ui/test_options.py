"""What is asked before much is changed: a no, Ctrl-D and Ctrl-C, at a terminal of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.posix,  # a terminal of one's own is a pty
]

QUESTION = b"Cancel 2 jobs? [y/N]:"
JOB = {
    "state": "pending", "finished_at": None, "priority": 0, "created_at": "t", "in_plan": True,
}  # fmt: skip
JOBS = [JOB | {"name": name, "job_id": name * 64} for name in "ab"]


def _answered(
    at: list[str], answer: Callable[[int, subprocess.Popen[bytes]], object], *more: str
) -> tuple[int, str, str]:
    """Answer the question; return the exit code, what stood below it, and standard output."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "coordinator.cli", "cancel", "--status", "pending", *at, *more]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while QUESTION not in seen:
            seen += os.read(ours, 4096)
        answer(ours, process)
        out = process.communicate(timeout=60)[0].decode()
    try:
        while part := os.read(ours, 4096):
            seen += part
    except OSError:  # nobody has the other end any more
        pass
    os.close(ours)
    return process.returncode, seen.partition(QUESTION)[2].decode().replace("\r", ""), out


def _no(ours: int, _process: subprocess.Popen[bytes]) -> None:
    os.write(ours, b"n\n")


def _ctrl_d(ours: int, _process: subprocess.Popen[bytes]) -> None:
    os.write(ours, b"\x04")


def _ctrl_c(_ours: int, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:  # it fell between the question and the wait for a key
            process.send_signal(signal.SIGINT)


@pytest.mark.parametrize(("answer", "code"), [(_no, 1), (_ctrl_d, 130), (_ctrl_c, 130)])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_what_was_not_confirmed_is_told_below_the_question(
    at: list[str], peer: Any, says: Any, answer: Any, code: int, more: tuple[str, ...]
) -> None:
    """On a line of its own, as is the shell's prompt after it; a script reads an object."""
    page = {"jobs": JOBS, "next": None}
    coordinator = peer(lambda ask, client: [says(client, ask.id, page)])
    ended, below, out = _answered(at, answer, *more)
    assert ended == code
    assert below.lstrip(" n") == "\nnothing was changed\n"
    if more:
        assert json.loads(out) == {"ok": False, "message": "nothing was changed", "errors": []}
    else:
        assert out.strip() == ""
    assert [request.type for request in coordinator.requests] == ["list"]
