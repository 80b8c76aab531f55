"""A training that was interrupted ends as if it had not been."""

from __future__ import annotations

import io
import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.trainer import run
from agent.trainer.common import config
from agent.trainer.common.arguments import parse_job
from agent.trainer.common.checkpoint import FILE, Checkpoint, Keeper
from agent.trainer.common.progress import Progress
from tests.harness import forked
from tests.harness.trainers import files_of

pytestmark = pytest.mark.posix  # SIGTERM cannot be caught elsewhere

SIX = tuple(name for name in config.TRAINERS if name != "gbt")
SMALL = {
    "mlp": ("--epochs", "8", "--hidden", "16"),
    "cnn": ("--epochs", "5", "--hidden", "8"),
    "gru": ("--epochs", "5", "--hidden", "8", "--layers", "2"),
    "lstm": ("--epochs", "5", "--hidden", "8", "--layers", "2"),
    "transformer": ("--epochs", "5", "--heads", "2", "--head-width", "4"),
    "transformer_ssl": ("--epochs", "5", "--heads", "2", "--head-width", "4"),
}
Events = list[dict[str, Any]]
# The real program, which sends itself a signal at a step; before SIGKILL it keeps every step.
AT_STEP = """
import importlib, os, signal, sys
from agent.trainer.common import checkpoint as keeper
step, steps, how = keeper.Keeper.step, [], signal.Signals[sys.argv[3]]
def counting(self, capture):
    steps.append(1)
    if how is signal.SIGKILL:
        self._every_s = 1e-9
    if len(steps) == int(sys.argv[2]):
        os.kill(os.getpid(), how)
    step(self, capture)
keeper.Keeper.step = counting
sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[4:]))
"""


def train(
    model: str,
    data: Path,
    out: Path,
    *flags: str,
    until: Callable[[Events], bool] | None = None,
    at_step: int | None = None,
    how: str = "SIGTERM",
) -> tuple[int, Events]:
    """Run the real program, with SIGTERM once `until` holds, or a signal at a step."""
    module = config.TRAINERS[model].module
    program = ["-m", module] if at_step is None else ["-c", AT_STEP, module, str(at_step), how]
    command = [
        *program, f"--model={model}", "--mode=oracle", f"--data={data}", f"--out-dir={out}",
        "--threads=1", "--n-resamples=20", "--batch-size=16", *SMALL[model], *flags,
    ]  # fmt: skip
    events: Events = []
    with forked.started(command) as child:
        for line in child.stdout:
            events.append(json.loads(line))
            if until is not None and until(events):
                child.send_signal(signal.SIGTERM)
                until = None
        return child.wait(), events


def epochs_of(events: Events) -> int:
    """How many epochs (or reports of rounds) were told."""
    return sum(event["event"] == "progress" for event in events)


def interrupted(
    model: str, data: Path, folder: Path, *how: dict[str, Any], flags: tuple[str, ...] = ()
) -> dict[str, bytes]:
    """Train, interrupted each time in one of these ways; return the files of the last run."""
    out, flags = folder / "out", (f"--checkpoint-dir={folder / 'kept'}", *flags)
    for number, way in enumerate(how):
        resume = ("--resume",) if number else ()
        code, events = train(model, data, out, *flags, *resume, **way)
        assert code == config.EXIT_INTERRUPTED, events
        assert "checkpoint" in {event["event"] for event in events}
        assert not list(out.iterdir()), "no half model is left"
    code, events = train(model, data, out, *flags, "--resume")
    assert code == config.EXIT_DONE, events
    assert any("going on from" in str(event.get("message")) for event in events)
    return files_of(out)


def test_a_resumed_training_ends_with_the_same_bytes(simulated: Path, tmp_path: Path) -> None:
    assert train("mlp", simulated, tmp_path / "whole")[0] == config.EXIT_DONE
    way = {"until": lambda seen: epochs_of(seen) == 2}
    assert interrupted("mlp", simulated, tmp_path, way) == files_of(tmp_path / "whole")


def test_the_time_left_is_reckoned_from_what_this_process_did(
    simulated: Path, tmp_path: Path
) -> None:
    """What was trained before the interruption took it no time; each epoch takes ten here."""
    out, kept = tmp_path / "out", f"--checkpoint-dir={tmp_path / 'kept'}"
    code, _ = train("mlp", simulated, out, kept, until=lambda seen: epochs_of(seen) == 2)
    assert code == config.EXIT_INTERRUPTED
    seconds = itertools.count(step=10)
    stream = io.StringIO()
    argv = [
        "--model=mlp", "--mode=oracle", f"--data={simulated}", f"--out-dir={out}", "--threads=1",
        "--n-resamples=20", "--batch-size=16", *SMALL["mlp"], kept, "--resume",
    ]  # fmt: skip
    progress = Progress(stream, lambda: float(next(seconds)))
    run.run(parse_job(argv, config.RUN_MODULE), progress)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = {one["epoch"]: one["eta_s"] for one in events if one["event"] == "progress"}
    assert min(told) >= 3
    assert told[8] == 0
    assert 10 <= told[7] < 15, "ten seconds, and no less for the epochs before"


@pytest.mark.slow
@pytest.mark.parametrize("model", SIX)
def test_wherever_it_is_interrupted(model: str, simulated: Path, tmp_path: Path) -> None:
    code, events = train(model, simulated, tmp_path / "whole")
    assert code == config.EXIT_DONE
    whole = files_of(tmp_path / "whole")
    report = json.loads(whole[f"{model}_oracle_train.json"])
    windows = report.get("pretraining", report["split"])["windows"]
    steps = -(-(windows if isinstance(windows, int) else windows["training"]) // 16)
    last = epochs_of(events) * steps
    places = {"first": (1,), "middle": (2 * steps + steps // 2,), "end": (last,)}
    for name, at in (places | {"thrice": (1, steps, steps + 1)}).items():
        (tmp_path / name).mkdir()
        ways = [{"at_step": step} for step in at]
        assert interrupted(model, simulated, tmp_path / name, *ways) == whole, name


def test_a_run_that_is_killed_goes_on_from_its_last_checkpoint(
    simulated: Path, tmp_path: Path
) -> None:
    kept, out = f"--checkpoint-dir={tmp_path / 'kept'}", tmp_path / "out"
    assert train("mlp", simulated, tmp_path / "whole")[0] == config.EXIT_DONE
    code, events = train("mlp", simulated, out, kept, at_step=40, how="SIGKILL")
    assert code not in {config.EXIT_DONE, config.EXIT_INTERRUPTED}
    assert "checkpoint" in {event["event"] for event in events}
    code, events = train("mlp", simulated, out, kept, "--resume")
    assert code == config.EXIT_DONE
    assert any("going on from" in str(event.get("message")) for event in events)
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("spoil", "seed"),
    [
        (lambda _: b"junk", "--seed=0"),
        (lambda data: data[:-10], "--seed=0"),
        (lambda data: data.replace(b'"epoch": 2', b'"epoch": 1'), "--seed=0"),
        (lambda data: data, "--seed=1"),
    ],
)
def test_a_checkpoint_of_no_use_costs_nothing_but_time(
    spoil: Any, seed: str, simulated: Path, tmp_path: Path, run_job: Any
) -> None:
    flags = ("--epochs", "2", "--n-resamples", "20", f"--checkpoint-dir={tmp_path / 'kept'}")
    run_job("mlp", simulated, tmp_path / "a", *flags, seed)
    run_job("mlp", simulated, tmp_path / "b", *flags, "--seed=0")
    path = tmp_path / "kept" / FILE
    path.write_bytes(spoil(path.read_bytes()))
    events = run_job("mlp", simulated, tmp_path / "b", *flags, seed, "--resume")
    told = [event["message"] for event in events if event["event"] == "log"]
    assert any("starts anew" in text for text in told)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_a_disk_that_refuses_costs_the_checkpoint_not_the_training(tmp_path: Path) -> None:
    stream = io.StringIO()
    (tmp_path / "file").write_text("no folder", "utf-8")
    keeper = Keeper(Progress(stream), tmp_path / "file" / "kept")
    keeper.keep(lambda: Checkpoint({"epoch": 1}, b""))
    assert "could not be written" in stream.getvalue()


def test_a_checkpoint_is_kept_every_so_often(tmp_path: Path) -> None:
    now_s, captured = [0.0], []
    keeper = Keeper(Progress(io.StringIO()), tmp_path, every_s=60, clock=lambda: now_s[0])

    def capture() -> Checkpoint:
        captured.append(now_s[0])
        return Checkpoint({"epoch": 1}, b"")

    for now in (10.0, 59.0, 60.0, 61.0, 119.0, 120.5):
        now_s[0] = now
        keeper.step(capture)
    assert captured == [60.0, 120.5]
