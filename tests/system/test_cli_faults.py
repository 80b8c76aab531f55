"""What the command line answers where something is wrong, with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fleet import ROOT
from tests.harness.verbs import verb

_NOWHERE = ("--broker", "mqtt://127.0.0.1:1")


def _run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A verb in a process of its own."""
    bare = {key: one for key, one in os.environ.items() if not key.startswith("FLEET_")}
    return subprocess.run(
        [sys.executable, "-m", "coordinator.cli", *arguments],
        capture_output=True, text=True, timeout=60, env=bare | env, cwd=ROOT, check=False,
    )  # fmt: skip


def test_refusals_have_exit_code_one(fleet: Any, cli: Any) -> None:
    """Not found, ambiguous, refused: one line, and what to do."""
    fleet.plan(
        'model = "gru"\nmode = "oracle"\nrequire_cuda = true',
        'model = "gru"\nmode = "realistic"\nrequire_cuda = true',
    )
    fleet.coordinator()
    fleet.until("gru-oracle", "pending")
    missing = cli("show", "nope")
    assert missing.returncode == 1
    assert "fleet list" in missing.stderr
    ambiguous = cli("cancel", "gru")
    assert ambiguous.returncode == 1
    assert "gru-oracle" in ambiguous.stderr
    assert "gru-realistic" in ambiguous.stderr
    assert cli("cancel", "gru-oracle").returncode == 0
    assert cli("cancel", "gru-oracle").returncode == 1
    assert cli("requeue", "gru-oracle").returncode == 0
    assert cli("reload").returncode == 0
    assert "it was changed at" not in cli("status").stdout
    fleet.manifest.write_text("schema_version = 2\n", "utf-8")
    reload = cli("reload")
    assert reload.returncode == 1
    assert "schema_version" in reload.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["list", "--timeout", "1"], 3, "no coordinator"),
        (["status", "--broker", "mqtt://127.0.0.1:1", "--timeout", "2"], 3, "not reachable"),
        (["list", "--status", "lost"], 2, "'lost' is not one of"),
        (["status", "--broker", "http://x"], 2, "http"),
    ],
)
def test_a_fault_has_its_exit_code_and_is_told_in_json_as_well(
    cli: Any, arguments: list[str], code: int, says: str
) -> None:
    """No broker, and a broker without a coordinator, are told apart."""
    plain = cli(*arguments)
    assert (plain.returncode, plain.stdout, says in plain.stderr) == (code, "", True)
    done = cli(*arguments, "--json")
    answer = done.json(code)
    assert (answer["ok"], answer["errors"]) == (False, [])
    assert says in answer["message"]
    assert says in done.stderr


def test_events_that_are_none_are_told_with_what_was_looked_for(
    fleet: Any, cli: Any, short: str
) -> None:
    """On standard error; of a host that nobody knows, which one may be meant. JSON is empty."""
    fleet.plan(short)
    fleet.coordinator()
    fleet.agent("gaming")
    fleet.until("gbt-oracle", "completed")
    for words, says in (
        (("--who", "nobody"), ["nothing was found by nobody, since 20"]),
        (
            ("--host", "gamin", "--job", "gbt-oracle"),
            ["nothing was found of job gbt-oracle of host gamin, since 20",
             "no host is called 'gamin'; did you mean 'gaming'?"],
        ),
        (("--host", "gaming", "--who", "nobody"), ["nothing was found of host gaming by nobody"]),
    ):  # fmt: skip
        done = cli("events", *words)
        assert (done.returncode, done.stdout) == (0, "")
        assert len(done.stderr.splitlines()) == len(says), done.stderr
        for said in says:
            assert said in done.stderr
        as_json = cli("events", *words, "--json")
        assert (as_json.json(), as_json.stderr) == ([], "")
    assert cli("events").stderr == ""


def test_a_folder_of_the_same_name_is_not_taken_for_ours(tmp_path: Path) -> None:
    """People keep their own `agent` where they call `fleet agent`."""
    for name in ("agent", "broker", "coordinator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coordinator.cli", "agent", "--host", "UPPER"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    assert "--host: 'UPPER' is no host's name" in done.stderr


def test_a_wrong_address_is_told_by_check_as_well(tmp_path: Path) -> None:
    """Only a coordinator that is not there is overlooked."""
    example = str(ROOT / "etc" / "training_manifest.toml.example")
    assert verb("check", example, "--broker", "http://x").returncode == 2
    assert verb("check", example, "--config", str(tmp_path / "none.toml")).returncode == 2
    assert verb("check", example, *_NOWHERE).returncode == 0


def test_check_needs_nobody_and_reports_all_errors_at_once(tmp_path: Path) -> None:
    """Good and bad manifests, for people and for scripts."""
    example = ROOT / "etc" / "training_manifest.toml.example"
    good = verb("check", str(example), "--offline", "--json")
    assert good.json() == {
        "ok": True, "name": "telemetry baselines", "jobs": 14, "errors": [], "warnings": [],
    }  # fmt: skip
    named = tmp_path / "named.toml"
    named.write_text("schema_version = 1\n[hosts.pi]\nslots = 1\n", "utf-8")
    assert verb("check", str(named), "--offline", "--json").json()["warnings"] is None
    for how, why in (("--offline",), "--offline"), (_NOWHERE, "no coordinator answered"):
        said = verb("check", str(named), *how).stdout
        assert f"names of hosts were not checked: {why}" in said
    bad = tmp_path / "bad.toml"
    bad.write_text(
        'schema_version = 1\n[[jobs]]\nmodel = "gpt"\nmode = "oracle"\n[[jobs]]\nmodel = "cnn"\n'
        'mode = "oracle"\nhyper.epoch = 3\n[[jobs]]\nmodel = "mlp"\nmode = "orcale"\n',
        "utf-8",
    )
    done = verb("check", str(bad), "--offline", "--json")
    assert done.returncode == 1
    errors = json.loads(done.stdout)["errors"]
    assert {(error["job"], error["key"]) for error in errors} == {
        ("gpt-oracle", "model"), ("cnn-oracle", "hyper.epoch"), ("mlp-orcale", "mode")
    }  # fmt: skip
    assert "did you mean 'epochs'" in json.dumps(errors)
    assert verb("check", str(tmp_path / "none.toml"), "--offline").returncode == 1
