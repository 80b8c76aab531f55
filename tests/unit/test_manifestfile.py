"""Whether a manifest has become another since it was read, from wherever one asks."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker import messages as m
from coordinator.builtin import builtin_trainers
from coordinator.cli import render
from coordinator.cli.plan import _by_its_word
from coordinator.cli.status import _draw
from coordinator.effects import ManifestChanged, ManifestRefused
from coordinator.manifest import ManifestError, Problem
from coordinator.manifestfile import EVERY_S, ManifestFile
from coordinator.planfile import PlanFile
from tests.harness.coordinator import Fleet, spec

CHANGED = "it was changed at 2026-01-02 12:00 UTC"
FAULT = Problem("plan.toml", "jobs[0]", "model", "unknown", 3)


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


def test_once_it_was_read_a_change_is_told_again(tmp_path: Path) -> None:
    """Though it is told by the minute, and the next one comes within that: at once."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path)
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    said = file.news(10.0)
    file.note()
    path.write_text("three", "utf-8")  # while it is read
    os.utime(path, (2e9 + 1, 2e9 + 1))
    file.was_read()
    assert file.news(10.0) == said == "it was changed at 2033-05-18 03:33 UTC"


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


def test_a_reload_ends_it_at_once() -> None:
    """Whatever came of it: nobody is told to read what was just read."""
    fleet = Fleet(spec("a"))

    def who() -> Any:
        return fleet.asks(m.AskStatus(id=fleet.new_id())).data["coordinator"]

    for reads in (fleet.plan, lambda: fleet.handle(ManifestRefused((FAULT,)))):
        fleet.handle(ManifestChanged(CHANGED))
        assert who()["manifest_changed"] == CHANGED
        reads()
        assert who()["manifest_changed"] == ""
    assert _by_its_word(who())[0].endswith("plan.toml:3: jobs[0]: model: unknown")


def test_a_faulty_manifest_that_was_mended_says_what_reads_it() -> None:
    """Its errors are those of a file that is there no more."""
    fleet = Fleet(spec("a"))
    fleet.handle(ManifestRefused((FAULT,)))
    fleet.handle(ManifestChanged(CHANGED))
    data = fleet.asks(m.AskStatus(id=fleet.new_id())).data
    (warning,) = _by_its_word(data["coordinator"])
    out = Console(file=io.StringIO(), width=200)
    render.put(out, _draw({**data, "forecast": None}))
    shown = out.file.getvalue()  # type: ignore[attr-defined] # it is a StringIO
    for said in (warning, shown):
        errors = said.index("has errors, the last good plan goes on: plan.toml:3: jobs[0]")
        assert said.index("and not read since; `fleet reload` reads it") > errors


def test_a_coordinator_with_a_faulty_manifest_goes_on_with_the_last_good_one(
    tmp_path: Path,
) -> None:
    """Where it has jobs already; a new one does not begin with a plan that nobody meant."""
    path = tmp_path / "plan.toml"
    good = 'schema_version = 1\n[[jobs]]\nname = "a"\nmodel = "gbt"\nmode = "oracle"\n'
    path.write_text(good, "utf-8")
    trainers = builtin_trainers()
    assert PlanFile(path, tmp_path).first(trainers, may_fall_back=False)[1] == ()
    path.write_text(good.replace("gbt", "gbtt"), "utf-8")
    plan, problems = PlanFile(path, tmp_path).first(trainers, may_fall_back=True)
    assert plan is not None
    assert [job.name for job in plan.jobs] == ["a"]
    assert [problem.key for problem in problems] == ["model"]
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path).first(trainers, may_fall_back=False)
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path / "another").first(trainers, may_fall_back=True)
    assert PlanFile(None, tmp_path).first(trainers, may_fall_back=True) == (None, ())
