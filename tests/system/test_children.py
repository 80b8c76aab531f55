"""An agent that is killed in mid-training leaves no process behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.process.orphans import MARK, mark_of
from tests.harness.processes import is_over

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at process groups of Linux")

SOON_S = 5.0


def _group(fleet: Any, host: str = "pi") -> dict[int, psutil.Process]:
    """The live processes of the group that a host's only trainer is in, by its mark."""
    (work,) = (fleet.tmp / host / "work").iterdir()
    groups = {os.getpgid(process.pid) for process in psutil.process_iter() if _is_of(process, work)}
    return {process.pid: process for process in psutil.process_iter() if _is_in(process, groups)}


def _is_of(process: psutil.Process, work: Path) -> bool:
    try:
        return process.environ().get(MARK) == mark_of(work)
    except (OSError, psutil.Error):
        return False


def _is_in(process: psutil.Process, groups: set[int]) -> bool:
    try:
        return os.getpgid(process.pid) in groups and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _trains(group: dict[int, psutil.Process]) -> bool:
    return any("agent.trainer.run" in process.cmdline() for process in group.values())


def _soon(condition: Callable[[], bool]) -> bool:
    """Wait for a condition, not for longer than is allowed; tell whether it came."""
    end_s = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def _started(fleet: Any, long: str, wait_for: Any) -> Any:
    """A fleet whose agent trains; the agent's program."""
    fleet.plan(long)
    fleet.coordinator()
    agent = fleet.agent()
    fleet.until("gbt-oracle", "running")
    wait_for(lambda: _trains(_group(fleet)), "the trainer's own program")
    return agent


def test_a_killed_agent_takes_its_trainer_along(fleet: Any, long: str, wait_for: Any) -> None:
    """SIGKILL in mid-training: within five seconds, nobody of the trainer's group is alive."""
    agent = _started(fleet, long, wait_for)
    group = _group(fleet)
    assert len(group) == 2, "the keeper and the trainer"
    agent.kill()
    assert _soon(lambda: not _group(fleet)), _group(fleet)


def test_a_new_agent_ends_what_the_old_one_could_not(fleet: Any, long: str, wait_for: Any) -> None:
    """The whole group was frozen when the agent was killed: the next one ends it, then works."""
    agent = _started(fleet, long, wait_for)
    group = _group(fleet)
    trainer = max(group)  # it was started by the keeper
    for process in group.values():
        process.suspend()
    agent.kill()
    assert _group(fleet).keys() == group.keys()

    fleet.agent()
    assert is_over(trainer)
    group[min(group)].resume()
    assert _soon(lambda: all(is_over(pid) for pid in group)), "a keeper that is woken ends, too"
    fleet.until("gbt-oracle", lambda row: row["state"] == "running" and row["attempt"] > 1)
