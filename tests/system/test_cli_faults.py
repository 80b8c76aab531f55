"""What the command line answers where something is wrong, with which exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.harness.fleet import ROOT, wait_until
from tests.harness.verbs import process, verb

MODES = ("oracle", "realistic")
_NOWHERE = ("--broker", "mqtt://127.0.0.1:1")


def test_refusals_have_exit_code_one(fleet: Any, cli: Any) -> None:
    """Not found, ambiguous, refused: one line, and what to do."""
    jobs = [f'model = "gru"\nmode = "{mode}"\nrequire_cuda = true' for mode in MODES]
    fleet.plan(*jobs)
    fleet.coordinator()
    fleet.until("gru-oracle", "pending")
    missing = cli("show", "nope")
    assert (missing.returncode, "fleet list" in missing.stderr) == (1, True)
    ambiguous = cli("cancel", "gru")
    assert ambiguous.returncode == 1
    assert all(f"gru-{mode}" in ambiguous.stderr for mode in MODES)
    for done, code in (("cancel", 0), ("cancel", 1), ("requeue", 0)):
        assert cli(done, "gru-oracle").returncode == code, done


def test_a_manifest_that_has_changed_is_told_until_it_is_read(fleet: Any, cli: Any) -> None:
    """By the plan and by the status; without a change not a word."""
    job = 'model = "gru"\nmode = "oracle"'
    fleet.plan(job)
    fleet.coordinator()
    fleet.until("gru-oracle", "pending")
    before = cli("plan")
    assert (before.returncode, before.stderr) == (0, "")
    fleet.plan(job + "\npriority = 7")
    changed = "\n             it was changed at 20"
    wait_until(lambda: changed in cli("status").stdout, "the coordinator has seen it")
    assert "`fleet reload` reads it" in cli("plan").stderr
    assert cli("plan", "--json").json()["warnings"]
    assert cli("reload").returncode == 0
    assert changed not in cli("status").stdout
    fleet.manifest.write_text("schema_version = 2\n", "utf-8")
    reload = cli("reload")
    assert (reload.returncode, "schema_version" in reload.stderr) == (1, True)
    assert "has errors, the last good plan goes on" in cli("plan").stderr


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
    for name in ("agent", "broker", "coordinator"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')")
    own = {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = process("agent", "--host", "UPPER", environment=own, cwd=tmp_path)
    assert done.returncode == 2
    assert "--host: 'UPPER' is no host's name" in done.stderr


def test_check_needs_nobody_and_reports_all_errors_at_once(tmp_path: Path) -> None:
    """Only a coordinator that is not there is overlooked; a wrong address is told."""
    example = str(ROOT / "etc" / "training_manifest.toml.example")
    assert verb("check", example, "--offline", "--json").json() == {
        "ok": True, "name": "telemetry baselines", "jobs": 12, "errors": [], "warnings": [],
    }  # fmt: skip
    assert verb("check", example, "--broker", "http://x").returncode == 2
    assert verb("check", example, "--config", str(tmp_path / "none.toml")).returncode == 2
    assert verb("check", str(tmp_path / "none.toml"), "--offline").returncode == 1
    named = tmp_path / "named.toml"
    named.write_text("schema_version = 1\n[hosts.pi]\nslots = 1\n", "utf-8")
    assert verb("check", str(named), "--offline", "--json").json()["warnings"] is None
    for how, why in (("--offline",), "--offline"), (_NOWHERE, "no coordinator answered"):
        said = verb("check", str(named), *how).text()
        assert f"names of hosts were not checked: {why}" in said
    named.write_text("schema_version = 1\n[[jobs]]\nprogram = 'a'\ndata.b = 'c'\n", "utf-8")
    told = verb("check", str(named), *_NOWHERE, "--json").json()
    assert told["unchecked"] == {"names": ["programs", "datasets"], "why": "no_coordinator"}
    named.write_text("schema_version = 1\n[[jobs]]\nmodel = 'gpt'\nhyper.epoch = 3\n", "utf-8")
    errors = verb("check", str(named), "--offline", "--json").json(1)["errors"]
    assert {(one["job"], one["key"]) for one in errors} >= {("gpt", "model"), ("gpt", "mode")}
