"""How far a transfer is, where there is no terminal."""

from __future__ import annotations

import pytest

from coordinator.ui import progress


@pytest.mark.words
def test_a_transfer_that_takes_long_is_told_of_while_nothing_comes_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.transfer("quick", 3) as advance:
        advance(3)
    monkeypatch.setattr(progress, "FIRST_S", 0.0)
    with progress.transfer("tree", 3 * 2**20) as advance:
        advance(2**20)
        advance(0)
    told = capsys.readouterr().err.splitlines()
    assert told == ["tree: 1.0 MiB of 3.0 MiB"] * 2
