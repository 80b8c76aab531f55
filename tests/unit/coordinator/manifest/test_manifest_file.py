"""Whether a manifest has become another since it was read, from wherever one asks."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.cli.plan import unread_manifest
from coordinator.cli.status import _draw
from coordinator.core.effects import ManifestChanged, ManifestRead, ManifestRefused
from coordinator.jobs.causes import in_words
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.data_keys import Catalogue
from coordinator.manifest.problems import ManifestError, Problem
from coordinator.manifest.source import PlanFile, with_remedy
from tests.harness.coordinator import OPERATOR, Fleet, spec
from tests.harness.disks import hanging
from tests.harness.drawn import drawn

CHANGED = {"code": "file_changed", "at": "2033-05-18T03:33Z"}
FAULT = Problem("plan.toml", "jobs[0]", "model", "unknown", 3)


def test_what_was_written_is_told_until_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path)
    file.contents()
    assert file.news() is None
    os.utime(path, (1e9, 1e9))
    assert file.news() is None, "it was touched"
    path.write_text("two", "utf-8")
    os.utime(path, (2e9, 2e9))
    assert file.news() == CHANGED
    assert file.news() is None
    path.write_text("one", "utf-8")
    os.utime(path, (3e9, 3e9))
    assert file.news() == {}
    path.unlink()
    assert file.news() == {"code": "file_gone"}
    path.write_text("three", "utf-8")
    file.contents()
    assert file.news() is None


def test_once_it_was_read_a_change_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path)
    file.contents()
    said = []
    for at_s, text in ((2e9, "two"), (2e9 + 1, "three")):
        path.write_text(text, "utf-8")
        os.utime(path, (at_s, at_s))
        said.append(file.news())
        file.contents()
    assert said == [CHANGED, CHANGED]


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_disk_that_hangs_holds_nobody(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text("one", "utf-8")
    file = PlanFile(path, answer_s=0.5)
    assert file.contents() == b"one"
    path.write_text("another", "utf-8")
    with hanging(path):
        assert file.news() == {"code": "file_hangs", "answer_s": 10.0}
        for _ in range(3):
            with pytest.raises(TimeoutError):
                file.contents()
        assert file.news() == {"code": "file_hangs", "answer_s": 10.0}, "nor is it read now"
        waiting = [one for one in threading.enumerate() if one.name == "fleet-aside"]
        assert len(waiting) == 1, "each would wait for as long as the disk hangs"
    waiting[0].join(30)
    assert file.contents() == b"another"
    assert file.news() is None


def test_the_coordinator_tells_it_until_the_file_was_read() -> None:
    """Whatever a reload came to ends it."""
    fleet = Fleet(spec("a"))

    def told() -> list[Any]:
        return unread_manifest(fleet.asks(m.AskStatus(id=fleet.new_id())).data["coordinator"])

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
    (warning,) = unread_manifest(data["coordinator"])
    shown = drawn(_draw((data, None)), 200)
    for said in (in_words(warning), shown):
        errors = said.index("has errors, the last good plan goes on: plan.toml:3: jobs[0]")
        assert said.index("and not read since; `fleet reload` reads it") > errors


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
        PlanFile(path).read(known)
    assert len(refusal.value.problems) == 1, "where one runs, to which it is pushed"
    assert len(with_remedy(refusal.value).problems) == told
