"""The trainers' hyperparameters: one model gives command line, schema and checks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from agent.trainer import MODELS
from agent.trainer.common import config
from agent.trainer.common.arguments import parse_job

SEVEN = ("gbt", "mlp", "cnn", "gru", "lstm", "transformer", "transformer_ssl")
PLACE = ("--mode", "oracle", "--data", "data", "--out-dir", "out")


def test_the_seven_trainers_are_described_in_json() -> None:
    """A host announces each trainer with its module and the schema of its hyperparameters."""
    described = json.loads(json.dumps(config.describe()))
    assert tuple(described) == MODELS == SEVEN
    assert described["transformer_ssl"]["module"] == "agent.trainer.run_ssl"
    for entry in described.values():
        assert entry["schema"]["additionalProperties"] is False
        for field in entry["schema"]["properties"].values():
            assert "default" in field
            assert field["description"]
            if field["type"] == "boolean":
                continue
            assert {"minimum", "exclusiveMinimum"} & set(field)
            assert {"maximum", "exclusiveMaximum"} & set(field)


@pytest.mark.system
def test_a_daemon_can_import_the_config_without_numpy_or_torch() -> None:
    """Importing the config in a fresh process loads no numeric library."""
    code = (
        "import sys, agent.trainer.common.config\n"
        "heavy = {'numpy', 'torch', 'xgboost', 'pyarrow', 'sklearn', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("model", SEVEN)
def test_hyperparameters_survive_the_way_through_the_command_line(model: str) -> None:
    """What a job asks for is what the trainer reads, and the rest are its defaults."""
    spec = config.TRAINERS[model]
    hyper = {"lr": 1e-5, "epochs": 3, "patience": 2}
    arguments = config.hyper_arguments(model, hyper)
    assert arguments == ["--epochs", "3", "--lr", "1e-05", "--patience", "2"]
    job = parse_job(["--model", model, *PLACE, *arguments], spec.module)
    assert job.hyper == spec.hyper.model_validate(hyper)


@pytest.mark.parametrize(
    ("model", "hyper"),
    [("gbt", {"batch_size": 8}), ("cnn", {"lr": 2.0}), ("mlp", {"epochs": 0}), ("gru", {"x": 1})],
)
def test_a_hyperparameter_that_is_unknown_or_out_of_range_is_refused(
    model: str, hyper: dict[str, float]
) -> None:
    """The agent gets an error before it starts a process that would only fail."""
    with pytest.raises(ValidationError):
        config.hyper_arguments(model, hyper)


@pytest.mark.parametrize(
    ("model", "flags", "named"),
    [
        ("gbt", ["--batch-size", "8"], "--batch-size: gbt has none"),
        ("cnn", ["--lr", "9"], "--lr: '9'"),
        ("cnn", ["--epochs", "many"], "--epochs: 'many'"),
        ("mlp", ["--target-fpr", "1.5"], "--target-fpr"),
        ("mlp", ["--seed", "-1"], "--seed"),
    ],
)
def test_a_wrong_command_line_is_one_error_event_and_exit_code_2(
    model: str, flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever starts the trainer reads the flag and the remedy from one line of JSON."""
    with pytest.raises(SystemExit) as ended:
        parse_job(["--model", model, *PLACE, *flags], config.RUN_MODULE)
    assert ended.value.code == config.EXIT_BAD_INPUT
    (line,) = capsys.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["event"], event["kind"]) == ("error", "bad_input")
    assert named in event["message"]


def test_target_fpr_is_accepted_by_both_programs() -> None:
    """The rate that the alarm aims at can be chosen for supervised models, too."""
    flags = [*PLACE, "--target-fpr", "0.01"]
    assert parse_job(["--model", "gbt", *flags], config.RUN_MODULE).target_fpr == 0.01
    ssl = parse_job(["--model", "transformer_ssl", *flags], config.RUN_SSL_MODULE)
    assert ssl.target_fpr == 0.01
    assert ssl.hyper.model_dump()["target_fpr"] == 0.01


def test_a_missing_data_folder_is_named_with_its_remedy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without --data, each of the four inputs must be given."""
    argv = ["--model", "gbt", "--mode", "oracle", "--out-dir", "o", "--schema", "s"]
    with pytest.raises(SystemExit):
        parse_job(argv, config.RUN_MODULE)
    assert "--validation: is missing; give it, or --data DIR" in capsys.readouterr().out
