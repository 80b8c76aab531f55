"""Errors of a manifest name the lines on which its keys stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.manifest.builtin import builtin_trainers
from coordinator.manifest.problems import ManifestError
from coordinator.manifest.reader import parse_manifest


def _said(text: str) -> str:
    with pytest.raises(ManifestError) as refusal:
        parse_manifest(Path("plan.toml"), text, builtin_trainers())
    return str(refusal.value)


def test_errors_of_a_manifest_name_the_line_and_stand_in_its_order() -> None:
    said = _said(
        "schema_version = 1\n[[jobs]]\nmodel = 'mlp'\nmode = 'oracle'\nhyper.epoch = 3\n"
        "allowed_hosts = ['A B']\npriority = 'x'\nmin_cores = 0\n[[jobs]]\nmode = 'oracle'\n"
        "[[jobs]]\nmodel = 'cnn'\nmode = 'oracel'\n[hosts.pi]\nslot = 1\n",
    ).splitlines()
    assert [line.partition(": ")[0] for line in said] == [
        f"plan.toml:{number}" for number in (5, 6, 7, 8, 9, 13, 15)
    ]
    assert said[4].endswith(":9: job 2: model: missing; write model = ...")


@pytest.mark.parametrize("typed", ["[[job]]\nmodel = 'mlp'", "[job.one]", "job.one = 1", "job = 1"])
def test_an_unknown_key_of_the_top_is_found_however_it_was_written(typed: str) -> None:
    said = _said(f"schema_version = 1\n\n{typed}\n")
    assert said == "plan.toml:3: job: unknown key; did you mean 'jobs'?"
