"""What is said of a command line that was typed wrongly."""

from __future__ import annotations

import contextlib
import io

import pytest

from coordinator.cli import main


class Window(io.StringIO):
    """A terminal, of as many columns as COLUMNS says."""

    def isatty(self) -> bool:
        """Whether somebody sees it."""
        return True


def _said(*typed: str) -> str:
    with contextlib.redirect_stderr(Window()) as window:
        assert main([*typed]) == 2
    return window.getvalue()


@pytest.mark.parametrize("typed", [("snooze", "pi", "3 x"), ("snooze", "pi", "3h", "--off")])
def test_a_complaint_is_broken_between_words(
    typed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every sentence is, after where the help is."""
    monkeypatch.setenv("COLUMNS", "50")
    help_, _, complaint = _said(*typed).partition("\n\n")
    assert help_.splitlines()[-1] == "Try 'fleet snooze --help' for help."
    lines = complaint.splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 50 for line in lines)
    assert lines[0].startswith("error: ")
    monkeypatch.setenv("COLUMNS", "500")
    assert complaint.split() == _said(*typed).partition("\n\n")[2].split(), "no word was cut"


def test_restore_is_no_verb_and_says_how_it_is_done() -> None:
    """Not `revoke`, which is spelt much like it."""
    said = " ".join(_said("restore").split())
    assert "revoke" not in said
    assert "stop the coordinator" in said
