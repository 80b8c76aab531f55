"""Whether a manifest has become another since it was read, from wherever one asks."""

from __future__ import annotations

import os
from pathlib import Path

from broker import messages as m
from coordinator.cli.plan import _by_its_word
from coordinator.effects import ManifestChanged
from coordinator.manifestfile import EVERY_S, ManifestFile
from tests.harness.coordinator import Fleet, spec


def test_what_was_written_is_told_until_it_is_read(tmp_path: Path) -> None:
    """Once; nothing of a file that was written and is the same, and that it is gone."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path)
    looks = iter(range(100))

    def news() -> str | None:
        return file.news(next(looks) * EVERY_S)

    assert news() is None
    os.utime(path, (1e9, 1e9))
    assert news() is None, "it was touched"
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    assert news() == "it was changed at 2033-05-18 03:33 UTC"
    assert news() is None
    path.write_text("one", "utf-8")
    os.utime(path, (3e9, 3e9))
    assert news() == ""
    path.unlink()
    assert news() == "it cannot be read any more"
    path.write_text("three", "utf-8")
    file.note()
    assert news() == ""


def test_it_is_not_looked_at_all_the_time(tmp_path: Path) -> None:
    """A busy coordinator turns many times a second."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path)
    assert file.news(100.0) is None
    path.unlink()
    assert file.news(100.0 + EVERY_S / 2) is None
    assert file.news(100.0 + EVERY_S) == "it cannot be read any more"


def test_the_coordinator_tells_it_everywhere() -> None:
    """Whoever asks on another machine has its word alone."""
    fleet = Fleet(spec("a"))
    fleet.handle(ManifestChanged("it was changed at 2026-01-02 12:00 UTC"))
    who = fleet.asks(m.AskStatus(id=fleet.new_id())).data["coordinator"]
    (warning,) = _by_its_word(who)
    assert "it was changed at 2026-01-02 12:00 UTC, and not read since" in warning
    fleet.handle(ManifestChanged(""))
    who = fleet.asks(m.AskStatus(id=fleet.new_id())).data["coordinator"]
    assert _by_its_word(who) == []
