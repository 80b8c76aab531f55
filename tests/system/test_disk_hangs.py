"""A coordinator whose disk hangs, as one of a network may: it ends when it is asked to."""

from __future__ import annotations

import os
import signal

import pytest

from tests.harness.fleet import Fleet
from tests.harness.shell import ID, finished

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no file of this system holds its writer"),
]


def test_a_disk_that_hangs_keeps_no_coordinator_from_ending(fleet: Fleet) -> None:
    """It says why it does not wait any longer; what the ledger has is filed by the next one."""
    state = fleet.tmp / "coordinator"
    state.mkdir()
    finished(state).ledger.close()
    pipe = state / "incoming" / f"{ID}.json"
    os.mkfifo(pipe)
    program = fleet.coordinator()
    assert program.end(signal.SIGTERM) == 1
    assert "a disk has not answered for 20 s: ending without it" in program.said()
    pipe.unlink()
    again = fleet.coordinator()
    fleet.until("job", "completed")
    assert again.end(signal.SIGTERM) == 0
    assert len(list((state / "models").glob(f"*/{ID}/*"))) == 1
