"""A job of a trainer of one's own is of one version of it, and of another it is another job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.protocol import messages as m
from coordinator.jobs.plan_entries import JobSpec, Plan
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest
from tests.harness.coordinator import HEX, Fleet, Host

PLAN = 'schema_version = 1\n[[jobs]]\nmodel = "own"\n'


def of(version: str | None) -> dict[str, m.TrainerInfo]:
    return {"own": m.TrainerInfo(hyper_schema={}, telemetry=False, version=version)}


def reload(fleet: Fleet) -> JobSpec:
    """The job of the manifest, read with what the coordinator knows of trainers."""
    plan: Plan = parse_manifest(Path("plan.toml"), PLAN, fleet.core.known().trainers)
    fleet.plan(*plan.jobs)
    (job,) = plan.jobs
    return job


def edited(host: Host, version: str) -> None:
    host.joins(trainers=of(version))


def reasons(fleet: Fleet, host: str) -> list[dict[str, Any]]:
    """Why a host does not take the job."""
    rows = fleet.why("own")["hosts"]
    return [one for row in rows if row["host"] == host for one in row["reasons"]]


def test_an_edited_script_is_a_new_job_once_the_manifest_is_read_again() -> None:
    """Hosts with the version before are named, until they have the new one too."""
    fleet = Fleet()
    pi, attic = (fleet.host(name).joins(trainers=of("v1")) for name in ("pi", "attic"))
    first = reload(fleet)
    assert reload(fleet) == first
    fleet.core.world.stored[HEX] = 2000
    attic.finishes(attic.runs("own"))
    edited(pi, "v2")
    assert fleet.job("own").state.value == "completed", "nothing is begun without a reload"
    pi.status("offline", "goodbye")
    second = reload(fleet)
    assert (second.version, second.name) == ("v2", first.name)
    assert second.job_id != first.job_id
    assert reasons(fleet, "attic") == [{"code": "other-version", "key": "v2", "said": "v1"}]
    attic.heard(m.Assign)
    edited(attic, "v2")
    (assign,) = attic.heard(m.Assign)
    assert (assign.job_id, assign.version) == (second.job_id, "v2")
    edited(pi, "v1")
    assert reload(fleet).job_id == first.job_id, "it was trained on this code already"


def test_a_restart_makes_no_job_anew() -> None:
    """Whichever host comes first, and whatever versions other hosts have."""
    fleet = Fleet()
    fleet.host("pi").joins(trainers=of("v2"))
    before = reload(fleet)
    fleet.start()
    assert reload(fleet) == before, "no host has come"
    for name, version in (("attic", "v1"), ("pi", "v2"), ("den", "v3")):
        fleet.host(name).joins(trainers=of(version))
    assert reload(fleet) == before


def test_where_every_host_was_edited_meanwhile_the_job_is_of_what_they_have() -> None:
    fleet = Fleet()
    fleet.host("pi").joins(trainers=of("v1"))
    reload(fleet)
    fleet.start()
    fleet.host("pi").joins(trainers=of("v2"))
    assert reload(fleet).version == "v2"
    fleet.host("pi").joins(trainers=of(""))
    assert reload(fleet).version == "v2", "what cannot be read now is no other version"


def test_the_coordinators_own_files_tell_before_a_host_comes() -> None:
    """Without them, such a job is an error: under an id without a version it would run twice."""
    assert reload(Fleet(trainers=of("v1"))).version == "v1"
    fleet = Fleet(trainers=of(None))
    with pytest.raises(ManifestError, match="the version of own is not known"):
        reload(fleet)
    fleet.host("pi").joins(trainers=of("v1"))
    planned = reload(fleet)
    again = Fleet(trainers=of(None))
    again.ledger = fleet.ledger
    again.start()
    assert reload(again) == planned, "its ledger knows the version"
