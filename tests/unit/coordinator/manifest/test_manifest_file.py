"""Whether a manifest has become another since it was read, from wherever one asks."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from broker.system.deadline import ANSWER_S
from coordinator.cli.plan import _by_its_word
from coordinator.cli.status import _draw
from coordinator.core.effects import ManifestChanged, ManifestRead, ManifestRefused
from coordinator.jobs.causes import in_words
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.source import EVERY_S, LAST_GOOD, PlanFile
from tests.harness.coordinator import OPERATOR, Fleet, spec
from tests.harness.disks import hanging
from tests.harness.drawn import drawn

CHANGED = {"code": "file_changed", "at": "2033-05-18T03:33Z"}
FAULT = Problem("plan.toml", "jobs[0]", "model", "unknown", 3)


def test_what_was_written_is_told_until_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path, tmp_path, soon_s=30)
    file.contents()
    looks = iter(range(100))

    def news() -> Any:
        return file.news(next(looks) * EVERY_S)

    assert news() is None
    os.utime(path, (1e9, 1e9))
    assert news() is None, "it was touched"
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    assert news() == CHANGED
    assert news() is None
    path.write_text("one", "utf-8")
    os.utime(path, (3e9, 3e9))
    assert news() == {}
    path.unlink()
    assert news() == {"code": "file_gone"}
    path.write_text("three", "utf-8")
    file.contents()
    assert news() == {}


def test_once_it_was_read_a_change_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path, tmp_path, soon_s=30)
    file.contents()
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    said = file.news(10.0)
    file.contents()
    path.write_text("three", "utf-8")  # while it is read
    os.utime(path, (2e9 + 1, 2e9 + 1))
    file.was_read()
    assert file.news(10.0) == said == CHANGED


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_disk_that_hangs_holds_nobody(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path, tmp_path, soon_s=0.01)
    assert file.contents() == b"one"
    path.write_text("another", "utf-8")
    with hanging(path):
        assert file.news(100.0) is None
        assert file.news(100.0 + ANSWER_S) == {"code": "file_hangs", "answer_s": 10.0}
        for _ in range(3):
            with pytest.raises(TimeoutError):
                file.contents(answer_s=0.01)
        waiting = [one for one in threading.enumerate() if one.name == "fleet-aside"]
        assert len(waiting) == 1, "each would wait for as long as the disk hangs"
    waiting[0].join(30)
    assert file.contents() == b"another"
    file.was_read()
    assert file.news(200.0) in ({}, None)


def test_the_coordinator_tells_it_until_the_file_was_read() -> None:
    """Whoever asks on another machine has its word alone; whatever a reload came to ends it."""
    fleet = Fleet(spec("a"))

    def told() -> list[Any]:
        return _by_its_word(fleet.asks(m.AskStatus(id=fleet.new_id())).data["coordinator"])

    for reads, left in (
        (lambda: fleet.handle(ManifestChanged({})), []),
        (fleet.plan, []),
        (lambda: fleet.handle(ManifestRefused((FAULT,))), [None]),
    ):
        fleet.handle(ManifestChanged(CHANGED))
        (why,) = told()
        assert (why["code"], why["changed"]) == ("manifest_behind", CHANGED)
        reads()
        assert [one.get("changed") for one in told()] == left
    (why,) = told()
    assert why["fault"]["text"] == "plan.toml:3: jobs[0]: model: unknown"


def test_what_the_plan_is_called_is_told_also_when_it_alone_has_changed() -> None:
    fleet = Fleet(spec("a"))

    def told() -> tuple[str, str]:
        fleet.passes(1)
        *_, summary = (said for _, said in fleet.sent if isinstance(said, m.Summary))
        data = fleet.asks(m.AskStatus(id=fleet.new_id())).data
        shown = drawn(_draw((data, None)), 200)
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


@pytest.mark.words
def test_a_faulty_manifest_that_was_mended_says_what_reads_it() -> None:
    fleet = Fleet(spec("a"))
    fleet.handle(ManifestRefused((FAULT,)))
    fleet.handle(ManifestChanged(CHANGED))
    data = fleet.asks(m.AskStatus(id=fleet.new_id())).data
    (warning,) = _by_its_word(data["coordinator"])
    shown = drawn(_draw((data, None)), 200)
    for said in (in_words(warning), shown):
        errors = said.index("has errors, the last good plan goes on: plan.toml:3: jobs[0]")
        assert said.index("and not read since; `fleet reload` reads it") > errors


def test_a_coordinator_with_a_faulty_manifest_goes_on_with_the_last_good_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.toml"
    job = '[[jobs]]\nname = "a"\nmodel = "gbt"\nmode = "oracle"\n'
    good = f'schema_version = 1\nname = "n"\n{job}'
    path.write_text(good, "utf-8")
    trainers = builtin_trainers()
    assert PlanFile(path, tmp_path).first(Catalogue(trainers), may_fall_back=False)[1] == ()
    path.write_text(good.replace("gbt", "gbtt"), "utf-8")
    plan, problems = PlanFile(path, tmp_path).first(Catalogue(trainers), may_fall_back=True)
    assert plan is not None
    assert (plan.name, [job.name for job in plan.jobs]) == ("n", ["a"])
    assert [problem.key for problem in problems] == ["model"]
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path).first(Catalogue(trainers), may_fall_back=False)
    with pytest.raises(ManifestError, match="gbtt"):
        PlanFile(path, tmp_path / "another").first(Catalogue(trainers), may_fall_back=True)
    assert PlanFile(None, tmp_path).first(Catalogue(trainers), may_fall_back=True) == (None, ())


@pytest.mark.parametrize(
    ("job", "told"),
    [("program = 'shapes'", 2), ("model = 'gbt'\nmode = 'oracle'\ndata.prepared = 'mine'", 2),
     ("model = 'gbtt'\nmode = 'oracle'", 1)],
)  # fmt: skip
def test_a_coordinator_that_cannot_begin_says_where_to_push_what_is_lacking(
    tmp_path: Path, job: str, told: int
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f"schema_version = 1\n[[jobs]]\n{job}", "utf-8")
    known = Catalogue(builtin_trainers())
    with pytest.raises(ManifestError) as refusal:
        PlanFile(path, tmp_path).first(known, may_fall_back=False)
    assert len(refusal.value.problems) == told
    with pytest.raises(ManifestError) as refusal:  # where one runs, to which it is pushed
        PlanFile(path, tmp_path).read(known)
    assert len(refusal.value.problems) == 1


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
    PlanFile(path, state).read(Catalogue(trainers))
    kept = state / LAST_GOOD
    kept.write_bytes(kept.read_bytes()[:keep])
    path.write_text("broken", "utf-8")
    with pytest.raises(ManifestError, match="is not TOML"):
        PlanFile(path, state).first(Catalogue(trainers), may_fall_back=True)
    assert f"{kept}: is not as it was written; it is not used" in caplog.text
