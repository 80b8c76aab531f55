"""What a report holds: `<model>_<mode>_train.json`, as a model that it is checked against.

    python -m agent.trainer.evaluation.report_schema >docs/reference/report.schema.json

Nothing in it is a time, a path or the name of the machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Metrics = dict[str, float | Interval | None]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parts(_Part):
    """How many labelled windows each part has; those that reach over a border belong to none."""

    training: int
    validation: int
    test: int
    purged: int


class HostParts(_Part):
    """The hosts whose windows each part has."""

    training: list[str]
    validation: list[str]
    test: list[str]


class Split(_Part):
    """Who was trained on, and who was not."""

    recipe: Literal["host", "sample", "time"]
    seed: int
    train_hosts: list[str] = Field(description="As asked for; empty: drawn by the seed.")
    windows: Parts
    hosts: HostParts


class Environment(_Part):
    """What else than the last machine had a part in a training."""

    device: str
    threads: int
    torch: str
    compiled: bool = Field(description="By torch.compile.")


class Training(_Part):
    """How the training went."""

    device: str
    compiled: bool = Field(description="By torch.compile.")
    elsewhere: list[Environment] = Field(
        description="Other devices, threads and versions that had a part in it, by a checkpoint."
    )
    best_epoch: int = Field(description="Whose weights were kept (of trees: the round).")
    epochs_run: int
    curve: list[tuple[float, float]] = Field(
        description="Training and validation loss of each epoch (of trees: of each round)."
    )


class Thresholds(_Part):
    """Chosen on validation."""

    decision: float | None = Field(
        description="At or above it a window is called positive: best F1."
    )
    alarm: float | None = Field(description="Above it there is an alarm: the target FPR.")


class Bootstrap(_Part):
    """Where the intervals come from."""

    n_resamples: int
    group: str = Field(description="What was resampled: episodes, or blocks of them.")


class Pretraining(_Part):
    """Self-supervision."""

    windows: int


class Report(_Part):
    """One run: what was trained on what, how it went, and how good the result is."""

    version: Literal[1]
    model: str
    mode: Literal["realistic", "oracle"]
    task: Literal["binary", "multiclass", "unlabelled"]
    classes: list[str] = Field(description="In order; of two, the positive one is last.")
    simulated: bool = Field(description="Whether no real machine was measured.")
    data: Sha256 = Field(description="Of the feature schema, which has those of the data files.")
    split: Split
    hyper: dict[str, Any] = Field(description="All hyperparameters.")
    seed: int
    threads: int = Field(description="With `versions` they decide every byte of the result.")
    versions: dict[str, str]
    training: Training
    metrics: Metrics = Field(description="On the test part, with their 95 % intervals (`_ci`).")
    undefined: dict[str, str] = Field(description="Why a metric is null.")
    thresholds: Thresholds
    target_fpr: float
    bootstrap: Bootstrap
    confusion: list[list[int]] = Field(
        description="Rows of true, columns of called classes, on the test part."
    )
    per_host: dict[str, Metrics] = Field(description="The metrics of each test host.")
    pretraining: Pretraining | None = None
    probe: Metrics | None = Field(
        default=None, description="Of a linear probe on the frozen encoder, where labels exist."
    )


if __name__ == "__main__":
    import json
    import sys

    sys.stdout.write(json.dumps(Report.model_json_schema(), indent=2) + "\n")
