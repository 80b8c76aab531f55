"""The trainers' hyperparameters: one model gives command line, schema, documentation and checks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from agent.trainer import MODELS
from agent.trainer.common import config
from agent.trainer.common.arguments import parse_job
from agent.trainer.data.features import STATISTICS
from agent.trainer.evaluation.page_tables import LABELS

ROOT = Path(__file__).parents[5]
PAGE = (ROOT / "docs" / "reference" / "trainers.md").read_text(encoding="utf-8")
PLACE = ("--mode", "oracle", "--data", "data", "--out-dir", "out")


def test_the_trainers_are_described_in_json() -> None:
    described = json.loads(json.dumps(config.describe()))
    assert tuple(described) == MODELS
    assert described["transformer_ssl"]["module"] == "agent.trainer.run_ssl"
    for entry in described.values():
        assert entry["schema"]["additionalProperties"] is False
        for field in entry["schema"]["properties"].values():
            assert {"default", "description"} <= set(field)
            if field["type"] != "boolean":
                assert {"minimum", "exclusiveMinimum"} & set(field)
                assert {"maximum", "exclusiveMaximum"} & set(field)


@pytest.mark.system
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("agent.trainer.common.config", {"numpy", "torch", "xgboost", "pyarrow", "sklearn"}),
        ("agent.trainer.draw", {"numpy", "torch", "xgboost", "pyarrow", "sklearn"}),
        ("agent.trainer.training.train", {"torch", "safetensors", "sklearn"}),
    ],
)
def test_a_module_imports_no_heavy_library(module: str, heavy: set[str]) -> None:
    """A daemon can afford the config, any machine draws, and a gbt run need not wait for torch."""
    code = f"import sys, {module}\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--model=gbt", *PLACE, "--batch-size=8"], "--batch-size: gbt has none"),
        (["--model=cnn", *PLACE, "--lr=9"], "--lr: cannot be '9'"),
        (["--model=cnn", *PLACE, "--epochs=many"], "--epochs: cannot be 'many'"),
        (["--model=mlp", *PLACE, "--target-fpr=1.5"], "--target-fpr"),
        (["--model=mlp", *PLACE, "--seed=-1"], "--seed"),
        (["--model=mlp", *PLACE, f"--seed={2**64}"], "--seed"),
        (["--model=gbt", *PLACE, "--mode=clairvoyant"], "--mode"),
        (["--model=gbt", "--mode=oracle", "--out-dir=o"], "--validation: is missing; give it, or"),
    ],
)
def test_a_wrong_command_line_is_one_error_event(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_job(flags, config.RUN_MODULE)
    assert ended.value.code == config.EXIT_BAD_INPUT
    (line,) = capsys.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["event"], event["kind"]) == ("error", "bad_input")
    assert named in event["message"]


@pytest.mark.parametrize("model", MODELS)
def test_every_model_takes_the_rate_that_its_alarm_aims_at(model: str) -> None:
    """As a hyperparameter: so a manifest can set it, and another rate is another job."""
    hyper = config.TRAINERS[model]
    job = parse_job(["--model", model, *PLACE, "--target-fpr", "0.01"], hyper.module)
    assert job.hyper.target_fpr == 0.01
    assert hyper.model_json_schema()["properties"]["target_fpr"]["default"] == 0.05


def _named(models: list[str]) -> str:
    """Name a set of models shortly: `networks` are all but `gbt`."""
    groups = {tuple(MODELS): "all", tuple(MODELS[1:]): "networks"}
    return groups.get(tuple(models), ", ".join(models))


def _hyperparameter_rows() -> list[str]:
    """Return the rows of the documented table, as they should be."""
    found: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for model, spec in config.TRAINERS.items():
        for name, field in spec.model_fields.items():
            found[name].append((model, field))
    rows = []
    for name, uses in found.items():
        defaults: dict[Any, list[str]] = defaultdict(list)
        for model, field in uses:
            defaults[field.default].append(model)
        shown = "; ".join(f"{value} ({_named(models)})" for value, models in defaults.items())
        meant = dict.fromkeys(str(field.description).rstrip(".") for _, field in uses)
        rows.append(f"| `{config.flag_of(name)}` | {shown} | {' / '.join(meant)} |")
    return rows


def test_the_documentation_is_current() -> None:
    begin = PAGE.index("| hyperparameter |")
    table = PAGE[begin : PAGE.index("\n\n", begin)].splitlines()[2:]
    assert table == _hyperparameter_rows()
    metrics = [name for name in LABELS if not name.startswith("probe_")]
    for name in (*config.TRAINERS, *metrics, "<metric>_ci"):
        assert f"`{name}`" in PAGE
    assert all(name in PAGE for name in STATISTICS)
    for code in (config.EXIT_DONE, config.EXIT_FAILED, config.EXIT_BAD_INPUT, 75):
        assert f"| {code} |" in PAGE
