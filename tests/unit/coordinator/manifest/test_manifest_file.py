"""Whether a manifest has become another since it was read, from wherever one asks."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from broker.protocol import messages as m
from broker.system.deadline import ANSWER_S
from coordinator.cli.plan import _by_its_word
from coordinator.cli.status import _draw
from coordinator.core.effects import ManifestChanged, ManifestRead, ManifestRefused
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import EVERY_S, ManifestFile
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.source import LAST_GOOD, PlanFile
from coordinator.ui import terminal
from tests.harness.coordinator import OPERATOR, Fleet, spec
from tests.harness.disks import hanging

CHANGED = "it was changed at 2026-01-02 12:00 UTC"
FAULT = Problem("plan.toml", "jobs[0]", "model", "unknown", 3)


def test_what_was_written_is_told_until_it_is_read(tmp_path: Path) -> None:
    """Once; nothing of a file that was written and is the same, and that it is gone."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path, soon_s=30)
    file.read()
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
    file.read()
    assert news() == ""


def test_once_it_was_read_a_change_is_told_again(tmp_path: Path) -> None:
    """Though it is told by the minute, and the next one comes within that: at once."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path, soon_s=30)
    file.read()
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    said = file.news(10.0)
    file.read()
    path.write_text("three", "utf-8")  # while it is read
    os.utime(path, (2e9 + 1, 2e9 + 1))
    file.was_read()
    assert file.news(10.0) == said == "it was changed at 2033-05-18 03:33 UTC"


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_disk_that_hangs_holds_nobody(tmp_path: Path) -> None:
    """Neither who reads the file nor who looks whether it has changed; both are told."""
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = ManifestFile(path, soon_s=0.01)
    assert file.read() == b"one"
    path.write_text("another", "utf-8")
    with hanging(path):
        assert file.news(100.0) is None
        assert file.news(100.0 + ANSWER_S) == "it does not answer for 10 s"
        for _ in range(3):
            with pytest.raises(TimeoutError):
                file.read(answer_s=0.01)
        waiting = [one for one in threading.enumerate() if one.name == "fleet-aside"]
        assert len(waiting) == 1, "each would wait for as long as the disk hangs"
    waiting[0].join(30)
    assert file.read() == b"another"
    file.was_read()
    assert file.news(200.0) in {"", None}


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


def test_what_the_plan_is_called_is_told_also_when_it_alone_has_changed() -> None:
    """By the status and its face, the retained summary, and the answer to the reload."""
    fleet = Fleet(spec("a"))

    def told() -> tuple[str, str]:
        fleet.passes(1)
        *_, summary = (said for _, said in fleet.sent if isinstance(said, m.Summary))
        data = fleet.asks(m.AskStatus(id=fleet.new_id())).data
        out = Console(file=io.StringIO(), width=200)
        terminal.put(out, _draw({**data, "forecast": None}))
        shown = out.file.getvalue()  # type: ignore[attr-defined] # it is a StringIO
        name = data["coordinator"]["plan"]
        assert ("Plan " in shown, f"Plan         {name}" in shown) == (bool(name), bool(name))
        return name, summary.plan

    assert told() == ("", "")
    for name, before in (("summer", None), ("autumn", "summer")):
        fleet.sent.clear()
        fleet.handle(ManifestRead(Plan((spec("a"),), name=name), OPERATOR, fleet.new_id()))
        (answer,) = (said for _, said in fleet.sent if isinstance(said, m.OperatorResponse))
        assert answer.data["settings"] == [{"what": "name", "from": before, "to": name}]
        assert told() == (name, name)


def test_a_faulty_manifest_that_was_mended_says_what_reads_it() -> None:
    """Its errors are those of a file that is there no more."""
    fleet = Fleet(spec("a"))
    fleet.handle(ManifestRefused((FAULT,)))
    fleet.handle(ManifestChanged(CHANGED))
    data = fleet.asks(m.AskStatus(id=fleet.new_id())).data
    (warning,) = _by_its_word(data["coordinator"])
    out = Console(file=io.StringIO(), width=200)
    terminal.put(out, _draw({**data, "forecast": None}))
    shown = out.file.getvalue()  # type: ignore[attr-defined] # it is a StringIO
    for said in (warning, shown):
        errors = said.index("has errors, the last good plan goes on: plan.toml:3: jobs[0]")
        assert said.index("and not read since; `fleet reload` reads it") > errors


def test_a_coordinator_with_a_faulty_manifest_goes_on_with_the_last_good_one(
    tmp_path: Path,
) -> None:
    """Where it has jobs already; a new one does not begin with a plan that nobody meant."""
    path = tmp_path / "plan.toml"
    job = '[[jobs]]\nname = "a"\nmodel = "gbt"\nmode = "oracle"\n'
    good = f'schema_version = 1\nname = "n"\n{job}'
    path.write_text(good, "utf-8")
    trainers = builtin_trainers()
    assert PlanFile(path, tmp_path).first(trainers, may_fall_back=False)[1] == ()
    path.write_text(good.replace("gbt", "gbtt"), "utf-8")
    plan, problems = PlanFile(path, tmp_path).first(trainers, may_fall_back=True)
    assert plan is not None
    assert (plan.name, [job.name for job in plan.jobs]) == ("n", ["a"])
    assert [problem.key for problem in problems] == ["model"]
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path).first(trainers, may_fall_back=False)
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path / "another").first(trainers, may_fall_back=True)
    assert PlanFile(None, tmp_path).first(trainers, may_fall_back=True) == (None, ())


GOOD = 'schema_version = 1\n[[jobs]]\nname = "a"\nmodel = "gbt"\nmode = "oracle"\nseed = 1234\n'


@pytest.mark.parametrize("keep", [0, 60, len(GOOD) - 2, len(GOOD)])
def test_a_last_good_manifest_that_was_cut_off_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: int
) -> None:
    """Wherever: half a number is a number, too, and would be another job."""
    path, state = tmp_path / "plan.toml", tmp_path / "state"
    state.mkdir()
    path.write_text(GOOD, "utf-8")
    trainers = builtin_trainers()
    PlanFile(path, state).read(trainers)
    kept = state / LAST_GOOD
    kept.write_bytes(kept.read_bytes()[:keep])
    path.write_text("broken", "utf-8")
    with pytest.raises(ManifestError, match="is not TOML"):
        PlanFile(path, state).first(trainers, may_fall_back=True)
    assert f"{kept}: is not as it was written; it is not used" in caplog.text


FULL = """
import resource, sys
from pathlib import Path
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.source import LAST_GOOD, PlanFile
resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
PlanFile(Path(sys.argv[1]), Path(sys.argv[2])).read(builtin_trainers())
"""


@pytest.mark.skipif(os.name != "posix", reason="there are no such limits")
@pytest.mark.system
def test_a_full_disk_leaves_the_last_good_manifest_as_it_was(tmp_path: Path) -> None:
    """The new one is taken, and said not to be kept."""
    path = tmp_path / "plan.toml"
    path.write_text(GOOD, "utf-8")
    trainers = builtin_trainers()
    before = PlanFile(path, tmp_path).read(trainers)
    path.write_text(GOOD.replace("1234", "9"), "utf-8")
    words = [sys.executable, "-c", FULL, path, tmp_path]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert "a restart will not find this manifest there" in said.stderr
    path.write_text("broken", "utf-8")
    assert PlanFile(path, tmp_path).first(trainers, may_fall_back=True)[0] == before
