"""Checkpoints on an agent's disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.spool.checkpoints import KEPT_S, Checkpoints
from broker.errors import BadStream
from tests.harness.agent import HEX, JOB


def test_a_checkpoint_travels_from_one_disk_to_another(tmp_path: Path) -> None:
    there, here = Checkpoints(tmp_path / "a"), Checkpoints(tmp_path / "b")
    assert not there.begin(JOB, 1)
    (there.files(JOB) / "state.json").write_text("{}", "utf-8")
    (tmp_path / "spool").mkdir()
    info = there.bundle(JOB, tmp_path / "spool")
    assert info is not None
    data = (tmp_path / "spool" / f"{info.artifact_id}.tar.zst").read_bytes()
    assert not here.is_here(JOB, 1)
    here.fetched.write(JOB, 2, 5, data[5:])
    here.fetched.write(JOB, 2, 0, data[:5])
    here.install(JOB, 2, info.artifact_id, 1)
    assert here.is_here(JOB, 1)
    assert not here.is_here(JOB, 2), "a later attempt has left off elsewhere since"
    assert here.begin(JOB, 2)
    assert (here.files(JOB) / "state.json").read_text("utf-8") == "{}"
    assert not list((tmp_path / "b" / "checkpoints").glob("*.fetching"))


def test_a_checkpoint_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.begin(JOB, 1)
    (kept.files(JOB) / "state.json").write_text("mine", "utf-8")
    kept.fetched.write(JOB, 3, 0, b"not what was meant")
    with pytest.raises(BadStream, match="hash"):
        kept.install(JOB, 3, HEX, 2)
    assert (kept.files(JOB) / "state.json").read_text("utf-8") == "mine"


def test_checkpoints_of_jobs_that_never_came_back_are_collected(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    other = "2c" * 32
    for job_id in (JOB, other):
        kept.begin(job_id, 1)
        (kept.files(job_id) / "state.json").write_text("{}", "utf-8")
    _is_old(kept, JOB, "state.json")
    kept.collect(KEPT_S + 1)
    assert not kept.is_here(JOB, 1)
    assert kept.is_here(other, 1)


def _is_old(kept: Checkpoints, job_id: str, *files: str) -> None:
    """An attempt was given the folder, and wrote these files, in 1970."""
    folder = kept.files(job_id)
    for path in (folder.parent / "attempt", *(folder / name for name in files)):
        os.utime(path, (0, 0))


def test_what_a_long_training_left_off_at_outlives_a_power_cut(tmp_path: Path) -> None:
    """The attempt began more than a week ago; what it wrote is new."""
    kept = Checkpoints(tmp_path)
    kept.begin(JOB, 1)
    (kept.files(JOB) / "training.checkpoint").write_bytes(b"of a minute ago")
    _is_old(kept, JOB)
    os.utime(kept.files(JOB) / "training.checkpoint", (KEPT_S, KEPT_S))
    again = Checkpoints(tmp_path)
    again.collect(KEPT_S + 60)
    assert again.begin(JOB, 2), "it has nothing to go on from"
