"""`fleet snooze --here`."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from agent.host.usage import (
    read_snooze,
)
from agent.service import snooze
from broker.system.files import FolderLock


def test_the_local_command_begins_and_ends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--state", str(tmp_path)]
    assert snooze.main([*at, "--time", "3h", "--now"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"the agent of {tmp_path} takes no jobs until ")
    assert "gives back what runs; its agent does not run now" in told
    now = datetime.now().astimezone()
    found = read_snooze(tmp_path, now)
    assert found is not None
    assert found.now
    assert found.until is not None
    left = found.until - now.replace(tzinfo=None)
    assert timedelta(hours=2, minutes=59) < left <= timedelta(hours=3)
    assert snooze.main([*at, "--end"]) == 0
    assert snooze.main([*at, "--end"]) == 2
    assert "is not snoozed" in capsys.readouterr().err
    assert snooze.main([*at, "--time", "soon"]) == 2
    assert snooze.main(["--state", str(tmp_path / "none"), "--time", "3h"]) == 2
    assert "--state" in capsys.readouterr().err


def test_the_local_command_names_the_host_and_when_its_agent_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with several, whoever said it knows which one was meant."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEET_HOST_ID", "attic")
    state = tmp_path / "fleet" / "agent-attic"
    state.mkdir(parents=True)
    lock = FolderLock(state, "agent")
    try:
        assert snooze.main(["--time", "3h"]) == 0
    finally:
        lock.release()
    told = capsys.readouterr().out
    assert told.startswith("attic takes no jobs until ")
    assert "its agent sees it within 5 seconds" in told
    assert snooze.main(["--end"]) == 0
    assert capsys.readouterr().out == "attic takes jobs again\n"
