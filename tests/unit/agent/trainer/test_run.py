"""The programs as their user meets them: events, files, exit codes, repetition, interruption."""

from __future__ import annotations

import ast
import io
import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from agent.trainer.common import config
from agent.trainer.common.errors import BadInputError, DivergedError
from agent.trainer.common.progress import Progress, run_reported
from agent.trainer.evaluation.page import render
from agent.trainer.evaluation.report_schema import Report
from tests.harness import forked
from tests.harness.trainers import files_of, report_in

QUICK = ("--epochs", "2", "--n-resamples", "100")


@pytest.mark.parametrize("model", ["gbt", "mlp", "transformer_ssl"])
def test_the_same_job_gives_the_same_bytes(
    model: str, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    """Two runs of a job leave identical files; they name no path, machine or time.

    Trees do so with any number of threads; in networks it decides the order of sums.
    """
    for name, threads in (("a", "1"), ("b", "2" if model == "gbt" else "1")):
        run_job(model, simulated, tmp_path / name, *QUICK, "--threads", threads)
    first = files_of(tmp_path / "a")
    assert files_of(tmp_path / "b") == first
    weights = "model.ubj" if model == "gbt" else "model.safetensors"
    ours = {"model.json", "MODEL_CARD.md", f"{model}_oracle_train.json"}
    assert set(first) == {weights} | ours
    for name in ours:
        text = first[name].decode()
        assert str(tmp_path) not in text
        assert platform.node() not in text


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize("model", config.TRAINERS)
def test_other_processes_in_other_places_give_the_same_bytes(
    model: str, simulated: Path, tmp_path: Path
) -> None:
    found = []
    for seed in ("1", "2"):
        here = tmp_path / seed
        here.mkdir()
        flags = ("--model", model, "--mode", "oracle", "--threads", "2", *QUICK)
        place = ("--data", str(simulated), "--out-dir", "out")
        subprocess.run(
            [sys.executable, "-m", config.TRAINERS[model].module, *flags, *place],
            cwd=here, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
        found.append(files_of(here / "out"))
    assert found[0] == found[1]


@pytest.mark.system
@pytest.mark.parametrize(
    ("model", "spared"),
    [("gbt", {"torch", "sklearn"}), ("mlp", {"torch._dynamo", "sklearn", "scipy", "xgboost"})],
)
def test_a_training_loads_no_library_that_it_can_do_without(
    model: str, spared: set[str], simulated: Path, tmp_path: Path
) -> None:
    """Each of these would take longer than the training."""
    argv = [f"--model={model}", "--mode=oracle", f"--data={simulated}", f"--out-dir={tmp_path}"]
    code = f"import sys\nfrom agent.trainer.run import main\nassert main({[*argv, *QUICK]}) == 0\n"
    code += f"sys.exit(repr(sorted({spared} & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.system
@pytest.mark.parametrize("model", ["gbt", "mlp"])
def test_a_fork_server_that_loads_the_modules_leaves_none_to_the_job(
    model: str, simulated: Path, tmp_path: Path
) -> None:
    """Each job would load the rest again; what is left are the run itself and trifles."""
    argv = [f"--model={model}", "--mode=oracle", f"--data={simulated}", f"--out-dir={tmp_path}"]
    code = f"import sys\nimport {', '.join(config.TRAINERS[model].modules)}\n"
    code += f"sys.argv = {['run', *argv, *QUICK]}\nbefore = set(sys.modules)\n"
    code += "from agent.trainer.run import main\nassert main() == 0\n"
    code += "sys.exit(repr(sorted(sys.modules.keys() - before)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    loaded = ast.literal_eval(done.stderr.splitlines()[-1])
    heavy = ("agent.", "email", "jinja2", "numpy", "pyarrow", "torch", "xgboost")
    assert [name for name in loaded if name.startswith(heavy)] == ["agent.trainer.run"]


@pytest.mark.parametrize("model", ["gbt", "cnn", "transformer_ssl"])
def test_a_run_tells_its_story_in_events(
    model: str, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    epochs = "20" if model == "gbt" else "2"
    flags = ("--epochs", epochs, "--n-resamples", "100")
    events = run_job(model, simulated, tmp_path, *flags, mode="realistic")
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    assert phases == ["load", "train", "evaluate", "save"]
    progress = [event for event in events if event["event"] == "progress"]
    assert (progress[-1]["epoch"], progress[-1]["epochs"]) == (int(epochs), int(epochs))
    assert progress[-1]["eta_s"] == 0
    assert {"train_loss", "val_loss", "metrics"} <= set(progress[-1])
    result = events[-1]
    report = report_in(tmp_path)
    marks = result["metrics"].pop("marks", [])
    assert marks == [one["code"] for one in report["marks"]]
    assert result["metrics"] == report["metrics"]
    low, high = result["metrics"]["auroc_ci"]
    assert 0 <= low <= result["metrics"]["auroc"] <= high <= 1
    assert {Path(file).name for file in result["files"]} == {p.name for p in tmp_path.iterdir()}


def test_the_report_says_what_was_done(simulated: Path, tmp_path: Path, run_job: Any) -> None:
    out, reports = tmp_path / "out", tmp_path / "reports"
    flags = ("--reports-dir", str(reports), "--train-hosts", "server-01,server-02,server-04")
    run_job("mlp", simulated, out, *QUICK, "--lr", "0.01", "--seed", "3", *flags)
    report = report_in(reports)
    assert report["split"]["hosts"]["test"] == ["server-03", "server-05"]
    assert sorted(report["per_host"]) == ["server-03", "server-05"]
    assert set(report["split"]["hosts"]["training"]) < {"server-01", "server-02", "server-04"}
    assert (report["hyper"]["lr"], report["hyper"]["epochs"], report["seed"]) == (0.01, 2, 3)
    assert report["simulated"] is True
    assert set(report["versions"]) == {"python", "numpy", "torch"}
    assert sum(map(sum, report["confusion"])) == report["split"]["windows"]["test"]
    assert len(report["training"]["curve"]) == report["training"]["epochs_run"] == 2
    assert files_of(out).keys() == {"MODEL_CARD.md", "model.json", "model.safetensors"}


def test_learning_beats_chance_on_hosts_never_seen(
    simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    found = {}
    for mode in config.MODES:
        out = tmp_path / mode
        events = run_job("gbt", simulated, out, "--n-resamples", "0", mode=mode)
        found[mode] = events[-1]["metrics"]["auroc"]
    assert 0.6 < found["realistic"] < found["oracle"] < 1


@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_the_unit_of_a_channel_has_no_say(
    model: str, raw: Any, tmp_path: Path, run_job: Any
) -> None:
    found = []
    for unit in (1.0, 1e-9):

        def change(row: dict[str, Any], unit: float = unit) -> None:
            row["seen"] = row["t"] * 7 % 5 / 5 + ord(row["host"]) / 1e6
            row["hidden"] = unit * (row["label"] + row["t"] * 3 % 7 / 20)

        labels = [at // 20 % 2 for at in range(200)]
        data = raw.of_hosts(dict.fromkeys("abcd", labels), change)
        flags = ("--epochs=10", "--n-resamples=0", "--batch-size=32", "--lr=0.01")
        found.append(run_job(model, data, tmp_path / str(unit), *flags)[-1]["metrics"]["auroc"])
    assert found[0] > 0.9
    assert found[1] == pytest.approx(found[0], abs=0.02)


def test_several_classes_are_trained_on_as_well(raw: Any, tmp_path: Path, run_job: Any) -> None:
    def change(row: dict[str, Any]) -> None:
        row["hidden"] = {"rest": 0.0, "walk": 1.0, "run": 3.0}[row["label"]] + row["t"] % 3

    raw.schema["unlabelled"] = None
    labels = [("rest", "walk", "run")[at // 40 % 3] for at in range(360)]
    data = raw.of_hosts(dict.fromkeys("abcd", labels), change)
    for model in ("gbt", "cnn", "transformer_ssl"):
        epochs = ("--epochs", "12", "--n-resamples", "50")
        metrics = run_job(model, data, tmp_path / model, *epochs)[-1]["metrics"]
        assert next(iter(metrics)) == "auroc"
        assert {"accuracy", "macro_f1_ci", "auroc_ci", "brier"} <= set(metrics)
        assert metrics["balanced_accuracy"] > 0.6


@pytest.mark.parametrize(
    "labels",
    [[-1] * 200, [at // 5 % 2 if at % 5 == 0 else -1 for at in range(200)]],
    ids=["none", "too sparse for any window"],
)
def test_without_a_labelled_window_the_alarm_is_still_set(
    labels: list[int], raw: Any, tmp_path: Path, run_job: Any
) -> None:
    data = raw.of_hosts(dict.fromkeys("abc", labels))
    metrics = run_job("transformer_ssl", data, tmp_path / "ssl", *QUICK)[-1]["metrics"]
    assert metrics["fpr_realised"] is not None
    assert metrics["auroc"] is None
    report = report_in(tmp_path / "ssl")
    assert "no window of class" in report["undefined"]["auroc"]
    points = report["operating_points"]
    assert max(one["fpr"] for one in points) > 0
    assert {one[name] for one in points for name in ("recall", "precision")} == {None}
    card = (tmp_path / "ssl" / "MODEL_CARD.md").read_text("utf-8")
    for text in (card, render(Report.model_validate(report))):
        assert "each counts as normal, so that the false-positive rate is the rate of" in text
    assert "labels are right" not in card
    with pytest.raises(BadInputError, match="no window has a label"):
        run_job("gbt", data, tmp_path / "gbt")


def test_pretraining_takes_no_class_of_several_for_the_anomaly(
    raw: Any, tmp_path: Path, run_job: Any
) -> None:
    """With a single class to train on there is no probe, and nothing to measure by."""
    labels = {host: ["rest"] * 120 for host in "abc"}
    raw.schema["unlabelled"] = None
    data = raw.of_hosts(labels | {"d": ["rest"] * 40 + ["run"] * 40 + ["walk"] * 40})
    with pytest.raises(BadInputError, match="all windows to train on are of class rest"):
        run_job("transformer_ssl", data, tmp_path / "out", *QUICK, "--train-hosts=a,b,c")


def test_a_probe_that_cannot_be_measured_says_why(raw: Any, tmp_path: Path, run_job: Any) -> None:
    labels = {host: [at // 20 % 2 for at in range(120)] for host in "abc"}
    data = raw.of_hosts(labels | {"d": [0] * 120})
    flags = (*QUICK, "--train-hosts=a,b,c")
    metrics = run_job("transformer_ssl", data, tmp_path, *flags)[-1]["metrics"]
    report = report_in(tmp_path)
    assert metrics["probe_auroc"] is None
    assert {name for name, value in metrics.items() if value is None} == set(report["undefined"])
    assert "no window of class anomaly" in report["undefined"]["probe_auroc"]


@pytest.mark.system
@pytest.mark.posix  # SIGTERM cannot be caught elsewhere
@pytest.mark.parametrize(
    ("name", "code"), [("SIGTERM", config.EXIT_INTERRUPTED), ("SIGINT", config.EXIT_CTRL_C)]
)
def test_a_signal_ends_a_training_with_its_own_exit_code(
    name: str, code: int, simulated: Path, tmp_path: Path
) -> None:
    command = [
        "-m", "agent.trainer.run", "--model=gbt", "--mode=oracle", f"--data={simulated}",
        f"--out-dir={tmp_path}", "--threads=1", "--epochs=20000", "--patience=10000", "--lr=0.001",
    ]  # fmt: skip
    with forked.started(command) as child:
        next(line for line in child.stdout if json.loads(line)["event"] == "progress")
        child.send_signal(getattr(signal, name))
        (*_, last) = child.stdout
        assert child.wait() == code
    assert json.loads(last)["message"] == f"interrupted by {name}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
def test_what_libraries_print_does_not_reach_the_events(simulated: Path, tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from agent.trainer import run\n"
        "from agent.trainer.common import files as storage\n"
        "check = storage.check_folders\n"
        "def noisy(*folders):\n"
        "    os.write(1, b'noise from C\\n')\n"
        "    print('noise from Python')\n"
        "    check(*folders)\n"
        "storage.check_folders = noisy\n"
        "sys.exit(run.main(sys.argv[1:]))\n"
    )
    argv = ["--model=gbt", "--mode=oracle", f"--data={simulated}", f"--out-dir={tmp_path}"]
    done = forked.run(["-c", code, *argv, *QUICK])
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()][-1] == "result"
    assert "noise from C" in done.stderr
    assert "noise from Python" in done.stderr


def test_divergence_and_lack_of_memory_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def failing(error: Exception) -> dict[str, Any]:
        stream = io.StringIO()

        def work(_: Progress) -> None:
            raise error

        handler = signal.getsignal(signal.SIGTERM)
        try:
            assert run_reported(Progress(stream), work) == config.EXIT_FAILED
        finally:
            signal.signal(signal.SIGTERM, handler)
        return json.loads(stream.getvalue())

    assert failing(DivergedError("nan"))["kind"] == "diverged"
    assert failing(MemoryError("16 GiB"))["kind"] == "out_of_memory"
    full = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB"
    on_device = failing(torch.OutOfMemoryError(full))
    assert on_device["kind"] == "out_of_memory"
    assert full in on_device["message"]
    with pytest.raises(RuntimeError) as on_processor:
        torch.empty(1 << 55, dtype=torch.uint8)
    assert failing(on_processor.value)["kind"] == "out_of_memory"
    bug = failing(ZeroDivisionError("one\ntwo"))
    assert (bug["kind"], bug["message"]) == ("internal", "ZeroDivisionError: one two")
    assert "Traceback" in capsys.readouterr().err
