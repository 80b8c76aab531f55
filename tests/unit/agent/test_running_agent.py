"""The agents that run on this machine, as `fleet doctor` and `fleet join` find them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.running_agent import find, user_of
from agent.service.status import Contact
from broker.system.machine import system_clock

pytestmark = pytest.mark.system

HOST = f"beside-{os.getpid()}"
# It looks from beside as an agent does: by its command line, and by the lock of its state folder.
LOCKED = """
import sys
from pathlib import Path
from broker.system.files import FolderLock
lock = FolderLock(Path(sys.argv[-1]), "agent")
print("locked", flush=True)
input()
"""


@contextlib.contextmanager
def _agent(state: Path) -> Iterator[int]:
    state.mkdir()
    command = [sys.executable, "-c", LOCKED, "agent.service", "--state", str(state)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process.pid
    finally:
        process.communicate(b"\n")


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has these tests' agents alone: others may run beside them, for other tests."""
    monkeypatch.setattr(psutil, "process_iter", lambda: psutil.Process().children(recursive=True))


def test_it_is_found_by_its_state_its_name_and_its_certificate(tmp_path: Path) -> None:
    state, identity = tmp_path / "state", tmp_path / "identity"
    with _agent(state) as process:
        Contact(state, system_clock(), HOST, identity, tmp_path / "data")
        for found in (find(state, "other"), find(tmp_path / "none", HOST), user_of(identity)):
            assert found is not None
            assert (found.process, found.ours) == (process, True)
            assert found.word is not None
            assert found.word.data == str(tmp_path / "data")
        assert user_of(tmp_path) is None
    assert find(state, HOST) is None


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be somebody else"
)
def test_what_may_not_be_seen_is_not_made_up(tmp_path: Path) -> None:
    with _agent(tmp_path / "state"):
        Contact(tmp_path / "state", system_clock(), HOST, None, None)
        (tmp_path / "state").chmod(0o700)
        os.seteuid(65534)
        try:
            found = find(tmp_path / "none", HOST)
        finally:
            os.seteuid(0)
    assert found is not None
    assert found.word is None
