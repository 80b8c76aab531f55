"""A manifest bears no job that could not be given out, or whose result could not be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol import messages as m
from coordinator.core.effects import ManifestRead
from coordinator.jobs.plan_entries import Plan
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest
from tests.harness.coordinator import Fleet


def _read(text: str) -> Plan:
    known = dict.fromkeys(("gbt", "aux"), m.TrainerInfo(hyper_schema={}))
    return parse_manifest(Path("plan.toml"), f"schema_version = 1\n{text}", known)


def _plan(hyper: str, model: str = "gbt") -> Plan:
    job = f'name = "one"\nmodel = "{model}"\nmode = "oracle"\nhyper.of = {hyper}\n'
    return _read(f"[[jobs]]\n{job}")


@pytest.mark.parametrize(
    ("hyper", "said"),
    [
        (str(["feature"] * 30_000), "KiB, and an assignment carries 96"),
        ("[" * 190 + "]" * 190, "at most 32 deep"),
        ("[" * 400 + "]" * 400, "at most 32 deep"),
    ],
)
def test_what_no_assignment_carries_is_refused(hyper: str, said: str) -> None:
    """It would be given out again and again, and no host could read it."""
    with pytest.raises(ManifestError) as raised:
        _plan(hyper)
    (problem,) = raised.value.problems
    assert said in problem.message


@pytest.mark.parametrize("hyper", [str(["feature"] * 8_000), "[" * 32 + "]" * 32])
def test_what_is_taken_is_heard(hyper: str) -> None:
    fleet = Fleet(*_plan(hyper).jobs)
    assert fleet.host().joins().heard(m.Assign)
    assert fleet.asks(m.AskPlan(id="p")).data["total"] == 1


def _lists(*, count: int, of_host: bool) -> Plan:
    names = [f"machine-in-the-attic-{number:05}" for number in range(count)]
    host, job = (names, ["pi"]) if of_host else (["*"], names)
    return _read(
        f"[hosts.pi]\nallow_jobs = {host}\n"
        f'[[jobs]]\nname = "one"\nmodel = "gbt"\nmode = "oracle"\nallowed_hosts = {job}\n'
    )


@pytest.mark.parametrize(
    ("of_host", "key", "said"),
    [
        (False, "allowed_hosts", "let [hosts.NAME] say allow_jobs or deny_jobs"),
        (True, "[hosts.pi] allow_jobs", "a pattern stands for many jobs"),
    ],
)
def test_lists_that_no_answer_holds_are_refused(*, of_host: bool, key: str, said: str) -> None:
    """Nobody could look at the job, nor at any of the hosts."""
    with pytest.raises(ManifestError) as raised:
        _lists(count=12_000, of_host=of_host)
    (problem,) = raised.value.problems
    assert problem.key == key
    assert "at most 64 are taken" in problem.message
    assert said in problem.message
    fleet = Fleet()
    plan = _lists(count=2_000, of_host=of_host)
    fleet.handle(ManifestRead(plan))
    fleet.host().joins()
    assert fleet.asks(m.AskPlan(id="p")).data["total"] == 1
    assert fleet.asks(m.AskWorkers(id="w")).data["total"] == 1


def test_a_model_that_no_folder_can_be_called_is_refused() -> None:
    """Its results could be kept nowhere; that is told before anything is trained."""
    with pytest.raises(ManifestError) as raised:
        _plan("1", "aux")
    (problem,) = raised.value.problems
    assert problem.key == "model"
    assert "give the trainer another name" in problem.message


@pytest.mark.parametrize(
    "line",
    ["[[jobs]]\nhyper{}", "[[jobs]]\nname{}", "[defaults]\nseed{}", "[hosts]\npi{}", "jobs{}"],
)
@pytest.mark.parametrize("depth", [50, 900, 3000])
def test_tables_without_end_are_an_error_like_any_other(line: str, depth: int) -> None:
    with pytest.raises(ManifestError):
        _read(f"{line.format('.a' * depth)} = 1\n")
