"""Errors of a manifest name the lines on which its keys stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.manifest_file import load_manifest
from coordinator.manifest.problems import ManifestError


def test_errors_of_a_manifest_name_the_line_and_stand_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        "schema_version = 1\n[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nhyper.epoch = 3\n"
        "allowed_hosts = ['A B']\npriority = 'x'\nmin_cores = 0\n[[jobs]]\nmode = 'oracle'\n"
        "[[jobs]]\nmodel = 'cnn'\nmode = 'oracel'\n[hosts.pi]\nslot = 1\n",
        "utf-8",
    )
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path, builtin_trainers())
    said = str(refusal.value).splitlines()
    assert [line.removeprefix(str(path)).partition(": ")[0] for line in said] == [
        ":5", ":6", ":7", ":8", ":9", ":13", ":15"
    ]  # fmt: skip
    assert said[4].endswith(":9: job 2: model: missing; write model = ...")


@pytest.mark.parametrize("typed", ["[[job]]\nmodel = 'mlp'", "[job.one]", "job.one = 1", "job = 1"])
def test_an_unknown_key_of_the_top_is_found_however_it_was_written(
    tmp_path: Path, typed: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f"schema_version = 1\n\n{typed}\n", "utf-8")
    with pytest.raises(ManifestError) as refusal:
        load_manifest(path, builtin_trainers())
    assert str(refusal.value) == f"{path}:3: job: unknown key; did you mean 'jobs'?"
